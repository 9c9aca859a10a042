package live

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand"
	"sort"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
)

// ev is an event of process 1, thread 7, device 0; its time is given by play.
func ev(k format.Kind, a format.API, set ...func(*format.Event)) format.Event {
	i := a.Info()
	e := format.Event{Kind: k, API: a, Layer: i.Layer, Class: i.Class, Process: 1, Thread: 7, Duration: -1, Requested: -1,
		Allocated: -1, Reserved: -1, Size: -1}
	for _, f := range set {
		f(&e)
	}
	return e
}

func at(a uint64) func(*format.Event)           { return func(e *format.Event) { e.Address = a } }
func object(o uint64) func(*format.Event)       { return func(e *format.Event) { e.Object = o } }
func size(n int64) func(*format.Event)          { return func(e *format.Event) { e.Size = n } }
func on(d format.Device) func(*format.Event)    { return func(e *format.Event) { e.Device = d } }
func by(p format.ProcessID) func(*format.Event) { return func(e *format.Event) { e.Process = p } }
func flag(f format.Flags) func(*format.Event)   { return func(e *format.Event) { e.Flags |= f } }
func ctx(c uint64) func(*format.Event)          { return func(e *format.Event) { e.CUctx = c } }
func thread(t uint32) func(*format.Event)       { return func(e *format.Event) { e.Thread = t } }
func scope(id format.ScopeID) func(*format.Event) {
	return func(e *format.Event) { e.Scope, e.Device = id, format.NoDevice }
}

func play(s *State, es ...format.Event) *State {
	for i := range es {
		e := es[i]
		e.Time = s.now + 10
		s.Fill(&e)
		s.Apply(&e)
	}
	return s
}

// say is the state in a few words: acquired and pool of process 1 (now/peak),
// unknown and lost frees, number of live allocations.
func say(s *State) string {
	p := s.Process(1)
	if p == nil {
		return "nothing"
	}
	a, b := p.Acquired(), p.Pool()
	return fmt.Sprintf("acquired %d/%d pool %d/%d unknown %d lost %d live %d", a.Now, a.Peak, b.Now, b.Peak, p.UnknownFrees, p.LostFrees, p.LiveCount)
}

func TestFold(t *testing.T) {
	const (
		alloc, free, failed = format.Alloc, format.Free, format.FreeFailed
		cuAlloc, cuFree     = format.APIMemAlloc, format.APIMemFree
		create              = format.APIMemCreate
	)
	h := object(0x99)
	vmm := []format.Event{ev(alloc, create, h, size(100)), ev(format.Map, format.APIMemMap, h, at(0x1000), size(100))}
	release := ev(format.Release, format.APIMemRelease, h)
	unmap := ev(format.Unmap, format.APIMemUnmap, at(0x1000), size(100))
	then := func(es ...format.Event) []format.Event { return append(append([]format.Event{}, vmm...), es...) }
	for _, row := range []struct {
		name   string
		events []format.Event
		want   string
	}{
		{"A1: one thread frees, another is given the address", []format.Event{ev(alloc, cuAlloc, at(1), size(8)), ev(free, cuFree, at(1), thread(1)),
			ev(alloc, cuAlloc, at(1), size(16), thread(2))}, "acquired 16/16 pool 0/0 unknown 0 lost 0 live 1"},
		{"A2: alloc, free, alloc at one address", []format.Event{ev(alloc, cuAlloc, at(1), size(8)), ev(free, cuFree, at(1)), ev(alloc, cuAlloc, at(1), size(16))},
			"acquired 16/16 pool 0/0 unknown 0 lost 0 live 1"},
		{"A3: free of what was never seen", []format.Event{ev(alloc, cuAlloc, at(1), size(8)), ev(free, cuFree, at(2))},
			"acquired 8/8 pool 0/0 unknown 1 lost 0 live 1"},
		{"free of null names nothing", []format.Event{ev(free, cuFree, at(0))}, "acquired 0/0 pool 0/0 unknown 0 lost 0 live 0"},
		{"A5: cuMemAllocAsync freed by cuMemFree", []format.Event{ev(alloc, format.APIMemAllocAsync, at(1), size(8)), ev(free, cuFree, at(1))},
			"acquired 0/0 pool 0/8 unknown 0 lost 0 live 0"},
		{"A5: cuMemAlloc freed by cuMemFreeAsync", []format.Event{ev(alloc, cuAlloc, at(1), size(8)), ev(free, format.APIMemFreeAsync, at(1))},
			"acquired 0/8 pool 0/0 unknown 0 lost 0 live 0"},
		{"a PyTorch block at its segment's address", []format.Event{ev(alloc, cuAlloc, at(1), size(20)), ev(alloc, format.APITorch, at(1), size(8)),
			ev(free, format.APITorch, at(1))}, "acquired 20/20 pool 0/8 unknown 0 lost 0 live 1"},
		{"A8: failed allocs", []format.Event{ev(format.AllocFailed, cuAlloc, size(3<<30)), ev(format.AllocFailed, format.APITorchOOM, size(3<<30))},
			"acquired 0/0 pool 0/0 unknown 0 lost 0 live 0"},
		{"A9: refused free", []format.Event{ev(alloc, cuAlloc, at(1), size(8)), ev(free, cuFree, at(1)), ev(failed, cuFree, at(1))},
			"acquired 8/8 pool 0/0 unknown 0 lost 0 live 1"},
		{"refused free of what was never seen", []format.Event{ev(free, cuFree, at(1)), ev(failed, cuFree, at(1))},
			"acquired 0/0 pool 0/0 unknown 0 lost 0 live 0"},
		{"a second free, refused", []format.Event{ev(alloc, cuAlloc, at(1), size(8)), ev(free, cuFree, at(1)), ev(free, cuFree, at(1)), ev(failed, cuFree, at(1))},
			"acquired 0/8 pool 0/0 unknown 0 lost 0 live 0"},
		{"two frees of what was never seen, one refused", []format.Event{ev(free, cuFree, at(1)), ev(free, cuFree, at(1)), ev(failed, cuFree, at(1))},
			"acquired 0/0 pool 0/0 unknown 1 lost 0 live 0"},
		{"refused twice", []format.Event{ev(alloc, cuAlloc, at(1), size(8)), ev(free, cuFree, at(1)), ev(failed, cuFree, at(1)), ev(free, cuFree, at(1)), ev(failed, cuFree, at(1))},
			"acquired 8/8 pool 0/0 unknown 0 lost 0 live 1"},
		{"alloc at a live address", []format.Event{ev(alloc, cuAlloc, at(1), size(8)), ev(alloc, cuAlloc, at(1), size(16))},
			"acquired 16/16 pool 0/0 unknown 0 lost 1 live 1"},
		{"pool alloc of no bytes", []format.Event{ev(alloc, format.APICuPy, object(5), size(0))}, "acquired 0/0 pool 0/0 unknown 0 lost 0 live 0"},
		{"0 bytes at null, twice", []format.Event{ev(alloc, format.APIMemHostAlloc, at(0), size(0)), ev(alloc, format.APIMemHostAlloc, at(0), size(0))},
			"acquired 0/0 pool 0/0 unknown 0 lost 0 live 0"},
		{"a sparse array has no bytes, and an end", []format.Event{ev(alloc, format.APIArray3DCreate, object(5), size(0)), ev(free, format.APIArrayDestroy, object(5))},
			"acquired 0/0 pool 0/0 unknown 0 lost 0 live 0"},
		{"captured", []format.Event{ev(alloc, format.APIMemAllocAsync, at(1), size(8), flag(format.FlagCaptured)),
			ev(free, format.APIMemFreeAsync, at(1), flag(format.FlagCaptured))}, "nothing"},
		{"echo", []format.Event{ev(alloc, format.APICuPyAlloc, at(1), size(8), flag(format.FlagEcho))}, "nothing"},
		{"nested: followed, in no sum", []format.Event{ev(alloc, format.APIMemAllocAsync, at(1), size(8), flag(format.FlagNested)), ev(alloc, format.APICuPy, object(1), size(8))},
			"acquired 0/0 pool 8/8 unknown 0 lost 0 live 2"},
		{"A6: a free inside another's alloc", []format.Event{ev(alloc, format.APICuPy, object(2), size(8)), ev(free, format.APICuPy, object(2)), ev(alloc, format.APICuPy, object(1), size(8))},
			"acquired 0/0 pool 8/8 unknown 0 lost 0 live 1"},
		{"class array is no part of acquired", []format.Event{ev(alloc, format.APIArrayCreate, object(2), size(8))}, "acquired 0/0 pool 0/0 unknown 0 lost 0 live 1"},
		{"imported memory is never counted, and its free is known", []format.Event{ev(format.Import, cuAlloc, at(1), size(8)), ev(free, cuFree, at(1))},
			"acquired 0/0 pool 0/0 unknown 0 lost 0 live 0"},
		{"VMM: released while mapped", then(release), "acquired 100/100 pool 0/0 unknown 0 lost 0 live 1"},
		{"VMM: released, then unmapped", then(release, unmap), "acquired 0/100 pool 0/0 unknown 0 lost 0 live 0"},
		{"VMM: unmapped, then released", then(unmap, release), "acquired 0/100 pool 0/0 unknown 0 lost 0 live 0"},
		{"VMM: the handle's value reused while the old memory is mapped", then(release, ev(alloc, create, h, size(30)), unmap),
			"acquired 30/130 pool 0/0 unknown 0 lost 0 live 1"},
		{"VMM: retained by address after release", then(release, ev(format.Retain, format.APIMemRetain, h, at(0x1000)), unmap),
			"acquired 100/100 pool 0/0 unknown 0 lost 0 live 1"},
		{"VMM: one unmap over two mappings", then(ev(alloc, create, object(0x98), size(50)), ev(format.Map, format.APIMemMap, object(0x98), at(0x1064), size(50)),
			release, ev(format.Release, format.APIMemRelease, object(0x98)), ev(format.Unmap, format.APIMemUnmap, at(0x1000), size(150))),
			"acquired 0/150 pool 0/0 unknown 0 lost 0 live 0"},
		{"VMM: an unmap that begins in a hole", then(release, ev(format.Unmap, format.APIMemUnmap, at(0x800), size(0x1000))),
			"acquired 0/100 pool 0/0 unknown 0 lost 0 live 0"},
		{"VMM: a part of a mapping stays", then(release, ev(format.Unmap, format.APIMemUnmap, at(0x1000), size(50))),
			"acquired 100/100 pool 0/0 unknown 1 lost 0 live 1"},
		{"VMM: refused unmap", then(release, unmap, ev(failed, format.APIMemUnmap, at(0x1000), size(100))), "acquired 100/100 pool 0/0 unknown 0 lost 0 live 1"},
		{"VMM: refused unmap, then a good one", then(release, unmap, ev(failed, format.APIMemUnmap, at(0x1000), size(100)), unmap),
			"acquired 0/100 pool 0/0 unknown 0 lost 0 live 0"},
		{"VMM: refused unmap of what was never mapped", []format.Event{unmap, ev(failed, format.APIMemUnmap, at(0x1000), size(100))},
			"acquired 0/0 pool 0/0 unknown 0 lost 0 live 0"},
		{"VMM: refused unmap of a part", then(ev(format.Unmap, format.APIMemUnmap, at(0x1000), size(50)), ev(failed, format.APIMemUnmap, at(0x1000), size(50))),
			"acquired 100/100 pool 0/0 unknown 0 lost 0 live 1"},
		{"VMM: unmapped a second time", then(unmap, unmap), "acquired 100/100 pool 0/0 unknown 1 lost 0 live 1"},
		{"VMM: refused release of an unknown handle", []format.Event{release, ev(failed, format.APIMemRelease, h)}, "acquired 0/0 pool 0/0 unknown 0 lost 0 live 0"},
		{"VMM: refused release", then(release, ev(failed, format.APIMemRelease, h), unmap), "acquired 100/100 pool 0/0 unknown 0 lost 0 live 1"},
		{"VMM: refused last release", then(unmap, release, ev(failed, format.APIMemRelease, h)), "acquired 100/100 pool 0/0 unknown 0 lost 0 live 1"},
		{"VMM: release of an unknown handle", []format.Event{release}, "acquired 0/0 pool 0/0 unknown 1 lost 0 live 0"},
		{"reset of a device", []format.Event{ev(alloc, cuAlloc, at(1), size(8)), ev(alloc, cuAlloc, at(2), size(8), on(1)), ev(alloc, format.APITorch, at(2), size(8)),
			ev(format.Reset, format.APIPrimaryCtxReset)}, "acquired 8/16 pool 0/8 unknown 0 lost 0 live 1"},
		{"reset of a CUcontext", []format.Event{ev(alloc, cuAlloc, at(1), size(8), ctx(1)), ev(alloc, cuAlloc, at(2), size(8), ctx(2)),
			ev(format.Reset, format.APICtxDestroy, ctx(1))}, "acquired 8/16 pool 0/0 unknown 0 lost 0 live 1"},
		{"refused reset", then(release, ev(alloc, cuAlloc, at(1), size(8)), ev(format.Reset, format.APIPrimaryCtxReset), ev(failed, format.APIPrimaryCtxReset)),
			"acquired 108/108 pool 0/0 unknown 0 lost 0 live 2"},
		{"refused reset, the mappings too", then(release, ev(format.Reset, format.APIPrimaryCtxReset), ev(failed, format.APIPrimaryCtxReset), unmap),
			"acquired 0/100 pool 0/0 unknown 0 lost 0 live 0"},
		{"a process's end", then(ev(alloc, cuAlloc, at(1), size(8)), ev(format.ProcessEnd, format.APINone)), "acquired 0/108 pool 0/0 unknown 0 lost 0 live 0"},
		{"another process's memory", []format.Event{ev(alloc, cuAlloc, at(1), size(8)), ev(free, cuFree, at(1), by(2))},
			"acquired 8/8 pool 0/0 unknown 0 lost 0 live 1"},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := play(New(), row.events...)
			if got := say(s); got != row.want {
				t.Errorf("got  %s\nwant %s", got, row.want)
			}
			again := New()
			for _, e := range s.Checkpoint(s.now) {
				again.Apply(&e)
			}
			if got := say(again); got != row.want && row.want != "nothing" {
				t.Errorf("from its checkpoint: got  %s\nwant %s", got, row.want)
			}
		})
	}
}

// A4: the device comes from the allocation, whatever is current at its free.
func TestFreeOnAnotherDevice(t *testing.T) {
	s := play(New(), ev(format.Alloc, format.APIMemAllocAsync, at(1), size(8), on(1)), ev(format.Free, format.APIMemFreeAsync, at(1), on(0)))
	for _, d := range s.Devices() {
		if d.Pool.Now != 0 {
			t.Errorf("device %d holds %d", d.ID, d.Pool.Now)
		}
	}
	if s.devices[1].Pool.Peak != 8 {
		t.Errorf("device 1 peaked at %d, want 8", s.devices[1].Pool.Peak)
	}
}

// A7: rows count in their order, whatever their times say.
func TestTimeSteps(t *testing.T) {
	s := New()
	for _, row := range []struct {
		at   format.Time
		kind format.Kind
	}{{100, format.Alloc}, {50, format.Free}, {50, format.Alloc}, {50, format.Free}, {70, format.Alloc}} {
		e := ev(row.kind, format.APIMemAlloc, at(1), size(8))
		e.Time = row.at
		s.Apply(&e)
	}
	if got, want := say(s), "acquired 8/8 pool 0/0 unknown 0 lost 0 live 1"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// E2: two threads, 100,000 allocations each, all live.
func TestManyThreads(t *testing.T) {
	s := New()
	for i := range uint64(100000) {
		for tid := range uint64(2) {
			e := ev(format.Alloc, format.APITorch, at(1+2*i+tid), size(1), thread(uint32(tid)))
			s.Apply(&e)
		}
	}
	if got, want := say(s), "acquired 0/0 pool 200000/200000 unknown 0 lost 0 live 200000"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// A refused free stands across a checkpoint: the row says it all.
func TestFreeFailedAfterCheckpoint(t *testing.T) {
	s := play(New(), ev(format.Alloc, format.APIMemAlloc, at(1), size(8), on(1)), ev(format.Free, format.APIMemFree, at(1)))
	rows := s.Checkpoint(s.now)
	e := ev(format.FreeFailed, format.APIMemFree, at(1))
	if !s.Fill(&e) || e.Size != 8 || e.Device != 1 || e.API != format.APIMemAlloc || e.Kind != format.FreeFailed {
		t.Fatalf("filled as %+v", e)
	}
	fresh := New()
	for i := range rows {
		fresh.Apply(&rows[i])
	}
	for _, x := range []*State{s, fresh} {
		x.Apply(&e)
		if got, want := say(x), "acquired 8/8 pool 0/0 unknown 0 lost 0 live 1"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestUsed(t *testing.T) {
	plain := []format.Event{ev(format.Alloc, format.APIMemAlloc, at(1), size(100), by(1))}
	pooled := []format.Event{ev(format.Alloc, format.APIMemAlloc, at(1), size(50), by(2)), ev(format.Alloc, format.APITorch, at(1), size(20), by(2))}
	lateFree := []format.Event{ev(format.Alloc, format.APIMemAlloc, at(1), size(100), by(1)), ev(format.Free, format.APIMemFreeAsync, at(1), by(1))}
	for _, row := range []struct {
		name   string
		known  bool
		events []format.Event
		want   Curve
	}{
		{"driver only", false, plain, Curve{Now: 100, Peak: 100}},
		{"pool only", false, pooled, Curve{Now: 20, Peak: 20}},
		{"both, known", true, append(append([]format.Event{}, pooled...), plain...), Curve{Now: 120, Peak: 120}},
		{"both, as seen", false, append(append([]format.Event{}, pooled...), plain...), Curve{Now: 120, Peak: 120}},
		{"cuMemFreeAsync makes no pool", false, lateFree, Curve{Peak: 100}},
	} {
		s := New()
		if row.known {
			s.Pooled = func(p format.ProcessID) bool { return p == 2 }
		}
		play(s, row.events...)
		c := s.DeviceUsed(s.devices[0])
		if c.Now != row.want.Now || c.Peak != row.want.Peak {
			t.Errorf("%s: now %d peak %d, want %d %d", row.name, c.Now, c.Peak, row.want.Now, row.want.Peak)
		}
	}
}

// B4: the inner scopes reset nothing of each other or of the outer one.
func TestScopesOverlap(t *testing.T) {
	const m = 256 << 20
	next := uint64(0)
	var es []format.Event
	var held []uint64
	take := func(n int) {
		for range n {
			next++
			held = append(held, next)
			es = append(es, ev(format.Alloc, format.APITorch, at(next), size(m)))
		}
	}
	drop := func(n int) {
		for range n {
			es = append(es, ev(format.Free, format.APITorch, at(held[0])))
			held = held[1:]
		}
	}
	begin := func(id format.ScopeID) { es = append(es, ev(format.ScopeBegin, format.APINVTX, scope(id))) }
	end := func(id format.ScopeID) { es = append(es, ev(format.ScopeEnd, format.APINVTX, scope(id))) }
	begin(1)
	begin(2)
	take(4)
	drop(4)
	end(2)
	begin(3)
	take(2)
	drop(1)
	end(3)
	begin(4)
	take(2)
	drop(2)
	end(4)
	end(1)
	got := map[format.ScopeID]string{}
	s := New()
	s.OnScopeEnd = func(sc *Scope, e *format.Event) {
		m := s.Measure(sc, s.UsedCurve(sc))
		got[sc.ID] = fmt.Sprintf("%d/%d", m.Used()>>20, m.Peaked()>>20)
	}
	play(s, es...)
	want := map[format.ScopeID]string{1: "256/768", 2: "0/1024", 3: "256/256", 4: "0/512"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Samples are merged by the caller; what a scope saw of NVML is known up to one
// interval.
func TestNVMLCurve(t *testing.T) {
	begin := func(id format.ScopeID) format.Event { return ev(format.ScopeBegin, format.APIScope, scope(id)) }
	read := func(s *State, d format.Device, used, peak int64) {
		s.Sample(&format.Sample{Device: d, Used: used, PeakUsed: peak})
	}
	for _, row := range []struct {
		name string
		run  func(s *State)
		want string
	}{
		{"no sample", func(s *State) { play(s, begin(1)) }, "unknown"},
		{"the first reading stands for the time before it", func(s *State) { play(s, begin(1)); read(s, 0, 50, 50); read(s, 0, 70, 90) }, "begin 50 end 70 max 90"},
		{"a peak before the scope is not its own", func(s *State) { read(s, 0, 50, 50); play(s, begin(1)); read(s, 0, 60, 90) }, "begin 50 end 60 max 60"},
		{"two devices are a sum", func(s *State) {
			read(s, 0, 50, 50)
			play(s, begin(1))
			read(s, 1, 7, 7)
			read(s, 0, 60, 90)
			read(s, 0, 60, 80)
		}, "begin 57 end 67 max 87"},
	} {
		s := New()
		row.run(s)
		m := s.Measure(s.Scope(1), CurveNVML)
		got := fmt.Sprintf("begin %d end %d max %d", m.Begin, m.End, m.Max)
		if !m.Known {
			got = "unknown"
		}
		if got != row.want {
			t.Errorf("%s: %s, want %s", row.name, got, row.want)
		}
	}
}

func TestCountFilter(t *testing.T) {
	s := New()
	s.Count = func(e *format.Event) bool { return e.Device == 1 }
	play(s, ev(format.Alloc, format.APIMemAlloc, at(1), size(8)), ev(format.Alloc, format.APIMemAlloc, at(2), size(16), on(1)),
		ev(format.Free, format.APIMemFree, at(1), on(1)), ev(format.ScopeBegin, format.APINVTX, scope(1)), ev(format.Free, format.APIMemFree, at(2)))
	if got, want := say(s), "acquired 0/16 pool 0/0 unknown 0 lost 0 live 0"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if m := s.Measure(s.Scope(1), CurveAcquired); m.Begin != 16 || m.End != 0 {
		t.Errorf("scope measured %+v", m)
	}
}

// What counted counts again when its free is refused, whatever a filter would
// say of it by then: the scope it was taken in may have ended.
func TestCountOfRefused(t *testing.T) {
	s := New()
	open := true
	s.Count = func(*format.Event) bool { return open }
	alloc, free := ev(format.Alloc, format.APIMemAlloc, at(1), size(8)), ev(format.Free, format.APIMemFree, at(1))
	play(s, alloc)
	open = false
	play(s, ev(format.Alloc, format.APIMemAlloc, at(2), size(90)))
	play(s, free, ev(format.FreeFailed, format.APIMemFree, at(1)))
	if now := s.Process(1).Acquired().Now; now != 8 {
		t.Errorf("%d bytes", now)
	}
	open = true
	play(s, ev(format.Free, format.APIMemFree, at(2)), ev(format.FreeFailed, format.APIMemFree, at(2)))
	if now := s.Process(1).Acquired().Now; now != 8 {
		t.Errorf("%d bytes", now)
	}
}

func TestTrackerDropsDeadGroups(t *testing.T) {
	var tr tracker
	tr.move(1<<20, 0, false)
	const open = 4
	seq := uint64(0)
	for range 100000 { // ranges end in the order of their begins, and the curve sinks
		tr.move(-1, 0, false)
		seq++
		tr.begin(seq, tr.Now)
		if seq > open {
			tr.end(seq - open)
		}
	}
	if len(tr.groups) > 64 {
		t.Errorf("%d groups for %d open scopes", len(tr.groups), open)
	}
}

// FuzzApply: no rows, whatever they say, may bring the fold down or make its
// checkpoint unreadable.
func FuzzApply(f *testing.F) {
	for seed := range int64(4) {
		b := make([]byte, 400)
		rand.New(rand.NewSource(seed)).Read(b)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s := New()
		apis := format.APIs
		for seq := uint64(1); len(b) >= 8; b, seq = b[8:], seq+1 { // no two rows have the same
			w := binary.LittleEndian.Uint64(b)
			a := apis[int(w>>8&0xff)%len(apis)]
			e := ev(format.Kind(w&31), a.API, at(w>>16&7), object(w>>16&7), size(int64(w>>20&7)-1), by(format.ProcessID(w>>24&1)),
				on(format.Device(w>>26&3)-1), flag(format.Flags(w>>28&0x7f)))
			e.Seq = seq
			e.Scope, e.Time, e.Status, e.Requested = format.ScopeID(w>>36&7), format.Time(w>>40&0xff), int32(w>>48&7)-2, int64(w>>52&7)-1
			switch w >> 60 {
			case 1:
				e.Size = math.MaxInt64
			case 2:
				e.Address = math.MaxUint64
			case 3:
				s.Sample(&format.Sample{Device: e.Device, Used: e.Size, PeakUsed: e.Requested})
				continue
			}
			s.Fill(&e)
			s.Apply(&e)
		}
		rows := s.Checkpoint(s.now)
		for i := range rows {
			s.Apply(&rows[i])
		}
		if s.Loading() {
			t.Fatal("still loading after its own checkpoint")
		}
		text := func(rows []format.Event) string { // of rows in a senseless order the order may change
			var lines []string
			for _, e := range rows {
				lines = append(lines, fmt.Sprintf("%+v", e))
			}
			sort.Strings(lines)
			return strings.Join(lines, "\n")
		}
		diff(t, "its checkpoint, read back", text(rows), text(s.Checkpoint(s.now)))
	})
}

func BenchmarkApply(b *testing.B) {
	for _, scopes := range []int{0, 500} {
		b.Run(fmt.Sprintf("openscopes=%d", scopes), func(b *testing.B) {
			s := New()
			for i := range scopes {
				e := ev(format.ScopeBegin, format.APINVTX, scope(format.ScopeID(i+1)))
				s.Apply(&e)
			}
			const live = 4096
			r := rand.New(rand.NewSource(1))
			a := ev(format.Alloc, format.APITorch)
			fr := ev(format.Free, format.APITorch)
			var held [live]uint64
			b.ResetTimer()
			for i := 0; i < b.N; i += 2 { // what an iteration counts is an event
				j := r.Intn(live)
				if held[j] != 0 {
					fr.Address = held[j]
					s.Apply(&fr)
				}
				held[j] = uint64(i+1) << 9
				a.Address, a.Size = held[j], int64(1+j)<<9
				s.Apply(&a)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds()/1e6, "Mevents/s")
		})
	}
}
