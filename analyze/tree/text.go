package tree

import (
	"bufio"
	"fmt"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
)

const blank = "                                                                "

func indent(b *bufio.Writer, depth int) {
	for left := 2 * depth; left > 0; left -= len(blank) {
		b.WriteString(blank[:min(left, len(blank))])
	}
}

// WriteText writes a line for n and each node below it, indented, with its bytes
// as words puts them.
func (n *Node) WriteText(b *bufio.Writer, words func(*Node) string) { n.write(b, words, 0) }

func (n *Node) write(b *bufio.Writer, words func(*Node) string, depth int) {
	indent(b, depth)
	b.WriteString(analyze.Line(n.label))
	b.WriteString(" (")
	b.WriteString(words(n))
	b.WriteString(")\n")
	for _, c := range n.Children {
		c.write(b, words, depth+1)
	}
}

// WriteMost is WriteText for a page: of the children of a node those with at
// least so many used bytes, and a line that sums up the others that have any.
func (n *Node) WriteMost(b *bufio.Writer, least int64, words func(*Node) string) {
	n.writeMost(b, least, words, 0)
}

func (n *Node) writeMost(b *bufio.Writer, least int64, words func(*Node) string, depth int) {
	indent(b, depth)
	fmt.Fprintf(b, "%s (%s)\n", analyze.Line(n.label), words(n))
	var rest Node
	count := int64(0)
	for _, c := range n.Children {
		if c.Used >= least {
			c.writeMost(b, least, words, depth+1)
			continue
		}
		if c.Used == 0 {
			continue
		}
		count++
		rest.Used += c.Used
		rest.Acquired += c.Acquired
	}
	if count > 0 {
		indent(b, depth+1)
		fmt.Fprintf(b, "%d smaller line%s (%s)\n", count, analyze.Plural(count), words(&rest))
	}
}

// Size is a number of bytes for people and exact: "1.50 GiB (1610612736)".
func Size(n int64) string {
	if n > -1024 && n < 1024 {
		return format.Bytes(n)
	}
	return fmt.Sprintf("%s (%d)", format.Bytes(n), n)
}

// WriteRows writes a flat table of used bytes with its shares, the first so many
// rows; 0 is all. What is left out is summed up.
func WriteRows(b *bufio.Writer, by By, rows []*Row, top int) {
	var total, rest Amount
	shown := make([]*Row, 0, len(rows))
	left := int64(0)
	for _, r := range rows {
		a := Amount{r.Used, r.Acquired, r.Blocks}
		total.add(a)
		switch {
		case r.Used == 0 && r.Blocks == 0: // only on stacks, or the driver's
		case top > 0 && len(shown) == top:
			rest.add(a)
			left++
		default:
			shown = append(shown, r)
		}
	}
	stacks := by == ByLine || by == ByOwnLine || by == ByFunction
	row := func(share, used, bytes, blocks, on, name string) {
		fmt.Fprintf(b, "%7s  %11s  %14s  %8s  ", share, used, bytes, blocks)
		if stacks {
			fmt.Fprintf(b, "%11s  ", on)
		}
		fmt.Fprintf(b, "%s\n", name)
	}
	write := func(a Amount, on, name string) {
		share := 0.0
		if total.Used > 0 {
			share = 100 * float64(a.Used) / float64(total.Used)
		}
		row(fmt.Sprintf("%.1f %%", share), format.Bytes(a.Used), fmt.Sprint(a.Used), fmt.Sprint(a.Blocks), on, name)
	}
	row("share", "used", "bytes", "blocks", "on stack", by.String())
	for _, r := range shown {
		write(Amount{r.Used, r.Acquired, r.Blocks}, format.Bytes(r.OnStack), analyze.Line(r.Name))
	}
	if left > 0 {
		write(rest, "", fmt.Sprintf("%d more", left))
	}
}
