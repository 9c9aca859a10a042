package stats

import (
	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
)

// A lane is what a thread took from the driver since its latest allocation of a
// pool: one range, for a pool asks for one thing at a time, and maps a segment
// piece by piece.
type lane struct {
	process format.ProcessID
	thread  uint32
}

type span struct{ from, to uint64 }

// add notes memory that came from the driver.
func (s *span) add(e *format.Event) {
	from, to := e.Address, e.Address+uint64(max(e.Size, 0))
	if s.to == from && s.to > s.from {
		s.to = to
		return
	}
	s.from, s.to = from, to
}

// overlaps reports whether a block lies in it, or part of it.
func (s *span) overlaps(e *format.Event) bool {
	return e.Address < s.to && s.from < e.Address+uint64(max(e.Size, 1))
}

// pools follows an event.
func (a *Answer) pools(pr *process, e *format.Event) {
	switch {
	case e.Flags&(format.FlagEcho|format.FlagCaptured) != 0 || !a.p.Pooled(e.Process):
	case e.Kind == format.Map, e.Kind == format.Alloc && e.Layer == format.LayerDriver && e.Address != 0:
		s := a.spans[lane{e.Process, e.Thread}]
		s.add(e)
		a.spans[lane{e.Process, e.Thread}] = s
	case e.Kind == format.Alloc && (e.API == format.APITorch || e.API == format.APICuPy) && e.Size > 0:
		at := lane{e.Process, e.Thread}
		s, some := a.spans[at]
		delete(a.spans, at)
		if !a.p.In || !a.p.Matches(e, fields) {
			return
		}
		p := pr.pools[e.API]
		if p == nil {
			p = &Pool{Name: e.API.String()}
			pr.pools[e.API] = p
		}
		p.Count++
		p.Bytes = analyze.Add(p.Bytes, e.Size)
		if some && s.overlaps(e) {
			p.Misses++
			p.MissBytes = analyze.Add(p.MissBytes, e.Size)
		}
	}
}
