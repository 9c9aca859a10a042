package leaks

import (
	"fmt"
	"sort"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
)

// End makes a Trace of what the sites have come to.
func (a *Answer) End(p *analyze.Pass) error {
	for _, pr := range a.order {
		if !pr.ended {
			a.stop(pr, p.End(0))
		}
	}
	p.State.Each(func(al *live.Allocation) bool {
		if a.looked(al) {
			a.left(a.site(a.process(al.Process), al), al)
		}
		return true
	})
	t := &Trace{Path: p.Trace.Path(), Processes: []*Process{}}
	sort.SliceStable(a.order, func(i, j int) bool { return a.order[i].id < a.order[j].id })
	for _, pr := range a.order {
		if len(pr.order) > 0 && !pr.past {
			t.Processes = append(t.Processes, a.endProcess(p, pr))
		}
	}
	a.traces = append(a.traces, t)
	return nil
}

func (a *Answer) endProcess(p *analyze.Pass, pr *process) *Process {
	d, known := p.Defs.Process(pr.id)
	out := &Process{PID: d.PID, Command: d.Command, UsedLayer: format.LayerPool.String(), Ended: pr.ended, Until: p.Since(pr.until)}
	if known && d.Rank >= 0 {
		out.Rank = &d.Rank
	}
	if !p.Pooled(pr.id) {
		out.UsedLayer = format.LayerDriver.String()
		a.plain = append(a.plain, fmt.Sprint(d.PID))
	}
	out.Growth = a.growth(p, pr)
	a.endSites(p, pr, out)
	a.endTemporaries(p, pr, out)
	byBytes := func(h []*Held) {
		sort.SliceStable(h, func(i, j int) bool { return h[i].Bytes > h[j].Bytes })
	}
	byBytes(out.AtEnd.Sites)
	byBytes(out.Suppressed)
	g := out.Growth.Growing
	sort.SliceStable(g, func(i, j int) bool { return g[i].Rose > g[j].Rose })
	return out
}

// endSites lists what is live, and sums it up.
func (a *Answer) endSites(p *analyze.Pass, pr *process, out *Process) {
	out.AtEnd = AtEnd{Sums: []*Sum{}, Sites: []*Held{}}
	sums := map[Sum]*Sum{}
	for _, s := range pr.order {
		if s.end.n == 0 {
			continue
		}
		h := &Held{Site: a.say(p, s), Bytes: s.end.bytes, Blocks: s.end.n, Oldest: p.Since(s.oldest), Newest: p.Since(s.newest)}
		if h.Line = a.suppressed(s); h.Line > 0 {
			out.Suppressed = append(out.Suppressed, h)
			continue
		}
		k := Sum{Layer: h.Layer, Class: h.Class}
		sum := sums[k]
		if sum == nil {
			sum = &k
			sums[k] = sum
			out.AtEnd.Sums = append(out.AtEnd.Sums, sum)
		}
		sum.Bytes = analyze.Add(sum.Bytes, h.Bytes)
		sum.Blocks += h.Blocks
		out.AtEnd.Sites = append(out.AtEnd.Sites, h)
	}
	sort.SliceStable(out.AtEnd.Sums, func(i, j int) bool { return out.AtEnd.Sums[i].Bytes > out.AtEnd.Sums[j].Bytes })
}

func (a *Answer) endTemporaries(p *analyze.Pass, pr *process, out *Process) {
	t := &out.Temporaries
	t.Sites = []*Temporary{}
	for _, s := range pr.order {
		if a.suppressed(s) > 0 {
			continue
		}
		t.Of += s.count
		if s.temporary.n > 0 {
			t.Count += s.temporary.n
			t.Bytes = analyze.Add(t.Bytes, s.temporary.bytes)
			t.Sites = append(t.Sites, &Temporary{a.say(p, s), s.temporary.n, s.count, s.temporary.bytes, s.temporary.most})
		}
	}
	sort.SliceStable(t.Sites, func(i, j int) bool { return t.Sites[i].Count > t.Sites[j].Count })
}

// say is a site in words.
func (a *Answer) say(p *analyze.Pass, s *site) Site {
	out := Site{Layer: s.layer.String(), Class: s.class.String(), Name: s.name}
	if s.name != "" {
		return out
	}
	f, ok := a.own.Of(s.stack, p.Defs)
	if !ok {
		out.Name = fmt.Sprintf("[stack %d is not defined]", s.stack)
		return out
	}
	out.Name = p.Defs.Shown(&f).String()
	frames, _ := p.Defs.Walk(s.stack, nil)
	for _, id := range frames {
		f, ok := p.Defs.Frame(id)
		if !ok {
			f = format.Frame{Kind: format.FrameLabel, Function: "[unknown]"}
		}
		out.Stack, out.own = append(out.Stack, p.Defs.Shown(&f).String()), append(out.own, analyze.Own(&f))
	}
	return out
}

// Report is the answer, after the pass.
func (a *Answer) Report(c *analyze.Completeness) *Report {
	c.UsedIsDriver(a.plain)
	r := &Report{Completeness: c, Traces: a.traces, Rules: Rules{By: a.opt.By, FewestStretches: fewest, MostStretches: buckets, WarmupPart: warmup,
		Parts: parts, Certainty: certainty, Shortest: int64(shortest), TemporaryEvents: a.opt.TemporaryEvents, TemporaryTime: int64(a.opt.TemporaryTime),
		Suppressions: a.opt.Suppressions.len(), Unused: a.opt.Suppressions.unused()}}
	if r.Traces == nil {
		r.Traces = []*Trace{}
	}
	return r
}
