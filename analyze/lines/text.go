package lines

import (
	"bufio"
	"io"
	"strconv"

	"github.com/gpurec/gpurec/analyze"
)

// Size is a number of bytes the way CuPy prints it: two decimals, units of
// 1024, and the unit is chosen before rounding, so that 1024.00KB is possible.
func Size(n int64) string { return size(float64(n)) }

func size(f float64) string {
	for _, unit := range [...]string{"", "K", "M", "G", "T", "P", "E"} {
		if f < 1024 {
			return strconv.FormatFloat(f, 'f', 2, 64) + unit + "B"
		}
		f /= 1024
	}
	return strconv.FormatFloat(f, 'f', 2, 64) + "ZB"
}

// WriteText writes the trees. One tree is LineProfileHook's text; several have
// a line above each that says which it is.
func (r *Report) WriteText(w io.Writer) error {
	b := bufio.NewWriter(w)
	for i, t := range r.Trees {
		if len(r.Trees) > 1 {
			if i > 0 {
				b.WriteByte('\n')
			}
			b.WriteString(t.Title)
			b.WriteByte('\n')
		}
		t.Root.write(b, 0)
	}
	return b.Flush()
}

const blank = "                                                                "

func (n *Node) write(b *bufio.Writer, depth int) {
	for left := 2 * depth; left > 0; left -= len(blank) {
		b.WriteString(blank[:min(left, len(blank))])
	}
	b.WriteString(analyze.Line(n.label))
	b.WriteString(" (")
	b.WriteString(Size(n.Used))
	b.WriteString(", ")
	b.WriteString(Size(n.Acquired))
	b.WriteString(")\n")
	for _, c := range n.Children {
		c.write(b, depth+1)
	}
}
