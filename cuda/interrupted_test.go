package cuda

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/gpurec/gpurec/format"
)

func interrupted(t *testing.T, e Environment, word string) ([]*lane, string) {
	t.Helper()
	return program{e: e, args: []string{cc(t, "interrupted", "testdata/interrupted.c", "-ldl", "-lpthread"), word}}.run(t, newReceiver(t))
}

// A signal's handler interrupts events. What it does itself then has no place in
// the lane, and is counted.
func TestHandler(t *testing.T) {
	lanes, out := interrupted(t, Environment{}, "handler")
	var made, got uint64
	fmt.Sscan(out, &made)
	for _, l := range lanes {
		got += uint64(len(l.events())) + l.dropped
		if l.missing() > l.dropped {
			t.Errorf("%d missing, %d dropped", l.missing(), l.dropped)
		}
	}
	if made < 1000 || got != made {
		t.Errorf("%d recorded or counted of %d", got, made)
	}
}

// A thread that is cancelled between its clock and its publishing leaves a lane
// that the next thread can use. The lanes are large: threads that find them full
// are never there.
func TestCancelled(t *testing.T) {
	lanes, _ := interrupted(t, Environment{LaneSize: 16 << 20}, "cancel")
	for i, l := range lanes {
		if l.busy || l.missing() > l.dropped {
			t.Errorf("lane %d: busy %v, %d missing, %d dropped", i, l.busy, l.missing(), l.dropped)
		}
	}
	if n := len(all(lanes)); n < 1000 {
		t.Errorf("%d events", n)
	}
}

// What a signal does to a call that runs in the driver. Of a call that is left by
// longjmp nobody can know what it did: it is counted, and the thread is recorded
// on. So it is where a handler changes to a coroutine; the call that comes back
// from there is not told twice.
func TestInTheDriver(t *testing.T) {
	for _, row := range []struct {
		word                 string
		pairs, managed, mark int // that are there
		dropped              uint64
	}{
		{"jump", 100, 0, 100, 100},
		{"above", 0, 10, 0, 10}, // the handler's mark is counted, the call told
		{"coroutine", 20, 0, 0, 10},
		{"lower", 10, 0, 0, 10},
		{"end", 10, 0, 0, 10},
	} {
		t.Run(row.word, func(t *testing.T) {
			p := program{args: []string{cc(t, "interrupted", "testdata/interrupted.c", "-ldl", "-lpthread", "-rdynamic"), row.word},
				env: []string{"GPUREC_SIM_FAIL=cuMemAllocManaged+1"}}
			lanes, _ := p.run(t, newReceiver(t))
			var pairs, managed, marks int
			var dropped uint64
			for _, l := range lanes {
				for _, r := range l.events() {
					switch {
					case r.Kind() == format.Mark:
						marks++
					case r.Kind() == format.Alloc && r.Event().Class == format.ClassManaged:
						managed++
					case r.Kind() == format.Alloc:
						pairs++
					}
				}
				dropped += l.dropped
				if l.inCall {
					t.Error("a call that was left is told as unfinished")
				}
			}
			if pairs != row.pairs || managed != row.managed || marks != row.mark || dropped != row.dropped {
				t.Errorf("%d pairs, %d managed, %d marks, %d dropped, want %+v", pairs, managed, marks, dropped, row)
			}
		})
	}
}

// A kernel that wipes no page on fork, such as gVisor's: children are told by
// their pid. Their first events come from two threads at once.
func TestForkUnwiped(t *testing.T) {
	dir := t.TempDir()
	if err := compile(libraries[0], dir, []string{"-Werror", "-DWIPE_ON_FORK=1800"}); err != nil {
		t.Fatal(err)
	}
	p := program{env: []string{"LD_PRELOAD=" + filepath.Join(dir, HookName)}}
	lanes, _ := guest(t, newReceiver(t), p, "start", "stay", "forks-of-a-crowd")
	var got uint64
	for _, l := range lanes {
		if l.hello.PID != lanes[0].hello.PID {
			got += uint64(count(l.events(), format.Mark)) + l.dropped
		}
	}
	if want := uint64(1 + 20*2); got != want {
		t.Errorf("%d recorded or counted of %d", got, want)
	}
}
