package cuda

import (
	"strconv"
	"testing"
	"time"

	"github.com/gpurec/gpurec/format"
)

// TestLaps writes records of every length through many laps of the smallest
// lane, and finds each of them again, whole and in order: those that are written
// where they lie, those that are copied because something is to be defined or the
// ring ends, and the pads between.
func TestLaps(t *testing.T) {
	const n = 20000
	for try := 0; ; try++ {
		r := newReceiver(t)
		r.wait.Store(true)
		lanes, _ := guest(t, r, program{e: Environment{LaneSize: format.MinLaneSize, OnFull: "wait"}}, "laps")
		if pause := time.Duration(r.pause.Load()); lanes[0].dropped > 0 && pause > time.Second/2 && try < 5 {
			t.Logf("%d lost to a reader that stood still for %v: once more", lanes[0].dropped, pause)
			continue
		}
		if len(lanes) != 1 || lanes[0].dropped != 0 || lanes[0].missing() != 0 {
			t.Fatalf("%d lanes, %d dropped, %d missing", len(lanes), lanes[0].dropped, lanes[0].missing())
		}
		checkLaps(t, lanes[0], n)
		return
	}
}

func checkLaps(t *testing.T, l *lane, n uint64) {
	t.Helper()
	texts := map[uint64]string{}
	var allocs, frees, marks, begins, ends, slots uint64
	var last format.Time
	for _, r := range l.records {
		slots += uint64(r.Head().Slots)
		if r.Time() < last {
			t.Fatalf("record of %d after one of %d", r.Time(), last)
		}
		last = r.Time()
		switch r.Kind() {
		case format.WireName:
			d, text := r.Name()
			texts[d.Hash] = string(text)
		case format.Alloc:
			e, c := r.Event(), r.Call()
			if e.Address != 4096+allocs || e.B != allocs || e.Size != int64(allocs) || c == nil || c.Duration != int64(allocs) || e.API != 999 {
				t.Fatalf("alloc %d: %+v %+v", allocs, e, c)
			}
			allocs++
		case format.Free:
			if e, c := r.Event(), r.Call(); e.Address != 4096+frees || e.B != frees || e.Size != -1 || c == nil || c.Duration != -1 {
				t.Fatalf("free %d: %+v %+v", frees, e, c)
			}
			frees++
		case format.Mark:
			if i, err := strconv.ParseUint(texts[r.Scope().Name], 10, 64); err != nil || i != 3*marks {
				t.Fatalf("mark %d: %q", marks, texts[r.Scope().Name])
			}
			marks++
		case format.ScopeBegin:
			if texts[r.Scope().Name] != "known" {
				t.Fatalf("scope %d: %q", begins, texts[r.Scope().Name])
			}
			begins++
		case format.ScopeEnd:
			ends++
		}
	}
	if allocs != n || frees != n || marks != (n+2)/3 || begins != n/2 || ends != n/2 {
		t.Errorf("%d allocs, %d frees, %d marks, %d and %d scopes", allocs, frees, marks, begins, ends)
	}
	if laps := slots * format.SlotSize / format.MinLaneSize; laps < 20 {
		t.Errorf("only %d laps", laps)
	}
}
