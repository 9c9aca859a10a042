package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// collectFloor is the heap below which no garbage is collected. The runtime's own
// is 4 MiB, which the buffers of a recording fill by themselves: around a command
// of a millisecond it collected four times, 22 of 36 ms of CPU time and 30 of 50
// ms of waiting, on two cores.
const (
	collectFloor = 32 << 20
	runtimeFloor = 4 << 20 // at 100 %, and in proportion
)

// collectLater sets the floor; above it the collector works as it always does.
// Somebody who has set GOGC knows better.
func collectLater() {
	if os.Getenv("GOGC") != "" {
		return
	}
	debug.SetGCPercent(100 * collectFloor / runtimeFloor)
	afterCollection(func() {
		live := []metrics.Sample{{Name: liveHeap}}
		metrics.Read(live)
		debug.SetGCPercent(collectPercent(live[0].Value.Uint64()))
	})
}

const liveHeap = "/gc/heap/live:bytes"

// collectPercent is by how much a heap with so many live bytes may grow.
func collectPercent(live uint64) int {
	const most = 100 * collectFloor / runtimeFloor
	return int(min(max(100*collectFloor/max(live, 1), 200)-100, most))
}

// afterCollection calls f after each collection, of which a finalizer tells.
func afterCollection(f func()) {
	type sentinel struct{ next *sentinel } // with a pointer, so that it shares its memory with nothing
	runtime.SetFinalizer(new(sentinel), func(*sentinel) {
		f()
		afterCollection(f)
	})
}
