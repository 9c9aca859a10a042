package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format/formattest"
)

const takerSource = `#include <stdlib.h>
static inline __attribute__((always_inline)) void *take(int n)
{
	return malloc(n);
}
__attribute__((noinline)) int grow(int n)
{
	char *p = take(n);
	return p[0];
}
int main(int argc, char **argv) { return grow(argc) + 1; }
`

// taker compiles a program with that build id; at is an address in take within
// grow, after the call of malloc.
func taker(t *testing.T, path, id string) (at uint64) {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("there is no gcc here")
	}
	dir := filepath.Dir(path)
	os.MkdirAll(dir, 0o700)
	source := filepath.Join(dir, "taker.c")
	if err := os.WriteFile(source, []byte(takerSource), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("gcc", "-O1", "-g", "-Wl,--build-id=0x"+id, "-o", path, source).CombinedOutput()
	if err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	out, err = exec.Command("objdump", "-d", "--no-show-raw-insn", path).Output()
	if err != nil {
		t.Skipf("objdump: %v", err)
	}
	_, body, _ := strings.Cut(string(out), "<grow>:")
	for _, line := range strings.Split(body, "\n") {
		if strings.Contains(line, "malloc") {
			fmt.Sscanf(strings.TrimSpace(line), "%x:", &at)
			return at + 4 // within the call
		}
	}
	t.Fatalf("there is no call in\n%s", body)
	return 0
}

// TestSymbolizeElsewhere is the way of a trace to another machine: recorded with a
// program at one path, named from a copy of it at another, beside one that is not it.
func TestSymbolizeElsewhere(t *testing.T) {
	const id = "c0ffee0123456789"
	home := t.TempDir()
	here := filepath.Join(home, "bin", "taker")
	at := taker(t, here, id)
	trace := formattest.Text(t, fmt.Sprintf(`
meta command=taker start=2026-11-30T10:00:00Z start_monotonic=1000
device 0 uuid=GPU-0 name=H200 total=100000
process 1 pid=4711 command="./taker"
frame 1 native "" 0 "" module=/srv/job/taker build_id=%s address=%d
frame 2 native "" 0 "" module="[vdso]" address=77
stack 10 0 1
stack 11 10 2
part
1000000 Alloc process=1 thread=7 api=cuMemAlloc_v2 device=0 address=0x1000 size=4096 stack=10
1100000 Alloc process=1 thread=7 api=cuMemAlloc_v2 device=0 address=0x3000 size=100 stack=11
`, id, at)).Path()
	raw := filepath.Join(t.TempDir(), "raw.gpurec")
	if err := os.CopyFS(raw, os.DirFS(trace)); err != nil {
		t.Fatal(err)
	}
	lines := func(trace string) string {
		_, out, _ := command1(t, "lines", trace)
		return out
	}
	before := fmt.Sprintf("_root (4.10KB, 4.10KB)\n  taker+%#x (4.10KB, 4.10KB)\n    [vdso]+0x4d (100.00B, 100.00B)\n", at)
	if got := lines(trace); got != before {
		t.Fatalf("as it was recorded it is\n%s", got)
	}
	code, out, stderr := command1(t, "symbolize", trace)
	if code != 0 || !strings.Contains(out, "but it is not here") || !strings.Contains(out, "but it is no file") || !strings.Contains(stderr, "nothing that was not known") || lines(trace) != before {
		t.Errorf("without the program: exit %d\n%s%s", code, out, stderr)
	}
	other := t.TempDir()
	taker(t, filepath.Join(other, "taker"), "0123")
	code, out, _ = command1(t, "symbolize", "--search", other, trace)
	if code != 0 || !strings.Contains(out, "is not the one recorded: its build id is 0123, not "+id) || lines(trace) != before {
		t.Errorf("with another: exit %d\n%s", code, out)
	}
	bare := t.TempDir()
	if out, err := exec.Command("objcopy", "--strip-all", here, filepath.Join(bare, "taker")).CombinedOutput(); err != nil {
		t.Fatalf("objcopy: %v\n%s", err, out)
	}
	code, out, _ = command1(t, "symbolize", "--search", bare, trace)
	if code != 0 || !strings.Contains(out, "--search takes its debug file, or the folder of it") || lines(trace) != before {
		t.Errorf("with a stripped one: exit %d\n%s", code, out)
	}
	named := filepath.Join(other, "named.gpurec")
	code, out, stderr = command1(t, "symbolize", "--search", other, "--search", home, "-o", named, "--json", trace)
	var r struct {
		Frames, Named, Lines, Inlined int
		Modules                       []struct{ From, Module string }
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != 0 || r.Frames != 2 || r.Named != 1 || r.Lines != 1 || r.Inlined != 1 || r.Modules[0].From != here {
		t.Errorf("with it: exit %d, %v\n%s%s", code, err, out, stderr)
	}
	source := filepath.Join(home, "bin", "taker.c")
	after := fmt.Sprintf("_root (4.10KB, 4.10KB)\n  %[1]s:8:grow (4.10KB, 4.10KB)\n    %[1]s:4:take (4.10KB, 4.10KB)\n      [vdso]+0x4d (100.00B, 100.00B)\n", source)
	if got := lines(named); got != after {
		t.Errorf("named it is\n%s", got)
	}
	if got := lines(trace); got != before {
		t.Errorf("a copy changed it to\n%s", got)
	}
	if code, out, stderr := command1(t, "verify", named); code != 0 {
		t.Errorf("verify: exit %d\n%s%s", code, out, stderr)
	}
	if code, _, stderr := command1(t, "symbolize", "--search", home, trace); code != 0 || lines(trace) != after {
		t.Errorf("in place: exit %d, %s\n%s", code, stderr, lines(trace))
	}
	if code, _, stderr := command1(t, "symbolize", "--max-dwarf", "0", trace); code != 0 || lines(trace) != after {
		t.Errorf("again, with less: exit %d, %s\n%s", code, stderr, lines(trace))
	}

	t.Run("a file", func(t *testing.T) {
		dir := t.TempDir()
		debug, binary, text := filepath.Join(dir, "keep.2026-11-30"), filepath.Join(dir, "a.out"), filepath.Join(dir, "notes.txt")
		os.WriteFile(text, []byte(strings.Repeat("no program\n", 100)), 0o600)
		for file, option := range map[string]string{debug: "--only-keep-debug", binary: "--preserve-dates"} { // of names that say nothing
			if out, err := exec.Command("objcopy", option, here, file).CombinedOutput(); err != nil {
				t.Fatalf("objcopy: %v\n%s", err, out)
			}
		}
		notIt := filepath.Join(other, "taker")
		for i, c := range []struct {
			search []string
			named  bool
			says   string
		}{
			{[]string{debug}, true, ""},
			{[]string{binary}, true, ""},
			{[]string{notIt, debug}, true, "note: " + notIt + " is of no module of the trace: its build id is 0123"},
			{[]string{notIt}, false, "note: " + notIt + " is of no module of the trace: its build id is 0123"},
			{[]string{text}, false, "note: " + text + " is not read as an ELF file"},
		} {
			out := filepath.Join(dir, fmt.Sprintf("%d.gpurec", i))
			args := []string{"symbolize", "-o", out, raw}
			for _, s := range c.search {
				args = append(args, "--search", s)
			}
			code, said, stderr := command1(t, args...)
			want := before
			if c.named {
				want = after
			}
			if code != 0 || lines(out) != want || !strings.Contains(stderr, c.says) || strings.Contains(stderr, "note: ") != (c.says != "") {
				t.Errorf("%q: exit %d\n%s%s%s", c.search, code, said, stderr, lines(out))
			}
		}
	})

	t.Run("usage", func(t *testing.T) {
		for _, c := range []struct {
			args []string
			code int
			says string
		}{
			{[]string{}, exitUsage, "want one trace"},
			{[]string{trace, trace}, exitUsage, "want one trace"},
			{[]string{"--search", "/not/there", trace}, exitUsage, "it is no folder and no file"},
			{[]string{"--search", "/dev/null", trace}, exitUsage, "it is no folder and no file"},
			{[]string{"--debug-dir", here, trace}, exitUsage, "it is no folder"},
			{[]string{"--max-dwarf", "many", trace}, exitUsage, "is not bytes"},
			{[]string{"-o", named, trace}, exitFailed, "it exists already"},
			{[]string{"-o", filepath.Join(trace, "x"), trace}, exitFailed, ""},
			{[]string{filepath.Join(trace, "00000")}, exitFailed, "name the trace"},
			{[]string{"/not/there"}, exitFailed, "/not/there"},
		} {
			if code, _, stderr := command1(t, append([]string{"symbolize"}, c.args...)...); code != c.code || !strings.Contains(stderr, c.says) {
				t.Errorf("%q: exit %d, %s", c.args, code, stderr)
			}
		}
	})
}
