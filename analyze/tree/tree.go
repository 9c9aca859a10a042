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
	number      int32           // of its line in its tree
	index       map[int32]*Node // children by number, where they are many
	least, most int             // times that stacks have it here, where recursions are folded; else 0
}

// Label is the line as file:line:function; the root's is _root.
func (n *Node) Label() string { return n.label }

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
	ids      []format.FrameID
	on       []*Node // a stack's lines
	turns    []int
	lines    lineNodes
	bare     bool                                  // there are to be no lines
	stacks   analyze.Memo[format.StackID, stackIs] // of the trace, where bare
	judge    *analyze.Judge                        // of the trace
}

// MostDeep bounds how deep a tree gets: its text grows with the square.
const MostDeep = 10_000

// New returns an empty tree. A max depth over 0 keeps the root and the outermost
// lines: the root is depth 1.
func New(maxDepth int) *Tree { return &Tree{Root: Node{label: "_root"}, maxDepth: maxDepth} }

// Like makes t know of frames what o, a tree of the same trace, has found out.
func (t *Tree) Like(o *Tree) *Tree {
	t.judge, t.lines = o.judge, o.lines
	return t
}

// Fold makes a recursion one line with a count, however deep, and what its turns
// take or call one line below: no sum changes but that of lines within it.
func (t *Tree) Fold() *Tree {
	t.fold = true
	return t
}

// NewTotals returns a tree that has no lines, only what they add up to.
func NewTotals() *Tree {
	t := New(0)
	t.bare = true
	return t
}

// Add puts bytes on a stack's path: root first, then outermost first. A stack
// makes nodes when it is first added, so children stand in that order until
// they are sorted.
func (t *Tree) Add(stack format.StackID, a Amount, defs *format.Defs) {
	if !t.judge.Of(defs) {
		t.judge, t.stacks = analyze.NewJudge(defs), analyze.Memo[format.StackID, stackIs]{}
	}
	t.Root.Used += a.Used
	t.Root.Acquired += a.Acquired
	s := t.stacks.At(stack)
	if !t.bare || !s.known {
		s = t.look(stack, a, defs)
	}
	if !s.whole {
		t.Unknown++
	}
	if s.cut {
		t.Cut++
	}
	if !s.line {
		t.NoLine.add(a)
	}
	if !s.line && s.function {
		t.Named.add(a)
	}
}

// stackIs is what a tree needs of a stack beside its lines.
type stackIs struct{ known, whole, cut, line, function bool }

// look adds a stack's lines, unless there are to be none: then it remembers what
// the stack is, which is added once for each path of scopes.
func (t *Tree) look(stack format.StackID, a Amount, defs *format.Defs) (s stackIs) {
	t.ids, s.whole = defs.Walk(stack, t.ids[:0])
	on := t.on[:0]
	if s.whole {
		for _, id := range t.ids {
			on = append(on, t.lines.of(id, defs))
		}
	}
	t.on = on
	if t.fold {
		on, t.turns = folded(on, t.turns, func(a, b *Node) bool { return a.number == b.number })
	}
	s.known = true
	s.cut = len(on) > MostDeep && (t.maxDepth <= 0 || t.maxDepth > MostDeep+1)
	s.line, s.function = t.judge.Known(stack)
	deep := min(len(on), MostDeep)
	if t.maxDepth > 0 {
		deep = min(deep, t.maxDepth-1)
	}
	t.Depth = max(t.Depth, deep)
	if t.bare {
		_, next := defs.Next()
		t.stacks.Put(stack, s, next)
		return s
	}
	n := &t.Root
	for i, l := range on[:deep] {
		n = n.child(l)
		n.Used += a.Used
		n.Acquired += a.Acquired
		if t.fold {
			if n.most == 0 {
				n.least = t.turns[i]
			}
			n.least, n.most = min(n.least, t.turns[i]), max(n.most, t.turns[i])
		}
	}
	return s
}

// IsLine reports whether a frame of that kind is of a program, and not a word
// that stands for one.
func IsLine(k format.FrameKind) bool {
	return k == format.FramePython || k == format.FrameNative || k == format.FrameGo
}

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
