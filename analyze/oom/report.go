package oom

import (
	"time"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
)

// A Report is the answer.
type Report struct {
	Completeness *analyze.Completeness `json:"completeness"`
	Thresholds   Thresholds            `json:"thresholds"`
	Traces       []*Trace              `json:"traces"`
}

// A Trace is one of them. Times are nanoseconds since its start.
type Trace struct {
	Path     string     `json:"path"`
	Failures []*Failure `json:"failures"`          // the program was told: fatal ones first, then the latest first
	Retried  []*Retry   `json:"retried"`           // the driver refused, and a retry worked
	Other    []*Other   `json:"other,omitempty"`   // failed for another reason than device memory
	Skipped  int64      `json:"skipped,omitempty"` // failures whose numbers were not taken: see Failure.Count

	start time.Time
}

// A Failure is failures of one process, device and stack; Count says how many.
// The numbers are those of the latest.
type Failure struct {
	PID     int32         `json:"pid"`
	Rank    *int32        `json:"rank,omitempty"`
	Command string        `json:"command"`
	Thread  uint32        `json:"thread"`
	Device  format.Device `json:"device"` // -1 unknown
	UUID    string        `json:"uuid,omitempty"`
	Name    string        `json:"device_name,omitempty"`

	Count         int64    `json:"count"`
	First         int64    `json:"first_ns"`
	At            int64    `json:"at_ns"`
	Reporter      string   `json:"reporter"`                 // who told the program: torch.oom, cupy, cuMemAlloc_v2
	Asked         int64    `json:"asked"`                    // bytes
	Driver        *int64   `json:"asked_driver,omitempty"`   // bytes that the driver was asked for; nil where it was not asked
	Refusals      int64    `json:"refusals"`                 // how often the driver refused this request
	Line          string   `json:"line"`                     // innermost line of the program's own code
	In            string   `json:"in,omitempty"`             // innermost line of all, where it is another
	Stack         []string `json:"stack,omitempty"`          // outermost first
	CalledBy      []string `json:"called_by,omitempty"`      // the next lines outside Line, which may be a wrapper that all requests go through
	Scope         []string `json:"scope,omitempty"`          // outermost first
	ScopeInferred bool     `json:"scope_inferred,omitempty"` // of a thread without scopes: see analyze.Inferred

	Outcome Outcome `json:"outcome"`
	End     *int64  `json:"process_end_ns,omitempty"`
	Status  *int32  `json:"process_status,omitempty"`
	After   int64   `json:"allocations_after"` // that its thread made afterwards

	Memory   Memory   `json:"memory"`
	Holders  []Holder `json:"holders"`
	Wrapper  string   `json:"wrapper,omitempty"` // the line that nearly all live memory came by, from several callers: --hide shows these
	Growth   *Growth  `json:"growth,omitempty"`
	Pins     []Pin    `json:"pins,omitempty"`
	Causes   []Cause  `json:"causes"` // the first is the one that the headline names
	Remedies []string `json:"remedies"`
	LiveThen string   `json:"live_then"`               // the command that shows all that was live
	SegsThen string   `json:"segments_then,omitempty"` // the command that shows the pool's segments

	start time.Time // of the recording
}

// An Outcome is what became of the program, inferred from what came after.
type Outcome string

const (
	Fatal    Outcome = "fatal"    // its thread allocated nothing more, and the process ended with a status other than 0
	Survived Outcome = "survived" // its thread went on allocating, or the process ended well
	Open     Outcome = "open"     // the recording or the window ends before it is known
)

// A Memory is where the device's bytes were. Unknown is -1.
type Memory struct {
	Total      int64       `json:"total"` // that programs can have: NVML's total less what it reserves
	Free       int64       `json:"free"`  // by the driver with its refusal, else by NVML
	Reading    *Reading    `json:"reading,omitempty"`
	Process    int64       `json:"process"`               // by NVML
	Acquired   int64       `json:"acquired"`              // taken from the driver
	Used       int64       `json:"used"`                  // handed out by the pool
	UsedLayer  string      `json:"used_layer"`            // pool or driver
	Segments   int64       `json:"segments"`              // what the pool took from the driver
	Cached     int64       `json:"cached"`                // free in segments
	Pinned     int64       `json:"cached_pinned"`         // of it, in segments that a block keeps from being given back
	Largest    int64       `json:"largest_hole"`          // upper bound of what the pool had in one piece: streams and private pools are not visible
	Loose      int64       `json:"used_outside_segments"` // of stream-ordered pools: what they took from the driver is not recorded
	Outside    int64       `json:"outside_pool"`          // acquired outside segments
	Untracked  int64       `json:"untracked"`             // NVML's bytes for the process less acquired: context, modules, what is not recorded
	BeingFreed int64       `json:"being_freed"`           // in calls that free and had not returned
	Others     int64       `json:"others"`                // other processes and the driver itself
	AtMost     bool        `json:"others_at_most"`        // without NVML's word on each recorded process, contexts are in Others
	Recorded   []Neighbour `json:"others_recorded"`       // other processes that are in the trace
	Allocated  int64       `json:"torch_allocated"`       // PyTorch's own sums, with its report
	Reserved   int64       `json:"torch_reserved"`
}

// A Neighbour is another process on the device.
type Neighbour struct {
	PID      int32  `json:"pid"`
	Command  string `json:"command"`
	Acquired int64  `json:"acquired"`
}

// A Reading is the NVML sample that Memory.Free is from: of those before and after the
// failure the one since which, or until which, the recorded processes took or
// gave back less.
type Reading struct {
	Distance  int64 `json:"distance_ns"` // sample's time less the failure's
	Corrected int64 `json:"corrected"`   // bytes that the recorded processes took between it and the failure
}

// A Holder is a line and what it had of the process's used bytes.
type Holder struct {
	Line   string  `json:"line"`
	In     string  `json:"in,omitempty"`
	Bytes  int64   `json:"bytes"`
	Share  float64 `json:"share"`
	Blocks int64   `json:"blocks"`

	stacks int
}

// A Growth is what rose until the failure.
type Growth struct {
	By    string `json:"by"` // step: ends of a scope; allocations: every so many
	Scope string `json:"scope,omitempty"`
	From  int64  `json:"from"` // number of the step, or of the allocation
	To    int64  `json:"to"`
	FromT int64  `json:"from_ns"`
	ToT   int64  `json:"to_ns"`
	Used  int64  `json:"used"` // change of all used bytes in between
	Lines []Grew `json:"lines"`
}

// Steps is how many there are between From and To.
func (g *Growth) Steps() int64 { return g.To - g.From }

// A Grew is a line that rose.
type Grew struct {
	Line  string `json:"line"`
	In    string `json:"in,omitempty"`
	Bytes int64  `json:"bytes"`
	Rises int    `json:"rises"` // of the intervals between the looks at it
	Looks int    `json:"intervals"`
}

// A Pin is a line whose blocks keep segments from being given back.
type Pin struct {
	Line     string `json:"line"`
	In       string `json:"in,omitempty"`
	Blocks   int64  `json:"blocks"`
	Bytes    int64  `json:"bytes"`
	Segments int64  `json:"segments"`
	Free     int64  `json:"free"`
	Alone    int64  `json:"free_alone"` // of it, in segments that no other line is in
}

// A Retry is refusals that the program never knew of.
type Retry struct {
	PID     int32         `json:"pid"`
	Device  format.Device `json:"device"`
	API     string        `json:"api"`
	Line    string        `json:"line"`
	In      string        `json:"in,omitempty"`
	Count   int64         `json:"count"`
	First   int64         `json:"first_ns"`
	Last    int64         `json:"last_ns"`
	Largest int64         `json:"largest"` // asked for
	Freed   int64         `json:"freed"`   // given back to the driver for them
	Took    int64         `json:"took_ns"` // from the first refused call to the one that worked
}

// An Other is allocations that failed for another reason.
type Other struct {
	PID    int32  `json:"pid"`
	API    string `json:"api"`
	Status int32  `json:"status"`
	Host   bool   `json:"host,omitempty"` // pinned host memory
	Count  int64  `json:"count"`
	First  int64  `json:"first_ns"`
}
