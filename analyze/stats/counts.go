package stats

import (
	"math/bits"
	"sort"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
)

// A count is events and their bytes.
type count struct{ n, bytes int64 }

func (c *count) add(n int64) {
	c.n++
	c.bytes = analyze.Add(c.bytes, n)
}

// lifetimes are bins a decade wide: below 10 µs, 100 µs and so on to 100 s, and
// the rest.
const (
	shortest = 10_000 // ns
	decades  = 9
)

func decade(ns int64) (i int) {
	for limit := int64(shortest); i < decades-1 && ns >= limit; i++ {
		limit *= 10
	}
	return i
}

// memory is one class at one layer.
type memory struct {
	taken             count
	smallest, largest int64
	sizes             [65]count // by length in bits: 0, 1, 2 to 3, 4 to 7, …
	lives             [decades]count
	kept              count
}

type memoryKey struct {
	layer format.Layer
	class format.Class
}

func (m *memory) take(n int64) {
	if m.taken.n == 0 || n < m.smallest {
		m.smallest = n
	}
	m.largest = max(m.largest, n)
	m.taken.add(n)
	m.sizes[bits.Len64(uint64(n))].add(n)
}

func (m *memory) report(k memoryKey) *Memory {
	out := &Memory{Layer: k.layer.String(), Class: k.class.String(), Count: m.taken.n, Bytes: m.taken.bytes, Smallest: m.smallest, Largest: m.largest,
		Sizes: []*Bin{}, Lifetimes: []*Bin{}}
	for i, c := range m.sizes {
		if c.n > 0 {
			b := &Bin{Count: c.n, Bytes: c.bytes}
			if i > 0 {
				b.From = 1 << (i - 1)
			}
			if i < 63 {
				below := int64(1) << i
				b.Below = &below
			}
			out.Sizes = append(out.Sizes, b)
		}
	}
	from, below := int64(0), int64(shortest)
	for i, c := range m.lives {
		if c.n > 0 {
			b := &Bin{From: from, Count: c.n, Bytes: c.bytes}
			if i < decades-1 {
				limit := below
				b.Below = &limit
			}
			out.Lifetimes = append(out.Lifetimes, b)
		}
		from, below = below, below*10
	}
	if m.kept.n > 0 {
		out.Lifetimes = append(out.Lifetimes, &Bin{Kept: true, Count: m.kept.n, Bytes: m.kept.bytes})
	}
	return out
}

// line is a line of the program.
type line struct {
	name    string
	taken   count
	largest int64
	given   int64
	life    float64 // sum of nanoseconds
}

func (l *line) report() *Line {
	out := &Line{Name: l.name, Count: l.taken.n, Bytes: l.taken.bytes, Largest: l.largest, Given: l.given, Lifetime: format.Unknown}
	if l.given > 0 {
		out.Lifetime = int64(l.life / float64(l.given))
	}
	return out
}

// rate is how fast memory is taken.
type rate struct {
	first, last format.Time
	taken       count
	second      int64 // since the trace's start, of the latest allocation
	inSecond    int64
	busiest     int64
	busiestAt   int64
}

func (r *rate) take(n int64, at format.Time, since int64) {
	if r.taken.n == 0 {
		r.first = at
	}
	r.last = max(r.last, at)
	r.taken.add(n)
	if second := since / 1e9; second > r.second || r.taken.n == 1 {
		r.second, r.inSecond = second, 0
	}
	if r.inSecond++; r.inSecond > r.busiest {
		r.busiest, r.busiestAt = r.inSecond, r.second*1e9
	}
}

func (r *rate) report(since func(format.Time) int64) Rate {
	out := Rate{Count: r.taken.n, Bytes: r.taken.bytes, Busiest: r.busiest, BusiestAt: r.busiestAt}
	if r.taken.n > 0 {
		out.First, out.Last = since(r.first), since(r.last)
	}
	if r.last > r.first {
		out.PerSecond = float64(r.taken.n-1) / (float64(r.last-r.first) / 1e9)
	}
	return out
}

// api counts a call of a function.
func (p *process) api(d *format.Defs, e *format.Event) {
	switch e.Kind {
	case format.Alloc, format.AllocFailed, format.Free, format.FreeDone, format.FreeFailed, format.Map, format.Unmap, format.Release, format.Retain, format.Import, format.Reset:
	default:
		return
	}
	if e.Flags&format.FlagEcho != 0 || e.API == format.APINone {
		return
	}
	c := p.apis[e.API]
	if c == nil {
		c = &API{Name: d.API(e.API)}
		p.apis[e.API] = c
	}
	switch e.Kind {
	case format.Alloc:
		c.Taken++
		c.Bytes = analyze.Add(c.Bytes, max(e.Size, 0))
	case format.Map, format.Retain, format.Import: // of memory that another function took
		c.Taken++
	case format.AllocFailed:
		c.Failed++
	case format.FreeFailed: // its Free came before the refusal was known
		c.Failed++
		c.Given = max(c.Given-1, 0)
	case format.Free, format.Unmap, format.Release, format.Reset:
		c.Given++
	}
	if e.Duration > 0 {
		c.Timed++
		c.Time = analyze.Add(c.Time, e.Duration)
		c.Longest = max(c.Longest, e.Duration)
	}
}

func (p *process) memoryOf(al *live.Allocation) *memory {
	k := memoryKey{al.Layer, al.Class}
	m := p.memory[k]
	if m == nil {
		m = &memory{}
		p.memory[k] = m
	}
	return m
}

// taken counts an allocation, given its end.
func (p *process) taken(a *Answer, al *live.Allocation, e *format.Event) {
	p.memoryOf(al).take(al.Bytes())
	if a.used(al) {
		p.rate.take(al.Bytes(), e.Time, a.p.Since(e.Time))
		l := a.line(p, al.Stack)
		l.taken.add(al.Bytes())
		l.largest = max(l.largest, al.Bytes())
	}
}

func (p *process) given(a *Answer, al *live.Allocation, ph phase, now format.Time) given {
	g := given{process: p, time: al.Time, address: al.Address, object: al.Object, bytes: al.Bytes(), life: int64(max(now-al.Time, 0))}
	g.lived = &p.memoryOf(al).lives[decade(g.life)]
	g.lived.add(g.bytes)
	if a.used(al) {
		g.line = a.line(p, al.Stack)
		g.line.given++
		g.line.life += float64(g.life)
		g.use, g.held = p.kinds.given(ph, al, now)
	}
	return g
}

func sorted[K comparable, V any](m map[K]V, less func(a, b V) bool) []V {
	out := make([]V, 0, len(m))
	for _, v := range m {
		out = append(out, v)
	}
	sort.Slice(out, func(i, j int) bool { return less(out[i], out[j]) })
	return out
}
