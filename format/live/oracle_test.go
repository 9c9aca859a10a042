package live

import (
	"fmt"
	"sort"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
)

// oracle is the fold written the slow and obvious way: every allocation ever,
// looked up by walking over all, and the history of every curve, of which a
// scope takes the maximum by looking at all of it.
type oracle struct {
	allocs  []*oracleAlloc
	maps    []*oracleMap
	scopes  []*oracleScope
	history map[string][]int64 // curve → its value after each event
	unknown map[format.ProcessID]int64
	lost    map[format.ProcessID]int64
	last    []*oracleAlloc // what the latest giving back ended
	odd     bool           // it was of what is not known
	events  int
}

type oracleAlloc struct {
	e      format.Event
	live   bool
	refs   int
	handle uint64 // 0 when nothing names it any more
}

type oracleMap struct {
	p    format.ProcessID
	at   uint64
	size int64
	of   *oracleAlloc
	live bool
}

type oracleScope struct {
	e    format.Event
	from int
	open bool
}

func newOracle() *oracle {
	return &oracle{history: map[string][]int64{}, unknown: map[format.ProcessID]int64{}, lost: map[format.ProcessID]int64{}}
}

func (o *oracle) named(e *format.Event) *oracleAlloc {
	for _, a := range o.allocs {
		if !a.live || a.e.Process != e.Process || a.e.API.Space() != e.API.Space() {
			continue
		}
		switch e.API.Space() {
		case format.SpaceHandle:
			if a.handle == e.Object {
				return a
			}
		case format.SpaceObject, format.SpaceCuPy, format.SpaceGo:
			if a.e.Object == e.Object {
				return a
			}
		default:
			if a.e.Address == e.Address {
				return a
			}
		}
	}
	return nil
}

func (o *oracle) mapsOf(a *oracleAlloc) (n int) {
	for _, m := range o.maps {
		if m.live && m.of == a {
			n++
		}
	}
	return n
}

func (o *oracle) settle(a *oracleAlloc) {
	if a.e.API.Space() == format.SpaceHandle && a.handle == 0 && o.mapsOf(a) == 0 {
		a.live = false
	}
}

func (o *oracle) apply(e *format.Event) {
	captured := e.Flags&(format.FlagCaptured|format.FlagEcho) != 0
	switch e.Kind {
	case format.Alloc:
		if captured || e.Layer == format.LayerPool && e.Size == 0 {
			break
		}
		if old := o.named(e); old != nil {
			o.lost[e.Process]++
			if old.handle != 0 {
				old.handle, old.refs = 0, 0
				o.settle(old)
			} else {
				old.live = false
			}
		}
		a := &oracleAlloc{e: *e, live: true}
		if e.API.Space() == format.SpaceHandle {
			a.handle, a.refs = e.Object, 1
		}
		o.allocs = append(o.allocs, a)
	case format.Free:
		if captured {
			break
		}
		if a := o.named(e); a != nil {
			a.live, o.odd = false, false
			o.last = []*oracleAlloc{a}
		} else {
			o.last, o.odd = nil, true
			o.unknown[e.Process]++
		}
	case format.FreeFailed:
		for _, a := range o.last {
			a.live = true
		}
		if o.odd {
			if o.unknown[e.Process]--; o.unknown[e.Process] == 0 {
				delete(o.unknown, e.Process)
			}
		}
		o.last, o.odd = nil, false
	case format.Map:
		if a := o.named(e); a != nil {
			o.maps = append(o.maps, &oracleMap{e.Process, e.Address, e.Size, a, true})
		}
	case format.Unmap:
		found := false
		for _, m := range o.maps {
			if m.live && m.p == e.Process && m.at >= e.Address && m.at+uint64(m.size) <= e.Address+uint64(e.Size) {
				m.live, found = false, true
				o.settle(m.of)
			}
		}
		if !found {
			o.unknown[e.Process]++
		}
	case format.Retain:
		if a := o.named(e); a != nil {
			a.refs++
		} else {
			for i := len(o.allocs) - 1; i >= 0; i-- { // its handle was released: the youngest
				if a := o.allocs[i]; a.live && a.e.Process == e.Process && a.e.API == format.APIMemCreate && a.e.Object == e.Object {
					a.refs, a.handle = 1, e.Object
					break
				}
			}
		}
	case format.Release:
		if a := o.named(e); a != nil {
			if a.refs--; a.refs == 0 {
				a.handle = 0
				o.settle(a)
			}
		} else {
			o.unknown[e.Process]++
		}
	case format.Reset, format.ProcessEnd:
		for _, a := range o.allocs {
			all := e.Kind == format.ProcessEnd
			if a.live && a.e.Process == e.Process && (all || e.CUctx != 0 && a.e.CUctx == e.CUctx || e.CUctx == 0 && a.e.Device == e.Device) {
				a.live = false
				for _, m := range o.maps {
					if m.of == a {
						m.live = false
					}
				}
			}
		}
		if e.Kind == format.ProcessEnd {
			for _, sc := range o.scopes {
				if sc.e.Process == e.Process {
					sc.open = false
				}
			}
		}
	case format.ScopeBegin:
		o.scopes = append(o.scopes, &oracleScope{*e, o.events - 1, true})
	case format.ScopeEnd:
		for _, sc := range o.scopes {
			if sc.e.Scope == e.Scope {
				sc.open = false
			}
		}
	case format.ScopeReset:
		for _, sc := range o.scopes {
			if sc.e.Scope == e.Scope && sc.open {
				sc.from = o.events - 1
			}
		}
	}
	for name, v := range o.sums() {
		h := o.history[name]
		for len(h) < o.events {
			h = append(h, 0)
		}
		o.history[name] = append(h, v)
	}
	for name, h := range o.history { // what has no allocation is 0
		for len(h) <= o.events {
			h = append(h, 0)
		}
		o.history[name] = h
	}
	o.events++
}

// sums adds up, from nothing, every curve there is.
func (o *oracle) sums() map[string]int64 {
	v := map[string]int64{}
	for _, a := range o.allocs {
		e := &a.e
		if !a.live || e.Flags&format.FlagNested != 0 {
			continue
		}
		v[fmt.Sprintf("account %d %d %v %v", e.Process, e.Device, e.Layer, e.Class)] += e.Size
		if e.Class == format.ClassDevice {
			v[fmt.Sprintf("process %d %v", e.Process, e.Layer)] += e.Size
			v[fmt.Sprintf("device %d %v", e.Device, e.Layer)] += e.Size
		}
	}
	return v
}

func maxOf(h []int64) (m int64) {
	for _, v := range h {
		m = max(m, v)
	}
	return m
}

// dump is what the oracle says, in the words of dump(State).
func (o *oracle) dump() string {
	var lines []string
	say := func(f string, a ...any) { lines = append(lines, fmt.Sprintf(f, a...)) }
	for name, h := range o.history {
		if h[len(h)-1] != 0 || maxOf(h) != 0 {
			say("%s now %d peak %d", name, h[len(h)-1], maxOf(h))
		}
	}
	for p, n := range o.unknown {
		say("unknown %d: %d", p, n)
	}
	for p, n := range o.lost {
		say("lost %d: %d", p, n)
	}
	for _, a := range o.allocs {
		if a.live {
			say("live %d %v %x %x %d refs %d maps %d", a.e.Process, a.e.API, a.e.Address, a.e.Object, a.e.Size, a.refs, o.mapsOf(a))
		}
	}
	for _, sc := range o.scopes {
		if !sc.open {
			continue
		}
		for _, l := range []format.Layer{format.LayerDriver, format.LayerPool} {
			h := o.history[fmt.Sprintf("process %d %v", sc.e.Process, l)]
			if h == nil {
				h = make([]int64, o.events)
			}
			begin := int64(0)
			if sc.from >= 0 {
				begin = h[sc.from]
			}
			say("scope %d %v begin %d end %d max %d", sc.e.Scope, l, begin, h[len(h)-1], max(begin, maxOf(h[sc.from+1:])))
		}
	}
	sort.Strings(lines)
	return strings.Join(lines, "\n")
}

func dump(s *State) string {
	var lines []string
	say := func(f string, a ...any) { lines = append(lines, fmt.Sprintf(f, a...)) }
	curve := func(name string, c Curve) {
		if c.Now != 0 || c.Peak != 0 {
			say("%s now %d peak %d", name, c.Now, c.Peak)
		}
	}
	for _, p := range s.Processes() {
		for _, a := range p.Accounts() {
			curve(fmt.Sprintf("account %d %d %v %v", p.ID, a.Device, a.Layer, a.Class), a.Curve)
		}
		curve(fmt.Sprintf("process %d driver", p.ID), p.Acquired())
		curve(fmt.Sprintf("process %d pool", p.ID), p.Pool())
		if p.UnknownFrees > 0 {
			say("unknown %d: %d", p.ID, p.UnknownFrees)
		}
		if p.LostFrees > 0 {
			say("lost %d: %d", p.ID, p.LostFrees)
		}
	}
	for _, d := range s.Devices() {
		curve(fmt.Sprintf("device %d driver", d.ID), d.Acquired)
		curve(fmt.Sprintf("device %d pool", d.ID), d.Pool)
	}
	s.Each(func(a *Allocation) bool {
		refs, maps := int32(0), int32(0)
		if a.API.Space() == format.SpaceHandle {
			refs, maps = a.refs, a.maps
		}
		say("live %d %v %x %x %d refs %d maps %d", a.Process, a.API, a.Address, a.Object, a.Size, refs, maps)
		return true
	})
	for _, sc := range s.Scopes() {
		for c, l := range []format.Layer{format.LayerDriver, format.LayerPool} {
			m := s.Measure(sc, CurveKind(c))
			say("scope %d %v begin %d end %d max %d", sc.ID, l, m.Begin, m.End, m.Max)
		}
	}
	sort.Strings(lines)
	return strings.Join(lines, "\n")
}

// full is dump and all that the oracle does not know.
func full(s *State) string {
	var b strings.Builder
	b.WriteString(dump(s))
	for _, p := range s.Processes() {
		fmt.Fprintf(&b, "\nprocess %d pooled %v ended %v unknown %d lost %d failed %d events %d live %d", p.ID, p.Pooled, p.Ended,
			p.UnknownFrees, p.LostFrees, p.Failed, p.Lost, p.LiveCount)
		for _, a := range p.Accounts() {
			fmt.Fprintf(&b, "\naccount %d %d %v %v %+v", p.ID, a.Device, a.Layer, a.Class, a.Curve)
		}
		fmt.Fprintf(&b, "\nprocess %d %+v %+v", p.ID, p.Acquired(), p.Pool())
	}
	for _, d := range s.Devices() {
		fmt.Fprintf(&b, "\ndevice %d %+v %+v %+v %+v sampled %v %d %d", d.ID, d.Acquired, d.Pool, d.Used, s.DeviceUsed(d), d.Sampled, d.NVML(), d.NVMLPeak)
	}
	s.Each(func(a *Allocation) bool {
		fmt.Fprintf(&b, "\n%+v counted %v refs %d maps %d", a.Event, a.Counted, a.refs, a.maps)
		return true
	})
	for _, sc := range s.Scopes() {
		fmt.Fprintf(&b, "\nscope %d parent %d process %d thread %d name %d domain %d begin %d nvml %+v", sc.ID, sc.Parent, sc.Process,
			sc.Thread, sc.Name, sc.Domain, sc.Begin, s.Measure(sc, CurveNVML))
	}
	fmt.Fprintf(&b, "\nunhooked %d", s.Unhooked())
	return b.String()
}

func diff(t *testing.T, what, want, got string) {
	t.Helper()
	if want == got {
		return
	}
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	in := map[string]int{}
	for _, l := range w {
		in[l]++
	}
	for _, l := range g {
		in[l]--
	}
	var out []string
	for l, n := range in {
		if n > 0 {
			out = append(out, "- "+l)
		}
		if n < 0 {
			out = append(out, "+ "+l)
		}
	}
	sort.Strings(out)
	for i := range min(len(w), len(g)) {
		if w[i] != g[i] {
			out = append(out, "first at line "+fmt.Sprint(i), "- "+w[i], "+ "+g[i])
			break
		}
	}
	t.Fatalf("%s: - wanted, + got\n%s", what, strings.Join(out, "\n"))
}

func TestAgainstOracle(t *testing.T) {
	compared := 0
	for seed := range int64(16) {
		g, s, o := newGenerator(seed), New(), newOracle()
		for i := range 400 {
			for _, e := range g.next() {
				s.Fill(&e)
				s.Apply(&e)
				o.apply(&e)
			}
			if i%7 == 0 || i > 390 {
				diff(t, fmt.Sprintf("seed %d event %d", seed, i), o.dump(), dump(s))
				compared++
			}
		}
	}
	if compared < 500 {
		t.Fatalf("only %d comparisons", compared)
	}
}

// A checkpoint read by a fresh state, by the state itself, and by a state that
// missed what came before must give the state that wrote it, now and in all
// that follows.
func TestCheckpoint(t *testing.T) {
	for seed := range int64(40) {
		g, s, behind := newGenerator(seed), New(), New()
		feed := func(n int, to ...*State) {
			for range n {
				for _, e := range g.next() {
					s.Fill(&e)
					for _, x := range to {
						x.Apply(&e)
					}
				}
				if g.Intn(10) == 0 {
					r := format.Sample{Time: g.now, Device: format.Device(g.Intn(2)), Used: int64(g.Intn(100)), PeakUsed: int64(g.Intn(120))}
					r.PeakUsed = max(r.PeakUsed, r.Used)
					for _, x := range to {
						x.Sample(&r)
					}
				}
			}
		}
		feed(100+g.Intn(100), s, behind)
		feed(g.Intn(200), s)
		rows := s.Checkpoint(g.now)
		if end := rows[len(rows)-1]; end.Kind != format.CheckpointEnd || end.Size != int64(len(rows)-1) {
			t.Fatalf("seed %d: a checkpoint of %d rows ends with %v of %d", seed, len(rows), end.Kind, end.Size)
		}
		before := full(s)
		fresh := New()
		for _, x := range []*State{s, fresh, behind} {
			for i := range rows {
				e := rows[i]
				x.Apply(&e)
			}
		}
		diff(t, fmt.Sprintf("seed %d: itself", seed), before, full(s))
		diff(t, fmt.Sprintf("seed %d: fresh", seed), before, full(fresh))
		// What NVML said in the gap is not in a checkpoint if the device was known before.
		diff(t, fmt.Sprintf("seed %d: after a gap", seed), withoutSamples(before), withoutSamples(full(behind)))
		feed(200, s, fresh, behind)
		diff(t, fmt.Sprintf("seed %d: fresh, later", seed), full(s), full(fresh))
		diff(t, fmt.Sprintf("seed %d: after a gap, later", seed), withoutSamples(full(s)), withoutSamples(full(behind)))
	}
}

func withoutSamples(s string) string {
	var out []string
	for _, l := range strings.Split(s, "\n") {
		if i := strings.Index(l, " sampled"); i >= 0 {
			l = l[:i]
		}
		if i := strings.Index(l, " nvml"); i >= 0 {
			l = l[:i]
		}
		out = append(out, l)
	}
	return strings.Join(out, "\n")
}
