package tree

import (
	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
)

// Names are the lines, own lines or functions that stacks' bytes are counted for. A
// frame's text is made once, however many stacks it is on.
type Names struct {
	by      By
	defs    *format.Defs
	ids     []format.FrameID
	frames  analyze.Memo[format.FrameID, frameName]
	stacks  analyze.Memo[format.StackID, int32] // own name's number + 1
	numbers map[string]int32
	texts   []string // by number
}

// A frameName is the number of a frame's name, and whether the frame is one that a
// stack's bytes are counted for, rather than only where there is no such.
type frameName struct {
	number       int32
	known, count bool
}

// NewNames returns the Names of one trace.
func NewNames(by By, defs *format.Defs) *Names {
	return &Names{by: by, defs: defs, numbers: map[string]int32{}}
}

// Of is the line, own line or function that a stack's bytes are counted for, and
// whether the stack is defined.
func (n *Names) Of(stack format.StackID) (string, bool) {
	number, whole := n.own(stack)
	return n.texts[number], whole
}

// own is look's number, remembered of a stack that is defined.
func (n *Names) own(stack format.StackID) (int32, bool) {
	if at := n.stacks.At(stack); at > 0 {
		return at - 1, true
	}
	number, whole := n.look(stack, nil)
	if whole {
		_, next := n.defs.Next()
		n.stacks.Put(stack, number+1, next)
	}
	return number, whole
}

// look is the number of a stack's own name: of the innermost frame that counts, else
// of the innermost. on, where not nil, hears of all that count, some more than once.
func (n *Names) look(stack format.StackID, on func(int32)) (own int32, whole bool) {
	n.ids, whole = n.defs.Walk(stack, n.ids[:0])
	ids := n.ids
	if !whole {
		ids = nil
	}
	found := false
	for i := len(ids) - 1; i >= 0 && !(found && on == nil); i-- {
		f := n.frame(ids[i])
		if !f.count {
			continue
		}
		if !found {
			own, found = f.number, true
		}
		if on != nil {
			on(f.number)
		}
	}
	switch {
	case found:
	case len(ids) > 0:
		own = n.frame(ids[len(ids)-1]).number
	default:
		own = n.number(NoLineName)
	}
	return own, whole
}

func (n *Names) frame(id format.FrameID) frameName {
	if f := n.frames.At(id); f.known {
		return f
	}
	fr, ok := n.defs.Frame(id)
	if !ok {
		fr = unknown
	}
	f := frameName{known: ok, count: IsLine(fr.Kind) && (n.by != ByOwnLine || analyze.Own(&fr))}
	if shown := n.defs.Shown(&fr); n.by == ByFunction {
		f.number = n.number(FunctionOf(shown))
	} else {
		f.number = n.number(shown.String())
	}
	if ok { // else its definition may still come
		next, _ := n.defs.Next()
		n.frames.Put(id, f, next)
	}
	return f
}

func (n *Names) number(text string) int32 {
	number, ok := n.numbers[text]
	if !ok {
		number = int32(len(n.texts))
		n.numbers[text] = number
		n.texts = append(n.texts, text)
	}
	return number
}
