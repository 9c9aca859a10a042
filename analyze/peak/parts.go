package peak

import (
	"fmt"
	"path"
	"sort"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/tree"
	"github.com/gpurec/gpurec/format"
)

// Parts are what NVML's number was made of at a peak. They add up to Sum: what
// NVML read as used and reserved, and what was recorded as taken between the
// reading and the peak, which is nothing in most jobs.
type Parts struct {
	At       int64    `json:"reading_ns"`    // NVML's reading
	Used     int64    `json:"nvml_used"`     // as NVML said
	Reserved *int64   `json:"nvml_reserved"` // nil where NVML counts it as used
	Free     int64    `json:"nvml_free"`
	Taken    int64    `json:"taken_since"` // less than 0 where the reading came after a free
	Sum      int64    `json:"sum"`
	Rows     []Part   `json:"parts"`           // in the order in which they are told
	Notes    []string `json:"notes,omitempty"` // what could not be told
}

// A Part is one of them. Detail is of its bytes, and need not be all of them.
type Part struct {
	Name     string `json:"part"`
	PID      *int32 `json:"pid,omitempty"`
	Bytes    int64  `json:"bytes"`
	Inferred bool   `json:"inferred,omitempty"`
	Detail   []Part `json:"detail,omitempty"`
	Steps    []Step `json:"steps,omitempty"`
}

// Names of parts.
const (
	PartUsed        = "used"
	PartSlack       = "pool slack"
	PartStreams     = "stream-ordered pools beyond their blocks"
	PartOutside     = "driver, outside pools"
	PartRounding    = "rounding to 2 MiB"
	PartArrays      = "arrays"
	PartGraphs      = "kept for graphs"
	PartContext     = "CUcontext"
	PartModules     = "modules"
	PartOther       = "other processes and the driver's own"
	PartReserved    = "reserved by the driver"
	PartUnexplained = "unexplained"
)

// Unexplained is what no rule explains.
func (ps *Parts) Unexplained() int64 { return ps.Rows[len(ps.Rows)-1].Bytes }

// reading is the one that fits the moment best: the contexts are there, the
// recording is nearest to what it was then, rules explain all, it is near in
// time.
func (m *moment) reading(at format.Time) *said {
	best := m.before
	if s := m.after; s != nil && (best == nil || m.worse(best, s, at)) {
		best = s
	}
	return best
}

// worse reports whether b fits better than a.
func (m *moment) worse(a, b *said, at format.Time) bool {
	if ca, cb := m.without(a), m.without(b); ca != cb {
		return cb < ca
	}
	if da, db := abs(a.tracked-m.tracked), abs(b.tracked-m.tracked); da != db {
		return db < da
	}
	if ea, eb := a.explained(), b.explained(); ea != eb {
		return eb
	}
	return max(b.at-at, at-b.at) < max(a.at-at, at-a.at)
}

// without is how many processes had taken nothing yet at a reading.
func (m *moment) without(s *said) (n int) {
	for i := range m.procs {
		took := !m.procs[i].physical.took
		for _, r := range s.procs {
			took = took || r.id == m.procs[i].id && r.took
		}
		if !took {
			n++
		}
	}
	return n
}

// partsOf adds up, at the device's highest moment:
//
//	  used + pool slack + streams + outside + rounding + arrays + graphs   what events say then
//	+ contexts + modules + streams' reserve                       of each process, at the reading
//	+ other processes + reserved                                  at the reading
//	+ unexplained
//	= used + reserved by NVML, at the reading
//	+ what events say then, more than at the reading
func (a *Answer) partsOf(d format.Device, m *moment, at format.Time) *Parts {
	s := m.reading(at)
	if s == nil {
		return nil
	}
	ps := &Parts{At: a.p.Since(s.at), Used: s.used, Free: s.free, Taken: m.tracked - s.tracked}
	ps.Sum = s.used + ps.Taken
	if s.reserved >= 0 {
		r := s.reserved
		ps.Reserved = &r
		ps.Sum += r
	}
	left := ps.Sum
	add := func(p Part) {
		left -= p.Bytes
		if p.Bytes != 0 || p.Name == PartUsed || p.Name == PartSlack {
			ps.Rows = append(ps.Rows, p)
		}
	}
	a.addRecorded(d, m, add)
	a.addBeyond(s, add)
	if s.known {
		add(Part{Name: PartOther, Bytes: s.rest, Inferred: !s.apart})
	}
	if ps.Reserved != nil {
		add(Part{Name: PartReserved, Bytes: *ps.Reserved})
	}
	ps.Rows = append(ps.Rows, Part{Name: PartUnexplained, Bytes: left})
	m.note(ps, s)
	return ps
}

// note says what the parts cannot tell.
func (m *moment) note(ps *Parts, s *said) {
	note := func(f string, a ...any) { ps.Notes = append(ps.Notes, fmt.Sprintf(f, a...)) }
	switch {
	case !s.known:
		note("NVML did not tell processes apart, and no reading is older than the program: contexts, modules and other processes are unexplained")
	case !s.apart:
		note("NVML did not tell processes apart: others are taken to have what was used before the program began")
	}
	managed := int64(0)
	for i := range m.procs {
		managed += m.procs[i].physical.managed
	}
	if managed > 0 {
		note("%d bytes of managed memory are in no part of their own: how much of it was on the device is not recorded", managed)
	}
	if m.without(s) > 0 {
		note("at the reading a process had taken nothing yet: its context may not have been there, and is not in the sum")
	}
}

// addRecorded adds what events say.
func (a *Answer) addRecorded(d format.Device, m *moment, add func(Part)) {
	var used, slack, streams, outside, rounding, arrays, graphs int64
	for i := range m.procs {
		p := &m.procs[i]
		used += p.used
		rounding += p.physical.granules - p.physical.sizes
		arrays += p.physical.arrays
		graphs += p.physical.graphs
		if a.p.Pooled(p.id) {
			slack += p.sums.Cached()
			outside += p.physical.sizes - p.sums.Segments
			streams += p.physical.streamed() - (p.used - p.sums.Occupied)
		}
	}
	add(Part{Name: PartUsed, Bytes: used})
	add(Part{Name: PartSlack, Bytes: slack})
	add(Part{Name: PartStreams, Bytes: streams})
	add(Part{Name: PartOutside, Bytes: outside, Detail: a.outsiders(d)})
	add(Part{Name: PartRounding, Bytes: rounding, Inferred: true})
	add(Part{Name: PartArrays, Bytes: arrays, Inferred: true})
	add(Part{Name: PartGraphs, Bytes: graphs})
}

// outsiders are the driver allocations outside pools, by who made them.
func (a *Answer) outsiders(d format.Device) []Part {
	s := a.outside[d]
	if s == nil {
		return nil
	}
	sums := map[string]int64{}
	s.High(func(k tree.Key, n tree.Amount) { sums[maker(k.Stack, a.p.Defs)] += n.Acquired })
	var out []Part
	for name, n := range sums {
		out = append(out, Part{Name: name, Bytes: n})
	}
	sort.Slice(out, func(i, j int) bool {
		if out[i].Bytes != out[j].Bytes {
			return out[i].Bytes > out[j].Bytes
		}
		return out[i].Name < out[j].Name
	})
	return out
}

// addBeyond adds what processes have beyond what events say.
func (a *Answer) addBeyond(s *said, add func(Part)) {
	for i := range s.own {
		o := &s.own[i]
		var pid *int32
		if o.id != 0 {
			d, _ := a.p.Defs.Process(o.id)
			pid = &d.PID
		}
		add(Part{Name: PartContext, PID: pid, Bytes: o.context, Inferred: true, Steps: o.stepsOf(true)})
		add(Part{Name: PartModules, PID: pid, Bytes: o.modules, Inferred: true, Steps: o.stepsOf(false)})
		add(Part{Name: PartStreams, PID: pid, Bytes: o.streams, Inferred: true})
	}
}

// stepsOf are the steps to the context, or after it.
func (o *owned) stepsOf(context bool) (out []Step) {
	for _, s := range o.steps {
		if s.context == context {
			out = append(out, s)
		}
	}
	return out
}

// maker is who took memory, as far as its stack says: the library that called
// the driver, or the line that called into native code.
func maker(stack format.StackID, defs *format.Defs) string {
	ids, _ := defs.Walk(stack, nil)
	for i := len(ids) - 1; i >= 0; i-- {
		f, ok := defs.Frame(ids[i])
		switch {
		case !ok:
		case f.Kind != format.FrameNative:
			return "called by " + f.String()
		case f.Module != "" && !analyze.IsRuntime(path.Base(f.Module)):
			return path.Base(f.Module)
		}
	}
	return tree.NoLineName
}
