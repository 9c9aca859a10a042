package fragmentation

import (
	"github.com/gpurec/gpurec/analyze/segments"
	"github.com/gpurec/gpurec/format"
)

// A history is a pool's sums over time in stretches of equal length. When there
// would be too many, two become one and the length doubles.
type history struct {
	from      format.Time
	width     format.Time
	stretches []stretch
	now       segments.Sums
}

type stretch struct {
	at    format.Time
	most  segments.Sums
	least int64
	any   bool
}

const (
	mostStretches  = 32
	firstStretch   = format.Time(1_000_000) // 1 ms
	longestStretch = format.Time(1) << 57   // 32 of them are all the time there is
)

// set is what the sums are from now on.
func (h *history) set(at format.Time, s segments.Sums) {
	if h.width == 0 {
		h.from, h.width, h.now = at, firstStretch, s
	}
	h.reach(at)
	h.now = s
	h.note(len(h.stretches)-1, at)
}

// reach makes the stretches up to a moment; what comes after the latest change
// is as that left it.
func (h *history) reach(at format.Time) {
	at = max(at, h.from)
	for (at-h.from)/h.width >= mostStretches && h.width < longestStretch {
		h.halve()
	}
	for i := len(h.stretches); i <= int((at-h.from)/h.width); i++ {
		h.stretches = append(h.stretches, stretch{})
		h.note(i, h.from+format.Time(i)*h.width)
	}
}

func (h *history) note(i int, at format.Time) {
	s := &h.stretches[i]
	if !s.any {
		*s = stretch{at, h.now, h.now.Pinned, true}
		return
	}
	s.least = min(s.least, h.now.Pinned)
	if worse(h.now, s.most) {
		s.at, s.most = at, h.now
	}
}

// worse orders moments: by pinned bytes, then by the segments' bytes.
func worse(a, b segments.Sums) bool {
	if a.Pinned != b.Pinned {
		return a.Pinned > b.Pinned
	}
	return a.Segments > b.Segments
}

func (h *history) halve() {
	h.width *= 2
	n := (len(h.stretches) + 1) / 2
	for i := range n {
		s := h.stretches[2*i]
		if 2*i+1 < len(h.stretches) {
			next := h.stretches[2*i+1]
			s.least = min(s.least, next.least)
			if worse(next.most, s.most) {
				s.at, s.most = next.at, next.most
			}
		}
		h.stretches[i] = s
	}
	h.stretches = h.stretches[:n]
}
