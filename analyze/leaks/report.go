package leaks

import "github.com/gpurec/gpurec/analyze"

// A Report is the answer.
type Report struct {
	Completeness *analyze.Completeness `json:"completeness"`
	Rules        Rules                 `json:"rules"`
	Traces       []*Trace              `json:"traces"`
}

// Rules are the thresholds that the inferred parts of a Report follow.
type Rules struct {
	By              By    `json:"by"`
	FewestStretches int   `json:"fewest_stretches"`
	MostStretches   int   `json:"most_stretches"`
	WarmupPart      int   `json:"warm_up_is_one_in"`
	Parts           int   `json:"parts"`
	Certainty       int   `json:"certainty_percent"`
	Shortest        int64 `json:"shortest_stretch_ns"`
	TemporaryEvents int64 `json:"temporary_events"`       // freed within so many events of the thread that took it
	TemporaryTime   int64 `json:"temporary_ns,omitempty"` // or, where not 0, within so long
	Suppressions    int   `json:"suppressions,omitempty"` // patterns given
	Unused          []int `json:"unused_lines,omitempty"` // lines of the file whose patterns matched nothing
}

// A Trace is one of them. Times are nanoseconds since its start.
type Trace struct {
	Path      string     `json:"path"`
	Processes []*Process `json:"processes"`
}

// A Process is one process that took memory in the window.
type Process struct {
	PID         int32       `json:"pid"`
	Rank        *int32      `json:"rank,omitempty"`
	Command     string      `json:"command"`
	UsedLayer   string      `json:"used_layer"` // which layer its used bytes are: pool or driver
	Ended       bool        `json:"ended"`      // what was live is that of just before its end; else of the window's end
	Until       int64       `json:"until_ns"`   // that moment
	Growth      Growth      `json:"growth"`
	AtEnd       AtEnd       `json:"at_end"`
	Temporaries Temporaries `json:"temporaries"`
	Suppressed  []*Held     `json:"suppressed,omitempty"`
}

// A Site is a place that takes memory.
type Site struct {
	Layer string   `json:"layer"`
	Class string   `json:"class"`
	Name  string   `json:"name"`            // by line and stack the program's own line, by function its function
	Stack []string `json:"stack,omitempty"` // file:line:function, outermost first; by stack only

	own []bool // of Stack: the program's own code
}

// A Growth is which sites hold more and more. It is inferred.
type Growth struct {
	Scope     string     `json:"scope,omitempty"`     // whose turns are the stretches; "" where they are of time
	Turns     int64      `json:"turns,omitempty"`     // of that scope
	Length    int64      `json:"stretch"`             // turns in a stretch, or nanoseconds
	Stretches int        `json:"stretches"`           // that are over
	Warmup    int        `json:"warm_up_stretches"`   // of these, left out
	Unknown   string     `json:"unknown,omitempty"`   // why nothing can be said
	Few       string     `json:"few_turns,omitempty"` // why it is measured by time, where a scope comes round
	Looked    int        `json:"sites"`               // that were looked at
	Growing   []*Growing `json:"growing"`             // the largest rise first
}

// A Growing is a site whose floor rises: the least it held in each stretch.
// Slopes are bytes a turn, or a second where there is no scope.
type Growing struct {
	Site
	Slope float64 `json:"slope"`
	Low   float64 `json:"slope_low"`  // with the certainty of the Rules it is not below
	High  float64 `json:"slope_high"` // and not above
	Rose  int64   `json:"rose"`       // bytes, from the first stretch after the warm-up to the last
	Floor int64   `json:"floor"`      // bytes in the last
	Rises int     `json:"rises"`      // parts of the run in which it rose
	Parts int     `json:"parts"`
}

// An AtEnd is what was live.
type AtEnd struct {
	Sums  []*Sum  `json:"sums"`
	Sites []*Held `json:"sites"` // the largest first
}

// A Sum is what was live of one class at one layer.
type Sum struct {
	Layer  string `json:"layer"`
	Class  string `json:"class"`
	Bytes  int64  `json:"bytes"`
	Blocks int64  `json:"blocks"`
}

// A Held is what one site had not given back.
type Held struct {
	Site
	Bytes  int64 `json:"bytes"`
	Blocks int64 `json:"blocks"`
	Oldest int64 `json:"oldest_ns"` // when the first and the last of these were taken
	Newest int64 `json:"newest_ns"`
	Line   int   `json:"suppressed_by_line,omitempty"` // of the suppressions file

}

// Temporaries are allocations that were given back almost at once.
type Temporaries struct {
	Count int64        `json:"count"`
	Of    int64        `json:"of"` // all allocations in the window
	Bytes int64        `json:"bytes"`
	Sites []*Temporary `json:"sites"` // the most frequent first
}

// A Temporary is one site's.
type Temporary struct {
	Site
	Count   int64 `json:"count"`
	Of      int64 `json:"of"` // allocations of the site in the window
	Bytes   int64 `json:"bytes"`
	Largest int64 `json:"largest"`
}
