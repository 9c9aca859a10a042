package segments

import (
	"sort"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
)

// An Owner has one pool: a process on a device. Its allocators, streams and
// private pools are not told apart.
type Owner struct {
	Process format.ProcessID
	Device  format.Device
}

// Sums are what a pool comes to.
type Sums struct {
	Segments int64 // bytes in segments
	Occupied int64 // bytes of them in blocks
	Pinned   int64 // bytes of holes in segments that hold a block
	Count    int64 // segments
}

// Cached is the bytes of all holes.
func (s Sums) Cached() int64 { return s.Segments - s.Occupied }

// Whole is the bytes of segments without a block.
func (s Sums) Whole() int64 { return s.Segments - s.Occupied - s.Pinned }

// A Pool is one owner's segments.
type Pool struct {
	Owner
	Sums

	tracker *Tracker
	spans   []*span // by address; with lost events they may overlap
	last    *span
	stale   []stale
}

// A span is what the driver gave: a segment, or what may become one.
type span struct {
	Span
	object   uint64 // VMM: the handle that is mapped
	pool     bool   // it is a segment
	occupied int64
	blocks   int64
}

// hole is what stands in Pinned because of s.
func (s *span) hole() int64 {
	if !s.pool || s.blocks == 0 {
		return 0
	}
	return s.Size - s.filled()
}

// filled is what blocks take of s; where events were lost they may overlap.
func (s *span) filled() int64 { return min(s.occupied, s.Size) }

// stale blocks were in a segment that is gone: their frees are not those of
// blocks that stand there now.
type stale struct {
	*span
	until format.Time
}

// A Tracker has the pools of one trace. Begin and End are for the fold's
// observers, Event follows every event.
type Tracker struct {
	// OnChange, where set, hears of a pool whose sums have changed.
	OnChange func(*Pool)

	// OnSegment, where set, hears of what the driver gave some time ago and what
	// turns out to be a segment, because a block lies in it. The object is the
	// handle of a mapped one.
	OnSegment func(o Owner, s Span, object uint64)

	// OnBegin and OnEnd, where set, hear of memory that begins to be a segment, or
	// a mapping of one, and that ends. When a process ends all it had does.
	OnBegin, OnEnd func(*Pool, Span)

	p     *analyze.Pass
	pools map[Owner]*Pool
	last  *Pool
	maps  map[mapKey]*Pool
}

// New returns a Tracker on a pass, whose fold's OnMap and OnUnmap are then its.
func New(p *analyze.Pass) *Tracker {
	t := &Tracker{p: p, pools: map[Owner]*Pool{}, maps: map[mapKey]*Pool{}}
	p.State.OnMap, p.State.OnUnmap = t.mapped, t.unmapped
	return t
}

// Pools are all pools that have a segment, sorted by owner.
func (t *Tracker) Pools() []*Pool {
	var out []*Pool
	for _, p := range t.pools {
		if p.Count > 0 {
			out = append(out, p)
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Less(out[j].Owner) })
	return out
}

// Less orders owners by process, then device.
func (o Owner) Less(b Owner) bool {
	if o.Process != b.Process {
		return o.Process < b.Process
	}
	return o.Device < b.Device
}

// Sums are what an owner's pool comes to now.
func (t *Tracker) Sums(o Owner) Sums {
	if p := t.pools[o]; p != nil {
		return p.Sums
	}
	return Sums{}
}

func (t *Tracker) pool(o Owner) *Pool {
	if p := t.last; p != nil && p.Owner == o {
		return p
	}
	p := t.pools[o]
	if p == nil {
		p = &Pool{Owner: o, tracker: t}
		t.pools[o] = p
	}
	t.last = p
	return p
}

// IsBlock reports whether an allocation is a pool's block of device memory.
func IsBlock(a *live.Allocation) bool {
	return a.Counted && a.Layer == format.LayerPool && a.Class == format.ClassDevice && a.Size > 0
}

func isSpan(a *live.Allocation) bool {
	return a.Layer == format.LayerDriver && a.Class == format.ClassDevice && a.Size > 0 && a.API.Space() == format.SpaceDevice
}

// mayPool reports whether a process has a pool, as far as is known. One that is
// known to have none may have very many driver allocations, of which none will
// be a segment.
func (t *Tracker) mayPool(id format.ProcessID) bool {
	return t.p.State.Pooled == nil || t.p.State.Pooled(id)
}

// Begin is for OnBegin.
func (t *Tracker) Begin(a *live.Allocation) {
	switch {
	case IsBlock(a):
		p := t.pool(Owner{a.Process, a.Device})
		p.occupy(a.Address, a.Size, 1)
		t.changed(p)
	case isSpan(a) && t.mayPool(a.Process):
		p := t.pool(Owner{a.Process, a.Device})
		p.add(&span{Span: Span{Address: a.Address, Size: a.Size, Stack: a.Stack, Time: a.Time}, pool: a.Flags&format.FlagInPool != 0})
		t.changed(p)
	}
}

// End is for OnEnd.
func (t *Tracker) End(a *live.Allocation, e *format.Event) {
	if e.Kind == format.ProcessEnd {
		return // all at once, with its event
	}
	switch {
	case IsBlock(a):
		p := t.pool(Owner{a.Process, a.Device})
		if !p.isStale(a) {
			p.occupy(a.Address, a.Size, -1)
			t.changed(p)
		}
	case isSpan(a):
		p := t.pool(Owner{a.Process, a.Device})
		if i := p.at(a.Address, false); i >= 0 {
			p.remove(i, e.Time)
			t.changed(p)
		}
	}
}

func (t *Tracker) changed(p *Pool) {
	if t.OnChange != nil {
		t.OnChange(p)
	}
}

// Event is where a process ends, and with it all it had.
func (t *Tracker) Event(e *format.Event) {
	if e.Kind != format.ProcessEnd {
		return
	}
	for o, p := range t.pools {
		if o.Process == e.Process {
			p.Sums = Sums{}
			t.changed(p)
			delete(t.pools, o)
		}
	}
	for k := range t.maps {
		if k.process == e.Process {
			delete(t.maps, k)
		}
	}
	t.last = nil
}

// find is the index of the last span that begins at or before an address, -1
// if there is none.
func (p *Pool) find(at uint64) int {
	return sort.Search(len(p.spans), func(i int) bool { return p.spans[i].Address > at }) - 1
}

// at is the index of the span that begins at an address, -1 if there is none.
func (p *Pool) at(address uint64, mapped bool) int {
	for i := p.find(address); i >= 0 && p.spans[i].Address == address; i-- {
		if p.spans[i].Mapped == mapped {
			return i
		}
	}
	return -1
}

func (p *Pool) add(s *span) {
	i := p.find(s.Address) + 1
	p.spans = append(p.spans, nil)
	copy(p.spans[i+1:], p.spans[i:])
	p.spans[i] = s
	p.last = nil
	if s.pool {
		p.begin(s)
	}
}

func (p *Pool) begin(s *span) {
	s.pool = true
	p.Segments += s.Size
	p.Count++
	if f := p.tracker.OnBegin; f != nil {
		f(p, s.Span)
	}
}

// restore puts back what was removed, with what is in it.
func (p *Pool) restore(s *span) {
	p.add(s)
	p.Occupied += s.filled()
	p.Pinned += s.hole()
}

func (p *Pool) remove(i int, at format.Time) {
	s := p.spans[i]
	p.spans = append(p.spans[:i], p.spans[i+1:]...)
	p.last = nil
	if s.blocks > 0 {
		p.stale = append(p.stale, stale{s, at})
	}
	if s.pool {
		p.Segments -= s.Size
		p.Occupied -= s.filled()
		p.Pinned -= s.hole()
		p.Count--
		if f := p.tracker.OnEnd; f != nil {
			f(p, s.Span)
		}
	}
}

// occupy puts a block into the spans it lies in, or takes it out: more than one
// where mappings follow each other.
func (p *Pool) occupy(at uint64, size int64, sign int64) {
	if s := p.last; s != nil && at >= s.Address && at+uint64(size) <= s.end() {
		p.fill(s, size, sign)
		return
	}
	end := at + uint64(size)
	for i := max(p.find(at), 0); i < len(p.spans) && p.spans[i].Address < end; i++ {
		s := p.spans[i]
		from, to := max(at, s.Address), min(end, s.end())
		if from < to {
			p.fill(s, int64(to-from), sign)
			p.last = s
		}
	}
}

func (p *Pool) fill(s *span, n int64, sign int64) {
	if !s.pool {
		if sign < 0 {
			return
		}
		p.begin(s)
		if p.tracker.OnSegment != nil {
			p.tracker.OnSegment(p.Owner, s.Span, s.object)
		}
	}
	was, hole := s.filled(), s.hole()
	s.occupied = max(s.occupied+sign*n, 0)
	s.blocks = max(s.blocks+sign, 0)
	p.Occupied += s.filled() - was
	p.Pinned += s.hole() - hole
}

// isStale reports whether a block was in a segment that went before it.
func (p *Pool) isStale(a *live.Allocation) bool {
	for i := range p.stale {
		s := &p.stale[i]
		if a.Address >= s.Address && a.Address < s.end() && a.Time <= s.until {
			s.occupied = max(s.occupied-a.Size, 0)
			if s.blocks--; s.blocks == 0 {
				p.stale = append(p.stale[:i], p.stale[i+1:]...)
			}
			return true
		}
	}
	return false
}
