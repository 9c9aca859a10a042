package timeline

import (
	"math"

	"github.com/gpurec/gpurec/format"
)

// A bucket is the least and the most of a series in its time.
type bucket struct{ min, max int64 }

func (b bucket) with(v int64) bucket { return bucket{min(b.min, v), max(b.max, v)} }

// A grid cuts time into buckets. A file may claim any time, so differences have
// all 64 bits.
type grid struct {
	from  format.Time
	to    format.Time // the last moment, which is in the last bucket, where it is known
	width uint64
	most  uint64
	all   []*series
}

// newGrid returns a grid of at most so many buckets. to is the end where that is
// known, else before from.
func newGrid(from, to format.Time, most int) *grid {
	g := &grid{from: from, to: from, width: 1, most: uint64(most)}
	if to > from {
		g.to = to
		g.width = (uint64(to)-uint64(from)-1)/g.most + 1
	}
	return g
}

// at is the bucket of a moment. Moments before the first are in it.
func (g *grid) at(t format.Time) int {
	if t <= g.from {
		return 0
	}
	since := uint64(t) - uint64(g.from)
	if t == g.to {
		since--
	}
	for since/g.width >= g.most && g.width < math.MaxUint64 {
		g.double()
	}
	return int(min(since/g.width, g.most-1))
}

func (g *grid) double() {
	if g.width > math.MaxUint64/2 {
		g.width = math.MaxUint64
	} else {
		g.width *= 2
	}
	for _, s := range g.all {
		n := (len(s.buckets) + 1) / 2
		for i := range n {
			b := s.buckets[2*i]
			if 2*i+1 < len(s.buckets) { // else it has the value, as the time to come has
				b = bucket{min(b.min, s.buckets[2*i+1].min), max(b.max, s.buckets[2*i+1].max)}
			}
			s.buckets[i] = b
		}
		s.buckets = s.buckets[:n]
	}
}

// A series is a step function. Its buckets reach to its last change.
type series struct {
	value   int64
	buckets []bucket
	max     int64
	maxAt   format.Time
	known   bool // it has been set
}

// begin adds a series with a value from the grid's first moment on.
func (g *grid) begin(v int64, at format.Time) *series {
	s := &series{value: v, buckets: []bucket{{v, v}}, max: v, maxAt: at}
	g.all = append(g.all, s)
	return s
}

// set makes v the value from t on. A moment older than one before it is taken
// as that one: there is no way back.
func (g *grid) set(s *series, t format.Time, v int64) {
	g.reach(s, t)
	s.value = v
	g.touch(s, t, v)
}

// touch says that the series was as high or low as v, shortly before t.
func (g *grid) touch(s *series, t format.Time, v int64) {
	k := len(s.buckets) - 1
	s.buckets[k] = s.buckets[k].with(v)
	if v > s.max {
		s.max, s.maxAt = v, t
	}
}

// reach carries the value on up to t.
func (g *grid) reach(s *series, t format.Time) {
	for i := g.at(t); len(s.buckets) <= i; {
		s.buckets = append(s.buckets, bucket{s.value, s.value})
	}
}
