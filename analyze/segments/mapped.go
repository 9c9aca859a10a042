package segments

import (
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
)

// Memory from cuMemCreate has no address until it is mapped: each mapping is a
// span of its own, and those that follow each other are one segment, because a
// block may lie across them (PyTorch's expandable segments).

type mapKey struct {
	process format.ProcessID
	address uint64
}

func (t *Tracker) mapped(a *live.Allocation, address uint64, size int64) {
	k := mapKey{a.Process, address}
	if _, there := t.maps[k]; there {
		t.unmapped(a.Process, address)
	}
	if a.Class != format.ClassDevice || size <= 0 {
		return
	}
	p := t.pool(Owner{a.Process, a.Device})
	t.maps[k] = p
	s := &span{Span: Span{Address: address, Size: size, Stack: a.Stack, Time: a.Time, Mapped: true}, object: a.Object}
	if was := p.unstale(s); was != nil {
		p.restore(was)
	} else {
		p.add(s)
	}
	t.changed(p)
}

func (t *Tracker) unmapped(process format.ProcessID, address uint64) {
	k := mapKey{process, address}
	p := t.maps[k]
	if p == nil {
		return
	}
	delete(t.maps, k)
	if i := p.at(address, true); i >= 0 {
		p.remove(i, t.p.State.Now())
		t.changed(p)
	}
}

// unstale is the same memory mapped at the same place before, with the blocks
// that are still in it: the driver had refused to unmap it.
func (p *Pool) unstale(s *span) *span {
	for i, old := range p.stale {
		if o := old.span; o.Span == s.Span && o.object == s.object {
			p.stale = append(p.stale[:i], p.stale[i+1:]...)
			return o
		}
	}
	return nil
}
