package format

// A Keep is which definitions a Writer is to go on knowing, and the ids from
// which on those that it does not know yet will come. A stack's callers and its
// frames must be among them.
type Keep struct {
	Frames []FrameID
	Stacks []StackID
	Names  []NameID

	NextFrame FrameID
	NextStack StackID
	NextName  NameID
}

// Forget lets go of all other frames, stacks and names, so that a recording of
// any length needs bounded memory: no event, sample or checkpoint that comes may
// refer to them. What was written states them where it refers to them. Ids are
// not used again.
func (w *Writer) Forget(k *Keep) error {
	if w.err != nil {
		return w.err
	}
	w.part.drain()
	keepOnly(&w.defs.frames, k.Frames, uint32(k.NextFrame))
	keepOnly(&w.defs.stacks, k.Stacks, uint32(k.NextStack))
	keepOnly(&w.defs.names, k.Names, uint32(k.NextName))
	return w.err
}
