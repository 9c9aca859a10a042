package leaks

import (
	"math/bits"

	"github.com/gpurec/gpurec/format"
)

// buckets is how many stretches of a run are told apart. A run that has more
// turns has them in pairs, then in fours and so on; so memory a site is bounded
// and a stretch is at least a 32nd of the run.
const buckets = 32

// A clock divides a process's time in the window. Its hand counts turns of a
// scope, or nanoseconds.
//
//	hand     0 1 2 3 4 5 6 7 …
//	level 0  0 1 2 3 4 5 6 7     bucket = hand >> level
//	level 1  0   1   2   3
type clock struct {
	hand  int64
	level int

	running bool // of time, begun at begin
	begin   format.Time

	name   string // of a scope's turns
	depth  int
	open   map[format.ScopeID]int64 // its turns: allocations of the process before them
	inside int64                    // allocations during turns that are over
}

// set moves the hand, and makes stretches longer when there are too many.
func (c *clock) set(hand int64) {
	c.hand = hand
	if n := bits.Len64(uint64(hand / buckets)); n > c.level {
		c.level = n
	}
}

// tell sets the hand of a clock of time, which begins when it is first told: by
// what takes memory, so that it stands still when a program only tidies up. A
// lane's events may be older than those before them.
func (c *clock) tell(now format.Time) {
	if !c.running {
		c.running, c.begin = true, now
	}
	c.set(max(c.hand, int64(now-c.begin)))
}

// empty reports whether there were turns, and nothing was taken in them.
func (c *clock) empty() bool { return c.hand > 0 && c.inside == 0 }

// bucket is the stretch that the hand is in, and how many are over.
func (c *clock) bucket() int { return int(c.hand >> c.level) }

// floors are the least that a site held in each stretch so far. They are
// brought up to date only when the site changes: meanwhile it held what it held.
type floors struct {
	clock *clock // a clock's place may be given to another
	level int
	at    int // the stretch of the latest change
	low   [buckets]int64
}

// change notes that a site that held before holds after.
func (f *floors) change(c *clock, before, after int64) {
	f.advance(c, before)
	f.low[f.at] = min(f.low[f.at], after)
}

// advance goes on to the clock's stretch: the site has held so much since the
// latest change.
func (f *floors) advance(c *clock, held int64) {
	if f.clock != c {
		*f = floors{clock: c, level: c.level, at: -1}
	}
	for ; f.level < c.level; f.level++ {
		f.pair()
	}
	for now := c.bucket(); f.at < now; {
		f.at++
		f.low[f.at] = held
	}
}

// pair makes stretches twice as long. Of the latest the second half may be to
// come.
func (f *floors) pair() {
	if f.at < 0 {
		return
	}
	for i := 0; 2*i <= f.at; i++ {
		low := f.low[2*i]
		if 2*i+1 <= f.at {
			low = min(low, f.low[2*i+1])
		}
		f.low[i] = low
	}
	f.at /= 2
}
