package symbols

import "github.com/gpurec/gpurec/format"

// A key is what a native frame is looked up by.
type key struct {
	module, buildID string
	address         uint64
}

func keyOf(f *format.Frame) key { return key{f.Module, f.BuildID, f.Address} }

// An expansion makes of frames that are addresses frames with names. An address
// that lies in inlined functions becomes several nodes of the trie:
//
//	before                        after
//	stack 7: frame 3, parent 6    stack 20 (new): frame 3, parent 6     the function that has the code, at the call
//	                              stack  7: frame 31 (new), parent 20   what is inlined there, at its line
//
// The node keeps its id, so events and callees refer to all of it, and the frame
// keeps its own, so that a trace killed between its two tables is true as it is.
// New frames have the address too: nodes one after the other of one address but
// with other names are such an expansion, and are not made again.
type expansion struct {
	defs      *format.Defs
	out       *format.Restatement
	chains    map[format.FrameID][]place          // of frames in which something is inlined
	inner     map[format.FrameID][]format.FrameID // the frames of that
	nextFrame format.FrameID
	nextStack format.StackID
}

// done finds the nodes that are an expansion's, the frames that only stand for what
// is inlined, and what was expanded.
func done(defs *format.Defs) (stacks map[format.StackID]bool, inlined map[format.FrameID]bool, expanded map[key]bool) {
	stacks, inlined, expanded = map[format.StackID]bool{}, map[format.FrameID]bool{}, map[key]bool{}
	called := map[format.FrameID]bool{} // from another address
	defs.Each(func(format.Frame) {}, func(s format.Stack) {
		f, _ := defs.Frame(s.Frame)
		up, _ := defs.Stack(s.Parent)
		g, ok := defs.Frame(up.Frame)
		if ok && f.Kind == format.FrameNative && g.Kind == f.Kind && keyOf(&f) == keyOf(&g) && f.Address != 0 &&
			(f.Function != g.Function || f.File != g.File || f.Line != g.Line) {
			stacks[s.ID], stacks[up.ID] = true, true
			inlined[f.ID], expanded[keyOf(&f)] = true, true
		} else {
			called[s.Frame] = true
		}
	}, func(format.NameID, string) {})
	for id := range called { // of a recursion: its own caller's inlined calls come before it
		delete(inlined, id)
	}
	return stacks, inlined, expanded
}

// frame says what a frame's address lies in, outermost first, at least one.
func (x *expansion) frame(f format.Frame, chain []place) {
	if g := named(f, f.ID, chain[0]); g != f {
		x.out.Frames[f.ID] = g
	}
	if len(chain) > 1 {
		x.chains[f.ID] = chain
	}
}

func named(f format.Frame, id format.FrameID, p place) format.Frame {
	f.ID, f.Function, f.File, f.Line = id, p.function, p.file, p.line
	return f
}

// inlined are the frames of what is inlined in a frame, made when they are first
// needed.
func (x *expansion) inlined(id format.FrameID) []format.FrameID {
	chain := x.chains[id]
	if len(chain) == 0 || x.inner[id] != nil {
		return x.inner[id]
	}
	f, _ := x.defs.Frame(id)
	for _, p := range chain[1:] {
		for _, taken := x.defs.Frame(x.nextFrame); taken || x.nextFrame == 0; _, taken = x.defs.Frame(x.nextFrame) {
			x.nextFrame++
		}
		x.out.Frames[x.nextFrame] = named(f, x.nextFrame, p)
		x.inner[id] = append(x.inner[id], x.nextFrame)
		x.nextFrame++
	}
	return x.inner[id]
}

func (x *expansion) newStack() format.StackID {
	for _, taken := x.defs.Stack(x.nextStack); taken || x.nextStack <= format.StackBeforeRecording; _, taken = x.defs.Stack(x.nextStack) {
		x.nextStack++
	}
	x.nextStack++
	return x.nextStack - 1
}

// stacks expands every node of a frame that has something inlined.
func (x *expansion) stacks(done map[format.StackID]bool) {
	x.defs.Each(func(format.Frame) {}, func(s format.Stack) {
		if done[s.ID] {
			return
		}
		inner := x.inlined(s.Frame)
		if len(inner) == 0 {
			return
		}
		nodes := make([]format.Stack, 0, len(inner)+1)
		for _, f := range append([]format.FrameID{s.Frame}, inner[:len(inner)-1]...) {
			id := x.newStack()
			nodes = append(nodes, format.Stack{ID: id, Parent: s.Parent, Frame: f})
			s.Parent = id
		}
		s.Frame = inner[len(inner)-1]
		x.out.Stacks[s.ID] = append(nodes, s)
	}, func(format.NameID, string) {})
}
