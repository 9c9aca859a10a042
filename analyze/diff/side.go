package diff

import (
	"fmt"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/tree"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
)

// A Side is one of the two in the making: an analyze.Answer over one trace.
type Side struct {
	p      *analyze.Pass
	own    tree.OwnFrames
	path   string
	layers bool // asked for by the query

	total     curve
	all       *tree.Set // by stack
	devices   map[format.Device]*curve
	places    map[format.StackID]place
	lines     map[lineKey]*row
	functions map[functionKey]*row
	touched   []*curve

	paths  *tree.Paths
	open   map[format.ScopeID]bool // open scopes; true for those that are compared
	scopes map[string]*Scope
	plain  []string

	deviceRows []format.DeviceRow // after the pass
}

// A curve is bytes of something, and their highest in the window. That is looked
// for when an event is folded as a whole.
type curve struct {
	Measure
	now     int64
	touched bool
}

// A row is a curve with a place of its own.
type row struct {
	curve
	line     int32
	function functionKey
	shown    string // the file, as people are to see it
}

type functionKey struct {
	kind           format.FrameKind
	file, function string
}

type lineKey struct {
	functionKey
	line int32
}

// A place is where a stack's bytes are counted.
type place struct{ line, function *row }

// NewSide returns one of the two.
func NewSide() *Side { return &Side{} }

func (s *Side) Needs() analyze.Needs {
	return analyze.Needs{Pooled: true, Scopes: analyze.ScopesFiltered}
}

func (s *Side) Begin(p *analyze.Pass) error {
	*s = Side{p: p, path: p.Trace.Path(), layers: p.Filtered(analyze.ByLayer), all: tree.NewSet(), devices: map[format.Device]*curve{},
		places: map[format.StackID]place{}, lines: map[lineKey]*row{}, functions: map[functionKey]*row{},
		paths: tree.NewPaths(), open: map[format.ScopeID]bool{}, scopes: map[string]*Scope{}}
	p.CountOnly(analyze.ByAll)
	p.State.OnBegin, p.State.OnEnd, p.State.OnScopeEnd = s.begin, s.end, s.scopeEnds
	return nil
}

// Enter begins with what is live already.
func (s *Side) Enter(*analyze.Pass) {
	s.settle()
	for _, c := range s.curves() {
		c.Peak = c.now
	}
	s.total.Peak = s.total.now
	s.all.Mark()
}

func (s *Side) curves() (cs []*curve) {
	for _, c := range s.devices {
		cs = append(cs, c)
	}
	for _, r := range s.lines {
		cs = append(cs, &r.curve)
	}
	for _, r := range s.functions {
		cs = append(cs, &r.curve)
	}
	return cs
}

func (s *Side) Sample(*analyze.Pass, *format.Sample) error { return nil }

// counts reports whether an allocation is one of those that are compared.
func (s *Side) counts(a *live.Allocation) bool {
	switch {
	case !a.Counted:
		return false
	case s.layers && a.Layer == format.LayerHost:
		return a.Class == format.ClassPinned
	case a.Class != format.ClassDevice:
		return false
	case s.layers:
		return true
	}
	return a.Layer == format.LayerPool == s.p.Pooled(a.Process) && a.Layer != format.LayerHost
}

func (s *Side) begin(a *live.Allocation, e *format.Event) {
	s.paths.Begin(a)
	if !s.counts(a) {
		return
	}
	s.change(a, a.Bytes())
	if s.p.In && e.Kind == format.Alloc {
		at := s.place(a.Stack)
		for _, m := range []*Measure{&s.total.Measure, &s.device(a.Device).Measure, &at.line.Measure, &at.function.Measure} {
			m.Count++
			m.Taken = analyze.Add(m.Taken, a.Bytes())
			m.Largest = max(m.Largest, a.Bytes())
		}
	}
}

func (s *Side) end(a *live.Allocation, e *format.Event) {
	s.paths.End(a)
	if !s.counts(a) {
		return
	}
	if e.Kind == format.ProcessEnd && s.p.In {
		s.left(a)
	}
	s.change(a, -a.Bytes())
}

// left counts what is live just before a process ends, or at the window's end.
func (s *Side) left(a *live.Allocation) {
	at := s.place(a.Stack)
	for _, m := range []*Measure{&s.total.Measure, &s.device(a.Device).Measure, &at.line.Measure, &at.function.Measure} {
		m.End = analyze.Add(m.End, a.Bytes())
	}
}

func (s *Side) change(a *live.Allocation, n int64) {
	s.all.Add(tree.Key{Stack: a.Stack}, tree.Amount{Used: n, Blocks: sign(n)})
	at := s.place(a.Stack)
	for _, c := range []*curve{&s.total, s.device(a.Device), &at.line.curve, &at.function.curve} {
		if c.now += n; !c.touched {
			c.touched = true
			s.touched = append(s.touched, c)
		}
	}
}

func sign(n int64) int64 {
	if n < 0 {
		return -1
	}
	return 1
}

func (s *Side) device(id format.Device) *curve {
	c := s.devices[id]
	if c == nil {
		c = &curve{}
		s.devices[id] = c
	}
	return c
}

// place is where a stack counts. A stack that is not defined, or not yet, has a
// place of that name.
func (s *Side) place(stack format.StackID) place {
	at, ok := s.places[stack]
	if ok {
		return at
	}
	f, ok := s.own.Of(stack, s.p.Defs)
	if !ok {
		f = format.Frame{Kind: format.FrameLabel, Function: "[stack not defined]"}
	}
	f.File, f.Function = f.Source(), f.Name()
	shown := s.p.Defs.Shown(&f).File
	fk := functionKey{f.Kind, f.File, f.Function}
	if !tree.IsLine(f.Kind) {
		f.Line = 0
	}
	lk := lineKey{fk, f.Line}
	if at.function = s.functions[fk]; at.function == nil {
		at.function = &row{function: fk, shown: shown}
		s.functions[fk] = at.function
	}
	if at.line = s.lines[lk]; at.line == nil {
		at.line = &row{function: fk, shown: shown, line: f.Line}
		s.lines[lk] = at.line
	}
	s.places[stack] = at
	return at
}

// settle looks for new highest moments.
func (s *Side) settle() {
	in := s.p.In && !s.p.State.Loading()
	for _, c := range s.touched {
		c.touched = false
		if in && c.now > c.Peak {
			if c.Peak = c.now; c == &s.total {
				s.all.Mark()
			}
		}
	}
	s.touched = s.touched[:0]
}

func (s *Side) Event(p *analyze.Pass, e *format.Event) error {
	if !p.State.Loading() {
		s.settle()
	}
	s.paths.Event(e, p.Defs)
	switch e.Kind {
	case format.ScopeBegin, format.LiveScope:
		if _, known := s.open[e.Scope]; !known { // a checkpoint names it again
			begun := p.In || e.Kind == format.LiveScope && !p.Windowed()
			s.open[e.Scope] = begun && p.Matches(e, analyze.ByProcess|analyze.ByThread|analyze.ByScope)
		}
	}
	return nil
}

// scopeEnds measures a scope of the window.
func (s *Side) scopeEnds(sc *live.Scope, _ *format.Event) {
	compared := s.open[sc.ID]
	delete(s.open, sc.ID)
	if !compared {
		return
	}
	name := s.paths.Label(s.paths.Of(sc.ID))
	out := s.scopes[name]
	if out == nil {
		out = &Scope{}
		s.scopes[name] = out
	}
	m := s.p.State.Measure(sc, s.p.State.UsedCurve(sc))
	out.Count++
	out.Used += m.Used()
	out.Peaked = max(out.Peaked, m.Peaked())
	out.Max = max(out.Max, m.Max)
}

func (s *Side) End(p *analyze.Pass) error {
	for _, sc := range p.State.Scopes() {
		s.scopeEnds(sc, nil)
	}
	p.State.Each(func(a *live.Allocation) bool {
		if s.counts(a) {
			s.left(a)
		}
		return true
	})
	s.all.High(func(k tree.Key, n tree.Amount) {
		at := s.place(k.Stack)
		at.line.AtPeak += n.Used
		at.function.AtPeak += n.Used
		s.total.AtPeak += n.Used
	})
	for _, d := range p.Defs.Devices() {
		s.deviceRows = append(s.deviceRows, d)
	}
	for _, pr := range p.State.Processes() {
		if acq := pr.Acquired(); !p.Pooled(pr.ID) && acq.Count > 0 {
			d, _ := p.Defs.Process(pr.ID)
			s.plain = append(s.plain, fmt.Sprint(d.PID))
		}
	}
	return nil
}

// UsedIsDriver notes the processes whose used bytes are the driver layer's.
func (s *Side) UsedIsDriver(c *analyze.Completeness) {
	if !s.layers {
		c.UsedIsDriver(s.plain)
	}
}
