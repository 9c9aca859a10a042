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
// least so many bytes, used or acquired, and a line that sums up the others.
func (n *Node) WriteMost(b *bufio.Writer, least int64, words func(*Node) string) {
	n.writeMost(b, least, words, 0)
}

func (n *Node) writeMost(b *bufio.Writer, least int64, words func(*Node) string, depth int) {
	indent(b, depth)
	fmt.Fprintf(b, "%s (%s)\n", analyze.Line(n.label), words(n))
	var rest Node
	count := int64(0)
	for _, c := range n.Children {
		if c.Used >= least || c.Acquired >= least {
			c.writeMost(b, least, words, depth+1)
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
