package devices

import (
	"math"
	"math/bits"

	"github.com/gpurec/gpurec/format"
)

// A Run is a stretch of time in which one device had the most free memory.
// From is part of it and To is not, but for the last run, which ends where the
// answer ends. At, Min and Max are that device's free bytes at From, and the
// least and most of them in the run.
type Run struct {
	From, To     format.Time
	Device       format.Device
	At, Min, Max int64
}

// history makes runs of the step functions of free bytes of some devices.
//
//  1. set says that one device's free bytes are another from a moment on;
//  2. what is set at one and the same moment counts together: a run lasts, but
//     for one that begins where the answer ends, and a change that is undone at
//     its own moment is none;
//  3. among the known values the largest wins, at a tie the lowest index. A
//     device whose value is not known yet, or no longer, does not take part.
//
// A moment older than the one before it is taken as that one: samples of two
// sources may cross by microseconds, and a step function has no way back.
type history struct {
	emit  func(Run)
	value []int64
	known []bool
	now   format.Time // the moment being collected
	dirty bool        // something was set at now
	run   Run
	open  bool
}

func newHistory(emit func(Run)) *history { return &history{emit: emit, now: math.MinInt64} }

// set makes free the bytes of device i from t on; known=false says that nobody
// knows them from t on.
func (h *history) set(t format.Time, i int, free int64, known bool) {
	if t > h.now {
		h.settle()
		h.now = t
	}
	for i >= len(h.value) {
		h.value, h.known = append(h.value, 0), append(h.known, false)
	}
	h.value[i], h.known[i] = free, known
	h.dirty = true
}

// settle closes the moment being collected: whoever is freest now was it since now.
func (h *history) settle() {
	if !h.dirty {
		return
	}
	h.dirty = false
	best := -1
	for i, ok := range h.known {
		if ok && (best < 0 || h.value[i] > h.value[best]) {
			best = i
		}
	}
	if h.open && (best < 0 || int(h.run.Device) != best) {
		h.close(h.now)
	}
	if best < 0 {
		return
	}
	v := h.value[best]
	if !h.open {
		h.run = Run{From: h.now, Device: format.Device(best), At: v, Min: v, Max: v}
		h.open = true
		return
	}
	h.run.Min, h.run.Max = min(h.run.Min, v), max(h.run.Max, v)
}

func (h *history) close(t format.Time) {
	h.run.To = t
	h.emit(h.run)
	h.open = false
}

// end closes the last run at t, or at the last moment set where that is later.
func (h *history) end(t format.Time) {
	h.settle()
	if h.open {
		h.close(max(t, h.now))
	}
}

// A curve is a step function of bytes and what is said of it: its least, its
// largest, and its mean over the time in which it was known. The sum behind the
// mean is exact: bytes times nanoseconds of a day of a large device pass 2^63.
type curve struct {
	seen      bool // it was known for at least a moment
	min, max  int64
	maxAt     format.Time
	known     bool // it is known now
	value     int64
	since     format.Time // value has been accounted up to here
	span      uint64      // ns in which it was known
	pos, neg  wide        // byte nanoseconds, above and below zero
	firstSeen format.Time
}

// set makes v the value from t on; known=false ends it.
func (c *curve) set(t format.Time, v int64, known bool) {
	t = c.advance(t)
	c.value, c.known = v, known
	if known {
		c.reach(t, v)
		c.min = min(c.min, v)
	}
}

// reach says that the curve was as high as v at or shortly before t, which a
// sampler may know of a moment between two values.
func (c *curve) reach(t format.Time, v int64) {
	if !c.seen {
		c.seen, c.min, c.max, c.maxAt, c.firstSeen = true, v, v, t, t
	}
	if v > c.max {
		c.max, c.maxAt = v, t
	}
}

// advance accounts the value up to t and returns t, or the moment up to which
// it was accounted already where that is later.
func (c *curve) advance(t format.Time) format.Time {
	if !c.seen {
		c.since = t
		return t
	}
	if t <= c.since {
		return c.since
	}
	if c.known {
		ns := uint64(t - c.since)
		c.span += ns
		if c.value >= 0 {
			c.pos.add(uint64(c.value), ns)
		} else {
			c.neg.add(uint64(-c.value), ns)
		}
	}
	c.since = t
	return t
}

// mean is the time-weighted mean, rounded towards zero; a curve that was known
// for a moment only has its value for a mean.
func (c *curve) mean() int64 {
	if c.span == 0 {
		return c.value
	}
	if c.neg.zero() {
		return int64(c.pos.div(c.span))
	}
	if c.neg.less(c.pos) {
		return int64(c.pos.minus(c.neg).div(c.span))
	}
	return -int64(c.neg.minus(c.pos).div(c.span))
}

// wide is an unsigned integer of 128 bits.
type wide struct{ hi, lo uint64 }

func (w *wide) add(a, b uint64) {
	hi, lo := bits.Mul64(a, b)
	var carry uint64
	w.lo, carry = bits.Add64(w.lo, lo, 0)
	w.hi, _ = bits.Add64(w.hi, hi, carry)
}

func (w wide) minus(v wide) wide {
	lo, borrow := bits.Sub64(w.lo, v.lo, 0)
	hi, _ := bits.Sub64(w.hi, v.hi, borrow)
	return wide{hi, lo}
}

func (w wide) zero() bool       { return w.hi|w.lo == 0 }
func (w wide) less(v wide) bool { return w.hi < v.hi || w.hi == v.hi && w.lo < v.lo }

// div is w/n. The quotient is a mean of 64-bit values and fits.
func (w wide) div(n uint64) uint64 {
	q, _ := bits.Div64(w.hi, w.lo, n)
	return q
}
