package stacks

import (
	"fmt"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/tree"
	"github.com/gpurec/gpurec/format"
)

// frames are those of all stacks, each once.
type frames struct {
	all   []frame
	index map[frame]int
	ids   []format.FrameID
}

// A frame is what tools show of one. What is known by an address alone has that
// for a name.
type frame struct {
	function string
	file     string
	line     int32
}

// of returns a stack's frames, outermost first; a stack that says nothing is
// one frame that says so.
func (f *frames) of(stack format.StackID, defs *format.Defs) []int {
	var out []int
	whole := true
	if stack != 0 {
		f.ids, whole = defs.Walk(stack, f.ids[:0])
	} else {
		f.ids = f.ids[:0]
	}
	if !whole {
		return []int{f.add(frame{function: "[unknown]"})}
	}
	for _, id := range f.ids {
		fr, ok := defs.Frame(id)
		if !ok {
			fr = format.Frame{Kind: format.FrameLabel, Function: "[unknown]"}
		}
		out = append(out, f.add(shown(&fr)))
	}
	if len(out) == 0 {
		out = append(out, f.add(frame{function: tree.NoLineName}))
	}
	return out
}

func shown(fr *format.Frame) frame {
	if fr.Kind == format.FrameNative && fr.Function == "" {
		return frame{function: analyze.Printable(fr.String())}
	}
	return frame{function: analyze.Printable(fr.Function), file: analyze.Printable(fr.Source()), line: fr.Line}
}

func (f *frames) add(fr frame) int {
	i, ok := f.index[fr]
	if !ok {
		if f.index == nil {
			f.index = map[frame]int{}
		}
		i = len(f.all)
		f.index[fr] = i
		f.all = append(f.all, fr)
	}
	return i
}

// label is file:line:function, as lines prints it; the function alone where
// there is no file.
func (f *frame) label() string {
	switch {
	case f.file == "":
		return f.function
	case f.line == 0:
		return f.file + ":" + f.function
	}
	return fmt.Sprintf("%s:%d:%s", f.file, f.line, f.function)
}
