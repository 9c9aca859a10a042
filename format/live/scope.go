package live

import (
	"sort"

	"github.com/gpurec/gpurec/format"
)

// A CurveKind is one of the curves that scopes are measured on.
type CurveKind uint8

const (
	CurveAcquired CurveKind = iota // the process's driver layer
	CurvePool                      // the process's pool layer
	CurveNVML                      // NVML's used bytes of the scope's device, of all sampled devices where it has none
	curveKinds
)

// A Scope is a measured block. While it is open it belongs to the State; a
// copy may be kept.
type Scope struct {
	ID      format.ScopeID
	Parent  format.ScopeID
	Process format.ProcessID
	Thread  uint32
	Device  format.Device
	API     format.API
	Flags   format.Flags
	Name    format.NameID
	Domain  format.NameID
	Stack   format.StackID
	Begin   format.Time
	Late    bool // it began before the first row there is, and its begin values are those of that row

	begin [curveKinds]int64
	seq   uint64
	epoch uint32
}

// A Measure is a scope on one curve, up to now.
type Measure struct {
	Known           bool // false on the NVML curve without a sample
	Begin, End, Max int64
}

// Used is what the scope left: U(end) − U(begin).
func (m Measure) Used() int64 { return m.End - m.Begin }

// Peaked is what it needed beyond both of its ends, and so never negative.
func (m Measure) Peaked() int64 { return m.Max - max(m.Begin, m.End) }

func (sc *Scope) onTotal() bool { return sc.Device == format.NoDevice }

func (s *State) curve(sc *Scope, c CurveKind) *tracker {
	switch c {
	case CurveAcquired:
		return &s.process(sc.Process).acquired
	case CurvePool:
		return &s.process(sc.Process).pool
	}
	if sc.onTotal() {
		return &s.nvmlTotal
	}
	return &s.device(sc.Device).nvml
}

// Scope returns an open scope, nil if there is none of that id.
func (s *State) Scope(id format.ScopeID) *Scope { return s.scopes[id] }

// Measure is what an open scope has seen so far on one curve.
func (s *State) Measure(sc *Scope, c CurveKind) Measure {
	t := s.curve(sc, c)
	m := Measure{Known: true, Begin: sc.begin[c], End: t.Now, Max: t.maxSince(sc.seq)}
	if c == CurveNVML {
		m.Known = s.hasSample && (sc.onTotal() || s.device(sc.Device).Sampled)
	}
	return m
}

// UsedCurve is the curve of used bytes of sc's process.
func (s *State) UsedCurve(sc *Scope) CurveKind {
	if s.usesPool(s.process(sc.Process)) {
		return CurvePool
	}
	return CurveAcquired
}

// Scopes returns the open scopes in the order of their begins.
func (s *State) Scopes() []*Scope {
	scs := make([]*Scope, 0, len(s.scopes))
	for _, sc := range s.scopes {
		scs = append(scs, sc)
	}
	sort.Slice(scs, func(i, j int) bool { return scs[i].seq < scs[j].seq })
	return scs
}

func (s *State) scopeBegin(e *format.Event) {
	if s.scopes[e.Scope] != nil {
		return // an id begins once
	}
	sc := newScope(e)
	s.scopes[e.Scope] = sc
	s.startMeasure(sc)
}

func newScope(e *format.Event) *Scope {
	return &Scope{ID: e.Scope, Parent: e.Parent, Process: e.Process, Thread: e.Thread, Device: e.Device, API: e.API,
		Flags: e.Flags, Name: e.Name, Domain: e.Note, Stack: e.Stack, Begin: e.Time}
}

func (s *State) startMeasure(sc *Scope) {
	s.scopeSeq++
	sc.seq = s.scopeSeq
	for c := range curveKinds {
		t := s.curve(sc, c)
		sc.begin[c] = t.Now
		t.begin(sc.seq, t.Now)
	}
}

func (s *State) stopMeasure(sc *Scope) {
	for c := range curveKinds {
		s.curve(sc, c).end(sc.seq)
	}
}

func (s *State) scopeEnd(e *format.Event) {
	if sc := s.scopes[e.Scope]; sc != nil {
		s.closeScope(sc, e)
	}
}

func (s *State) closeScope(sc *Scope, e *format.Event) {
	if s.OnScopeEnd != nil {
		s.OnScopeEnd(sc, e)
	}
	s.stopMeasure(sc)
	delete(s.scopes, sc.ID)
}

func (s *State) scopeReset(e *format.Event) {
	if sc := s.scopes[e.Scope]; sc != nil {
		s.stopMeasure(sc)
		s.startMeasure(sc)
	}
}

// endScopes closes what a process left open, before its memory ends.
func (s *State) endScopes(p format.ProcessID, e *format.Event) {
	if len(s.scopes) == 0 {
		return
	}
	for _, sc := range s.Scopes() {
		if sc.Process == p {
			s.closeScope(sc, e)
		}
	}
}
