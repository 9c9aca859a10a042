package segments

import (
	"slices"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
)

// Memory from cuMemCreate has no address until it is mapped: each mapping is a
// span of its own, and those that follow each other are one segment, because a
// block may lie across them (PyTorch's expandable segments).

type lostSpan struct {
	pool *Pool
	span *span
}

func (t *Tracker) mapped(e *format.Event) {
	a := t.p.State.Find(e)
	if a == nil && e.Kind == format.LiveMapping {
		a = t.orphan(e)
	}
	if a == nil || a.Class != format.ClassDevice || e.Size <= 0 {
		return // memory of another process, or from before the recording: the fold has it nowhere either
	}
	p := t.pool(Owner{a.Process, a.Device})
	if i := p.find(e.Address); i >= 0 && p.spans[i].Address == e.Address {
		if p.spans[i].object == a.Object && p.spans[i].Size == e.Size {
			return // a checkpoint names it again
		}
		p.remove(i, e.Time)
	}
	p.add(&span{Span: Span{Address: e.Address, Size: e.Size, Stack: a.Stack, Time: a.Time, Mapped: true}, object: a.Object})
	t.changed(p)
}

// orphan finds memory that only its mapping holds. Such rows stand in
// checkpoints, directly after the memory's own.
func (t *Tracker) orphan(e *format.Event) (found *live.Allocation) {
	t.p.State.Each(func(a *live.Allocation) bool {
		if a.Process == e.Process && a.Object == e.Object && a.Time == e.Time && a.API.Space() == format.SpaceHandle {
			found = a
		}
		return found == nil
	})
	return found
}

func (t *Tracker) unmap(e *format.Event) {
	t.unmapped = t.unmapped[:0]
	end := e.Address + uint64(max(e.Size, 0))
	for o, p := range t.pools {
		if o.Process != e.Process {
			continue
		}
		before := len(t.unmapped)
		for i := max(p.find(e.Address), 0); i < len(p.spans) && p.spans[i].Address < end; {
			s := p.spans[i]
			if !s.Mapped || s.Address < e.Address || s.end() > end {
				i++
				continue
			}
			p.remove(i, e.Time)
			t.unmapped = append(t.unmapped, lostSpan{p, s})
		}
		if len(t.unmapped) > before {
			t.changed(p)
		}
	}
}

// remap puts back what a refused Unmap had taken away.
func (t *Tracker) remap() {
	for _, u := range t.unmapped {
		u.pool.add(u.span)
		u.pool.stale = slices.DeleteFunc(u.pool.stale, func(s stale) bool { return s.from == u.span.Address })
		if u.span.pool {
			u.pool.Occupied += u.span.occupied
			u.pool.Pinned += u.span.hole()
		}
		t.changed(u.pool)
	}
	t.unmapped = t.unmapped[:0]
}

// sweep removes the mappings of memory that is gone: after a reset, and after a
// checkpoint that begins anew.
func (t *Tracker) sweep(at format.Time) {
	type memory struct {
		process format.ProcessID
		object  uint64
		time    format.Time
	}
	any := false
	for _, p := range t.pools {
		for _, s := range p.spans {
			any = any || s.Mapped
		}
	}
	if !any {
		return
	}
	there := map[memory]bool{}
	t.p.State.Each(func(a *live.Allocation) bool {
		if a.API.Space() == format.SpaceHandle {
			there[memory{a.Process, a.Object, a.Time}] = true
		}
		return true
	})
	for o, p := range t.pools {
		for i := 0; i < len(p.spans); {
			s := p.spans[i]
			if !s.Mapped || there[memory{o.Process, s.object, s.Time}] {
				i++
				continue
			}
			p.remove(i, at)
			t.changed(p)
		}
	}
}
