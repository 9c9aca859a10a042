package tree

import (
	"strings"

	"github.com/gpurec/gpurec/format"
)

// Own reports whether a frame is of the program's own code rather than of what
// was installed: inferred from its file's name.
func Own(f *format.Frame) bool {
	if f.Kind != format.FramePython && f.Kind != format.FrameGo {
		return false
	}
	for _, installed := range []string{"/site-packages/", "/dist-packages/", "/lib/python3", "/pkg/mod/"} {
		if strings.Contains(f.File, installed) {
			return false
		}
	}
	return !strings.HasPrefix(f.File, "<frozen ")
}

// FunctionOf is a frame without its line: file:function.
func FunctionOf(f *format.Frame) string {
	if !IsLine(f.Kind) || f.File == "" {
		return f.Function
	}
	return f.File + ":" + f.Function
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
		if Own(f) {
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
