package cuda

import (
	"testing"

	"github.com/gpurec/gpurec/format"
)

// TestHeld runs testdata/held.c: events come where the loader's locks are held by
// somebody who waits for them, or for ever, where dlerror has something to say,
// and on a stack that borders on what cannot be read.
func TestHeld(t *testing.T) {
	bin := cc(t, "held", "testdata/held.c", "-rdynamic", "-ldl", "-lpthread")
	lib := cc(t, "held.so", "-DLIBRARY", "-shared", "-fPIC", "testdata/held.c", "-lpthread")
	for _, row := range []struct {
		name, way    string
		allocs, mark int
	}{
		{"a fork while another thread has a lock of the loader's", "fork", 1, 1},
		{"a clone then", "clone", 1, 1},
		{"a constructor waits for the process's first event", "constructor", 1, 0},
		{"a constructor waits for a thread's first event", "later-constructor", 2, 0},
		{"dlerror says after an event what it would have said before", "error", 1, 0},
		{"a coroutine's stack below a guard page", "under-guard", 1, 0},
		{"a coroutine's stack below a hole that was none", "under-hole", 2, 0},
	} {
		for _, stacks := range []string{"auto", "both"} {
			t.Run(row.name+", "+stacks, func(t *testing.T) {
				lanes, out := program{e: Environment{Stacks: stacks, OnFull: "wait"}, args: []string{bin, row.way, lib}}.run(t, newReceiver(t))
				if out != "" {
					t.Skip("the stack has no room below it: ", out)
				}
				if a, m := count(all(lanes), format.Alloc), count(all(lanes), format.Mark); a != row.allocs || m != row.mark {
					t.Errorf("%d allocs, %d marks; want %d, %d", a, m, row.allocs, row.mark)
				}
			})
		}
	}
}
