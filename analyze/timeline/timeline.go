package timeline

import (
	"fmt"
	"strings"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/tree"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
)

// By is what has a series.
type By string

const (
	ByDevice   By = "device"
	ByLayer    By = "layer" // each layer and class
	ByClass    By = "class" // what was taken from the driver or of the host, by class
	ByProcess  By = "process"
	ByScope    By = "scope" // the scope in which it was taken, as a path of names
	ByLine     By = "line"
	ByOwnLine  By = "own-line"
	ByFunction By = "function"
)

var bys = []By{ByDevice, ByLayer, ByClass, ByProcess, ByScope, ByLine, ByOwnLine, ByFunction}

// ParseBy reads what has a series.
func ParseBy(s string) (By, error) {
	var names []string
	for _, b := range bys {
		if string(b) == s {
			return b, nil
		}
		names = append(names, string(b))
	}
	return "", fmt.Errorf("%q is none of %s", s, strings.Join(names, ", "))
}

// Curve is which bytes are followed. By layer and class it does not count.
type Curve string

const (
	Used     Curve = "used"
	Acquired Curve = "acquired"
	NVML     Curve = "nvml" // of devices only
)

// ParseCurve reads the name of a curve.
func ParseCurve(s string) (Curve, error) {
	switch c := Curve(s); c {
	case Used, Acquired, NVML:
		return c, nil
	}
	return "", fmt.Errorf("%q is none of used, acquired, nvml", s)
}

// What a timeline is asked for.
type Options struct {
	By     By
	Curve  Curve
	Points int // at most so many buckets
	Top    int // so many series by scope, line, own line and function; 0 is all
}

// An Answer is a Report in the making.
type Answer struct {
	Options
	out   Report
	plain []string // pids without a pool, of all traces

	p       *analyze.Pass
	names   *tree.Names
	paths   *tree.Paths
	path    tree.Path // of the allocation that an observer is told of
	grid    *grid     // nil before the window
	entries map[id]*entry
	order   []*entry
	stacks  map[format.StackID]*entry // by line, own line and function: a line has many
	total   *entry
	touched []*entry
	last    *entry
}

// An id is what a series is of: of these what By asks for. A stack stands for
// its line where its definition is not there yet.
type id struct {
	device  format.Device
	process format.ProcessID
	layer   format.Layer
	class   format.Class
	path    tree.Path
	stack   format.StackID
	name    string
}

// An entry is an id's bytes, before it is a series.
type entry struct {
	id
	now     int64
	touched bool
	series  *series
}

// New returns an answer.
func New(o Options) *Answer {
	return &Answer{Options: o, out: Report{By: o.By, Curve: o.Curve, Traces: []*Trace{}}}
}

func (a *Answer) Needs() analyze.Needs {
	n := analyze.Needs{Pooled: a.Curve == Used && a.By != ByLayer && a.By != ByClass, Samples: a.Curve == NVML, Scopes: analyze.ScopesFiltered}
	if a.By == ByScope {
		n.Scopes = analyze.ScopesShown
	}
	return n
}

func (a *Answer) Begin(p *analyze.Pass) error {
	a.p, a.paths, a.grid, a.names = p, tree.NewPaths(), nil, tree.NewNames(lines[a.By], p.Defs)
	a.entries, a.order, a.stacks = map[id]*entry{}, nil, map[format.StackID]*entry{}
	a.touched, a.last, a.total = nil, nil, nil
	if a.sums() {
		a.total = a.entry(id{name: totalName})
	}
	if a.Curve == NVML {
		return nil
	}
	p.CountOnly(analyze.ByAll)
	p.State.OnBegin = func(al *live.Allocation, _ *format.Event) {
		a.path = a.paths.Begin(al)
		a.change(al, 1)
	}
	p.State.OnEnd = func(al *live.Allocation, _ *format.Event) {
		a.path = a.paths.End(al)
		a.change(al, -1)
	}
	return nil
}

// sums reports whether the series are parts of one sum.
func (a *Answer) sums() bool { return a.By != ByDevice && a.By != ByLayer && a.By != ByClass }

func (a *Answer) change(al *live.Allocation, sign int64) {
	n := sign * a.bytes(al)
	if n == 0 {
		return
	}
	a.move(a.entryOf(al), n)
	if a.total != nil {
		a.move(a.total, n)
	}
}

func (a *Answer) bytes(al *live.Allocation) int64 {
	switch {
	case !al.Counted || a.By == ByClass && al.Layer == format.LayerPool:
		return 0
	case a.By == ByLayer || a.By == ByClass:
		return al.Bytes()
	}
	n, _ := tree.AmountOf(a.p, al)
	if a.Curve == Acquired {
		return n.Acquired
	}
	return n.Used
}

func (a *Answer) entryOf(al *live.Allocation) *entry {
	switch a.By {
	case ByDevice:
		return a.entry(id{device: al.Device})
	case ByLayer:
		return a.entry(id{layer: al.Layer, class: al.Class})
	case ByClass:
		return a.entry(id{class: al.Class})
	case ByProcess:
		return a.entry(id{process: al.Process})
	case ByScope:
		return a.entry(id{path: a.path})
	}
	e := a.stacks[al.Stack]
	if e == nil {
		k := id{stack: al.Stack}
		if name, ok := a.line(al.Stack); ok {
			k = id{name: name}
		}
		e = a.entry(k)
		a.stacks[al.Stack] = e
	}
	return e
}

// line is a stack's name, and whether its definition is there.
func (a *Answer) line(s format.StackID) (string, bool) { return a.names.Of(s) }

var lines = map[By]tree.By{ByLine: tree.ByLine, ByOwnLine: tree.ByOwnLine, ByFunction: tree.ByFunction}

func (a *Answer) entry(k id) *entry {
	if a.last != nil && a.last.id == k {
		return a.last
	}
	e := a.entries[k]
	if e == nil {
		e = &entry{id: k}
		a.entries[k] = e
		a.order = append(a.order, e)
		if a.grid != nil {
			e.series = a.grid.begin(0, a.grid.from)
		}
	}
	a.last = e
	return e
}

func (a *Answer) move(e *entry, n int64) {
	e.now += n
	if !e.touched {
		e.touched = true
		a.touched = append(a.touched, e)
	}
}

// Enter begins the window with what is live then. Samples may have begun it; a
// scope's begins with its first event.
func (a *Answer) Enter(p *analyze.Pass) {
	if _, known := p.From(); a.grid == nil && (known || !p.Windowed()) {
		a.enter(p, p.State.Now())
	}
}

func (a *Answer) enter(p *analyze.Pass, now format.Time) {
	from := p.Start()
	if t, known := p.From(); known {
		from = max(from, t)
	} else if p.Windowed() {
		from = now
	}
	to := p.Trace.Meta().End
	if t, known := p.To(); known && (to == 0 || t < to) {
		to = t
	}
	a.grid = newGrid(from, to, a.Points)
	for _, e := range a.order {
		e.touched = false
		e.series = a.grid.begin(e.now, max(now, from))
	}
	a.touched = a.touched[:0]
}

func (a *Answer) Event(p *analyze.Pass, e *format.Event) error {
	a.paths.Event(e, p.Defs)
	if a.grid == nil && p.In {
		a.enter(p, p.State.Now())
	}
	if a.grid == nil || len(a.touched) == 0 || p.State.Loading() {
		return nil
	}
	for _, e := range a.touched {
		e.touched = false
		a.grid.set(e.series, p.State.Now(), e.now)
	}
	a.touched = a.touched[:0]
	return nil
}

// Sample follows a device's reading. What is not known before the first one is
// taken to have been as it was then.
func (a *Answer) Sample(p *analyze.Pass, r *format.Sample) error {
	if a.Curve != NVML || r.Process != 0 || r.Used < 0 || !p.Matches(&format.Event{Device: r.Device}, analyze.ByDevice) {
		return nil
	}
	from, known := p.From()
	if a.grid == nil && (!p.Windowed() || known && r.Time >= from) {
		a.enter(p, from)
	}
	k := id{device: r.Device}
	e := a.entries[k]
	switch {
	case e == nil:
		e = &entry{id: k, now: r.Used}
		a.entries[k] = e
		a.order = append(a.order, e)
		if a.grid != nil {
			e.series = a.grid.begin(r.Used, r.Time)
		}
	case a.grid != nil:
		a.grid.set(e.series, r.Time, r.Used)
	}
	e.now = r.Used
	if a.grid != nil && r.PeakUsed > r.Used {
		a.grid.set(e.series, r.Time, r.Used)
		a.grid.touch(e.series, r.Time, r.PeakUsed)
	}
	return nil
}
