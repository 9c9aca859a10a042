package lines

import (
	"bufio"
	"io"
	"strconv"

	"github.com/gpurec/gpurec/analyze/tree"
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
		if t.Root == nil {
			tree.WriteCross(b, t.ByScope)
			continue
		}
		t.Root.WriteText(b, words)
	}
	return b.Flush()
}

// words are CuPy's: its two sizes.
func words(n *tree.Node) string { return Size(n.Used) + ", " + Size(n.Acquired) }
