package live

import "github.com/gpurec/gpurec/format"

// Memory from cuMemCreate is live as long as its handle has references or it
// is mapped somewhere. Programs release the handle right after mapping it, or
// keep it, so both are counted; and since the driver may give the value of a
// released handle to new memory, a mapping knows its allocation and not the
// handle:
//
//	create h      refs 1 maps 0    h names it
//	map h at a    refs 1 maps 1
//	release h     refs 0 maps 1    an orphan: nothing names it but its mapping
//	unmap a       refs 0 maps 0    ended

type mapping struct {
	size       int64
	alloc      int32
	epoch      uint32
	generation uint64
}

type unmapped struct {
	address uint64
	mapping mapping
}

// orphanKey finds an allocation whose handle was released, for a checkpoint's
// row of it.
type orphanKey struct {
	process format.ProcessID
	object  uint64
	time    format.Time
	seq     uint64
}

func orphanKeyOf(a *Allocation) orphanKey { return orphanKey{a.Process, a.Object, a.Time, a.Seq} }

// orphan takes the handle away from an allocation that stays mapped.
func (s *State) orphan(i int32) {
	a := &s.allocs[i]
	a.refs = 0
	s.index.remove(keyOf(&a.Event))
	s.orphans[orphanKeyOf(a)] = i
}

// adopt gives an orphan a handle again.
func (s *State) adopt(i int32, handle uint64) {
	a := &s.allocs[i]
	delete(s.orphans, orphanKeyOf(a))
	a.refs, a.Object = 1, handle
	s.index.set(keyOf(&a.Event), i)
}

func (s *State) mapped(e *format.Event) {
	p := s.process(e.Process)
	i, ok := s.index.get(key{e.Object, e.Process, format.SpaceHandle})
	if !ok {
		return // memory from before the recording, or of another process
	}
	if m, ok := p.mappings[e.Address]; ok {
		s.unmapOne(p, e.Address, m, e)
		if i, ok = s.index.get(key{e.Object, e.Process, format.SpaceHandle}); !ok {
			return
		}
	}
	s.addMapping(p, e.Address, e.Size, i)
}

func (s *State) addMapping(p *Process, at uint64, size int64, i int32) {
	if p.mappings == nil {
		p.mappings = map[uint64]mapping{}
	}
	a := &s.allocs[i]
	a.maps++
	p.mappings[at] = mapping{size, i, s.epoch, a.generation}
	if s.OnMap != nil {
		s.OnMap(a, at, size)
	}
}

func (s *State) dropMapping(p *Process, at uint64) {
	delete(p.mappings, at)
	if s.OnUnmap != nil {
		s.OnUnmap(p.ID, at)
	}
}

// unmap ends the mappings that lie inside a range. They follow each other in
// nearly every program, so they are looked up one after the other; a hole in
// the range costs a look at all of them.
func (s *State) unmap(e *format.Event) {
	p := s.process(e.Process)
	p.unmapped = p.unmapped[:0]
	end := e.Address + uint64(max(e.Size, 0))
	for at := e.Address; at < end; {
		m, ok := p.mappings[at]
		if !ok || m.size <= 0 {
			s.unmapScattered(p, at, end, e)
			break
		}
		if at+uint64(m.size) > end {
			break // a part of a mapping: the driver refuses it
		}
		s.unmapOne(p, at, m, e)
		at += uint64(m.size)
	}
	if len(p.unmapped) == 0 {
		p.UnknownFrees++
	}
}

func (s *State) unmapScattered(p *Process, from, end uint64, e *format.Event) {
	for at, m := range p.mappings {
		if at >= from && at < end && uint64(max(m.size, 0)) <= end-at {
			s.unmapOne(p, at, m, e)
		}
	}
}

func (s *State) unmapOne(p *Process, at uint64, m mapping, e *format.Event) {
	s.dropMapping(p, at)
	a := &s.allocs[m.alloc]
	if a.generation != m.generation {
		return
	}
	p.unmapped = append(p.unmapped, unmapped{at, m})
	a.maps--
	if a.refs <= 0 && a.maps <= 0 {
		s.ended.put(keyOf(&a.Event), a)
		s.end(p, m.alloc, e)
	}
}

// remap undoes the process's latest unmap, which the driver refused.
func (s *State) remap(p *Process, e *format.Event) {
	for _, u := range p.unmapped {
		if u.address < e.Address || u.address-e.Address >= uint64(max(e.Size, 0)) {
			continue
		}
		if a := &s.allocs[u.mapping.alloc]; a.generation != u.mapping.generation {
			if g := s.ended.byGeneration(u.mapping.generation); g != nil {
				if i := s.restore(p, g, e); i != none {
					if g.refs <= 0 {
						s.orphan(i)
					}
					u.mapping.alloc = i
					g.dead = true
				}
			}
		}
		s.mapAgain(p, u)
	}
	p.unmapped = p.unmapped[:0]
}

// mapAgain restores a mapping whose allocation is live again or still is.
func (s *State) mapAgain(p *Process, u unmapped) {
	i := u.mapping.alloc
	if s.allocs[i].generation != u.mapping.generation {
		if i = s.byGeneration(p, u.mapping.generation); i == none {
			return
		}
	}
	s.addMapping(p, u.address, u.mapping.size, i)
}

func (s *State) byGeneration(p *Process, generation uint64) int32 {
	for i := p.first; i != none; i = s.allocs[i].next {
		if s.allocs[i].generation == generation {
			return i
		}
	}
	return none
}

func (g *graveyard) byGeneration(generation uint64) *Allocation {
	for j := range g.graves {
		if at := &g.graves[j]; !at.unknown && !at.alloc.dead && at.alloc.generation == generation {
			return &at.alloc
		}
	}
	return nil
}

// retain finds its memory by the handle, or by the mapping it was asked for
// when the handle had been released; the driver then gives back the same value.
func (s *State) retain(e *format.Event) {
	p := s.process(e.Process)
	if i, ok := s.index.get(key{e.Object, e.Process, format.SpaceHandle}); ok {
		s.allocs[i].refs++
		return
	}
	if m, ok := p.mappings[e.Address]; ok {
		if a := &s.allocs[m.alloc]; a.generation == m.generation && a.refs <= 0 {
			s.adopt(m.alloc, e.Object)
		}
		return
	}
	if i := s.orphanOf(e); i != none {
		s.adopt(i, e.Object)
	}
}

func (s *State) release(e *format.Event) {
	p := s.process(e.Process)
	k := keyOf(e)
	i, ok := s.index.get(k)
	if !ok {
		s.unknownFree(p, k)
		return
	}
	a := &s.allocs[i]
	if a.refs--; a.refs > 0 {
		return
	}
	if a.maps > 0 {
		s.orphan(i)
		return
	}
	a.refs = 1 // what a refusal restores
	s.ended.put(k, a)
	s.end(p, i, e)
}

// orphanOf finds the youngest allocation whose handle e names and which was
// released.
func (s *State) orphanOf(e *format.Event) int32 {
	best := none
	if e.API.Space() != format.SpaceHandle {
		return best
	}
	for k, i := range s.orphans {
		if k.process == e.Process && k.object == e.Object && (best == none || s.allocs[i].generation > s.allocs[best].generation) {
			best = i
		}
	}
	return best
}
