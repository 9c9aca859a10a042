package main

import (
	"fmt"
	"os"
	"testing"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
)

// TestPeers records two processes that lend each other device memory as NCCL
// does: each one's live bytes are its own at every step, what is lent is in no
// sum, and no free is of what was not seen.
func TestPeers(t *testing.T) {
	dir := t.TempDir()
	c := gpurec(t, dir, "run", "--simulate-gpu", "--on-full", "wait", "-o", "t.gpurec", "--", program(t, "peers"))
	c.Stderr = os.Stderr
	if status := does(t, c); status != 0 {
		t.Fatalf("status %d", status)
	}
	tr := read(t, dir+"/t.gpurec")
	s, steps, borrowed := live.New(), map[format.ProcessID]int{}, map[format.ProcessID]int{}
	for i := range tr.events {
		e := &tr.events[i]
		switch e.Kind {
		case format.Mark:
			var want int64
			if _, err := fmt.Sscanf(tr.defs.Name(e.Name), "live %d", &want); err != nil {
				t.Fatalf("mark %q: %v", tr.defs.Name(e.Name), err)
			}
			steps[e.Process]++
			if got := s.Process(e.Process).Acquired().Now; got != want {
				t.Errorf("process %d, step %d: %d bytes live, the program has %d", e.Process, steps[e.Process], got, want)
			}
		case format.Import:
			borrowed[e.Process]++
		case format.ProcessEnd:
			if p := s.Process(e.Process); p.LiveCount != 0 || p.UnknownFrees+p.LostFrees != 0 {
				t.Errorf("process %d ends with %d allocations, %d unknown and %d lost frees", p.ID, p.LiveCount, p.UnknownFrees, p.LostFrees)
			}
		}
		s.Apply(e)
	}
	const buffers = 12
	if len(steps) != 2 {
		t.Errorf("steps of %d processes, want 2", len(steps))
	}
	for p, n := range steps {
		if n != 5*buffers || borrowed[p] != 2*buffers {
			t.Errorf("process %d: %d steps and %d imports, want %d and %d", p, n, borrowed[p], 5*buffers, 2*buffers)
		}
	}
}
