package lines

import (
	"sort"

	"github.com/gpurec/gpurec/format"
)

// A Node is a line under one way of getting to it. It holds what was taken
// there and in all it called.
type Node struct {
	Kind     string  `json:"kind,omitempty"` // python, native, go, thread, label; "" at the root
	File     string  `json:"file,omitempty"`
	Line     int32   `json:"line,omitempty"`
	Function string  `json:"function,omitempty"`
	Used     int64   `json:"used"`
	Acquired int64   `json:"acquired"`
	Children []*Node `json:"children,omitempty"`

	label string
	index map[nodeKey]*Node
}

// nodeKey is what makes two frames one line.
type nodeKey struct {
	file     string
	line     int32
	function string
	kind     format.FrameKind
}

// leaves are sums by stack, in the order in which stacks were first seen. A
// tree built from them in this order has its nodes in the order in which
// events would have made them: a stack makes nodes only when it is first seen.
type leaves struct {
	index map[leafKey]*leaf
	order []*leaf
	last  *leaf
}

type leafKey struct {
	process format.ProcessID
	stack   format.StackID
}

type leaf struct {
	leafKey
	pool, driver   int64
	used, acquired int64 // set from them when it is known which is used
}

func newLeaves() leaves { return leaves{index: map[leafKey]*leaf{}} }

func (l *leaves) at(p format.ProcessID, s format.StackID) *leaf {
	k := leafKey{p, s}
	if l.last != nil && l.last.leafKey == k {
		return l.last
	}
	f := l.index[k]
	if f == nil {
		f = &leaf{leafKey: k}
		l.index[k] = f
		l.order = append(l.order, f)
	}
	l.last = f
	return f
}

// A tree is a Node and what its stacks could not say.
type tree struct {
	root                  Node
	maxDepth              int
	noLineUsed, noLineAcq int64 // bytes of stacks that name no line
	unknownStacks         int
	depth                 int // of the deepest line
	cut                   int // stacks that are deeper than mostDeep
	frames                []format.FrameID
}

// mostDeep bounds how deep a tree gets: its text grows with the square.
const mostDeep = 10_000

func newTree(maxDepth int) *tree { return &tree{root: Node{label: "_root"}, maxDepth: maxDepth} }

// add puts a leaf's bytes on its path: root first, then outermost first. The
// root is depth 1.
func (t *tree) add(f *leaf, defs *format.Defs) {
	var whole bool
	t.frames, whole = defs.Walk(f.stack, t.frames[:0])
	if f.stack == 0 {
		t.frames = t.frames[:0]
	} else if !whole {
		t.unknownStacks++
		t.frames = t.frames[:0]
	}
	t.root.Used += f.used
	t.root.Acquired += f.acquired
	if len(t.frames) > mostDeep && (t.maxDepth <= 0 || t.maxDepth > mostDeep+1) {
		t.cut++
	}
	n, line := &t.root, false
	for i, id := range t.frames {
		fr, ok := defs.Frame(id)
		if !ok {
			fr = format.Frame{Kind: format.FrameLabel, Function: "[unknown]"}
		}
		line = line || fr.Kind == format.FramePython || fr.Kind == format.FrameNative || fr.Kind == format.FrameGo
		if t.maxDepth > 0 && t.maxDepth <= i+1 || i >= mostDeep {
			continue // the rest only says whether there is a line
		}
		t.depth = max(t.depth, i+1)
		n = n.child(&fr)
		n.Used += f.used
		n.Acquired += f.acquired
	}
	if !line {
		t.noLineUsed += f.used
		t.noLineAcq += f.acquired
	}
}

func (n *Node) child(f *format.Frame) *Node {
	k := nodeKey{f.File, f.Line, f.Function, f.Kind}
	c := n.index[k]
	if c == nil {
		c = &Node{Kind: f.Kind.String(), File: f.File, Line: f.Line, Function: f.Function, label: f.String()}
		if n.index == nil {
			n.index = map[nodeKey]*Node{}
		}
		n.index[k] = c
		n.Children = append(n.Children, c)
	}
	return c
}

// sortBySize puts the largest child first; those of one size stay in the order
// in which they were seen.
func (n *Node) sortBySize() {
	sort.SliceStable(n.Children, func(i, j int) bool {
		a, b := n.Children[i], n.Children[j]
		if a.Used != b.Used {
			return a.Used > b.Used
		}
		return a.Acquired > b.Acquired
	})
	for _, c := range n.Children {
		c.sortBySize()
	}
}
