package live

import (
	"fmt"
	"testing"

	"github.com/gpurec/gpurec/format"
)

func in(object uint64) func(*format.Event) { return func(e *format.Event) { e.Pool = object } }

// What only refers to memory is live and in no sum, and counts its references;
// also across a checkpoint at each moment, and a file.
func TestReferences(t *testing.T) {
	const (
		imported, release, failed = format.Import, format.Release, format.FreeFailed
		ipc, ipcClose             = format.APIIpcOpen, format.APIIpcClose
		bind, unbind              = format.APIMulticastBindMem, format.APIMulticastUnbind
	)
	h, mc, array := object(0x99), uint64(0x77), uint64(0x55)
	create := ev(format.Alloc, format.APIMemCreate, h, size(100))
	gone := ev(release, format.APIMemRelease, h)
	tile := func(k format.Kind) format.Event { return ev(k, format.APIMapArray, h, in(array), at(0x1234)) }
	for _, row := range []struct {
		name   string
		events []format.Event
		want   string
	}{
		{"IPC memory is never counted", []format.Event{ev(imported, ipc, at(8), size(100))}, "acquired 0/0 pool 0/0 unknown 0 lost 0 live 1"},
		{"opened twice, closed once", []format.Event{ev(imported, ipc, at(8), size(100)), ev(imported, ipc, at(8), size(100)), ev(release, ipcClose, at(8))},
			"acquired 0/0 pool 0/0 unknown 0 lost 0 live 1"},
		{"and twice", []format.Event{ev(imported, ipc, at(8), size(100)), ev(imported, ipc, at(8), size(100)), ev(release, ipcClose, at(8)), ev(release, ipcClose, at(8))},
			"acquired 0/0 pool 0/0 unknown 0 lost 0 live 0"},
		{"a close that is refused", []format.Event{ev(imported, ipc, at(8), size(100)), ev(release, ipcClose, at(8)), ev(failed, ipcClose, at(8))},
			"acquired 0/0 pool 0/0 unknown 0 lost 0 live 1"},
		{"one of two that is refused", []format.Event{ev(imported, ipc, at(8), size(100)), ev(imported, ipc, at(8), size(100)), ev(release, ipcClose, at(8)), ev(failed, ipcClose, at(8)),
			ev(release, ipcClose, at(8))}, "acquired 0/0 pool 0/0 unknown 0 lost 0 live 1"},
		{"a close of what cuMemAlloc took", []format.Event{ev(format.Alloc, format.APIMemAlloc, at(8), size(100)), ev(release, ipcClose, at(8)), ev(failed, ipcClose, at(8))},
			"acquired 100/100 pool 0/0 unknown 0 lost 0 live 1"},
		{"external memory and a buffer in it", []format.Event{ev(imported, format.APIExternalImport, h, size(100)), ev(imported, format.APIExternalBuffer, h, at(8), size(50)),
			ev(format.Free, format.APIMemFree, at(8))}, "acquired 0/0 pool 0/0 unknown 0 lost 0 live 1"},
		{"its end", []format.Event{ev(imported, format.APIExternalImport, h, size(100)), ev(release, format.APIExternalDestroy, h)}, "acquired 0/0 pool 0/0 unknown 0 lost 0 live 0"},
		{"a pointer of another process's pool, freed like one's own", []format.Event{ev(imported, format.APIPoolImportPointer, at(8), size(100)), ev(format.Free, format.APIMemFreeAsync, at(8))},
			"acquired 0/0 pool 0/0 unknown 0 lost 0 live 0"},
		{"another's handle", []format.Event{ev(imported, format.APIMemImport, h), ev(format.Map, format.APIMemMap, h, at(0x1000), size(100)), gone}, "acquired 0/0 pool 0/0 unknown 0 lost 0 live 1"},
		{"one's own handle that came back", []format.Event{create, ev(imported, format.APIMemImport, h), gone}, "acquired 100/100 pool 0/0 unknown 0 lost 0 live 1"},
		{"bound memory outlives its handle", []format.Event{create, ev(imported, format.APIMulticastCreate, object(mc), size(200)), ev(format.Map, bind, h, in(mc), at(0), size(100)), gone},
			"acquired 100/100 pool 0/0 unknown 0 lost 0 live 2"},
		{"until it is unbound", []format.Event{create, ev(imported, format.APIMulticastCreate, object(mc), size(200)), ev(format.Map, bind, h, in(mc), at(64), size(100)), gone,
			ev(format.Unmap, unbind, in(mc), at(0), size(200))}, "acquired 0/100 pool 0/0 unknown 0 lost 0 live 1"},
		{"not by another device's unbinding", []format.Event{create, ev(format.Map, bind, h, in(mc), at(0), size(100)), gone,
			ev(format.Unmap, unbind, in(mc), at(0), size(100), on(1))}, "acquired 100/100 pool 0/0 unknown 0 lost 0 live 1"},
		{"nor by an unmapping at that address", []format.Event{create, ev(format.Map, bind, h, in(mc), at(0x1000), size(100)), gone,
			ev(format.Unmap, format.APIMemUnmap, at(0x1000), size(100))}, "acquired 100/100 pool 0/0 unknown 1 lost 0 live 1"},
		{"an unbinding that is refused", []format.Event{create, ev(format.Map, bind, h, in(mc), at(0), size(100)), gone, ev(format.Unmap, unbind, in(mc), at(0), size(100)),
			ev(failed, unbind, in(mc), at(0), size(100))}, "acquired 100/100 pool 0/0 unknown 0 lost 0 live 1"},
		{"bound by its address: not known", []format.Event{create, ev(format.Map, format.APIMulticastBindAddr, in(mc), at(0), size(100)), ev(format.Unmap, unbind, in(mc), at(0), size(100))},
			"acquired 100/100 pool 0/0 unknown 0 lost 0 live 1"},
		{"a sparse array's tile holds its memory", []format.Event{create, tile(format.Map), gone}, "acquired 100/100 pool 0/0 unknown 0 lost 0 live 1"},
		{"until it is unmapped", []format.Event{create, tile(format.Map), gone, tile(format.Unmap)}, "acquired 0/100 pool 0/0 unknown 0 lost 0 live 0"},
		{"a reserve is acquired", []format.Event{ev(format.Alloc, format.APIMemAllocAsync, at(8), size(10)), ev(format.Alloc, format.APIPoolReserve, object(1<<48+1), size(32))},
			"acquired 32/32 pool 10/10 unknown 0 lost 0 live 2"},
		{"a graph's is a class of its own", []format.Event{ev(format.Alloc, format.APIGraphReserve, object(1<<48+1), size(32))}, "acquired 0/0 pool 0/0 unknown 0 lost 0 live 1"},
		{"a refused free that was only written down restores nothing", []format.Event{ev(format.Alloc, format.APIMemAlloc, at(8), size(10)), ev(format.Free, format.APIMemFree, at(8)),
			ev(format.Free, format.APIMemFreeAsync, at(8), flag(format.FlagCaptured)), ev(failed, format.APIMemFreeAsync, at(8), flag(format.FlagCaptured))},
			"acquired 0/10 pool 0/0 unknown 0 lost 0 live 0"},
	} {
		for cut := range len(row.events) + 1 {
			if row.events[max(cut, 1)-1].Kind != failed && cut < len(row.events) && row.events[cut].Kind == failed {
				continue // a refusal is undone by what the fold remembers, not by a checkpoint
			}
			t.Run(fmt.Sprintf("%s, checkpoint after %d", row.name, cut), func(t *testing.T) {
				before := play(New(), row.events[:cut]...)
				after := New()
				for _, e := range before.Checkpoint(before.Now()) {
					after.Apply(&e)
				}
				if got := say(play(after, row.events[cut:]...)); got != row.want && !(cut == 0 && len(row.events) == 0) {
					t.Errorf("got %s, want %s", got, row.want)
				}
			})
		}
	}
}
