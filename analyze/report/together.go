package report

import (
	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
)

// together feeds several answers from one pass. The state has room for one
// observer of each kind, which an answer sets when a trace begins: here each
// answer finds that room empty, and what it left there is called in turn.
// Answers that count by different fields of a query cannot go together where
// the query has one of these.
type together []analyze.Answer

func (t together) Needs() (n analyze.Needs) {
	for _, a := range t {
		one := a.Needs()
		n.Pooled = n.Pooled || one.Pooled
		n.Samples = n.Samples || one.Samples
		n.Scopes = max(n.Scopes, one.Scopes)
	}
	return n
}

// observers are what answers set in the state.
type observers struct {
	begin, end []func(*live.Allocation, *format.Event)
	scopeEnd   []func(*live.Scope, *format.Event)
	mapped     []func(*live.Allocation, uint64, int64)
	unmapped   []func(format.ProcessID, uint64)
}

// take moves what an answer has set out of the state.
func (o *observers) take(s *live.State) {
	o.begin = with(o.begin, s.OnBegin, s.OnBegin != nil)
	o.end = with(o.end, s.OnEnd, s.OnEnd != nil)
	o.scopeEnd = with(o.scopeEnd, s.OnScopeEnd, s.OnScopeEnd != nil)
	o.mapped = with(o.mapped, s.OnMap, s.OnMap != nil)
	o.unmapped = with(o.unmapped, s.OnUnmap, s.OnUnmap != nil)
	s.OnBegin, s.OnEnd, s.OnScopeEnd, s.OnMap, s.OnUnmap = nil, nil, nil, nil, nil
}

func with[F any](fs []F, f F, set bool) []F {
	if set {
		fs = append(fs, f)
	}
	return fs
}

func (o *observers) put(s *live.State) {
	s.OnBegin, s.OnEnd = each2(o.begin), each2(o.end)
	s.OnScopeEnd = each2(o.scopeEnd)
	s.OnUnmap = each2(o.unmapped)
	if len(o.mapped) > 0 {
		s.OnMap = func(a *live.Allocation, address uint64, size int64) {
			for _, f := range o.mapped {
				f(a, address, size)
			}
		}
	}
}

// each2 calls all of fs; nil where there is none.
func each2[A, B any](fs []func(A, B)) func(A, B) {
	if len(fs) == 0 {
		return nil
	}
	return func(a A, b B) {
		for _, f := range fs {
			f(a, b)
		}
	}
}

func (t together) Begin(p *analyze.Pass) error {
	var o observers
	for _, a := range t {
		if err := a.Begin(p); err != nil {
			return err
		}
		o.take(p.State)
	}
	o.put(p.State)
	return nil
}

func (t together) Enter(p *analyze.Pass) {
	for _, a := range t {
		if en, ok := a.(analyze.Enterer); ok {
			en.Enter(p)
		}
	}
}

func (t together) Event(p *analyze.Pass, e *format.Event) error {
	for _, a := range t {
		if err := a.Event(p, e); err != nil {
			return err
		}
	}
	return nil
}

func (t together) Sample(p *analyze.Pass, r *format.Sample) error {
	for _, a := range t {
		if err := a.Sample(p, r); err != nil {
			return err
		}
	}
	return nil
}

func (t together) End(p *analyze.Pass) error {
	for _, a := range t {
		if err := a.End(p); err != nil {
			return err
		}
	}
	return nil
}
