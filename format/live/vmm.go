package live

import (
	"cmp"

	"github.com/gpurec/gpurec/format"
)

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
//
// It may also be mapped into something that is no range of addresses, a multicast
// object or a sparse array: then the event's pool is that object and its address
// the place in it.

type mapping struct {
	size       int64
	alloc      int32
	epoch      uint32
	generation uint64
	api        format.API
}

// A place is where memory is mapped: at an address, or in an object. Each device
// binds its own memory at the same place of a multicast object.
type place struct {
	object  uint64 // 0: an address
	device  format.Device
	address uint64
}

func placeOf(e *format.Event, device format.Device) place {
	at := place{object: e.Pool, address: e.Address}
	switch e.API {
	case format.APIMulticastBindMem, format.APIMulticastBindMemV2, format.APIMulticastBindAddr, format.APIMulticastBindAddrV2, format.APIMulticastUnbind:
		at.device = device
	}
	return at
}

func (a place) compare(b place) int {
	return cmp.Or(cmp.Compare(a.object, b.object), cmp.Compare(a.device, b.device), cmp.Compare(a.address, b.address))
}

type unmapped struct {
	place   place
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
	at := placeOf(e, s.allocs[i].Device)
	if m, ok := p.mappings[at]; ok {
		s.unmapOne(p, at, m, e)
		if i, ok = s.index.get(key{e.Object, e.Process, format.SpaceHandle}); !ok {
			return
		}
	}
	s.addMapping(p, at, e.Size, e.API, i)
}

func (s *State) addMapping(p *Process, at place, size int64, api format.API, i int32) {
	if p.mappings == nil {
		p.mappings = map[place]mapping{}
	}
	a := &s.allocs[i]
	a.maps++
	p.mappings[at] = mapping{size, i, s.epoch, a.generation, api}
	if s.OnMap != nil && at.object == 0 {
		s.OnMap(a, at.address, size)
	}
}

func (s *State) dropMapping(p *Process, at place) {
	delete(p.mappings, at)
	if s.OnUnmap != nil && at.object == 0 {
		s.OnUnmap(p.ID, at.address)
	}
}

// unmap ends the mappings that lie inside a range. They follow each other in
// nearly every program, so they are looked up one after the other; a hole in
// the range costs a look at all of them.
func (s *State) unmap(e *format.Event) {
	p := s.process(e.Process)
	p.unmapped = p.unmapped[:0]
	if e.Pool != 0 {
		s.unmapFrom(p, e)
		return
	}
	end := e.Address + uint64(max(e.Size, 0))
	for at := e.Address; at < end; {
		m, ok := p.mappings[place{address: at}]
		if !ok || m.size <= 0 {
			s.unmapScattered(p, at, end, e)
			break
		}
		if at+uint64(m.size) > end {
			break // a part of a mapping: the driver refuses it
		}
		s.unmapOne(p, place{address: at}, m, e)
		at += uint64(m.size)
	}
	if len(p.unmapped) == 0 {
		s.unknownFree(p, unmapKey(e))
	}
}

// unmapKey names, among what was given back, an Unmap in whose range nothing
// was known to be mapped.
func unmapKey(e *format.Event) key { return key{e.Address, e.Process, format.SpaceNone} }

func (s *State) unmapScattered(p *Process, from, end uint64, e *format.Event) {
	for at, m := range p.mappings {
		if at.object == 0 && at.address >= from && at.address < end && uint64(max(m.size, 0)) <= end-at.address {
			s.unmapOne(p, at, m, e)
		}
	}
}

// unmapFrom ends what is mapped into an object: in a range of it, or at one place
// where sizes are not known. What was bound by its address is not among it.
func (s *State) unmapFrom(p *Process, e *format.Event) {
	first := placeOf(e, e.Device)
	if m, ok := p.mappings[first]; ok && e.Size < 0 {
		s.unmapOne(p, first, m, e)
		return
	}
	for at, m := range p.mappings {
		if at.object == first.object && at.device == first.device && at.address >= first.address && at.address-first.address < uint64(max(e.Size, 0)) {
			s.unmapOne(p, at, m, e)
		}
	}
}

func (s *State) unmapOne(p *Process, at place, m mapping, e *format.Event) {
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
	again := false
	for _, u := range p.unmapped {
		if u.place.object != e.Pool || e.Pool == 0 && (u.place.address < e.Address || u.place.address-e.Address >= uint64(max(e.Size, 0))) {
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
		again = true
	}
	p.unmapped = p.unmapped[:0]
	if g, known := s.ended.find(unmapKey(e)); !again && known && g == nil {
		p.forgetUnknownFree()
	}
}

// mapAgain restores a mapping whose allocation is live again or still is.
func (s *State) mapAgain(p *Process, u unmapped) {
	i := u.mapping.alloc
	if s.allocs[i].generation != u.mapping.generation {
		if i = s.byGeneration(p, u.mapping.generation); i == none {
			return
		}
	}
	s.addMapping(p, u.place, u.mapping.size, u.mapping.api, i)
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
	if m, ok := p.mappings[place{address: e.Address}]; ok {
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
