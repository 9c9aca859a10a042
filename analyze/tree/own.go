package tree

import (
	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
)

// FunctionOf is a frame without its line: file:function, or module:function.
func FunctionOf(f *format.Frame) string {
	switch {
	case f.Kind == format.FrameNative:
		g := *f
		g.Line = 0
		return g.String()
	case !IsLine(f.Kind) || f.File == "":
		return f.Function
	}
	return f.File + ":" + f.Function
}

// OwnModule reports whether a mapped file is, by its name, the program's own: of no
// package and no system.
func OwnModule(module string) bool {
	return analyze.Own(&format.Frame{Kind: format.FrameNative, Module: module, Function: "f"})
}

// OwnFrames are the frames that stacks are best known by: the innermost of the
// program's own code; without one the innermost line; without one the innermost
// frame, which names a thread; else a label. A frame is judged once, however many
// stacks it is on. The zero value is ready.
type OwnFrames struct {
	defs  *format.Defs
	ids   []format.FrameID
	ranks analyze.Memo[format.FrameID, ownRank] // of defs
}

type ownRank uint8

const (
	ownUnknown ownRank = iota
	ownOther
	ownLine
	ownOwn
)

// Of is a stack's; false where the stack is not defined.
func (o *OwnFrames) Of(stack format.StackID, defs *format.Defs) (format.Frame, bool) {
	if o.defs != defs {
		*o = OwnFrames{defs: defs, ids: o.ids}
	}
	var whole bool
	if o.ids, whole = defs.Walk(stack, o.ids[:0]); !whole {
		return format.Frame{}, false
	}
	best, rank := format.FrameID(0), ownUnknown
	for i := len(o.ids) - 1; i >= 0 && rank < ownOwn; i-- {
		if r := o.rank(o.ids[i]); r > rank {
			best, rank = o.ids[i], r
		}
	}
	if rank == ownUnknown {
		return format.Frame{Kind: format.FrameLabel, Function: NoLineName}, true
	}
	if f, ok := defs.Frame(best); ok {
		return f, true
	}
	return unknown, true
}

func (o *OwnFrames) rank(id format.FrameID) ownRank {
	if r := o.ranks.At(id); r != ownUnknown {
		return r
	}
	f, ok := o.defs.Frame(id)
	if !ok {
		return ownOther // its definition may still come
	}
	r := ownOther
	switch {
	case analyze.Own(&f):
		r = ownOwn
	case IsLine(f.Kind):
		r = ownLine
	}
	next, _ := o.defs.Next()
	o.ranks.Put(id, r, next)
	return r
}
