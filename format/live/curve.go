package live

import (
	"math"
	"sort"

	"github.com/gpurec/gpurec/format"
)

// A Curve is a sum of bytes over time.
type Curve struct {
	Now    int64
	Peak   int64
	PeakAt format.Time // when Peak was reached first
	Total  int64       // bytes ever added; never reduced
	Count  int64       // times something was added, zero bytes included
}

// take counts n bytes as taken; move changes what is outstanding. They are
// apart because a refused free moves bytes back that were never taken again.
func (c *Curve) take(n int64) {
	c.Count++
	c.Total = add(c.Total, n)
}

// add stops at the largest number: a sum of hostile sizes must not look small.
func add(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

func (c *Curve) move(n int64, at format.Time, quiet bool) {
	c.Now += n
	if c.Now > c.Peak && !quiet {
		c.Peak, c.PeakAt = c.Now, at
	}
}

func (c *Curve) settle(at format.Time) { c.move(0, at, false) }

// restore sets what a checkpoint says; a peak seen here and not there stays,
// and one from before since is none of ours.
func (c *Curve) restore(total, count, peak int64, at, since format.Time) {
	c.Total, c.Count = total, count
	if peak > c.Peak && at >= since {
		c.Peak, c.PeakAt = peak, at
	}
}

func (c *Curve) resetPeak(at format.Time) { c.Peak, c.PeakAt = c.Now, at }

// A tracker is a curve that knows its maximum since the begin of every open
// scope. A scope that began earlier has seen at least what a later one has, so
// over the open scopes in the order of their begins the maxima never rise.
// Neighbours with the same maximum form a group:
//
//	begins   1   2   3   4   5
//	maxima  90  90  70  40  40      groups [1:90] [3:70] [4:40]
//
// A new value v melts the last groups below v into one. Each begin makes one
// group and a group melts once, so an event costs O(1) amortised however many
// scopes are open; the way not taken, a loop over the open scopes per event,
// costs as much as there are scopes. Groups whose scopes have all ended are
// dropped at the end of the list, and swept when they are the majority.
type tracker struct {
	Curve
	groups []group
	dead   int
}

type group struct {
	seq  uint64 // of its first scope
	max  int64
	open int
}

const allScopes = math.MaxUint64

func (t *tracker) move(n int64, at format.Time, quiet bool) {
	t.Curve.move(n, at, quiet)
	if k := len(t.groups); k > 0 && !quiet && t.Now > t.groups[k-1].max {
		t.raise(t.Now, allScopes)
	}
}

// settle makes maxima never rise again, nor lie below what there is now: rows of a
// checkpoint, whose order and values are a file's, may have said otherwise.
func (t *tracker) settle(at format.Time) {
	for i := len(t.groups) - 1; i > 0; i-- {
		t.groups[i-1].max = max(t.groups[i-1].max, t.groups[i].max)
	}
	t.move(0, at, false)
}

// raise tells the scopes with begins up to the given one that v was reached.
// A boundary inside a group takes all of the group: only samples ask for one,
// and err by less than their interval.
func (t *tracker) raise(v int64, upTo uint64) {
	end := len(t.groups)
	for end > 0 && t.groups[end-1].seq > upTo {
		end--
	}
	i := end
	for i > 0 && t.groups[i-1].max <= v {
		i--
	}
	if i == end {
		return
	}
	g := &t.groups[i]
	g.max = v
	if g.open == 0 {
		t.dead--
	}
	for _, h := range t.groups[i+1 : end] {
		if h.open == 0 {
			t.dead--
		}
		g.open += h.open
	}
	if g.open == 0 {
		t.dead++
	}
	t.groups = append(t.groups[:i+1], t.groups[end:]...)
}

func (t *tracker) begin(seq uint64, max int64) {
	t.groups = append(t.groups, group{seq: seq, max: max, open: 1})
}

func (t *tracker) find(seq uint64) int {
	return sort.Search(len(t.groups), func(i int) bool { return t.groups[i].seq > seq }) - 1
}

func (t *tracker) maxSince(seq uint64) int64 { return t.groups[t.find(seq)].max }

func (t *tracker) end(seq uint64) {
	i := t.find(seq)
	if t.groups[i].open--; t.groups[i].open > 0 {
		return
	}
	t.dead++
	for k := len(t.groups); k > 0 && t.groups[k-1].open == 0; k-- {
		t.groups = t.groups[:k-1]
		t.dead--
	}
	if t.dead > 16 && t.dead > len(t.groups)/2 {
		kept := t.groups[:0]
		for _, g := range t.groups {
			if g.open > 0 {
				kept = append(kept, g)
			}
		}
		t.groups, t.dead = kept, 0
	}
}

// shift lifts the whole curve: n bytes were there all the time, and are only
// known now.
func (t *tracker) shift(n int64) {
	t.Now += n
	t.Peak += n
	for i := range t.groups {
		t.groups[i].max += n
	}
}
