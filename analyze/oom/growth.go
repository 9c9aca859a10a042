package oom

import (
	"sort"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
)

// What grew is looked for at the ends of steps: of the outermost scopes that come
// again, see analyze.Turn, and are no library's. Without such scopes it is looked for every so many
// allocations. Looks are thinned out as they become many, so that some 8 to 16
// of them, evenly apart, reach back to the beginning:
//
//	1 2 3 4 5 6 7 8 …          every step
//	  2   4   6   8   10  …    every second, from the 16th on
//
// The first look is left out of every comparison: what is made once is there
// only after it.

const (
	mostLooks        = 16
	firstAllocations = 64 // between two looks
	fewestLooks      = 4  // that a growth is told from, the first not counted
	mostInStep       = 64 // scopes of one name that a step has; what has more in it is an epoch
)

type history struct {
	every int64
	first bool // the first look was taken, and dropped
	snaps []snap
}

// A snap is who held what at a moment.
type snap struct {
	n     int64 // of the step, or the allocation
	at    format.Time
	total int64
	used  map[format.StackID]int64
}

func (y *history) tick(h *holding, n int64, at format.Time) {
	if n%y.every != 0 {
		return
	}
	if !y.first {
		y.first = true
		return
	}
	if len(y.snaps) == mostLooks {
		y.every *= 2
		kept := y.snaps[:0]
		for _, s := range y.snaps {
			if s.n%y.every == 0 {
				kept = append(kept, s)
			}
		}
		y.snaps = kept
		if n%y.every != 0 {
			return
		}
	}
	s := snap{n: n, at: at, total: h.now.Used, used: make(map[format.StackID]int64, len(h.stacks))}
	for stack, a := range h.stacks {
		if a.Used != 0 {
			s.used[stack] = a.Used
		}
	}
	y.snaps = append(y.snaps, s)
}

// steps find which scopes of a process are its steps.
type steps struct {
	seen  map[stepKey]int64
	is    stepKey
	known bool
}

type stepKey struct {
	depth  int
	name   string // of its turns
	thread uint32
}

func (a *Answer) stepped(sc *live.Scope) {
	if sc.Domain != 0 && analyze.LibraryDomain(a.p.Defs.Name(sc.Domain)) {
		return
	}
	st := a.steps[sc.Process]
	if st == nil {
		st = &steps{seen: map[stepKey]int64{}}
		a.steps[sc.Process] = st
	}
	k := stepKey{name: analyze.Turn(a.p.Defs.Name(sc.Name)), thread: sc.Thread}
	for id := sc.Parent; id != 0 && k.depth < mostScopes; k.depth++ {
		parent := a.p.State.Scope(id)
		if parent == nil {
			break
		}
		id = parent.Parent
	}
	if st.known && k.depth > st.is.depth {
		return
	}
	st.seen[k]++
	switch {
	case st.known && k == st.is:
	case st.seen[k] >= 2 && (!st.known || k.depth < st.is.depth && st.seen[st.is] <= mostInStep*st.seen[k]):
		st.is, st.known = k, true
		for o, h := range a.holdings {
			if o.Process == sc.Process {
				h.bySteps = history{every: 1, first: true} // one has gone by
			}
		}
	default:
		return
	}
	for o, h := range a.holdings {
		if o.Process == sc.Process {
			h.bySteps.tick(h, st.seen[k], a.p.State.Now())
		}
	}
}

// growth is what rose in h, nil where there are too few looks to say.
func (a *Answer) growth(h *holding, process format.ProcessID) *Growth {
	g := &Growth{By: "step"}
	snaps := h.bySteps.snaps
	if len(snaps) < fewestLooks {
		g.By, snaps = "allocations", h.byCount.snaps
	} else if st := a.steps[process]; st != nil {
		g.Scope = st.is.name
	}
	if len(snaps) < fewestLooks {
		return nil
	}
	first, last := &snaps[0], &snaps[len(snaps)-1]
	g.From, g.To, g.FromT, g.ToT = first.n, last.n, a.p.Since(first.at), a.p.Since(last.at)
	g.Used = last.total - first.total
	now := map[site]int64{}
	for stack, n := range h.stacks {
		now[a.site(stack)] += n.Used
	}
	sums := map[site][]int64{}
	for i := range snaps {
		for stack, n := range snaps[i].used {
			s := a.site(stack)
			if sums[s] == nil {
				sums[s] = make([]int64, len(snaps))
			}
			sums[s][i] += n
		}
	}
	for s, v := range sums {
		n := len(v) - 1
		grew := Grew{Line: s.line, In: s.in, Bytes: min(v[n], now[s]) - v[0], Looks: n} // what is not live any more is no growth
		for i := 1; i <= n; i++ {
			if v[i] > v[i-1] {
				grew.Rises++
			}
		}
		if v[n] > v[n-1] && grew.grows(h.now.Used) { // it has not come to an end
			g.Lines = append(g.Lines, grew)
		}
	}
	sort.Slice(g.Lines, func(i, j int) bool {
		x, y := g.Lines[i], g.Lines[j]
		if x.Bytes != y.Bytes {
			return x.Bytes > y.Bytes
		}
		return x.Line+x.In < y.Line+y.In
	})
	return g
}

func (g *Grew) grows(used int64) bool {
	return float64(g.Rises) >= thresholds.GrowingRises*float64(g.Looks) && float64(g.Bytes) >= thresholds.GrowingShare*float64(used)
}

// Bytes are what the growing lines have grown by.
func (g *Growth) Bytes() (n int64) {
	if g == nil {
		return 0
	}
	for _, l := range g.Lines {
		n += l.Bytes
	}
	return n
}
