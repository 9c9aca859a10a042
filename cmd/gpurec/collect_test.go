package main

import (
	"bytes"
	"runtime/metrics"
	"testing"
)

// TestCollectPercent: the next collection comes at the floor, or when the heap
// has doubled.
func TestCollectPercent(t *testing.T) {
	for _, row := range []struct{ live, percent int }{
		{0, 800}, {1 << 20, 800}, {4 << 20, 700}, {8 << 20, 300}, {16 << 20, 100}, {32 << 20, 100}, {1 << 30, 100},
	} {
		if got := collectPercent(uint64(row.live)); got != row.percent {
			t.Errorf("%d bytes live: %d %%, want %d", row.live, got, row.percent)
		}
	}
	live := []metrics.Sample{{Name: liveHeap}}
	if metrics.Read(live); live[0].Value.Kind() != metrics.KindUint64 {
		t.Errorf("the runtime does not tell %s any more", liveHeap)
	}
}

// TestNoCollection: a recording of a command that does nothing collects no
// garbage, unless somebody has set GOGC.
func TestNoCollection(t *testing.T) {
	for _, percent := range []string{"", "100"} {
		c := gpurec(t, t.TempDir(), "run", "-q", "-o", "t.gpurec", "--", "true")
		var said bytes.Buffer
		c.Stderr = &said
		c.Env = append(c.Env, "GODEBUG=gctrace=1", "GOGC="+percent)
		if status := does(t, c); status != 0 {
			t.Fatalf("status %d", status)
		}
		if n := bytes.Count(said.Bytes(), []byte("gc ")); (n > 0) != (percent != "") {
			t.Errorf("GOGC=%s: %d collections\n%s", percent, n, said.Bytes())
		}
	}
}
