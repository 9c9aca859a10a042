package stats

import (
	"fmt"
	"sort"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/tree"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
)

const fields = analyze.ByAll

// An Answer is a Report in the making.
type Answer struct {
	traces []*Trace

	p      *analyze.Pass
	procs  map[format.ProcessID]*process
	order  []*process
	last   *process
	paths  *tree.Paths
	phases map[phaseKey]phase
	names  map[format.StackID]string
	own    tree.OwnFrames
	ids    []format.FrameID
	said   analyze.Memo[format.FrameID, phase] // by frames, as phaseOfFrame has it
	spans  map[lane]span
	recent recent
	plain  []string
}

// A process is what is known of one.
type process struct {
	id     format.ProcessID
	rate   rate
	memory map[memoryKey]*memory
	apis   map[format.API]*API
	pools  map[format.API]*Pool
	lines  map[string]*line
	kinds  kinds
}

// New returns an answer.
func New() *Answer { return &Answer{} }

func (a *Answer) Needs() analyze.Needs {
	return analyze.Needs{Pooled: true, Scopes: analyze.ScopesShown}
}

func (a *Answer) Begin(p *analyze.Pass) error {
	*a = Answer{traces: a.traces, plain: a.plain, p: p, procs: map[format.ProcessID]*process{}, paths: tree.NewPaths(),
		phases: map[phaseKey]phase{}, names: map[format.StackID]string{}, spans: map[lane]span{}}
	p.CountOnly(fields)
	p.State.OnBegin, p.State.OnEnd = a.begin, a.end
	return nil
}

func (a *Answer) process(id format.ProcessID) *process {
	if a.last != nil && a.last.id == id {
		return a.last
	}
	pr := a.procs[id]
	if pr == nil {
		pr = &process{id: id, memory: map[memoryKey]*memory{}, apis: map[format.API]*API{}, pools: map[format.API]*Pool{}, lines: map[string]*line{}}
		a.procs[id] = pr
		a.order = append(a.order, pr)
	}
	a.last = pr
	return pr
}

// used reports whether an allocation stands in used bytes.
func (a *Answer) used(al *live.Allocation) bool {
	n, ok := tree.AmountOf(a.p, al)
	return ok && n.Blocks > 0
}

// line is the line that a stack is best known by.
func (a *Answer) line(p *process, stack format.StackID) *line {
	name, known := a.names[stack]
	if !known {
		if f, ok := a.own.Of(stack, a.p.Defs); ok {
			name = a.p.Defs.Shown(&f).String()
			a.names[stack] = name
		} else {
			name = "[stack not defined]" // yet
		}
	}
	l := p.lines[name]
	if l == nil {
		l = &line{name: name}
		p.lines[name] = l
	}
	return l
}

func (a *Answer) begin(al *live.Allocation, e *format.Event) {
	path := a.paths.Begin(al)
	if !al.Counted {
		return
	}
	pr := a.process(al.Process)
	used := a.used(al)
	ph := outside
	if used {
		ph = a.phaseOf(phaseKey{path, al.Stack})
		pr.kinds.change(ph, al.Bytes())
	}
	if e.Kind == format.FreeFailed {
		a.recent.refused(pr, al)
	}
	if !a.p.In || e.Kind != format.Alloc {
		return
	}
	pr.taken(a, al, e)
	if used {
		pr.kinds.taken(ph, e.Time)
	}
}

func (a *Answer) end(al *live.Allocation, e *format.Event) {
	path := a.paths.End(al)
	if !al.Counted {
		return
	}
	pr := a.process(al.Process)
	ph := outside
	if a.used(al) {
		ph = a.phaseOf(phaseKey{path, al.Stack})
		pr.kinds.change(ph, -al.Bytes())
	}
	switch {
	case !a.p.In:
	case e.Kind == format.ProcessEnd:
		a.keep(pr, al, ph, e.Time)
	default:
		a.recent.add(pr.given(a, al, ph, e.Time))
	}
}

// keep counts what is live at the end.
func (a *Answer) keep(pr *process, al *live.Allocation, ph phase, now format.Time) {
	pr.memoryOf(al).kept.add(al.Bytes())
	if a.used(al) {
		pr.kinds.given(ph, al, now)
	}
}

// Enter begins the peak with what is live already.
func (a *Answer) Enter(p *analyze.Pass) {
	for _, pr := range a.order {
		pr.kinds.settle(p.State.Now())
	}
}

func (a *Answer) Sample(*analyze.Pass, *format.Sample) error { return nil }

func (a *Answer) Event(p *analyze.Pass, e *format.Event) error {
	a.paths.Event(e, p.Defs)
	if e.Kind.Checkpoint() {
		return nil
	}
	pr := a.process(e.Process)
	if p.In {
		pr.kinds.settle(e.Time)
		if p.Matches(e, fields) {
			pr.api(p.Defs, e)
		}
	}
	a.pools(pr, e)
	return nil
}

func (a *Answer) End(p *analyze.Pass) error {
	end := p.End(0)
	p.State.Each(func(al *live.Allocation) bool {
		if al.Counted {
			a.keep(a.process(al.Process), al, a.phaseOf(phaseKey{a.paths.End(al), al.Stack}), end)
		}
		return true
	})
	t := &Trace{Path: p.Trace.Path(), Processes: []*Process{}}
	sort.Slice(a.order, func(i, j int) bool { return a.order[i].id < a.order[j].id })
	for _, pr := range a.order {
		if len(pr.memory)+len(pr.apis) > 0 {
			t.Processes = append(t.Processes, a.endProcess(p, pr))
		}
	}
	a.traces = append(a.traces, t)
	return nil
}

func (a *Answer) endProcess(p *analyze.Pass, pr *process) *Process {
	d, known := p.Defs.Process(pr.id)
	out := &Process{PID: d.PID, Command: d.Command, UsedLayer: format.LayerPool.String(), Memory: []*Memory{}, Lines: []*Line{}}
	if known && d.Rank >= 0 {
		out.Rank = &d.Rank
	}
	if !p.Pooled(pr.id) {
		out.UsedLayer = format.LayerDriver.String()
		a.plain = append(a.plain, fmt.Sprint(d.PID))
	}
	out.Rate = pr.rate.report(p.Since)
	for k, m := range pr.memory {
		out.Memory = append(out.Memory, m.report(k))
	}
	sort.Slice(out.Memory, func(i, j int) bool {
		x, y := out.Memory[i], out.Memory[j]
		if x.Layer != y.Layer {
			return x.Layer > y.Layer // pool, host, driver
		}
		return x.Class < y.Class
	})
	out.APIs = sorted(pr.apis, func(x, y *API) bool {
		if x.Taken+x.Given != y.Taken+y.Given {
			return x.Taken+x.Given > y.Taken+y.Given
		}
		return x.Name < y.Name
	})
	out.Pools = sorted(pr.pools, func(x, y *Pool) bool { return x.Name < y.Name })
	for _, pool := range out.Pools {
		pool.HitRatio = float64(pool.Count-pool.Misses) / float64(pool.Count)
	}
	for _, l := range pr.lines {
		if l.taken.n > 0 {
			out.Lines = append(out.Lines, l.report())
		}
	}
	sort.Slice(out.Lines, func(i, j int) bool {
		x, y := out.Lines[i], out.Lines[j]
		if x.Bytes != y.Bytes {
			return x.Bytes > y.Bytes
		}
		return x.Name < y.Name
	})
	out.Kinds = pr.kinds.report(p.Since)
	return out
}

// Report is the answer, after the pass.
func (a *Answer) Report(c *analyze.Completeness) *Report {
	c.UsedIsDriver(a.plain)
	r := &Report{Completeness: c, Traces: a.traces}
	if r.Traces == nil {
		r.Traces = []*Trace{}
	}
	return r
}
