package tree

import (
	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
)

// nodeKey is what makes two frames one line: native ones without a line by
// module and function, without a function by address.
type nodeKey struct {
	source string
	line   int32
	name   string
	kind   format.FrameKind
}

// lineNodes are what a frame's node is, before it holds anything. A frame's texts are
// looked at once, however many stacks it is on. Frames of one line, which may differ
// in what is not said of it, have one number.
type lineNodes struct {
	defs    *format.Defs
	frames  analyze.Memo[format.FrameID, *Node] // of defs
	numbers map[nodeKey]int32                   // of all traces
}

func (l *lineNodes) of(id format.FrameID, defs *format.Defs) *Node {
	if l.defs != defs {
		l.defs, l.frames = defs, analyze.Memo[format.FrameID, *Node]{}
	}
	if n := l.frames.At(id); n != nil {
		return n
	}
	f, ok := defs.Frame(id)
	if !ok {
		return l.make(&unknown) // its definition may still come
	}
	n := l.make(&f)
	next, _ := defs.Next()
	l.frames.Put(id, n, next)
	return n
}

// unknown is a frame that is not defined.
var unknown = format.Frame{Kind: format.FrameLabel, Function: "[unknown]"}

func (l *lineNodes) make(f *format.Frame) *Node {
	k := nodeKey{f.Source(), f.Line, f.Name(), f.Kind}
	number, ok := l.numbers[k]
	if !ok {
		if l.numbers == nil {
			l.numbers = map[nodeKey]int32{}
		}
		number = int32(len(l.numbers))
		l.numbers[k] = number
	}
	n := &Node{Kind: f.Kind.String(), File: f.File, Line: f.Line, Function: f.Function, label: l.defs.Shown(f).String(), number: number}
	if f.Kind == format.FrameNative {
		n.Module = f.Module
	}
	if f.Kind == format.FrameNative && f.Function == "" {
		n.Address = f.Address
	}
	return n
}

// fewChildren are looked through: most nodes have one, and a map of one takes more
// memory than all else of a node.
const fewChildren = 8

// child is n's child of that line.
func (n *Node) child(l *Node) *Node {
	if n.index != nil {
		if c := n.index[l.number]; c != nil {
			return c
		}
	} else {
		for _, c := range n.Children {
			if c.number == l.number {
				return c
			}
		}
	}
	c := new(Node)
	*c = *l
	n.Children = append(n.Children, c)
	switch {
	case n.index != nil:
		n.index[l.number] = c
	case len(n.Children) > fewChildren:
		n.index = make(map[int32]*Node, 2*fewChildren)
		for _, c := range n.Children {
			n.index[c.number] = c
		}
	}
	return c
}
