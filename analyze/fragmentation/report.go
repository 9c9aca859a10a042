package fragmentation

import (
	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
)

// A Report is the answer.
type Report struct {
	Completeness *analyze.Completeness `json:"completeness"`
	At           string                `json:"at"`
	Pools        []*Pool               `json:"pools"`
}

// A Pool is one process's on one device, at a moment. Bytes that nobody knows
// are -1; times are nanoseconds since the start.
type Pool struct {
	Trace   string        `json:"trace"`
	PID     int32         `json:"pid"`
	Command string        `json:"command"`
	Device  format.Device `json:"device"`
	UUID    string        `json:"uuid,omitempty"`
	Name    string        `json:"device_name,omitempty"`

	Time       int64   `json:"time_ns"`
	Bytes      int64   `json:"segment_bytes"`
	Occupied   int64   `json:"occupied"`
	Free       int64   `json:"free"`         // in segments
	Pinned     int64   `json:"pinned"`       // of it, in segments that hold a block: they can not be given back
	Share      float64 `json:"pinned_share"` // of the segments' bytes
	Whole      int64   `json:"whole"`        // of it, in segments that can be given back
	Largest    int64   `json:"largest_hole"` // upper bound of what still fits without the driver
	DeviceFree int64   `json:"device_free"`  // by NVML, corrected by what was acquired since its sample: what the driver could still give
	Loose      int64   `json:"outside"`      // bytes of blocks outside every segment

	Pins     []Pin      `json:"pins"`     // the most pinned first
	Segments []*Segment `json:"segments"` // the most pinned first
	History  []Stretch  `json:"history"`
}

// A Pin is a line whose blocks keep segments from being given back.
type Pin struct {
	Line     string `json:"line"` // innermost of the program's own code
	Blocks   int64  `json:"blocks"`
	Bytes    int64  `json:"bytes"`
	Segments int64  `json:"segments"`
	Free     int64  `json:"free"`       // in these segments; other lines may pin them too
	Alone    int64  `json:"free_alone"` // of it, where no other line is
}

// A Segment is what the pool got from the driver in one piece.
type Segment struct {
	Address   string     `json:"address"`
	Bytes     int64      `json:"bytes"`
	Pieces    int        `json:"pieces"` // mappings that follow each other; each can be given back alone
	Line      string     `json:"line"`   // that took it
	Occupied  int64      `json:"occupied"`
	Pinned    int64      `json:"pinned"`
	Largest   int64      `json:"largest_hole"`
	Blocks    int        `json:"blocks"`
	Intervals []Interval `json:"intervals"` // in the order of their addresses
}

// An Interval is a block, or the free memory up to the next.
type Interval struct {
	Offset int64  `json:"offset"`
	Bytes  int64  `json:"bytes"`
	Line   string `json:"line,omitempty"` // of a block
}

// A Stretch is a pool over some time: at the moment of it with most pinned
// bytes, and the fewest there were.
type Stretch struct {
	From   int64   `json:"from_ns"`
	To     int64   `json:"to_ns"`
	Time   int64   `json:"time_ns"` // of the moment
	Bytes  int64   `json:"segment_bytes"`
	Free   int64   `json:"free"`
	Pinned int64   `json:"pinned"`
	Share  float64 `json:"pinned_share"`
	Least  int64   `json:"least_pinned"`
}
