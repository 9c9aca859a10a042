package tree

import (
	"sort"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
)

// AmountOf is what an allocation is in the sums of used and acquired bytes, and
// whether it stands there: what is not counted and other classes do not.
func AmountOf(p *analyze.Pass, a *live.Allocation) (Amount, bool) {
	if !a.Counted || a.Class != format.ClassDevice || a.Layer != format.LayerPool && a.Layer != format.LayerDriver {
		return Amount{}, false
	}
	var n Amount
	if a.Layer == format.LayerDriver {
		n.Acquired = a.Bytes()
	}
	if (a.Layer == format.LayerPool) == p.Pooled(a.Process) {
		n.Used, n.Blocks = a.Bytes(), 1
	}
	return n, true
}

// A Watch follows the used bytes of each device, or each of whatever its
// allocations belong to, and remembers what was live when they were highest. It
// needs a pass with Needs.Pooled.
type Watch[ID comparable] struct {
	// OnHigh hears of every new highest moment, just after it. May be nil.
	OnHigh func(ID, *High)

	p       *analyze.Pass
	of      func(*live.Allocation) ID
	key     func(*live.Allocation) Key
	highs   map[ID]*High
	order   []ID
	touched []ID
	entered bool // and no event yet
	last    *High
	lastID  ID
}

// higher compares used bytes. What never had any, as a device on which a process
// with a pool has only what libraries took, is compared by what was acquired.
func (a Amount) higher(b Amount) bool {
	return a.Used > b.Used || a.Used == 0 && b.Used == 0 && a.Acquired > b.Acquired
}

// A High is one of the sums: what it holds, and what it held when its used bytes
// were highest, the first time.
type High struct {
	*Set
	Now, Most Amount // Most is Now at the highest moment
	At        format.Time

	any, touched bool
}

// NewWatch returns a Watch on a pass. Its observers are to call Change.
func NewWatch[ID comparable](p *analyze.Pass, of func(*live.Allocation) ID, key func(*live.Allocation) Key) *Watch[ID] {
	return &Watch[ID]{p: p, of: of, key: key, highs: map[ID]*High{}}
}

// Change is for live.State's OnBegin, with sign 1, and OnEnd, with -1.
func (w *Watch[ID]) Change(a *live.Allocation, sign int64) {
	n, ok := AmountOf(w.p, a)
	if !ok {
		return
	}
	id := w.of(a)
	h := w.last
	if h == nil || w.lastID != id {
		if h = w.highs[id]; h == nil {
			h = &High{Set: NewSet()}
			w.highs[id] = h
			w.order = append(w.order, id)
		}
		w.last, w.lastID = h, id
	}
	n = Amount{sign * n.Used, sign * n.Acquired, sign * n.Blocks}
	h.Set.Add(w.key(a), n)
	h.Now.add(n)
	if !h.touched {
		h.touched = true
		w.touched = append(w.touched, id)
	}
}

// Event looks for new highest moments, when an event is folded and everything
// is what it is after it.
func (w *Watch[ID]) Event() {
	if w.entered { // the window is a scope's: it begins with this event
		w.entered = false
		for _, id := range w.order {
			w.highs[id].At = w.p.State.Now()
		}
	}
	if len(w.touched) == 0 || !w.p.In || w.p.State.Loading() {
		return
	}
	for _, id := range w.touched {
		h := w.highs[id]
		h.touched = false
		if !h.any || h.Now.higher(h.Most) {
			w.mark(id, h, w.p.State.Now())
		}
	}
	w.touched = w.touched[:0]
}

// Enter is for analyze.Enterer: a window begins with what is live already.
func (w *Watch[ID]) Enter() {
	at := w.p.State.Now()
	if from, known := w.p.From(); known {
		at = max(at, from)
	} else {
		w.entered = w.p.Windowed()
	}
	for _, id := range w.order {
		h := w.highs[id]
		h.touched = false
		w.mark(id, h, at)
	}
	w.touched = w.touched[:0]
}

func (w *Watch[ID]) mark(id ID, h *High, at format.Time) {
	h.Most, h.At, h.any = h.Now, at, true
	h.Set.Mark()
	if w.OnHigh != nil {
		w.OnHigh(id, h)
	}
}

// High is one sum, nil before its first allocation.
func (w *Watch[ID]) High(id ID) *High { return w.highs[id] }

// Each calls f for every sum that held something at its highest moment, sorted.
func (w *Watch[ID]) Each(less func(a, b ID) bool, f func(ID, *High)) {
	ids := append([]ID(nil), w.order...)
	sort.Slice(ids, func(i, j int) bool { return less(ids[i], ids[j]) })
	for _, id := range ids {
		if h := w.highs[id]; h.Most != (Amount{}) {
			f(id, h)
		}
	}
}
