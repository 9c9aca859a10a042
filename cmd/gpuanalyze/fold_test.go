package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format/formattest"
)

// TestFoldedRecursion: two functions that call each other are two lines where people
// read what was live, and all their turns in JSON and in CuPy's text.
func TestFoldedRecursion(t *testing.T) {
	text := "process 1 pid=1 command=x\nframe 1 python a.py 1 even\nframe 2 python a.py 2 odd\nframe 3 python a.py 3 take\n"
	const deep = 40
	for i := 1; i <= deep; i++ {
		text += fmt.Sprintf("stack %d %d %d\n", i, i-1, 1+(i+1)%2)
	}
	text += fmt.Sprintf("stack %d %d %d\n", deep+1, deep, 3) + "part\n1000 Alloc process=1 thread=1 api=torch device=0 address=0x1000 size=100 stack=41\n"
	dir := formattest.Text(t, text).Path()
	for _, row := range []struct {
		args []string
		odd  int
		want string
	}{
		{[]string{"lines"}, deep / 2, ""},
		{[]string{"lines", "--at", "peak"}, 1, "\n  a.py:1:even × 20 (100.00B, 0.00B)\n    a.py:2:odd × 20 (100.00B, 0.00B)\n      a.py:3:take (100.00B, 0.00B)\n"},
		{[]string{"lines", "--at", "end"}, 1, "\n    a.py:2:odd × 20 (100.00B, 0.00B)\n"},
		{[]string{"lines", "--at", "1s"}, 1, "\n    a.py:2:odd × 20 (100.00B, 0.00B)\n"},
		{[]string{"lines", "--at", "peak", "--max-depth", "3"}, 1, "\n    a.py:2:odd × 20 (100.00B, 0.00B)\n"},
		{[]string{"lines", "--at", "peak", "--json"}, deep / 2, ""},
		{[]string{"peak", "--by", "tree"}, 1, "\n    a.py:2:odd × 20 (100.0 %, 100 B)\n"},
	} {
		_, out, stderr := command1(t, append(row.args, dir)...)
		if n := strings.Count(out, "odd"); n != row.odd || !strings.Contains(out, row.want) {
			t.Errorf("%q: %d lines\n%s%s", row.args, n, out, stderr)
		}
	}
}
