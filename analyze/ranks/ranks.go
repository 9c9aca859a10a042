package ranks

import (
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
)

// An Answer is a Report in the making.
type Answer struct {
	ranks []*Rank
	plain []string

	p      *analyze.Pass
	mine   map[format.ProcessID]*Rank
	traces []int // of each rank, for completeness
	trace  int
	scopes map[format.ScopeID]string // open ones: name#n
	counts map[countKey]int

	refusals live.Refusals
	refused  map[*live.Refusal]inside
}

// inside is the scopes that a request was made in.
type inside struct {
	scopes   []string // outermost first
	inferred bool
}

type countKey struct {
	process format.ProcessID
	name    format.NameID
}

// New returns an answer.
func New() *Answer { return &Answer{} }

func (a *Answer) Needs() analyze.Needs {
	return analyze.Needs{Pooled: true, Scopes: analyze.ScopesShown}
}

func (a *Answer) Begin(p *analyze.Pass) error {
	a.p, a.mine = p, map[format.ProcessID]*Rank{}
	a.scopes, a.counts = map[format.ScopeID]string{}, map[countKey]int{}
	p.CountOnly(analyze.ByAll)
	a.refused = map[*live.Refusal]inside{}
	a.refusals = live.Refusals{
		OnRefused: func(r *live.Refusal) { a.refused[r] = a.inside(&r.First) },
		OnServed: func(r *live.Refusal, e *format.Event) {
			delete(a.refused, r)
			if p.Matches(e, analyze.ByAll) {
				a.rank(e.Process).Retried++
			}
		},
		OnTold: a.told,
	}
	p.State.OnEnd = a.end
	p.State.OnScopeEnd = a.scopeEnds
	return nil
}

func (a *Answer) Enter(p *analyze.Pass) {
	if p.Windowed() {
		p.State.ResetPeaks()
	}
}

func (a *Answer) Sample(*analyze.Pass, *format.Sample) error { return nil }

func (a *Answer) rank(id format.ProcessID) *Rank {
	r := a.mine[id]
	if r == nil {
		r = &Rank{process: id, Devices: []Device{}}
		a.mine[id] = r
	}
	return r
}

// end keeps what a process held just before it ended.
func (a *Answer) end(al *live.Allocation, e *format.Event) {
	if e.Kind == format.ProcessEnd && al.Counted && al.Class == format.ClassDevice && al.Layer == a.usedLayer(al.Process) {
		a.rank(al.Process).Live += al.Bytes()
	}
}

func (a *Answer) usedLayer(id format.ProcessID) format.Layer {
	if a.p.Pooled(id) {
		return format.LayerPool
	}
	return format.LayerDriver
}

// scopeEnds keeps what was open when a process ended.
func (a *Answer) scopeEnds(sc *live.Scope, e *format.Event) {
	if label, known := a.scopes[sc.ID]; known && e.Kind == format.ProcessEnd {
		r := a.rank(sc.Process)
		r.Doing = append(r.Doing, label)
	}
	delete(a.scopes, sc.ID)
}

func (a *Answer) Event(p *analyze.Pass, e *format.Event) error {
	switch e.Kind {
	case format.ScopeBegin, format.LiveScope:
		if _, known := a.scopes[e.Scope]; !known { // a checkpoint names it again
			k := countKey{e.Process, e.Name}
			a.counts[k]++
			a.scopes[e.Scope] = fmt.Sprintf("%s#%d", p.Defs.Name(e.Name), a.counts[k])
		}
	case format.ProcessEnd:
		r := a.rank(e.Process)
		at := a.wall(e.Time)
		r.End = &at
		if e.Status != format.Unknown {
			status := e.Status
			r.Status = &status
		}
	}
	if p.In { // what was refused before the window is none of its failures
		a.refusals.Event(e)
	}
	return nil
}

// told counts a request that failed for the program.
func (a *Answer) told(refusal *live.Refusal, e *format.Event) {
	in := a.refused[refusal]
	delete(a.refused, refusal)
	if !a.p.Matches(e, analyze.ByAll) {
		return
	}
	r := a.rank(e.Process)
	if r.Failed++; r.OOM != nil {
		return
	}
	at := a.wall(e.Time)
	r.OOM = &at
	if refusal == nil {
		in = a.inside(e)
	}
	r.OOMIn, r.OOMInferred = in.scopes, in.inferred
}

func (a *Answer) inside(e *format.Event) inside {
	return inside{a.in(e.Scope), e.Flags&analyze.Inferred != 0}
}

// in is the open scopes around and with id, outermost first.
func (a *Answer) in(id format.ScopeID) (names []string) {
	const most = 64 // a file may claim that scopes are each other's parents
	for sc := a.p.State.Scope(id); sc != nil && len(names) < most; sc = a.p.State.Scope(sc.Parent) {
		names = append(names, a.scopes[sc.ID])
	}
	slices.Reverse(names)
	return names
}

func (a *Answer) wall(t format.Time) time.Time {
	m := a.p.Trace.Meta()
	return m.Start.Add(time.Duration(t - m.Monotonic)).UTC()
}

func (a *Answer) End(p *analyze.Pass) error {
	a.refusals.End()
	for _, sc := range p.State.Scopes() {
		if label, known := a.scopes[sc.ID]; known {
			r := a.rank(sc.Process)
			r.Doing = append(r.Doing, label)
		}
	}
	for _, q := range p.State.Processes() {
		used, _ := p.State.Used(q)
		acquired := q.Acquired()
		if r := a.mine[q.ID]; used.Peak == 0 && acquired.Peak == 0 && (r == nil || r.Failed+r.Retried == 0) || !p.Matches(&format.Event{Process: q.ID}, analyze.ByProcess) {
			continue
		}
		r := a.rank(q.ID)
		r.Used, r.Acquired = a.peak(used), a.peak(acquired)
		if r.End == nil {
			r.Live = used.Now
		}
		seen := map[format.Device]bool{}
		for _, acc := range q.Accounts() {
			if acc.Peak > 0 && acc.Device != format.NoDevice && !seen[acc.Device] {
				seen[acc.Device] = true
				d, _ := p.Defs.Device(acc.Device)
				r.Devices = append(r.Devices, Device{acc.Device, d.UUID})
			}
		}
		d, known := p.Defs.Process(q.ID)
		if known && d.Rank >= 0 {
			r.Rank = &d.Rank
		}
		if j, ok := p.Trace.Meta().JobOf(&d); ok && known {
			r.LocalRank, r.WorldSize, r.Job = analyze.Given(j.LocalRank), analyze.Given(j.WorldSize), j.ID
		}
		r.PID, r.Trace, r.Host = d.PID, p.Trace.Path(), p.Trace.Meta().Host
		if !p.Pooled(q.ID) && acquired.Count > 0 {
			a.plain = append(a.plain, fmt.Sprint(d.PID))
		}
		a.ranks = append(a.ranks, r)
		a.traces = append(a.traces, a.trace)
	}
	a.trace++
	return nil
}

func (a *Answer) peak(c live.Curve) Peak {
	if c.Peak == 0 {
		return Peak{}
	}
	at := c.PeakAt
	if from, known := a.p.From(); known { // it stood when the window began
		at = max(at, from)
	}
	return Peak{c.Peak, a.p.Since(at)}
}

// Report is the answer, after the pass.
func (a *Answer) Report(c *analyze.Completeness) *Report {
	c.UsedIsDriver(a.plain)
	r := &Report{Completeness: c, Rules: Rules{fewest, deviations, percent}, Ranks: []*Rank{}}
	for i, one := range a.ranks {
		one.Complete = c.Whole(a.traces[i])
		r.Ranks = append(r.Ranks, one)
	}
	sort.SliceStable(r.Ranks, func(i, j int) bool {
		x, y := r.Ranks[i].Rank, r.Ranks[j].Rank
		return x != nil && (y == nil || *x < *y)
	})
	r.judge()
	return r
}
