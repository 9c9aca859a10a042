package tree

import (
	"sort"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
)

// A Node is a line under one way of getting to it. It holds what was taken
// there and in all it called.
type Node struct {
	Kind     string  `json:"kind,omitempty"` // python, native, go, thread, label; "" at the root
	File     string  `json:"file,omitempty"`
	Line     int32   `json:"line,omitempty"`
	Function string  `json:"function,omitempty"`
	Module   string  `json:"module,omitempty"`  // native: the mapped file
	Address  uint64  `json:"address,omitempty"` // native without a function: in the module
	Used     int64   `json:"used"`
	Acquired int64   `json:"acquired"`
	Children []*Node `json:"children,omitempty"`

	label       string
	index       map[nodeKey]*Node
	least, most int // times that stacks have it here, where recursions are folded; else 0
}

// Label is the line as file:line:function; the root's is _root.
func (n *Node) Label() string { return n.label }

// nodeKey is what makes two frames one line: native ones without a line by
// module and function, without a function by address.
type nodeKey struct {
	source string
	line   int32
	name   string
	kind   format.FrameKind
}

// A Tree is a Node and what its stacks could not say.
type Tree struct {
	Root    Node
	NoLine  Amount // of stacks that name no line
	Named   Amount // of these, of stacks that name a function
	Unknown int    // stacks whose definition is not there
	Depth   int    // of the deepest line; the root has 0
	Cut     int    // stacks that are deeper than MostDeep

	maxDepth int
	fold     bool
	walk     walk
	turns    []int
	judge    *analyze.Judge // of the trace
}

// MostDeep bounds how deep a tree gets: its text grows with the square.
const MostDeep = 10_000

// New returns an empty tree. A max depth over 0 keeps the root and the outermost
// lines: the root is depth 1.
func New(maxDepth int) *Tree { return &Tree{Root: Node{label: "_root"}, maxDepth: maxDepth} }

// Fold makes a recursion one line with a count, however deep, and what its turns
// take or call one line below: no sum changes but that of lines within it.
func (t *Tree) Fold() *Tree {
	t.fold = true
	return t
}

// Add puts bytes on a stack's path: root first, then outermost first. A stack
// makes nodes when it is first added, so children stand in that order until
// they are sorted.
func (t *Tree) Add(stack format.StackID, a Amount, defs *format.Defs) {
	frames, whole := t.walk.frames(stack, defs)
	if !whole {
		t.Unknown++
	}
	if t.fold {
		frames, t.turns = folded(frames, t.turns)
	}
	t.Root.Used += a.Used
	t.Root.Acquired += a.Acquired
	if len(frames) > MostDeep && (t.maxDepth <= 0 || t.maxDepth > MostDeep+1) {
		t.Cut++
	}
	n := &t.Root
	for i := range frames {
		fr := &frames[i]
		if t.maxDepth > 0 && t.maxDepth <= i+1 || i >= MostDeep {
			break
		}
		t.Depth = max(t.Depth, i+1)
		n = n.child(fr, defs)
		n.Used += a.Used
		n.Acquired += a.Acquired
		if t.fold {
			if n.most == 0 {
				n.least = t.turns[i]
			}
			n.least, n.most = min(n.least, t.turns[i]), max(n.most, t.turns[i])
		}
	}
	if !t.judge.Of(defs) {
		t.judge = analyze.NewJudge(defs)
	}
	line, function := t.judge.Known(stack)
	if !line {
		t.NoLine.add(a)
	}
	if !line && function {
		t.Named.add(a)
	}
}

// IsLine reports whether a frame of that kind is of a program, and not a word
// that stands for one.
func IsLine(k format.FrameKind) bool {
	return k == format.FramePython || k == format.FrameNative || k == format.FrameGo
}

// A walk is a stack's frames, in memory that is used again.
type walk struct {
	ids []format.FrameID
	buf []format.Frame
}

// frames returns the frames of a stack, outermost first, and whether its
// definition is there; where it is not there are none.
func (w *walk) frames(stack format.StackID, defs *format.Defs) ([]format.Frame, bool) {
	w.buf = w.buf[:0]
	if stack == 0 {
		return w.buf, true
	}
	var whole bool
	if w.ids, whole = defs.Walk(stack, w.ids[:0]); !whole {
		return w.buf, false
	}
	return w.look(defs), true
}

func (w *walk) look(defs *format.Defs) []format.Frame {
	for _, id := range w.ids {
		fr, ok := defs.Frame(id)
		if !ok {
			fr = format.Frame{Kind: format.FrameLabel, Function: "[unknown]"}
		}
		w.buf = append(w.buf, fr)
	}
	return w.buf
}

func (n *Node) child(f *format.Frame, defs *format.Defs) *Node {
	k := keyOf(f)
	c := n.index[k]
	if c == nil {
		c = &Node{Kind: f.Kind.String(), File: f.File, Line: f.Line, Function: f.Function, label: defs.Shown(f).String()}
		if f.Kind == format.FrameNative {
			c.Module = f.Module
		}
		if f.Kind == format.FrameNative && f.Function == "" {
			c.Address = f.Address
		}
		if n.index == nil {
			n.index = map[nodeKey]*Node{}
		}
		n.index[k] = c
		n.Children = append(n.Children, c)
	}
	return c
}

func keyOf(f *format.Frame) nodeKey { return nodeKey{f.Source(), f.Line, f.Name(), f.Kind} }

// Sort puts the largest child first; those of one size stay in the order in
// which they were added.
func (n *Node) Sort() {
	sort.SliceStable(n.Children, func(i, j int) bool {
		a, b := n.Children[i], n.Children[j]
		if a.Used != b.Used {
			return a.Used > b.Used
		}
		return a.Acquired > b.Acquired
	})
	for _, c := range n.Children {
		c.Sort()
	}
}
