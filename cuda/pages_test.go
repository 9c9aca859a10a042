package cuda

import (
	"fmt"
	"path/filepath"
	"strings"
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

// Of a file whose beginning is mapped twice, as it is there where segments share a
// page of it, addresses are told as the file counts them.
func TestLargePagesModule(t *testing.T) {
	pages := cc(t, "pages.so", "-shared", "-fPIC", "testdata/pages.c", "-ldl")
	exe := compilePlus(t, "unwind", "testdata/unwind.cpp", "-O2")
	lib := compilePlus(t, "mapped.so", "-DODD=0", "-nostdlib", "testdata/oddtables.c", "-Wl,-z,max-page-size=0x10000,-z,separate-code,-Ttext=0x14000")
	p := program{e: Environment{Stacks: "auto"}, args: []string{exe, "mapped", lib}, env: []string{"LD_PRELOAD=" + pages + ":" + filepath.Join(libraryDirectory(t), HookName)}}
	lanes, printed := p.run(t, newReceiver(t))
	recorded, _ := nativeStacks(t, lanes)
	var place, at uint64
	if _, err := fmt.Sscanf(printed, "place %x\nmapped %d", &place, &at); err != nil {
		t.Fatalf("%v of %q", err, printed)
	}
	s := recorded[fmt.Sprint(at)][0]
	var back uint64
	if _, err := fmt.Sscanf(strings.TrimPrefix(s.frames[1], lib), ":%x", &back); err != nil || place < 0x14000 || back < place || back >= place+64 {
		t.Errorf("%q: not in the function at %#x", s.frames, place)
	}
	if s.dropped != 0 || len(s.frames) < 7 || !strings.HasPrefix(s.frames[2], exe+":") {
		t.Errorf("%d left out of %q", s.dropped, s.frames)
	}
}
