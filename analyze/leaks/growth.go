package leaks

import (
	"math"
	"time"
)

// Thresholds of a growth. They stand in the help and in every Report.
const (
	warmup    = 4 // the first quarter of the stretches is left out
	fewest    = 8 // stretches: with less nothing is said about growth
	parts     = 8 // what is left is cut into at most so many parts, whose rises are compared
	certainty = 95
	shortest  = 10 * time.Millisecond // a stretch of time: less is a burst, of which nobody knows how it would go on
)

// student is Student's t, two-sided 95 %, by degrees of freedom.
var student = [...]float64{math.Inf(1), 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365}

// A trend is what a site's floors come to after the warm-up, per stretch.
type trend struct {
	slope, low, high float64 // low and high are the interval of certainty
	rose             int64   // bytes from the first to the last
	rises, parts     int     // parts in which the floor rose, of how many
}

// trendOf judges floors:
//
//  1. the warm-up goes;
//  2. the slope is the rise from the first stretch to the last;
//  3. the rest is cut into equal parts, each with a slope of its own;
//  4. as these differ, so the slope may differ: the interval of their mean.
//
// So one jump, however high, is no growth: it is in one part only, and the
// interval holds 0. It takes rises in at least half of the parts. The way not
// taken, a regression's interval, believes in a single jump, because floors
// are not independent of each other.
func trendOf(floors []int64) (t trend, ok bool) {
	if len(floors) < fewest {
		return t, false
	}
	y := floors[(len(floors)+warmup-1)/warmup:]
	steps := len(y) - 1
	t.parts = min(parts, steps)
	t.rose = y[steps] - y[0]
	t.slope = float64(t.rose) / float64(steps)
	variance := 0.0
	for i := range t.parts {
		from, to := i*steps/t.parts, (i+1)*steps/t.parts
		rise := y[to] - y[from]
		if rise > 0 {
			t.rises++
		}
		d := float64(rise)/float64(to-from) - t.slope
		variance += d * d
	}
	variance /= float64(t.parts - 1)
	half := student[t.parts-1] * math.Sqrt(variance/float64(t.parts))
	t.low, t.high = t.slope-half, t.slope+half
	return t, true
}

// grows reports whether a leak is the likelier reading.
func (t trend) grows() bool { return t.rose > 0 && t.low > 0 }
