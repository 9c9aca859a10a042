package tree

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/formattest"
)

// However many lines a line calls, each is one node, in the order in which it was
// first seen; frames that differ in what is not shown are one line.
func TestManyChildren(t *testing.T) {
	for _, n := range []int{1, fewChildren, fewChildren + 1, 3 * fewChildren} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			var text strings.Builder
			text.WriteString("process 1 pid=1 command=x\nframe 1 python a.py 1 main\nstack 1 0 1\n")
			for i := range 2 * n {
				fmt.Fprintf(&text, "frame %d python a.py %d f\nstack %d 1 %d\n", 2+i, 2+i%n, 2+i, 2+i)
			}
			text.WriteString("part\n")
			for i := range 2 * n {
				fmt.Fprintf(&text, "%d Alloc thread=1 api=torch device=0 address=%d size=1 stack=%d\n", 1000+i, 4096+i, 2+i)
			}
			ask(t, formattest.Text(t, text.String()), func(p *analyze.Pass, a *answer) {
				tr := Each(a.w.highs[format.Device(0)].High).Tree(0, p.Defs)
				main := tr.Root.Children[0]
				if len(main.Children) != n {
					t.Fatalf("%d lines, want %d", len(main.Children), n)
				}
				for i, c := range main.Children {
					if c.Line != int32(2+i) || c.Used != 2 {
						t.Errorf("child %d is %s with %d", i, c.Label(), c.Used)
					}
				}
			})
		})
	}
}
