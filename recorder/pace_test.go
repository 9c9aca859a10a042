package recorder

import (
	"testing"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/recorder/ring"
)

// TestNextPause: a lane that fills up is looked at again soon, one that is calm
// seldom, and no pause is out of bounds.
func TestNextPause(t *testing.T) {
	const ms = time.Millisecond
	for _, row := range []struct {
		name    string
		last    time.Duration
		fullest int // 64ths
		took    time.Duration
		want    time.Duration
	}{
		{"nothing", 4 * ms, 0, 0, 5 * ms},
		{"nothing for long", paceMost, 0, 0, paceMost},
		{"little", 8 * ms, calm - 1, 0, 10 * ms},
		{"enough", 8 * ms, calm, 0, 8 * ms},
		{"nearly too much", 8 * ms, tooFull - 1, 0, 8 * ms},
		{"an eighth: half the pause", 8 * ms, tooFull, 0, 4 * ms},
		{"half a lane: an eighth of the pause", 10 * ms, 32, 0, 1250 * time.Microsecond},
		{"a full lane", paceMost, 64, 0, paceLeast},
		{"full again", paceLeast, 64, 0, paceLeast},
		{"many idle lanes", paceLeast, 0, ms, 10 * ms},
		{"a turn that was held up", paceLeast, 0, time.Second, paceMost},
		{"a turn that took long because it had much", 4 * ms, 32, time.Second, paceLeast},
	} {
		if got := nextPause(row.last, row.fullest, row.took); got != row.want {
			t.Errorf("%s: %v after %v, want %v", row.name, got, row.last, row.want)
		}
	}
}

// TestDue: a round goes to fold when it has much, has waited, or has a lane's
// birth; and without anything, when fold waits for a later watermark.
func TestDue(t *testing.T) {
	now := ring.Now()
	for _, row := range []struct {
		name   string
		out    round
		waited time.Duration
		holds  bool
		unread bool
		want   bool
	}{
		{"nothing", round{}, time.Hour, false, false, false},
		{"much", round{bytes: handBytes}, 0, false, false, true},
		{"little", round{bytes: 64, chunks: make([]chunk, 1)}, handEvery - 1, false, false, false},
		{"little that has waited", round{bytes: 64, chunks: make([]chunk, 1)}, handEvery, false, false, true},
		{"a birth", round{born: make([]*lane, 1)}, 0, false, false, true},
		{"fold holds an event", round{}, handEvery, true, false, true},
		{"a reading", round{}, handEvery, false, true, true},
	} {
		d := &drain{s: &Session{}, out: &row.out, handed: now - format.Time(row.waited)}
		d.s.holds.Store(row.holds)
		d.s.unread.Store(row.unread)
		if got := d.due(now); got != row.want {
			t.Errorf("%s: %v, want %v", row.name, got, row.want)
		}
	}
}

// TestSteadyFlush: events that come all the time do not put off the flush of the
// ones before.
func TestSteadyFlush(t *testing.T) {
	const every = 300 * time.Millisecond
	s := record(t, Options{flushEvery: every})
	p := join(t, s, 1, format.MinLaneSize)
	n := 0
	for began := time.Now(); time.Since(began) < 2*every; time.Sleep(5 * time.Millisecond) {
		p.Event(wireEvent(format.Alloc, format.APIMemAlloc, uint64(n), 1), nil)
		n++
	}
	for end := time.Now().Add(20 * time.Second); readGrowing(t, s.Output()) < n/2; {
		p.Event(wireEvent(format.Alloc, format.APIMemAlloc, uint64(n), 1), nil)
		if n++; time.Now().After(end) {
			t.Fatalf("%d events of %d are on the disk", readGrowing(t, s.Output()), n)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// TestStackTable: a stack stays as long as it is asked for, generation by
// generation, and not because it is near.
func TestStackTable(t *testing.T) {
	var g stackTable
	g.put(1, &stack{id: 1})
	g.put(1+1<<20, &stack{id: 2}) // near's other
	for range 3 {
		for hash, id := range map[uint64]format.StackID{1: 1, 1 + 1<<20: 2} {
			if s, ok := g.get(hash); !ok || s.id != id {
				t.Fatalf("stack %d is %v", hash, s)
			}
		}
		g.turn()
	}
	g.turn()
	for _, hash := range []uint64{1, 1 + 1<<20} {
		if _, ok := g.get(hash); ok {
			t.Errorf("stack %d is still there, and nobody asked for it", hash)
		}
	}
}
