package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpurec/gpurec/format"
)

// storm runs the program of that name and returns what it says of itself.
func storm(t *testing.T, threads, events int, flags ...string) (allocs, frees int, tr *trace) {
	t.Helper()
	dir, path := t.TempDir(), program(t, "storm")
	args := append([]string{"run", "--simulate-gpu=2", "-o", "t.gpurec"}, flags...)
	c := gpurec(t, dir, append(args, "--", path, "--threads", fmt.Sprint(threads), "--events", fmt.Sprint(events))...)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, os.Stderr
	if status := does(t, c); status != 0 {
		t.Fatalf("status %d", status)
	}
	for _, w := range strings.Fields(out.String()) {
		fmt.Sscanf(w, "allocs=%d", &allocs)
		fmt.Sscanf(w, "frees=%d", &frees)
	}
	if allocs+frees != threads*events {
		t.Fatalf("the program says %q", out.String())
	}
	return allocs, frees, read(t, filepath.Join(dir, "t.gpurec"))
}

// TestStormWait: threads that may be held lose nothing, and the live set is the
// program's own at every moment.
func TestStormWait(t *testing.T) {
	events := 200_000
	if raced {
		events = 10_000
	}
	allocs, frees, tr := storm(t, 8, events, "--on-full", "wait", "--sample-interval", "0")
	if tr.kinds[format.Alloc] != allocs || tr.kinds[format.Free] != frees || tr.kinds[format.Lost] != 0 || tr.meta.Stats.Lost != 0 {
		t.Errorf("recorded %d allocs of %d, %d frees of %d, %d lost", tr.kinds[format.Alloc], allocs, tr.kinds[format.Free], frees, tr.meta.Stats.Lost)
	}
	for _, p := range tr.state.Processes() {
		if p.UnknownFrees != 0 || p.LostFrees != 0 {
			t.Errorf("%d unknown frees, %d lost frees: the order is not that of effect", p.UnknownFrees, p.LostFrees)
		}
	}
	if tr.meta.Stats.Late != 0 {
		t.Errorf("%d late", tr.meta.Stats.Late)
	}
}

// TestWaitIsMeasured: the trace says for how long full buffers held the threads,
// not at all where they are to drop; with a small budget they are held and then
// refused. What is recorded and what is lost is all there was, in each case.
func TestWaitIsMeasured(t *testing.T) {
	const events = 40_000
	for _, row := range []struct {
		name string
		more []string
	}{
		{"drop", []string{"--on-full=drop"}},
		{"wait", []string{"--on-full=wait"}},
		{"wait a little", []string{"--on-full=wait", "--wait-budget=1us"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			allocs, frees, tr := storm(t, 4, events, append(row.more, "--lane-size=256KiB", "--sample-interval=0")...)
			s, recorded := tr.meta.Stats, tr.kinds[format.Alloc]+tr.kinds[format.Free]
			t.Logf("%d recorded, %d lost, threads waited %v", recorded, s.Lost, time.Duration(s.Waited))
			if recorded+int(s.Lost) != allocs+frees {
				t.Errorf("%d recorded and %d lost of %d", recorded, s.Lost, allocs+frees)
			}
			if row.name == "drop" && s.Waited != 0 || row.name == "wait a little" && s.Lost > 0 && s.Waited == 0 {
				t.Errorf("waited %v", time.Duration(s.Waited))
			}
		})
	}
}

// TestStormDrop: what is recorded and what is lost are what happened, exactly.
func TestStormDrop(t *testing.T) {
	events := 50_000
	if raced {
		events = 10_000
	}
	allocs, frees, tr := storm(t, 8, events, "--on-full", "drop", "--lane-size", "256KiB", "--sample-interval", "0")
	recorded, lost := tr.kinds[format.Alloc]+tr.kinds[format.Free], int64(0)
	for i := range tr.events {
		if tr.events[i].Kind == format.Lost {
			lost += tr.events[i].Size
		}
	}
	if int64(recorded)+lost != int64(allocs+frees) || uint64(lost) != tr.meta.Stats.Lost {
		t.Errorf("%d recorded and %d lost (%d by the account) of %d", recorded, lost, tr.meta.Stats.Lost, allocs+frees)
	}
}
