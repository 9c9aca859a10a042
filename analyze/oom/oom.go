package oom

import (
	"fmt"
	"sort"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/segments"
	"github.com/gpurec/gpurec/analyze/tree"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
)

// An Answer is a Report in the making.
type Answer struct {
	traces []*Trace

	p        *analyze.Pass
	own      tree.OwnFrames
	t        *Trace
	segments *segments.Tracker
	holdings map[segments.Owner]*holding
	refusals live.Refusals
	tries    map[threadKey]*try
	threads  map[threadKey]*failure // the latest that a thread was told of
	freeing  map[threadKey]freeCall
	readings map[format.Device]*readings
	waiting  []*picture // for the sample after them, and for the ends of frees
	steps    map[format.ProcessID]*steps
	sites    map[format.StackID]site

	failures map[failureKey]*failure
	order    []*failure
	retries  map[retryKey]*Retry
	others   map[otherKey]*Other
	work     int64 // looks at allocations that pictures took
	events   int64
}

type threadKey struct {
	process format.ProcessID
	tid     uint32
}

// failureKey is what makes failures one row.
type failureKey struct {
	process format.ProcessID
	device  format.Device
	stack   format.StackID
	api     format.API
}

// A failure is the latest of a row.
type failure struct {
	failureKey
	out      *Failure
	pic      *picture
	ended    bool
	followed bool // its thread was told of another failure later
}

// New returns an answer.
func New() *Answer { return &Answer{} }

func (a *Answer) Needs() analyze.Needs {
	return analyze.Needs{Pooled: true, Samples: true, Scopes: analyze.ScopesShown}
}

func (a *Answer) Begin(p *analyze.Pass) error {
	*a = Answer{traces: a.traces, p: p, t: &Trace{Path: p.Trace.Path(), Failures: []*Failure{}, Retried: []*Retry{}, start: p.Trace.Meta().Start}, segments: segments.New(p),
		holdings: map[segments.Owner]*holding{}, tries: map[threadKey]*try{}, threads: map[threadKey]*failure{}, freeing: map[threadKey]freeCall{},
		readings: map[format.Device]*readings{}, steps: map[format.ProcessID]*steps{}, sites: map[format.StackID]site{},
		failures: map[failureKey]*failure{}, retries: map[retryKey]*Retry{}, others: map[otherKey]*Other{}}
	a.traces = append(a.traces, a.t)
	a.follow()
	p.State.OnBegin = func(al *live.Allocation, _ *format.Event) {
		a.segments.Begin(al)
		a.hold(al, 1)
	}
	p.State.OnEnd = func(al *live.Allocation, e *format.Event) {
		a.segments.End(al, e)
		a.hold(al, -1)
		a.gaveBack(al, e)
	}
	p.State.OnScopeEnd = func(sc *live.Scope, e *format.Event) {
		if e.Kind == format.ScopeEnd {
			a.stepped(sc)
		}
	}
	return nil
}

func (a *Answer) Event(p *analyze.Pass, e *format.Event) error {
	a.events++
	a.segments.Event(e)
	if p.In || e.Kind != format.AllocFailed {
		a.refusals.Event(e)
	}
	switch e.Kind {
	case format.AllocFailed:
		if p.In {
			a.failed(e)
		}
	case format.Alloc:
		a.succeeded(e)
	case format.FreeDone:
		a.freed(e)
	case format.ProcessEnd:
		a.processEnd(e)
	}
	return nil
}

// A holding is what one process has on one device, by stack.
type holding struct {
	stacks      map[format.StackID]*tree.Amount
	now         tree.Amount
	allocations int64
	byCount     history
	bySteps     history
}

func (a *Answer) holding(o segments.Owner) *holding {
	h := a.holdings[o]
	if h == nil {
		h = &holding{stacks: map[format.StackID]*tree.Amount{}, byCount: history{every: firstAllocations}, bySteps: history{every: 1}}
		a.holdings[o] = h
	}
	return h
}

func (a *Answer) hold(al *live.Allocation, sign int64) {
	n, ok := tree.AmountOf(a.p, al)
	if !ok {
		return
	}
	h := a.holding(segments.Owner{Process: al.Process, Device: al.Device})
	s := h.stacks[al.Stack]
	if s == nil {
		s = &tree.Amount{}
		h.stacks[al.Stack] = s
	}
	for _, to := range []*tree.Amount{s, &h.now} {
		to.Used += sign * n.Used
		to.Acquired += sign * n.Acquired
		to.Blocks += sign * n.Blocks
	}
	if *s == (tree.Amount{}) {
		delete(h.stacks, al.Stack)
	}
	if sign > 0 && n.Blocks > 0 && !a.p.State.Loading() {
		h.allocations++
		h.byCount.tick(h, h.allocations, a.p.State.Now())
	}
}

// A freeCall is a driver call that gives memory back and may not have returned.
type freeCall struct {
	address uint64
	size    int64
	device  format.Device
	at      format.Time
}

func (a *Answer) gaveBack(al *live.Allocation, e *format.Event) {
	if e.Kind != format.Free || al.Layer != format.LayerDriver || al.Class != format.ClassDevice {
		return
	}
	a.freeing[keyOf(e)] = freeCall{e.Address, al.Bytes(), al.Device, e.Time}
	if t := a.tries[keyOf(e)]; t != nil {
		t.freed += al.Bytes()
	}
}

func (a *Answer) freed(e *format.Event) {
	k := keyOf(e)
	f, ok := a.freeing[k]
	if !ok || f.address != e.Address {
		return
	}
	delete(a.freeing, k)
	for _, w := range a.waiting {
		if c, ok := w.freeing[k]; ok && c == f && f.at+format.Time(e.Duration) > w.at {
			w.memory.BeingFreed += f.size
		}
	}
}

func (a *Answer) processEnd(e *format.Event) {
	for k := range a.threads {
		if k.process == e.Process {
			delete(a.threads, k)
		}
	}
	for _, f := range a.order {
		if f.process != e.Process || f.ended {
			continue
		}
		f.ended = true
		at, status := a.p.Since(e.Time), e.Status
		f.out.End, f.out.Status = &at, &status
		switch {
		case status == format.Unknown:
		case f.out.After == 0 && !f.followed && status != 0:
			f.out.Outcome = Fatal
		default:
			f.out.Outcome = Survived
		}
	}
	for o := range a.holdings {
		if o.Process == e.Process {
			delete(a.holdings, o)
		}
	}
	delete(a.steps, e.Process)
}

func (a *Answer) Sample(p *analyze.Pass, r *format.Sample) error {
	a.read(r)
	return nil
}

func (a *Answer) End(p *analyze.Pass) error {
	a.refusals.End()
	for _, f := range a.order {
		f.out.Memory = f.pic.settle()
		a.name(f)
		f.causes(a.p)
		a.t.Failures = append(a.t.Failures, f.out)
	}
	sort.SliceStable(a.t.Failures, func(i, j int) bool {
		x, y := a.t.Failures[i], a.t.Failures[j]
		if (x.Outcome == Fatal) != (y.Outcome == Fatal) {
			return x.Outcome == Fatal
		}
		return x.At > y.At
	})
	for _, r := range a.retries {
		a.t.Retried = append(a.t.Retried, r)
	}
	sort.Slice(a.t.Retried, func(i, j int) bool { return a.t.Retried[i].less(a.t.Retried[j]) })
	for _, o := range a.others {
		a.t.Other = append(a.t.Other, o)
	}
	sort.Slice(a.t.Other, func(i, j int) bool { return a.t.Other[i].less(a.t.Other[j]) })
	return nil
}

func (r *Retry) less(b *Retry) bool {
	if r.First != b.First {
		return r.First < b.First
	}
	return r.Line < b.Line
}

func (o *Other) less(b *Other) bool {
	if o.First != b.First {
		return o.First < b.First
	}
	return o.API < b.API
}

// name fills in what definitions say: of a growing trace they are all there
// only at the end.
func (a *Answer) name(f *failure) {
	p, out := a.p, f.out
	row, known := p.Defs.Process(f.process)
	out.PID, out.Command = row.PID, row.Command
	if known && row.Rank >= 0 {
		out.Rank = &row.Rank
	}
	if d, ok := p.Defs.Device(out.Device); ok {
		out.UUID, out.Name = d.UUID, d.Name
		if out.Memory.Total < 0 && d.Total > 0 {
			out.Memory.Total = d.Total
		}
	}
	s := a.site(f.stack)
	out.Line, out.In = s.line, s.in
	frames, _ := p.Defs.Walk(f.stack, nil)
	for _, id := range frames {
		if fr, ok := p.Defs.Frame(id); ok {
			out.Stack = append(out.Stack, p.Defs.Shown(&fr).String())
		}
	}
	out.CalledBy = out.callers()
	if out.Memory.Segments > 0 {
		out.SegsThen = fmt.Sprintf("gpuanalyze fragmentation --at %s %s", analyze.Exactly(out.At), analyze.Word(p.Trace.Path()))
	}
	out.LiveThen = fmt.Sprintf("gpuanalyze lines --at %s %s", analyze.Exactly(out.At), analyze.Word(p.Trace.Path()))
}

// Report is the answer, after the pass.
func (a *Answer) Report(c *analyze.Completeness) *Report {
	return &Report{Completeness: c, Thresholds: thresholds, Traces: a.traces}
}
