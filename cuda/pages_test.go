package cuda

import (
	"path/filepath"
	"testing"

	"github.com/gpurec/gpurec/format"
)

// On a kernel of 64 KiB pages, which testdata/pages.c stands for, the hook does
// what it does on others: a forked child gives back its parent's lanes and blocks
// whole, and not a part of the next one.
func TestLargePages(t *testing.T) {
	pages := cc(t, "pages.so", "-shared", "-fPIC", "testdata/pages.c", "-ldl")
	r := newReceiver(t)
	lanes, _ := guest(t, r, program{env: []string{"LD_PRELOAD=" + pages + ":" + filepath.Join(libraryDirectory(t), HookName)}}, "start", "threads", "forks", "forks-of-a-crowd", "errno")
	var marks uint64
	for _, l := range lanes {
		if l.missing() > l.dropped {
			t.Errorf("%d missing, %d dropped", l.missing(), l.dropped)
		}
		if l.hello.PID != lanes[0].hello.PID {
			marks += uint64(count(l.events(), format.Mark)) + l.dropped
		}
	}
	if want := uint64(3 + 20*2); marks != want {
		t.Errorf("%d of the children's marks recorded or counted, of %d", marks, want)
	}
}
