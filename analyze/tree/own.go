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

// OwnFrame is the frame that a stack is best known by: the innermost of the
// program's own code; without one the innermost line; without one the innermost
// frame, which names a thread; else a label. False where the stack is not
// defined.
func OwnFrame(stack format.StackID, defs *format.Defs) (format.Frame, bool) {
	var w walk
	frames, whole := w.frames(stack, defs)
	if !whole {
		return format.Frame{}, false
	}
	best, rank := format.Frame{Kind: format.FrameLabel, Function: NoLineName}, 0
	for i := range frames {
		f, r := &frames[i], 1
		if analyze.Own(f) {
			r = 3
		} else if IsLine(f.Kind) {
			r = 2
		}
		if r >= rank {
			best, rank = *f, r
		}
	}
	return best, true
}
