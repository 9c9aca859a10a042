package cuda

import (
	"fmt"
	"testing"

	"github.com/gpurec/gpurec/format"
)

const programs = "../testdata/programs/"

func TestStorm(t *testing.T) {
	storm := cc(t, "storm", programs+"storm.c", "-lpthread", "-ldl")
	for _, row := range []struct {
		name   string
		e      Environment
		onFull uint32
		lost   bool
	}{
		{name: "wait loses nothing", e: Environment{OnFull: "wait"}, onFull: 1},
		{name: "a small lane drops and counts", e: Environment{LaneSize: format.MinLaneSize}, lost: true},
	} {
		t.Run(row.name, func(t *testing.T) {
			const threads, events = 4, 20000
			r := newReceiver(t)
			r.onFull, r.budget = row.onFull, 1e9
			r.paused.Store(row.lost)
			lanes, _ := program{e: row.e, args: []string{storm, "--threads", fmt.Sprint(threads), "--events", fmt.Sprint(events)}}.run(t, r)
			var got, lost uint64
			for _, l := range lanes {
				if m := l.missing(); m > l.dropped {
					t.Errorf("lane %d: %d missing by seq, %d by its counter", l.hello.TID, m, l.dropped)
				}
				lost += l.dropped
				got += uint64(count(l.events(), format.Alloc) + count(l.events(), format.Free))
			}
			if got+lost != threads*events || (lost > 0) != row.lost {
				t.Errorf("%d recorded + %d lost of %d", got, lost, threads*events)
			}
		})
	}
}
