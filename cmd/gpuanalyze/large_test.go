package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format/formattest"
)

// Names of any length, which a program may give, are cut in what people read,
// and whole in JSON.
func TestLongNames(t *testing.T) {
	long := strings.Repeat("n", 100_000)
	dir := formattest.Text(t, strings.NewReplacer("LONG", long).Replace(`
meta command=LONG host=LONG no_samples=LONG reason=LONG ending=failed
device 0 uuid=LONG name=LONG total=100000
device 1
process 1 pid=4711 command=LONG
frame 1 python LONG 3 LONG
stack 10 0 1
name 3 LONG
part
1000 ThreadBegin thread=7 name=3
1000 ScopeBegin thread=7 api=scope scope=1 name=3 note=3
1100 Alloc thread=7 api=cupy device=0 address=0x1 object=0x5 size=100 requested=90 stack=10 scope=1
1150 ScopeReport thread=7 api=scope scope=1 name=3 note=3
1170 Unhooked thread=7 name=3
1200 ScopeEnd thread=7 api=scope scope=1
1300 Alloc thread=7 api=cupy device=1 address=0x2 object=0x6 size=100 stack=10
`)).Path()
	seen := 0
	for _, args := range []string{"summary", "lines", "lines --at peak", "peak --by line", "timeline --by line", "timeline --by scope", "contexts", "contexts --by name", "contexts --units fastai --curve used", "devices", "verify", "leaks", "leaks --by function", "stats", "ranks", "lines --scope x"} {
		code, stdout, stderr := command1(t, append(strings.Fields(args), dir)...)
		if code != exitPartial && args != "lines --scope x" || len(stdout) > 20000 || len(stderr) > 20000 || !strings.Contains(stdout+stderr, "nnn…") {
			t.Errorf("%s: exit %d, %d and %d characters, %.300q", args, code, len(stdout), len(stderr), stdout)
		}
		seen++
	}
	for _, args := range []string{"summary", "lines", "contexts", "devices", "leaks", "stats", "ranks"} {
		if _, stdout, _ := command1(t, args, "--json", dir); !strings.Contains(stdout, long) {
			t.Errorf("%s --json has cut a name", args)
		}
		seen++
	}
	if seen < 20 {
		t.Errorf("%d commands", seen)
	}
}

// Output must not grow with the square of a depth.
func TestDeep(t *testing.T) {
	const depth = 12_000
	var b strings.Builder
	b.WriteString("process 1 pid=4711\nframe 1 python f 1 g\nname 3 s\n")
	for i := range depth {
		fmt.Fprintf(&b, "stack %d %d 1\n", i+1, i)
	}
	b.WriteString("part\n")
	for i := range depth {
		fmt.Fprintf(&b, "%d ScopeBegin thread=7 api=scope scope=%d parent=%d name=3\n", 1000+i, i+1, i)
	}
	fmt.Fprintf(&b, "90000 Alloc thread=7 api=cupy address=1 object=1 size=5 stack=%d scope=%d\n", depth, depth)
	dir := formattest.Text(t, b.String()).Path()
	for _, args := range []string{"contexts", "contexts --by name"} {
		code, stdout, _ := command1(t, append(strings.Fields(args), dir)...)
		if code != 0 || strings.Count(stdout, "\n") != depth+1 || len(stdout) > 400*depth {
			t.Errorf("%s: exit %d, %d lines, %d bytes", args, code, strings.Count(stdout, "\n"), len(stdout))
		}
	}
	code, stdout, stderr := command1(t, "lines", dir)
	if lines := strings.Count(stdout, "\n"); code != 0 || lines != 10_001 || !strings.Contains(stderr, "1 stack deeper than 10000 lines") {
		t.Errorf("lines: exit %d, %d lines, %q", code, lines, stderr)
	}
	code, stdout, _ = command1(t, "lines", "--json", dir)
	var v struct{ Trees []struct{ Used int } }
	if err := json.Unmarshal([]byte(stdout), &v); code != 0 || err == nil && v.Trees[0].Used != 5 || len(stdout) > 200*depth {
		t.Errorf("lines --json: exit %d, %d bytes, %v", code, len(stdout), err)
	}
	if code, _, stderr := command1(t, "lines", "--max-depth", "3", dir); code != 0 || strings.Contains(stderr, "deeper") {
		t.Errorf("lines --max-depth: exit %d, %s", code, stderr)
	}
	if code, _, stderr := command1(t, "export", dir, "-o", t.TempDir()+"/x.arrow"); code != 0 {
		t.Errorf("export: exit %d, %s", code, stderr)
	}
}
