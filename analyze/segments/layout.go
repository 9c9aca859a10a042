package segments

import (
	"sort"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
)

// A Span is memory that the driver gave.
type Span struct {
	Address uint64
	Size    int64
	Stack   format.StackID // where it was taken
	Time    format.Time
	Mapped  bool // VMM: other spans may continue it
}

// A Block is what the pool handed out.
type Block struct {
	Address uint64
	Size    int64
	Stack   format.StackID
	Scope   format.ScopeID
	Thread  uint32
	Time    format.Time
}

// BlockOf is a live block.
func BlockOf(a *live.Allocation) Block {
	return Block{Address: a.Address, Size: a.Size, Stack: a.Stack, Scope: a.Scope, Thread: a.Thread, Time: a.Time}
}

// A Hole is free memory between blocks.
type Hole struct {
	Address uint64
	Size    int64
}

// A Segment is one at a moment.
type Segment struct {
	Span
	Blocks   []Block
	Holes    []Hole
	Occupied int64
	Pinned   int64 // of the holes, in pieces that hold a block
	Largest  int64 // hole

	pieces []Span // mappings that it is made of; itself of a plain one
}

// Free is the bytes of its holes.
func (s *Segment) Free() int64 { return s.Size - s.Occupied }

// Pieces is how many mappings the segment is made of. Each can be given back
// alone; a plain segment is one.
func (s *Segment) Pieces() int { return len(s.pieces) }

// Layout is an owner's segments now, by address. It looks at every live
// allocation.
func (t *Tracker) Layout(o Owner) []*Segment {
	p := t.pools[o]
	if p == nil {
		return nil
	}
	var blocks []Block
	t.p.State.Each(func(a *live.Allocation) bool {
		if a.Process == o.Process && a.Device == o.Device && IsBlock(a) {
			blocks = append(blocks, BlockOf(a))
		}
		return true
	})
	return Build(p.Spans(), blocks)
}

// Spans are the pool's segments without what is in them.
func (p *Pool) Spans() (out []Span) {
	for _, s := range p.spans {
		if s.pool {
			out = append(out, s.Span)
		}
	}
	return out
}

// Build puts blocks into segments. Both may come in any order; what lies in no
// segment is left out.
func Build(spans []Span, blocks []Block) []*Segment {
	spans = append([]Span(nil), spans...)
	sort.SliceStable(spans, func(i, j int) bool { return spans[i].Address < spans[j].Address })
	sort.SliceStable(blocks, func(i, j int) bool { return blocks[i].Address < blocks[j].Address })
	var out []*Segment
	for _, s := range spans {
		if n := len(out); n > 0 && s.Mapped && out[n-1].Mapped && out[n-1].end() == s.Address {
			out[n-1].Size += s.Size
			out[n-1].Time = min(out[n-1].Time, s.Time)
			out[n-1].pieces = append(out[n-1].pieces, s)
			continue
		}
		out = append(out, &Segment{Span: s, pieces: []Span{s}})
	}
	i := 0
	for k, s := range out {
		last := s.end()
		if k+1 < len(out) { // only lost events make segments overlap; a block is in the later one
			last = min(last, out[k+1].Address)
		}
		for i < len(blocks) && blocks[i].Address < s.Address {
			i++
		}
		for ; i < len(blocks) && blocks[i].Address < last; i++ {
			s.Blocks = append(s.Blocks, blocks[i])
		}
		s.measure()
		s.measurePinned()
	}
	return out
}

func (s *Span) end() uint64 { return s.Address + uint64(s.Size) }

// measure finds the holes between the blocks, which may overlap where events
// were lost.
func (s *Segment) measure() {
	at := s.Address
	hole := func(to uint64) {
		if to > at {
			n := int64(to - at)
			s.Holes = append(s.Holes, Hole{at, n})
			s.Largest = max(s.Largest, n)
			s.Occupied -= n
		}
	}
	s.Occupied = s.Size
	for i := range s.Blocks {
		b := &s.Blocks[i]
		hole(min(b.Address, s.end()))
		at = max(at, min(b.Address+uint64(b.Size), s.end()))
	}
	hole(s.end())
}

// measurePinned looks at the holes of each piece, and whether they are all of it.
func (s *Segment) measurePinned() {
	i := 0
	for _, piece := range s.pieces {
		free := int64(0)
		for ; i < len(s.Holes); i++ {
			h := &s.Holes[i]
			from, to := max(h.Address, piece.Address), min(h.Address+uint64(h.Size), piece.end())
			if from < to {
				free += int64(to - from)
			}
			if h.Address+uint64(h.Size) > piece.end() {
				break // it goes on in the next piece
			}
		}
		if free < piece.Size {
			s.Pinned += free
		}
	}
}

// Total are the sums of segments.
func Total(segments []*Segment) (t Sums) {
	for _, s := range segments {
		t.Segments += s.Size
		t.Occupied += s.Occupied
		t.Pinned += s.Pinned
		t.Count++
	}
	return t
}

// Largest is the largest hole of all: an upper bound of what the pool can hand
// out without asking the driver.
func Largest(segments []*Segment) (n int64) {
	for _, s := range segments {
		n = max(n, s.Largest)
	}
	return n
}
