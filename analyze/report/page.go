package report

import (
	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
)

// A Page is what the browser gets. Every integer in it is text, but for indexes
// into its own lists. Times are nanoseconds since the start of their trace. What
// is any has the shape of the answer's --json, cut to the largest rows.
type Page struct {
	Title        string                `json:"title"`
	Tool         string                `json:"tool"`
	Limits       string                `json:"limits,omitempty"` // the filters and the window, as they were given
	Completeness *analyze.Completeness `json:"completeness"`
	Traces       []*Trace              `json:"traces"`
	Left         int                   `json:"traces_left_out,omitempty"`
	Nodes        *Nodes                `json:"nodes"`
	Views        []*View               `json:"views"`
	Totals       []*Row                `json:"totals"` // by line, of all traces, all that was ever taken
}

// A Trace is one of them.
type Trace struct {
	Path    string   `json:"path"`
	Summary any      `json:"summary"`
	Curves  []*Curve `json:"curves"`
	Bands   []*Band  `json:"bands"` // contexts, the longest of them, by their begins
	Unbound int      `json:"bands_left_out,omitempty"`
	Names   []*Name  `json:"names"` // contexts by name
	Unnamed int      `json:"names_left_out,omitempty"`
	Single  []*Band  `json:"contexts"` // single ones, the highest peaks
	More    int      `json:"contexts_left_out,omitempty"`
	Devices any      `json:"devices"`
	Runs    int      `json:"runs_left_out,omitempty"`
	Peaks   []*Peak  `json:"peaks"`
	OOM     any      `json:"oom"`
	OOMText []string `json:"oom_text"`
	Leaks   any      `json:"leaks"`
}

// A Curve is one of a device's, in buckets of equal width.
type Curve struct {
	Device string  `json:"device"`
	Curve  string  `json:"curve"` // used, acquired, nvml
	From   integer `json:"from"`
	To     integer `json:"to"`
	Width  integer `json:"width"`
	Max    integer `json:"max"`
	MaxAt  integer `json:"max_at"`
	Least  numbers `json:"least"`
	Most   numbers `json:"most"`
}

// A Band is a context.
type Band struct {
	Name   string  `json:"name"`
	N      int     `json:"n"`
	PID    int32   `json:"pid"`
	Thread uint32  `json:"thread"`
	Depth  int     `json:"depth"`
	Open   bool    `json:"open,omitempty"`
	Begin  integer `json:"begin"`
	End    integer `json:"end"`
	Known  bool    `json:"known"`
	Used   integer `json:"used"`
	Peaked integer `json:"peaked"`
	Max    integer `json:"max"`
}

// A Name is the contexts of one name in one path of names.
type Name struct {
	Name   string  `json:"name"`
	Depth  int     `json:"depth"`
	Count  integer `json:"count"`
	Known  integer `json:"known"`
	Used   integer `json:"used"`
	Peaked integer `json:"peaked"`
	Max    integer `json:"max"`
}

// A Peak is a device at its highest moment.
type Peak struct {
	Device format.Device     `json:"device"`
	Info   any               `json:"info"`   // gpuanalyze peak's, without its tables
	Tables map[string][]*Row `json:"tables"` // by line, own-line, function, scope, size, process
}

// A Row is one of a table. Rest sums up what the table leaves out.
type Row struct {
	Name     string  `json:"name"`
	Used     integer `json:"used"`
	Acquired integer `json:"acquired"`
	Blocks   integer `json:"blocks"`
	OnStack  integer `json:"on_stack"`
	Rest     bool    `json:"rest,omitempty"`
}

// A View is what was live at one moment, or taken in all.
type View struct {
	Kind     string         `json:"kind"`  // peak, moment, total, end
	Trace    int            `json:"trace"` // -1: all of them
	Device   *format.Device `json:"device,omitempty"`
	At       integer        `json:"at"`
	Used     integer        `json:"used"`
	Acquired integer        `json:"acquired"`
	Flame    *Flame         `json:"flame"`
}
