package export

import (
	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/tree"
	"github.com/gpurec/gpurec/format"
)

// stackTexts keeps the texts of stacks. It forgets all when it holds too much:
// a program that makes new stacks for hours must not fill the memory. Those of
// frames are kept, of which there are as many as definitions: a stack's text is
// put together from them in a microsecond, where all have become too much.
type stackTexts struct {
	defs   *format.Defs
	sites  *tree.Names
	owns   *tree.Names
	frames analyze.Memo[format.FrameID, *frameText]
	kept   map[format.StackID]stackText
	bytes  int
	buf    []format.FrameID
	text   []byte
}

type stackText struct {
	text  string
	frame format.Frame // innermost
	site  string       // innermost line
	own   string       // of the program's own code
}

type frameText struct {
	text  string
	frame format.Frame // with what stands for a file and a function where it has none
}

const maxStackBytes = 64 << 20

func newStackTexts(defs *format.Defs) stackTexts {
	return stackTexts{defs: defs, sites: tree.NewNames(tree.ByLine, defs), owns: tree.NewNames(tree.ByOwnLine, defs)}
}

func (s *stackTexts) of(id format.StackID) stackText {
	if t, ok := s.kept[id]; ok {
		return t
	}
	var ok bool
	s.buf, ok = s.defs.Walk(id, s.buf)
	s.text = s.text[:0]
	if !ok {
		s.text = append(s.text, "unknown"...) // the callers outside of what is known
	}
	var t stackText
	for i, id := range s.buf {
		f := s.frame(id)
		if len(s.text) > 0 {
			s.text = append(s.text, ';')
		}
		s.text = append(s.text, f.text...)
		if i == len(s.buf)-1 {
			t.frame = f.frame
		}
	}
	t.text = string(s.text)
	t.site, _ = s.sites.Of(id)
	t.own, _ = s.owns.Of(id)
	if s.kept == nil || s.bytes > maxStackBytes {
		s.kept, s.bytes = map[format.StackID]stackText{}, 0
	}
	s.kept[id] = t
	s.bytes += len(t.text) + 200
	return t
}

func (s *stackTexts) frame(id format.FrameID) *frameText {
	if f := s.frames.At(id); f != nil {
		return f
	}
	frame, ok := s.defs.Frame(id)
	if !ok {
		frame = format.Frame{Kind: format.FrameLabel, Function: "unknown"}
	}
	f := &frameText{frame.String(), frame}
	f.frame.File, f.frame.Function = frame.Source(), frame.Name()
	if ok { // else its definition may still come
		next, _ := s.defs.Next()
		s.frames.Put(id, f, next)
	}
	return f
}
