package live

import "github.com/gpurec/gpurec/format"

// An Allocation is memory that is live: the event that took it, as its
// checkpoint row would say it, whose Kind is Live.
type Allocation struct {
	format.Event
	Counted bool // it stands in sums

	refs, maps int32 // VMM: references to the handle, mappings
	next, prev int32 // in its process's list
	generation uint64
	epoch      uint32
	dead       bool // in the graveyard: given back a second time, or restored
}

const none = int32(-1)

// Bytes is what a adds to sums.
func (a *Allocation) Bytes() int64 { return max(a.Size, 0) }

// key names a live allocation, or one that lived.
type key struct {
	value   uint64
	process format.ProcessID
	space   format.Space
}

func keyOf(e *format.Event) key {
	k := key{process: e.Process, space: e.API.Space()}
	switch k.space {
	case format.SpaceHandle, format.SpaceObject, format.SpaceCuPy, format.SpaceGo:
		k.value = e.Object
	default:
		k.value = e.Address
	}
	return k
}

func (s *State) alloc(e *format.Event) {
	p := s.process(e.Process)
	if e.Layer == format.LayerPool {
		s.seesPool(p)
	}
	if s.counts(e) {
		s.take(p, e.Device, e.Layer, e.Class, max(e.Size, 0))
	}
	if e.Size == 0 && (e.Layer == format.LayerPool || keyOf(e).value == 0) {
		return // counted, never live: CuPy's object of no bytes has no free, nor have the driver's 0 bytes at null
	}
	s.insert(p, e, e)
}

func (s *State) counts(e *format.Event) bool {
	return e.Flags&format.FlagNested == 0 && e.Class != format.ClassImported && e.Kind != format.Import &&
		(s.Count == nil || s.Count(e))
}

// insert makes row live, because of e.
func (s *State) insert(p *Process, row, e *format.Event) int32 {
	return s.insertCounted(p, row, e, s.counts(row))
}

// insertCounted is insert of what is known to stand in sums, or not to.
func (s *State) insertCounted(p *Process, row, e *format.Event, counted bool) int32 {
	k := keyOf(row)
	at, old := s.index.find(k)
	if old != none && s.refersAgain(row, old) {
		s.allocs[old].refs++
		return old
	}
	if old != none {
		p.LostFrees++
		if k.space == format.SpaceHandle && s.allocs[old].maps > 0 {
			s.orphan(old)
		} else {
			s.end(p, old, e)
		}
		at, _ = s.index.find(k)
	}
	i := s.slot()
	a := &s.allocs[i]
	s.generation++
	if row.Layer == format.LayerPool {
		s.seesPool(p)
	}
	a.Event = *row
	a.Counted, a.refs, a.maps, a.generation, a.epoch, a.dead = counted, 1, 0, s.generation, s.epoch, false
	if row.Kind == format.Import {
		a.Class = format.ClassImported
	}
	a.Kind, a.Allocated, a.Reserved, a.Status = format.Live, format.Unknown, format.Unknown, 0
	s.link(p, i)
	s.index.fill(at, k, i)
	if a.Counted {
		s.move(p, a, a.Bytes())
	}
	if s.OnBegin != nil {
		s.OnBegin(a, e)
	}
	return i
}

// refersAgain reports whether row, an Import, is one more reference to what is
// live there: a handle that came back to its own process, or the memory of
// another process opened twice.
func (s *State) refersAgain(row *format.Event, old int32) bool {
	if row.Kind != format.Import {
		return false
	}
	switch row.API {
	case format.APIMemImport:
		return true
	case format.APIIpcOpen, format.APIIpcOpenV1:
		return s.allocs[old].Class == format.ClassImported
	}
	return false
}

// link puts i at the end of its process's list.
func (s *State) link(p *Process, i int32) {
	a := &s.allocs[i]
	a.next, a.prev = none, p.latest
	if p.latest == none {
		p.first = i
	} else {
		s.allocs[p.latest].next = i
	}
	p.latest = i
	p.LiveCount++
}

func (s *State) unlink(p *Process, i int32) {
	a := &s.allocs[i]
	if a.prev == none {
		p.first = a.next
	} else {
		s.allocs[a.prev].next = a.next
	}
	if a.next == none {
		p.latest = a.prev
	} else {
		s.allocs[a.next].prev = a.prev
	}
	p.LiveCount--
}

func (s *State) slot() int32 {
	if s.free != none {
		i := s.free
		s.free = s.allocs[i].next
		return i
	}
	s.allocs = append(s.allocs, Allocation{})
	return int32(len(s.allocs) - 1)
}

// end takes allocation i out of the live set, because of e.
func (s *State) end(p *Process, i int32, e *format.Event) {
	a := &s.allocs[i]
	if at, named := s.index.look(keyOf(&a.Event)); named == i {
		s.index.empty(at)
	} else if len(s.orphans) > 0 {
		delete(s.orphans, orphanKeyOf(a))
	}
	s.endNameless(p, i, e)
}

// endNameless is end of an allocation that the index does not name any more.
func (s *State) endNameless(p *Process, i int32, e *format.Event) {
	a := &s.allocs[i]
	s.unlink(p, i)
	if a.Counted {
		s.move(p, a, -a.Bytes())
	}
	if s.OnEnd != nil {
		s.OnEnd(a, e)
	}
	a.next, a.generation = s.free, 0
	s.free = i
}

func (s *State) freed(e *format.Event) {
	p := s.process(e.Process)
	k := keyOf(e)
	at, i := s.index.look(k)
	if i == none {
		s.unknownFree(p, k)
		return
	}
	s.ended.put(k, &s.allocs[i])
	s.index.empty(at)
	s.endNameless(p, i, e)
}

// unknownFree counts a free of what is not live. Null is legal to free and
// names nothing.
func (s *State) unknownFree(p *Process, k key) {
	if k.value == 0 {
		return
	}
	p.UnknownFrees++
	s.ended.put(k, nil)
}

// forgetUnknownFree takes back the count of an unknown free that the driver
// refused: its argument was wrong, and nothing is missing from the recording.
func (p *Process) forgetUnknownFree() { p.UnknownFrees = max(p.UnknownFrees-1, 0) }

// resetDevice ends every allocation of the process on a device, or in one
// CUcontext.
func (s *State) resetDevice(e *format.Event) {
	p := s.process(e.Process)
	p.reset, p.resetMaps = p.reset[:0], p.resetMaps[:0]
	for i := p.first; i != none; {
		a := &s.allocs[i]
		next := a.next
		if e.CUctx != 0 && a.CUctx == e.CUctx || e.CUctx == 0 && a.Device == e.Device {
			p.reset = append(p.reset, *a)
			s.end(p, i, e)
		}
		i = next
	}
	for at, m := range p.mappings {
		if s.allocs[m.alloc].generation != m.generation {
			p.resetMaps = append(p.resetMaps, unmapped{at, m})
			s.dropMapping(p, at)
		}
	}
}

func (s *State) processEnd(e *format.Event) {
	p := s.process(e.Process)
	s.endScopes(p.ID, e)
	for p.first != none {
		s.end(p, p.first, e)
	}
	p.Ended, p.mappings, p.unmapped, p.reset, p.resetMaps = true, nil, nil, nil, nil
}

// freeFailed makes live again what a refused call had ended. What ended is
// known from the events before; across a checkpoint a Free's row says it
// itself, with the time of the refusal in place of its own.
func (s *State) freeFailed(e *format.Event) {
	if ignored(e) {
		return
	}
	p := s.process(e.Process)
	switch e.API.Info().Does {
	case format.Unmap:
		s.remap(p, e)
		return
	case format.Reset:
		for j := range p.reset {
			s.restore(p, &p.reset[j], e)
		}
		for _, u := range p.resetMaps {
			s.mapAgain(p, u)
		}
		p.reset, p.resetMaps = p.reset[:0], p.resetMaps[:0]
		return
	}
	k := keyOf(e)
	if i, ok := s.index.get(k); ok {
		if a := &s.allocs[i]; counted(&a.Event) {
			a.refs++
		}
		return
	}
	if i := s.orphanOf(e); i != none {
		s.adopt(i, e.Object)
		return
	}
	g, known := s.ended.find(k)
	switch {
	case known && g == nil: // a second free of what is gone, which gave nothing back
		p.forgetUnknownFree()
	case known:
		s.restore(p, g, e)
		g.dead = true
	case e.Size >= 0 && e.Layer != format.LayerNone && !ignored(e):
		s.insert(p, e, e)
	}
}

// restore puts back an allocation that had ended, with its own time. Whether it
// counts was asked when it began: State.Count may look at what was open then.
func (s *State) restore(p *Process, g *Allocation, e *format.Event) int32 {
	row := g.Event
	if _, live := s.index.get(keyOf(&row)); live {
		return none
	}
	i := s.insertCounted(p, &row, e, g.Counted)
	s.allocs[i].refs = g.refs
	if g.generation != 0 {
		s.allocs[i].generation = g.generation // its mappings know it by this
	}
	return i
}

// Fill completes a FreeFailed as the hook sends it, which names an address and
// a status, with the columns of the allocation. It goes before Apply, in the
// recorder. It reports whether the event is complete.
func (s *State) Fill(e *format.Event) bool {
	if e.Kind != format.FreeFailed || ignored(e) {
		return true
	}
	switch e.API.Info().Does {
	case format.Unmap, format.Reset:
		return true
	}
	k := keyOf(e)
	var a *Allocation
	if i, ok := s.index.get(k); ok && counted(&s.allocs[i].Event) {
		a = &s.allocs[i]
	} else if i := s.orphanOf(e); i != none {
		a = &s.allocs[i]
	} else if g, _ := s.ended.find(k); g != nil {
		a = g
	}
	if a == nil {
		e.Size = format.Unknown // so that replay takes it for no allocation's row
		return false
	}
	f := *e
	*e = a.Event
	e.Kind, e.Time, e.Seq, e.Duration, e.Status = f.Kind, f.Time, f.Seq, f.Duration, f.Status
	e.Process, e.Thread = f.Process, f.Thread
	return true
}

// graveyardSize is how many frees may lie between a free and its refusal: the
// call's own time, on all threads. At 5 million events a second it is 1 ms.
const graveyardSize = 1 << 12

// A graveyard holds what was freed last, for refused frees. A nil allocation
// stands for an unknown free: it hides an older grave with the same key.
type graveyard struct {
	graves []grave
	next   int
}

type grave struct {
	key     key
	unknown bool
	alloc   Allocation
}

func (g *graveyard) put(k key, a *Allocation) {
	if len(g.graves) < graveyardSize {
		g.graves = append(g.graves, grave{})
		g.next = len(g.graves) - 1
	}
	at := &g.graves[g.next]
	at.key, at.unknown = k, a == nil
	if a != nil {
		at.alloc = *a
	}
	g.next = (g.next + 1) % graveyardSize
}

func (g *graveyard) find(k key) (a *Allocation, known bool) {
	n := len(g.graves)
	for j := 1; j <= n; j++ {
		at := &g.graves[(g.next-j+graveyardSize)%graveyardSize]
		switch {
		case at.key != k:
		case at.unknown:
			return nil, true
		case !at.alloc.dead:
			return &at.alloc, true
		}
	}
	return nil, false
}

// Each calls f for every live allocation, process by process, oldest first,
// until it returns false.
func (s *State) Each(f func(*Allocation) bool) {
	for _, p := range s.Processes() {
		for i := p.first; i != none; i = s.allocs[i].next {
			if !f(&s.allocs[i]) {
				return
			}
		}
	}
}

// Find returns the live allocation that e names, nil if there is none.
func (s *State) Find(e *format.Event) *Allocation {
	if i, ok := s.index.get(keyOf(e)); ok {
		return &s.allocs[i]
	}
	return nil
}
