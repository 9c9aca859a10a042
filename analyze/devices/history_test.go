package devices

import (
	"math"
	"math/big"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/gpurec/gpurec/format"
)

// A step is one call of set.
type step struct {
	t     format.Time
	dev   int
	v     int64
	known bool
}

func runsOf(steps []step, end format.Time) []Run {
	var runs []Run
	h := newHistory(func(r Run) { runs = append(runs, r) })
	for _, s := range steps {
		h.set(s.t, s.dev, s.v, s.known)
	}
	h.end(end)
	return runs
}

func TestHistory(t *testing.T) {
	on := func(at format.Time, dev int, v int64) step { return step{at, dev, v, true} }
	for _, row := range []struct {
		name  string
		steps []step
		end   format.Time
		want  []Run
	}{
		{"nothing", nil, 9, nil},
		{"one device", []step{on(2, 0, 5), on(4, 0, 1), on(6, 0, 7)}, 9, []Run{{2, 9, 0, 5, 1, 7}}},
		{"a tie goes to the lowest index", []step{on(0, 1, 5), on(0, 0, 5)}, 3, []Run{{0, 3, 0, 5, 5, 5}}},
		{"a tie takes it from a higher index", []step{on(0, 0, 4), on(0, 1, 5), on(2, 0, 5)}, 3,
			[]Run{{0, 2, 1, 5, 5, 5}, {2, 3, 0, 5, 5, 5}}},
		{"and leaves it with a lower one", []step{on(0, 0, 5), on(0, 1, 4), on(2, 1, 5), on(4, 1, 6)}, 7,
			[]Run{{0, 4, 0, 5, 5, 5}, {4, 7, 1, 6, 6, 6}}},
		{"what is set at one moment counts together", []step{on(0, 0, 5), on(0, 1, 4), on(2, 0, 3), on(2, 1, 2)}, 4,
			[]Run{{0, 4, 0, 5, 3, 5}}},
		{"a change undone at its moment is none", []step{on(0, 0, 5), on(0, 1, 4), on(2, 0, 1), on(2, 0, 5)}, 4,
			[]Run{{0, 4, 0, 5, 5, 5}}},
		{"the other's values are not the run's", []step{on(0, 0, 9), on(0, 1, 1), on(1, 1, 2), on(2, 1, 3)}, 4,
			[]Run{{0, 4, 0, 9, 9, 9}}},
		{"a device that comes later", []step{on(1, 1, 5), on(3, 0, 6)}, 4, []Run{{1, 3, 1, 5, 5, 5}, {3, 4, 0, 6, 6, 6}}},
		{"a device that is lost", []step{on(0, 0, 9), on(0, 1, 1), {2, 0, 0, false}}, 4,
			[]Run{{0, 2, 0, 9, 9, 9}, {2, 4, 1, 1, 1, 1}}},
		{"nobody is known for a while", []step{on(0, 0, 9), {2, 0, 0, false}, on(3, 0, 8)}, 4,
			[]Run{{0, 2, 0, 9, 9, 9}, {3, 4, 0, 8, 8, 8}}},
		{"a step back in time counts now", []step{on(5, 0, 9), on(3, 0, 8)}, 6, []Run{{5, 6, 0, 8, 8, 8}}},
		{"an end before the last moment", []step{on(5, 0, 9)}, 3, []Run{{5, 5, 0, 9, 9, 9}}},
		{"less than nothing free", []step{on(0, 0, -3), on(0, 1, -2)}, 1, []Run{{0, 1, 1, -2, -2, -2}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := runsOf(row.steps, row.end); !reflect.DeepEqual(got, row.want) {
				t.Errorf("got %v, want %v", got, row.want)
			}
		})
	}
}

// The oracle looks at every moment from the first to the last and asks each
// device for its newest value there.
func oracle(devices int, steps []step, end format.Time) []Run {
	at := func(dev int, t format.Time) (v int64, known bool) {
		for _, s := range steps {
			if s.t <= t && s.dev == dev {
				v, known = s.v, s.known
			}
		}
		return v, known
	}
	var runs []Run
	last := -1
	for t := format.Time(0); t < end; t++ {
		best, most := -1, int64(math.MinInt64)
		for d := range devices {
			if v, known := at(d, t); known && v > most {
				best, most = d, v
			}
		}
		if best >= 0 && best == last {
			r := &runs[len(runs)-1]
			r.To, r.Min, r.Max = t+1, min(r.Min, most), max(r.Max, most)
		} else if best >= 0 {
			runs = append(runs, Run{t, t + 1, format.Device(best), most, most, most})
		}
		last = best
	}
	return runs
}

func TestHistoryEqualsOracle(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	several := 0
	for n := range 3000 {
		devices := 1 + rng.IntN(4)
		var steps []step
		at := format.Time(rng.IntN(3))
		for range rng.IntN(30) {
			steps = append(steps, step{at, rng.IntN(devices), rng.Int64N(5) - 1, rng.IntN(8) != 0})
			at += format.Time(rng.IntN(3))
		}
		end := at + 1
		got, want := runsOf(steps, end), oracle(devices, steps, end)
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("case %d: %v\ngot  %v\nwant %v", n, steps, got, want)
		}
		if len(want) > 2 {
			several++
		}
	}
	if several < 1000 {
		t.Fatalf("only %d cases had three runs or more: the generator is too tame", several)
	}
}

func TestCurve(t *testing.T) {
	day := int64(86400e9)
	for _, row := range []struct {
		name           string
		steps          []step
		end            format.Time
		min, max, mean int64
		span           uint64
	}{
		{"weighted by time", []step{{0, 0, 10, true}, {1, 0, 20, true}}, 4, 10, 20, 17, 4}, // (10 + 3*20)/4 = 17.5
		{"a moment only", []step{{5, 0, 7, true}}, 5, 7, 7, 7, 0},
		{"unknown for a while", []step{{0, 0, 10, true}, {2, 0, 0, false}, {8, 0, 40, true}}, 10, 10, 40, 25, 4},
		{"below zero", []step{{0, 0, -10, true}, {3, 0, 4, true}}, 4, -10, 4, -6, 4}, // -26/4
		{"cancels", []step{{0, 0, -4, true}, {2, 0, 4, true}}, 4, -4, 4, 0, 4},
		{"a day of a large device", []step{{0, 0, 150754820096, true}}, format.Time(day), 150754820096, 150754820096, 150754820096, uint64(day)},
		{"a step back in time", []step{{0, 0, 1, true}, {4, 0, 5, true}, {2, 0, 9, true}}, 6, 1, 9, 3, 6}, // (4*1 + 2*9)/6
	} {
		t.Run(row.name, func(t *testing.T) {
			var c curve
			for _, s := range row.steps {
				c.set(s.t, s.v, s.known)
			}
			c.advance(row.end)
			if c.min != row.min || c.max != row.max || c.mean() != row.mean || c.span != row.span {
				t.Errorf("min %d max %d mean %d over %d, want %d %d %d over %d", c.min, c.max, c.mean(), c.span, row.min, row.max, row.mean, row.span)
			}
		})
	}
}

func TestCurveMeanIsExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		var c curve
		sum, span := new(big.Int), new(big.Int)
		at := format.Time(0)
		for range 1 + rng.IntN(20) {
			v := rng.Int64() - rng.Int64()
			ns := rng.Int64N(1e15)
			c.set(at, v, true)
			at += format.Time(ns)
			c.advance(at)
			sum.Add(sum, new(big.Int).Mul(big.NewInt(v), big.NewInt(ns)))
			span.Add(span, big.NewInt(ns))
		}
		if span.Sign() == 0 {
			continue
		}
		if want := new(big.Int).Quo(sum, span).Int64(); c.mean() != want {
			t.Fatalf("mean %d, want %d", c.mean(), want)
		}
	}
}
