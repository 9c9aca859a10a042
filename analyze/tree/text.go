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
	n.name(b)
	b.WriteString(" (")
	b.WriteString(words(n))
	b.WriteString(")\n")
	for _, c := range n.Children {
		c.write(b, words, depth+1)
	}
}

// name writes the line, and how often it is there.
func (n *Node) name(b *bufio.Writer) {
	b.WriteString(analyze.Line(n.label))
	switch {
	case n.most <= 1:
	case n.least == n.most:
		fmt.Fprintf(b, " × %d", n.most)
	default:
		fmt.Fprintf(b, " × %d to %d", n.least, n.most)
	}
}

// A Curve is which of the two numbers of a Node or Row a page shares out.
type Curve string

const (
	Used     Curve = "used"
	Acquired Curve = "acquired"
)

// Of is that one of the two.
func (c Curve) Of(used, acquired int64) int64 {
	if c == Acquired {
		return acquired
	}
	return used
}

// WriteMost is WriteText for a page: of the children of a node those with at
// least so many bytes, and a line that sums up the others that have any.
func (n *Node) WriteMost(b *bufio.Writer, c Curve, least int64, words func(*Node) string) {
	n.writeMost(b, c, least, words, 0)
}

func (n *Node) writeMost(b *bufio.Writer, curve Curve, least int64, words func(*Node) string, depth int) {
	indent(b, depth)
	n.name(b)
	fmt.Fprintf(b, " (%s)\n", words(n))
	var rest Node
	count := int64(0)
	for _, c := range n.Children {
		bytes := curve.Of(c.Used, c.Acquired)
		if bytes >= least {
			c.writeMost(b, curve, least, words, depth+1)
			continue
		}
		if bytes == 0 {
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

// WriteRows writes a flat table of a curve with its shares, the first so many
// rows; 0 is all. What is left out is summed up. Blocks, and what is on stacks, are
// those of used bytes.
func WriteRows(b *bufio.Writer, by By, c Curve, rows []*Row, top int) {
	var total, rest Amount
	shown := make([]*Row, 0, len(rows))
	left := int64(0)
	for _, r := range rows {
		a := Amount{r.Used, r.Acquired, r.Blocks}
		total.add(a)
		switch {
		case c.Of(r.Used, r.Acquired) == 0 && (c == Acquired || r.Blocks == 0): // only on stacks, or of the other curve
		case top > 0 && len(shown) == top:
			rest.add(a)
			left++
		default:
			shown = append(shown, r)
		}
	}
	stacks := c == Used && (by == ByLine || by == ByOwnLine || by == ByFunction)
	row := func(share, used, bytes, blocks, on, name string) {
		fmt.Fprintf(b, "%7s  %11s  %14s  ", share, used, bytes)
		if c == Used {
			fmt.Fprintf(b, "%8s  ", blocks)
		}
		if stacks {
			fmt.Fprintf(b, "%11s  ", on)
		}
		fmt.Fprintf(b, "%s\n", name)
	}
	write := func(a Amount, on, name string) {
		bytes := c.Of(a.Used, a.Acquired)
		row(percent(bytes, c.Of(total.Used, total.Acquired)), format.Bytes(bytes), fmt.Sprint(bytes), fmt.Sprint(a.Blocks), on, name)
	}
	row("share", string(c), "bytes", "blocks", "on stack", by.String())
	for _, r := range shown {
		write(Amount{r.Used, r.Acquired, r.Blocks}, format.Bytes(r.OnStack), analyze.Line(r.Name))
	}
	if left > 0 {
		write(rest, "", fmt.Sprintf("%d more", left))
	}
}
