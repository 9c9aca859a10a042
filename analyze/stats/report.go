package stats

import "github.com/gpurec/gpurec/analyze"

// A Report is the answer.
type Report struct {
	Completeness *analyze.Completeness `json:"completeness"`
	Traces       []*Trace              `json:"traces"`
}

// A Trace is one of them. Times are nanoseconds since its start.
type Trace struct {
	Path      string     `json:"path"`
	Processes []*Process `json:"processes"`
}

// A Process is one process that took memory in the window.
type Process struct {
	PID       int32     `json:"pid"`
	Rank      *int32    `json:"rank,omitempty"`
	Command   string    `json:"command"`
	UsedLayer string    `json:"used_layer"` // which layer its used bytes are, its lines and kinds: pool or driver
	Rate      Rate      `json:"rate"`       // of the used layer
	Memory    []*Memory `json:"memory"`
	APIs      []*API    `json:"apis"`
	Pools     []*Pool   `json:"pools"`
	Lines     []*Line   `json:"lines"` // the most bytes first
	Kinds     Kinds     `json:"kinds"`
}

// A Rate is how fast memory was taken between the first and the last allocation.
type Rate struct {
	First     int64   `json:"first_ns"`
	Last      int64   `json:"last_ns"`
	Count     int64   `json:"count"`
	Bytes     int64   `json:"bytes"`
	PerSecond float64 `json:"per_second"`
	Busiest   int64   `json:"busiest_second"` // allocations in it; seconds are counted from the trace's start
	BusiestAt int64   `json:"busiest_second_ns"`
}

// A Memory is one class at one layer.
type Memory struct {
	Layer     string `json:"layer"`
	Class     string `json:"class"`
	Count     int64  `json:"count"` // taken in the window
	Bytes     int64  `json:"bytes"`
	Smallest  int64  `json:"smallest"`
	Largest   int64  `json:"largest"`
	Sizes     []*Bin `json:"sizes"`     // of what was taken
	Lifetimes []*Bin `json:"lifetimes"` // of what was given back, the last bin what was not
}

// A Bin is a range of sizes in bytes, or of lifetimes in nanoseconds.
type Bin struct {
	From  int64  `json:"from"`
	Below *int64 `json:"below,omitempty"` // nil: there is no end
	Kept  bool   `json:"kept,omitempty"`  // live at the window's end, or just before the process's
	Count int64  `json:"count"`
	Bytes int64  `json:"bytes"`
}

// An API is one function that takes or gives back.
type API struct {
	Name    string `json:"name"`
	Taken   int64  `json:"taken"` // calls that took memory, a mapping of it or a reference to it
	Given   int64  `json:"given_back"`
	Failed  int64  `json:"failed"` // attempts to take, and refused frees
	Bytes   int64  `json:"bytes_taken"`
	Timed   int64  `json:"timed"`   // calls of which the duration is known; of frees those over 10 µs
	Time    int64  `json:"time_ns"` // spent in them
	Longest int64  `json:"longest_ns"`
}

// A Pool is a framework's pool: how often it had to ask the driver. A miss is an
// allocation in memory that the same thread took from the driver since its
// allocation before.
type Pool struct {
	Name      string  `json:"name"`
	Count     int64   `json:"count"`
	Misses    int64   `json:"misses"`
	HitRatio  float64 `json:"hit_ratio"`
	Bytes     int64   `json:"bytes"`
	MissBytes int64   `json:"miss_bytes"`
}

// A Line is a line of the program's own code, at the used layer.
type Line struct {
	Name     string `json:"name"`
	Count    int64  `json:"count"`
	Bytes    int64  `json:"bytes"`
	Largest  int64  `json:"largest"`
	Given    int64  `json:"given_back"`
	Lifetime int64  `json:"mean_lifetime_ns"` // of those; -1 where there are none
}

// Kinds are what memory is for. They are inferred.
type Kinds struct {
	Unknown string   `json:"unknown,omitempty"` // why nothing can be said
	Kinds   []*Kind  `json:"kinds"`
	Peak    int64    `json:"peak"` // of the process's used bytes
	PeakAt  int64    `json:"peak_ns"`
	AtPeak  []*Phase `json:"at_peak"` // adds up to Peak
}

// A Kind is one use of memory.
type Kind struct {
	Name  string `json:"name"`
	Count int64  `json:"count"`
	Bytes int64  `json:"bytes"`
	Mean  int64  `json:"mean_live"` // bytes live on average from the first allocation to the end
}

// A Phase is what was taken while the program did one thing.
type Phase struct {
	Name  string `json:"name"` // forward, backward, optimizer, outside
	Bytes int64  `json:"bytes"`
}
