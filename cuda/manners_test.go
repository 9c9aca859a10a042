package cuda

import (
	"debug/elf"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
)

// The hook takes no lock that a program may hold (F4), allocates nothing and
// prints nothing: it has no function by which it could. What it calls of the
// interpreter, and of C's library in a rare moment, is looked up and not linked.
func TestTakesNoLock(t *testing.T) {
	f, err := elf.Open(filepath.Join(libraryDirectory(t), HookName))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	imported, err := f.ImportedSymbols()
	if err != nil || len(imported) < 5 {
		t.Fatalf("%v, %v", imported, err)
	}
	never := regexp.MustCompile(`^(pthread_(mutex|rwlock|cond|spin|once)|sem_|flockfile|call_once|mtx_|Py|_Py|(m|c|re|aligned_)alloc|free$|printf|fprintf|puts|fopen|write$|exit|abort|raise|sigaction|signal$|__stack_chk_fail)`)
	for _, s := range imported {
		if never.MatchString(s.Name) {
			t.Errorf("imports %s", s.Name)
		}
	}
	data, err := os.ReadFile(filepath.Join(libraryDirectory(t), HookName))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"PyGILState_Ensure", "PyEval_AcquireThread", "PyEval_RestoreThread"} {
		if strings.Contains(string(data), name) {
			t.Errorf("knows %s", name)
		}
	}
}

// Another tool's preload library, in front of ours and behind it: it sees every
// call, so do we, and the program is told the same (F8). It stands at the exported
// names, at dlsym, or at cuGetProcAddress.
func TestOtherTool(t *testing.T) {
	dir := libraryDirectory(t)
	linked := cc(t, "linked", "-DLINKED", programs+"flavours.c", "-ldl", "-L", dir, "-l:libcuda.so.1")
	opens := cc(t, "flavours", programs+"flavours.c", "-ldl")
	hook := filepath.Join(dir, HookName)
	for _, row := range []struct{ name, flag, door string }{
		{"by name, linked", "-DBY_NAME", "linked"},
		{"at dlsym, linked", "-DWRAPS_DLSYM", "linked"},
		{"at dlsym, dlsym", "-DWRAPS_DLSYM", "dlsym"},
		{"at dlsym, cuGetProcAddress", "-DWRAPS_DLSYM", "procaddress"},
		{"at cuGetProcAddress, cuGetProcAddress", "-DWRAPS_PROC", "procaddress"},
	} {
		t.Run(row.name, func(t *testing.T) {
			tool := cc(t, "libother.so", row.flag, "-shared", "-fPIC", "testdata/othertool.c", "-ldl")
			args := []string{opens, "--door", row.door}
			if row.door == "linked" {
				args[0] = linked
			}
			record := func(preload ...string) (events []string, out, told string) {
				said := filepath.Join(t.TempDir(), "said")
				p := program{args: args, env: []string{"OTHER_TOOL=" + said}}
				if len(preload) > 0 {
					p.env = append(p.env, "LD_PRELOAD="+strings.Join(preload, ":"))
				}
				lanes, out := p.run(t, newReceiver(t))
				for _, r := range all(lanes) {
					if r.Kind() != format.FreeDone {
						events = append(events, text(r))
					}
				}
				b, _ := os.ReadFile(said)
				return events, columns(out), string(b)
			}
			events, out, _ := record()
			if len(events) < 30 {
				t.Fatalf("%d events", len(events))
			}
			_, _, alone := record(tool)
			if alone == "" || strings.HasPrefix(alone, "0 ") {
				t.Fatalf("the tool says %q", alone)
			}
			for name, order := range map[string][]string{"in front": {tool, hook}, "behind": {hook, tool}} {
				gotEvents, gotOut, told := record(order...)
				if !slices.Equal(gotEvents, events) {
					t.Errorf("%s: %d events, without it %d", name, len(gotEvents), len(events))
				}
				if gotOut != out {
					t.Errorf("%s: the program prints\n%s\nwithout it\n%s", name, gotOut, out)
				}
				if told != alone {
					t.Errorf("%s: the tool says %q, without us %q", name, told, alone)
				}
			}
		})
	}
}

// columns leaves out of what flavours prints the pointers, and the last line.
func columns(out string) string {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	for i, l := range lines {
		f := strings.Split(l, "\t")
		if len(f) > 4 {
			f = slices.Delete(f, 3, 4)
		}
		lines[i] = strings.Join(f, "\t")
	}
	return strings.Join(lines[:len(lines)-1], "\n")
}
