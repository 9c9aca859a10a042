package tree

import (
	"bufio"
	"bytes"
	"fmt"
	"math/rand"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
)

// treeOf adds stacks, a letter a frame, each with as many bytes as it has letters and a
// thousand more.
func treeOf(t *testing.T, tr *Tree, stacks ...string) string {
	t.Helper()
	defs := format.NewDefs()
	next := format.StackID(1)
	for c := 'a'; c <= 'z'; c++ {
		defs.PutFrame(format.Frame{ID: format.FrameID(c), Kind: format.FramePython, File: "x.py", Line: 7, Function: string(c)})
	}
	for _, s := range stacks {
		var at format.StackID
		for _, c := range s {
			defs.PutStack(format.Stack{ID: next, Parent: at, Frame: format.FrameID(c)})
			at = next
			next++
		}
		tr.Add(at, Amount{Used: int64(1000 + len(s))}, defs)
	}
	var out bytes.Buffer
	b := bufio.NewWriter(&out)
	tr.Root.WriteText(b, func(n *Node) string { return fmt.Sprint(n.Used) })
	b.Flush()
	return strings.ReplaceAll(out.String(), "x.py:7:", "")
}

// TestFold: a recursion is one line with a count, whatever its turns take or call.
func TestFold(t *testing.T) {
	for _, row := range []struct {
		name   string
		stacks []string
		want   string
	}{
		{"none", []string{"mfgt", "mft"}, "_root (2007)\n  m (2007)\n    f (2007)\n      g (1004)\n        t (1004)\n      t (1003)\n"},
		{"a line that calls itself", []string{"mffft"}, "_root (1005)\n  m (1005)\n    f × 3 (1005)\n      t (1005)\n"},
		{"each turn takes some", []string{"mft", "mfft", "mffft"}, "_root (3012)\n  m (3012)\n    f × 1 to 3 (3012)\n      t (3012)\n"},
		{"two in turn", []string{"mfgfgt"}, "_root (1006)\n  m (1006)\n    f × 2 (1006)\n      g × 2 (1006)\n        t (1006)\n"},
		{"two in turn, ended by the first", []string{"mfgfgft"}, "_root (1007)\n  m (1007)\n    f × 2 (1007)\n      g × 2 (1007)\n        f (1007)\n          t (1007)\n"},
		{"four in turn", []string{"abcdabcdabcdt"}, "_root (1013)\n  a × 3 (1013)\n    b × 3 (1013)\n      c × 3 (1013)\n        d × 3 (1013)\n          t (1013)\n"},
		{"one that calls itself, within two in turn", []string{"ffgffgt"}, "_root (1007)\n  f × 4 (1007)\n    g × 2 (1007)\n      t (1007)\n"},
		{"five in turn are too many", []string{"abcdeabcde"}, "_root (1010)\n  a (1010)\n    b (1010)\n      c (1010)\n        d (1010)\n          e (1010)\n            a (1010)\n              b (1010)\n                c (1010)\n                  d (1010)\n                    e (1010)\n"},
		{"a line that comes again elsewhere", []string{"fgxft"}, "_root (1005)\n  f (1005)\n    g (1005)\n      x (1005)\n        f (1005)\n          t (1005)\n"},
		{"deep", []string{"m" + strings.Repeat("f", 20_000) + "t"}, "_root (21002)\n  m (21002)\n    f × 20000 (21002)\n      t (21002)\n"},
	} {
		tr := New(0).Fold()
		if got := treeOf(t, tr, row.stacks...); got != row.want || tr.Cut != 0 {
			t.Errorf("%s: %d cut\n%s", row.name, tr.Cut, got)
		}
	}
	if got, want := treeOf(t, New(0), "mfft"), "_root (1004)\n  m (1004)\n    f (1004)\n      f (1004)\n        t (1004)\n"; got != want {
		t.Errorf("unfolded it is\n%s", got)
	}
}

// Whatever the stacks: the root has all bytes, a line at least what is below it, each
// outermost line what it has unfolded, and turns are as many as there were frames.
func TestFoldKeepsSums(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	for range 300 {
		var stacks []string
		for range 1 + r.Intn(20) {
			s := make([]byte, r.Intn(30))
			for i := range s {
				s[i] = 'a' + byte(r.Intn(1+r.Intn(3)))
			}
			stacks = append(stacks, string(s))
		}
		whole, fold := New(0), New(0).Fold()
		treeOf(t, whole, stacks...)
		treeOf(t, fold, stacks...)
		if whole.Root.Used != fold.Root.Used || len(whole.Root.Children) != len(fold.Root.Children) {
			t.Fatalf("%q: %d and %d", stacks, whole.Root.Used, fold.Root.Used)
		}
		for i, c := range whole.Root.Children {
			if f := fold.Root.Children[i]; c.Used != f.Used || c.Label() != f.Label() {
				t.Fatalf("%q: %s has %d, %s %d", stacks, c.Label(), c.Used, f.Label(), f.Used)
			}
		}
		var check func(n *Node)
		check = func(n *Node) {
			below := int64(0)
			for _, c := range n.Children {
				below += c.Used
				check(c)
			}
			if below > n.Used {
				t.Fatalf("%q: %s has %d, %d below", stacks, n.Label(), n.Used, below)
			}
		}
		check(&fold.Root)
		for _, s := range stacks {
			kept, turns := folded([]byte(s), nil, func(a, b byte) bool { return a == b })
			all := 0
			for _, n := range turns {
				all += n
			}
			if all != len(s) || len(kept) != len(turns) {
				t.Fatalf("%q: %d turns of %d lines", s, all, len(kept))
			}
		}
	}
}
