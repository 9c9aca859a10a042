package report

import (
	"container/heap"
	"fmt"
	"strconv"
	"strings"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/tree"
	"github.com/gpurec/gpurec/format"
)

// Nodes is the table that all views share: a node is a label below another
// node, and stands after it. Node 0 is the root. Lists are numbers in a text,
// with a blank between them, which is a third of what JSON takes.
type Nodes struct {
	Labels  []string `json:"labels"`
	Kinds   string   `json:"kinds"`   // a letter a label: o own code, i installed, n native, t thread, r rest, l other
	Parents numbers  `json:"parents"` // of node 1, 2, …
	Names   numbers  `json:"names"`   // label of node 1, 2, …

	labels map[labelKey]int
	nodes  map[[2]int]int
	kinds  []byte
}

type labelKey struct {
	name string
	kind byte
}

// numbers are printed as one text.
type numbers []int64

func (n numbers) MarshalJSON() ([]byte, error) {
	b := make([]byte, 0, 2+4*len(n))
	b = append(b, '"')
	for i, v := range n {
		if i > 0 {
			b = append(b, ' ')
		}
		b = strconv.AppendInt(b, v, 10)
	}
	return append(b, '"'), nil
}

// A Flame is one view's own bytes by node: what was taken there, and not in what
// it called.
type Flame struct {
	Nodes    numbers `json:"nodes"`
	Used     numbers `json:"used"`
	Acquired numbers `json:"acquired"`
}

func newNodes() *Nodes {
	return &Nodes{labels: map[labelKey]int{}, nodes: map[[2]int]int{}, Parents: numbers{}, Names: numbers{}, Labels: []string{}}
}

// mostLabel is how much of file:line:function a page shows: its end.
const mostLabel = 240

func (n *Nodes) label(name string, kind byte) int {
	k := labelKey{name, kind}
	at, ok := n.labels[k]
	if !ok {
		at = len(n.Labels)
		n.labels[k] = at
		if r := []rune(name); len(r) > mostLabel {
			name = "…" + string(r[len(r)-mostLabel:])
		}
		n.Labels = append(n.Labels, analyze.Printable(name))
		n.kinds = append(n.kinds, kind)
	}
	return at
}

func (n *Nodes) child(parent, label int) int {
	k := [2]int{parent, label}
	at, ok := n.nodes[k]
	if !ok {
		n.Parents = append(n.Parents, int64(parent))
		n.Names = append(n.Names, int64(label))
		at = len(n.Parents)
		n.nodes[k] = at
	}
	return at
}

func (n *Nodes) finish() { n.Kinds = string(n.kinds) }

// kindOf is a label's letter.
func kindOf(n *tree.Node) byte {
	switch n.Kind {
	case format.FramePython.String(), format.FrameGo.String():
		k := format.FramePython
		if n.Kind == format.FrameGo.String() {
			k = format.FrameGo
		}
		if analyze.Own(&format.Frame{Kind: k, File: n.File}) {
			return 'o'
		}
		return 'i'
	case format.FrameNative.String():
		return 'n'
	case format.FrameThread.String():
		return 't'
	}
	return 'l'
}

// flame puts the largest nodes of a tree into the table, at most so many, and
// what is smaller into a last child of its parent. rest has no line at all.
func (n *Nodes) flame(root *tree.Node, rest tree.Amount, most int) *Flame {
	f := &Flame{Nodes: numbers{}, Used: numbers{}, Acquired: numbers{}}
	shown := largest(root, most)
	type item struct {
		node *tree.Node
		at   int
	}
	todo := []item{{root, 0}}
	for len(todo) > 0 {
		it := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		self := tree.Amount{Used: it.node.Used, Acquired: it.node.Acquired}
		small, count := tree.Amount{}, 0
		for _, c := range it.node.Children {
			self.Used -= c.Used
			self.Acquired -= c.Acquired
			if shown[c] {
				todo = append(todo, item{c, n.child(it.at, n.label(c.Label(), kindOf(c)))})
				continue
			}
			small.Used += c.Used
			small.Acquired += c.Acquired
			count++
		}
		f.add(it.at, self)
		if count > 0 {
			f.add(n.child(it.at, n.label("[smaller lines]", 'r')), small)
		}
	}
	f.add(n.child(0, n.label("[smaller stacks]", 'r')), rest)
	return f
}

func (f *Flame) add(at int, a tree.Amount) {
	if a.Used == 0 && a.Acquired == 0 {
		return
	}
	f.Nodes = append(f.Nodes, int64(at))
	f.Used = append(f.Used, a.Used)
	f.Acquired = append(f.Acquired, a.Acquired)
}

// largest are the nodes with the most bytes, used or acquired; each stands with
// those above it, which have as many at least.
func largest(root *tree.Node, most int) map[*tree.Node]bool {
	shown := map[*tree.Node]bool{}
	h := &nodeHeap{used: max(root.Used, 1), acquired: max(root.Acquired, 1)}
	add := func(n *tree.Node) {
		for _, c := range n.Children {
			heap.Push(h, c)
		}
	}
	add(root)
	for h.Len() > 0 && len(shown) < most {
		n := heap.Pop(h).(*tree.Node)
		if n.Used == 0 && n.Acquired == 0 {
			break
		}
		shown[n] = true
		add(n)
	}
	return shown
}

type nodeHeap struct {
	nodes          []*tree.Node
	used, acquired int64
}

func (h *nodeHeap) share(n *tree.Node) float64 {
	return max(float64(n.Used)/float64(h.used), float64(n.Acquired)/float64(h.acquired))
}
func (h *nodeHeap) Len() int           { return len(h.nodes) }
func (h *nodeHeap) Less(i, j int) bool { return h.share(h.nodes[i]) > h.share(h.nodes[j]) }
func (h *nodeHeap) Swap(i, j int)      { h.nodes[i], h.nodes[j] = h.nodes[j], h.nodes[i] }
func (h *nodeHeap) Push(x any)         { h.nodes = append(h.nodes, x.(*tree.Node)) }
func (h *nodeHeap) Pop() any {
	n := h.nodes[len(h.nodes)-1]
	h.nodes = h.nodes[:len(h.nodes)-1]
	return n
}

// lineTotals are a tree's bytes by innermost line.
func lineTotals(root *tree.Node) (rows []*tree.Row) {
	by := map[string]*tree.Row{}
	add := func(name string, a tree.Amount) {
		if a.Used == 0 && a.Acquired == 0 {
			return
		}
		r := by[name]
		if r == nil {
			r = &tree.Row{Name: name}
			by[name] = r
			rows = append(rows, r)
		}
		r.Used += a.Used
		r.Acquired += a.Acquired
	}
	type item struct {
		node *tree.Node
		line string
	}
	todo := []item{{root, tree.NoLineName}}
	for len(todo) > 0 {
		it := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		self := tree.Amount{Used: it.node.Used, Acquired: it.node.Acquired}
		for _, c := range it.node.Children {
			self.Used -= c.Used
			self.Acquired -= c.Acquired
			line := c.Label()
			if k := kindOf(c); (k == 't' || k == 'l') && !strings.HasPrefix(it.line, "[") {
				line = it.line
			}
			todo = append(todo, item{c, line})
		}
		add(it.line, self)
	}
	return rows
}

// more is the name of the row that sums up what a table leaves out.
func more(n int) string { return fmt.Sprintf("[%d more]", n) }
