package cuda

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/recorder/ring"
)

// A program asks, and its questions stand among its events without counting as such.
func TestAsks(t *testing.T) {
	r := newReceiver(t)
	r.answers.Store(true)
	lanes, _ := guest(t, r, program{}, "start", "ask", "pair")
	var got []string
	for _, r := range lanes[0].events() {
		if ring.ShapeOf(r.Kind()) == ring.ShapeScope {
			got = append(got, fmt.Sprintf("%d:%d", r.Kind(), r.Scope().Asks))
		}
	}
	if want := "14:0 127:1 17:1 127:1 15:1"; strings.Join(got, " ") != want {
		t.Errorf("kinds and who asks: %q, want %q", got, want)
	}
	if lanes[0].missing() != 0 || lanes[0].dropped != 0 {
		t.Errorf("%d missing, %d dropped", lanes[0].missing(), lanes[0].dropped)
	}
}

// A question that finds no lane is no lost event; a scope's end that asks is one.
func TestAsksWithoutLane(t *testing.T) {
	lanes, _ := guest(t, newReceiver(t), program{}, "start", "ask-without")
	var dropped uint64
	for _, l := range lanes {
		dropped += l.dropped
	}
	if dropped != 1 || count(all(lanes), format.Alloc) != 1 {
		t.Errorf("%d dropped, want 1 of the one scope's end; %d allocs", dropped, count(all(lanes), format.Alloc))
	}
}

// Nobody reads: the program goes on after 100 ms, its signal's handler may ask
// meanwhile, and a child that it forks has no lane any more.
func TestAsksInVain(t *testing.T) {
	r := newReceiver(t)
	r.paused.Store(true)
	guest(t, r, program{}, "start", "ask-in-vain")
}
