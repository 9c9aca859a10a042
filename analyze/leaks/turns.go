package leaks

import (
	"fmt"
	"time"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
)

// turnBegins follows a scope that begins again. Which scope is the program's
// step is known only at the end: the outermost of those that go on for most of
// the run. An outer scope comes round before those inside it, so the first
// ones that come round are followed; later a less deep one takes the place of
// the deepest, and any that of one in which nothing is taken.
func (a *Answer) turnBegins(p *analyze.Pass, e *format.Event) {
	if !p.Matches(e, analyze.ByProcess|analyze.ByThread) {
		return
	}
	if a.opt.Per == "" && e.Note != 0 && analyze.LibraryDomain(p.Defs.Name(e.Note)) {
		return
	}
	pr := a.process(e.Process)
	name := p.Defs.Name(e.Name)
	if name != a.opt.Per {
		name = analyze.Turn(name)
	}
	if a.opt.Per != "" {
		if len(pr.turns) == 0 && name == a.opt.Per {
			pr.turns = append(pr.turns, newTurns(name, 0))
		}
	} else if pr.begun[name] {
		pr.follow(name, func() int { return depth(p.State, e.Parent) })
	}
	pr.begun[name] = true
	for _, c := range pr.turns {
		if c.name == name {
			c.open[e.Scope] = pr.taken
		}
	}
}

// follow makes a clock of a scope, where it is none yet and there is room.
func (pr *process) follow(name string, depth func() int) {
	worst := 0
	for i, c := range pr.turns {
		if c.name == name {
			return
		}
		if w := pr.turns[worst]; c.empty() && !w.empty() || c.empty() == w.empty() && c.depth > w.depth {
			worst = i
		}
	}
	c := newTurns(name, depth())
	switch {
	case len(pr.turns) < mostTurns:
		pr.turns = append(pr.turns, c)
	case pr.turns[worst].empty() || c.depth < pr.turns[worst].depth:
		pr.turns[worst] = c
	}
}

func newTurns(name string, depth int) *clock {
	return &clock{name: name, depth: depth, open: map[format.ScopeID]int64{}}
}

// depth is how deep a scope with this parent is.
func depth(s *live.State, parent format.ScopeID) (n int) {
	const most = 64 // a file may claim that scopes are each other's parents
	for sc := s.Scope(parent); sc != nil && n < most; sc = s.Scope(sc.Parent) {
		n++
	}
	return n
}

func (a *Answer) turnEnds(sc *live.Scope, e *format.Event) {
	if !a.p.In || e.Kind != format.ScopeEnd || !a.p.Matches(e, analyze.ByProcess|analyze.ByThread) {
		return
	}
	pr := a.process(sc.Process)
	for _, c := range pr.turns {
		if taken, ok := c.open[sc.ID]; ok {
			delete(c.open, sc.ID)
			c.inside += pr.taken - taken
			c.set(c.hand + 1)
		}
	}
}

// stop brings everything of a process up to its end.
func (a *Answer) stop(pr *process, at format.Time) {
	pr.until = at
	for _, s := range pr.order {
		for i, f := range s.floors {
			switch {
			case f == nil:
			case i == 0:
				f.advance(&pr.time, s.held)
			default:
				f.advance(pr.turns[i-1], s.held)
			}
		}
	}
}

// clock is the one that growth is measured by, and its place among a site's
// floors; or why there is none. few is of a scope that would be the measure, had
// it more turns.
func (a *Answer) clock(pr *process) (c *clock, place int, unknown, few string) {
	var short *clock
	better := func(t, than *clock) bool {
		return than == nil || t.depth < than.depth || t.depth == than.depth && t.inside > than.inside
	}
	for i, t := range pr.turns {
		switch {
		case t.inside < pr.taken/2 && a.opt.Per == "":
		case t.bucket() >= fewest && better(t, c):
			c, place = t, 1+i
		case t.bucket() < fewest && better(t, short):
			short = t
		}
	}
	if short != nil {
		after := ""
		if a.opt.Per == "" { // only the second told that it comes round
			after = " after the first"
		}
		few = fmt.Sprintf("scope %s has %d turn%s%s, and it takes %d", analyze.Short(short.name), short.hand, analyze.Plural(short.hand), after, fewest)
	}
	brief := fmt.Sprintf("memory was taken during %s only, where it takes %s", time.Duration(pr.time.hand), fewest*shortest)
	switch {
	case c != nil:
		return c, place, "", ""
	case a.opt.Per != "" && short == nil:
		return nil, 0, fmt.Sprintf("there is no scope %s: gpuanalyze contexts lists those that there are", analyze.Short(a.opt.Per)), ""
	case a.opt.Per != "":
		return nil, 0, few + ": record more of them, or leave out --per for stretches of time", ""
	case pr.time.hand >= int64(fewest*shortest):
		return &pr.time, 0, "", few
	case short != nil:
		return nil, 0, few + "; " + brief + ": record more turns", ""
	}
	return nil, 0, "no scope comes round, and " + brief + ": record more steps, each in a scope or an NVTX range", ""
}

// growth judges every site.
func (a *Answer) growth(p *analyze.Pass, pr *process) Growth {
	c, place, unknown, few := a.clock(pr)
	g := Growth{Unknown: unknown, Few: few, Growing: []*Growing{}}
	if c == nil {
		return g
	}
	n := c.bucket()
	g.Stretches, g.Warmup, g.Length = n, (n+warmup-1)/warmup, int64(1)<<c.level
	unit := float64(g.Length)
	if c == &pr.time {
		unit /= 1e9
	} else {
		g.Scope, g.Turns = c.name, c.hand
	}
	for _, s := range pr.order {
		f := s.floors[place]
		if f == nil || f.clock != c || a.suppressed(s) > 0 {
			continue
		}
		g.Looked++
		if t, ok := trendOf(f.low[:n]); ok && t.grows() {
			g.Growing = append(g.Growing, &Growing{Site: a.say(p, s), Slope: t.slope / unit, Low: t.low / unit, High: t.high / unit,
				Rose: t.rose, Floor: f.low[n-1], Rises: t.rises, Parts: t.parts})
		}
	}
	return g
}
