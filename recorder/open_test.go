package recorder

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
)

// recordSelf opens a recording of this test, runs f in it and gives the trace.
func recordSelf(t *testing.T, opt Options, f func(*Recorder)) *format.Trace {
	t.Helper()
	opt.Output = filepath.Join(t.TempDir(), "t.gpurec")
	r, err := Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	f(r)
	s, err := r.Close()
	if err != nil {
		t.Fatal(err)
	}
	if s.Stats.Lost != 0 || s.Stats.ClosedLanes != 0 || s.Stats.Unresolved != 0 {
		t.Errorf("the recording says %+v", s.Stats)
	}
	trace, err := format.Open(opt.Output)
	if err != nil {
		t.Fatal(err)
	}
	return trace
}

// read gives a trace's events and definitions.
func read(t *testing.T, trace *format.Trace) ([]format.Event, *format.Defs) {
	t.Helper()
	defs := format.NewDefs()
	var all []format.Event
	for _, p := range trace.Parts() {
		if err := p.LoadDefs(defs); err != nil {
			t.Fatal(err)
		}
		r, err := p.Events()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		for {
			es, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, es...)
		}
	}
	return all, defs
}

// line is what a test compares of an event.
func line(e *format.Event) string {
	s := fmt.Sprintf("%s %s %s dev=%v", e.Kind, e.API, e.Layer, e.Device >= 0)
	switch e.Kind {
	case format.Alloc, format.AllocFailed:
		s += fmt.Sprintf(" addr=%#x obj=%d size=%d req=%d status=%d", e.Address, e.Object, e.Size, e.Requested, e.Status)
		if e.Flags&format.FlagInPool != 0 {
			s += " inpool"
		}
		if e.Flags&format.FlagNested != 0 {
			s += " nested"
		}
	case format.Free:
		s += fmt.Sprintf(" addr=%#x obj=%d", e.Address, e.Object)
	}
	return s
}

// Every sequence of callbacks of spec/semantics.md §1.2, as a pool makes them.
func TestHook(t *testing.T) {
	const kib = 1024
	for _, tc := range []struct {
		name string
		do   func(h *Hook)
		want []string
		used int64 // live bytes at the pool layer at the end
		acq  int64 // and at the driver layer
	}{
		{"cache miss", func(h *Hook) {
			h.MallocPre(0, 1000, 1024)
			h.AllocPre(0, 1024)
			h.AllocPost(0, 1024, 0x1000)
			h.MallocPost(0, 1000, 1024, 0x1000, 7)
		}, []string{
			"Alloc go.alloc driver dev=true addr=0x1000 obj=0 size=1024 req=1024 status=0 inpool",
			"Alloc go pool dev=true addr=0x1000 obj=7 size=1024 req=1000 status=0",
		}, kib, kib},
		{"cache hit", func(h *Hook) {
			h.MallocPre(0, 1000, 1024)
			h.MallocPost(0, 1000, 1024, 0x1000, 7)
		}, []string{"Alloc go pool dev=true addr=0x1000 obj=7 size=1024 req=1000 status=0"}, kib, 0},
		{"size 0 succeeds", func(h *Hook) {
			h.MallocPre(0, 0, 0)
			h.MallocPost(0, 0, 0, 0, 7)
		}, []string{"Alloc go pool dev=true addr=0x0 obj=7 size=0 req=0 status=0"}, 0, 0},
		{"out of memory, three attempts", func(h *Hook) {
			h.MallocPre(1, 3000, 3072)
			for range 3 {
				h.AllocPre(1, 3072)
				h.AllocPost(1, 3072, 0)
			}
			h.MallocPost(1, 3000, 3072, 0, 0)
		}, []string{
			"AllocFailed go.alloc driver dev=true addr=0x0 obj=0 size=3072 req=3072 status=2 inpool",
			"AllocFailed go.alloc driver dev=true addr=0x0 obj=0 size=3072 req=3072 status=2 inpool",
			"AllocFailed go.alloc driver dev=true addr=0x0 obj=0 size=3072 req=3072 status=2 inpool",
			"AllocFailed go pool dev=true addr=0x0 obj=0 size=3072 req=3000 status=2",
		}, 0, 0},
		{"second attempt succeeds", func(h *Hook) {
			h.MallocPre(0, 512, 512)
			h.AllocPre(0, 512)
			h.AllocPost(0, 512, 0)
			h.AllocPre(0, 512)
			h.AllocPost(0, 512, 0x2000)
			h.MallocPost(0, 512, 512, 0x2000, 8)
		}, []string{
			"AllocFailed go.alloc driver dev=true addr=0x0 obj=0 size=512 req=512 status=2 inpool",
			"Alloc go.alloc driver dev=true addr=0x2000 obj=0 size=512 req=512 status=0 inpool",
			"Alloc go pool dev=true addr=0x2000 obj=8 size=512 req=512 status=0",
		}, 512, 512},
		{"limit of the pool", func(h *Hook) {
			h.MallocPre(0, 512, 512)
			h.MallocPost(0, 512, 512, 0, 0)
		}, []string{"AllocFailed go pool dev=true addr=0x0 obj=0 size=512 req=512 status=2"}, 0, 0},
		{"free", func(h *Hook) {
			h.MallocPost(0, 512, 512, 0x2000, 8)
			h.FreePre(0, 512, 0x2000, 8)
			h.FreePost(0, 512, 0x2000, 8)
		}, []string{
			"Alloc go pool dev=true addr=0x2000 obj=8 size=512 req=512 status=0",
			"Free go pool dev=true addr=0x2000 obj=8",
		}, 0, 0},
		{"a finaliser frees inside a malloc", func(h *Hook) { // case A6
			h.MallocPost(0, 512, 512, 0x2000, 8)
			h.MallocPre(0, 512, 512)
			h.FreePre(0, 512, 0x2000, 8)
			h.FreePost(0, 512, 0x2000, 8)
			h.MallocPost(0, 512, 512, 0x2000, 9)
		}, []string{
			"Alloc go pool dev=true addr=0x2000 obj=8 size=512 req=512 status=0",
			"Free go pool dev=true addr=0x2000 obj=8",
			"Alloc go pool dev=true addr=0x2000 obj=9 size=512 req=512 status=0",
		}, 512, 0},
		{"free of a block never seen", func(h *Hook) { h.FreePre(0, 512, 0x2000, 8) },
			[]string{"Free go pool dev=true addr=0x2000 obj=8"}, 0, 0},
		{"given back to the driver", func(h *Hook) {
			h.AllocPost(0, 1024, 0x1000)
			h.Release(0, 0x1000)
		}, []string{
			"Alloc go.alloc driver dev=true addr=0x1000 obj=0 size=1024 req=1024 status=0 inpool",
			"Free go.free driver dev=true addr=0x1000 obj=0",
		}, 0, 0},
		{"a pool over the pool", func(h *Hook) {
			s := h.r.SegmentHook()
			h.MallocPost(0, 1024, 1024, 0x1000, 7) // the lower pool's block
			s.MallocPost(0, 512, 512, 0x1000, 9)   // and a block of the upper one in it
		}, []string{
			"Alloc go pool dev=true addr=0x1000 obj=7 size=1024 req=1024 status=0",
			"Alloc go pool dev=true addr=0x1000 obj=9 size=512 req=512 status=0 nested",
		}, kib, 0},
		{"no device", func(h *Hook) { h.MallocPost(-1, 512, 512, 0x2000, 8) },
			[]string{"Alloc go pool dev=false addr=0x2000 obj=8 size=512 req=512 status=0"}, 512, 0},
		{"a size that cannot be", func(h *Hook) { h.MallocPost(0, -1, -512, 0x2000, 8) },
			[]string{"Alloc go pool dev=true addr=0x2000 obj=8 size=0 req=-1 status=0"}, 0, 0},
		{"a pre without its post", func(h *Hook) { h.MallocPre(0, 512, 512); h.AllocPre(0, 512) }, nil, 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			trace := recordSelf(t, Options{}, func(r *Recorder) {
				r.Device(0, format.DeviceRow{UUID: "GPU-00000000-0000-0000-0000-000000000000", Name: "first", Total: 1 << 34})
				r.Device(1, format.DeviceRow{UUID: "GPU-00000000-0000-0000-0000-000000000001", Name: "second", Total: 1 << 34})
				tc.do(r.Hook())
			})
			events, defs := read(t, trace)
			state := live.New()
			var got []string
			for i := range events {
				e := &events[i]
				state.Apply(e)
				switch e.Kind {
				case format.Alloc, format.AllocFailed, format.Free:
					got = append(got, line(e))
					checkGoStack(t, defs, e)
				}
			}
			if strings.Join(got, "\n") != strings.Join(tc.want, "\n") {
				t.Errorf("events are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tc.want, "\n"))
			}
			var used, acq int64
			for _, p := range state.Processes() {
				used += p.Pool().Now
				acq += p.Acquired().Now
			}
			if used != tc.used || acq != tc.acq {
				t.Errorf("live are %d used and %d acquired, want %d and %d", used, acq, tc.used, tc.acq)
			}
			for i := range events {
				if e := &events[i]; e.Kind == format.DeviceInfo {
					want := fmt.Sprintf("GPU-00000000-0000-0000-0000-00000000000%d", e.Object)
					if d, ok := defs.Device(e.Device); !ok || d.UUID != want || d.Total != 1<<34 {
						t.Errorf("ordinal %d is %+v", e.Object, d)
					}
				}
			}
		})
	}
}

// checkGoStack wants Go frames that begin in the test and end in its row's
// function, none of the hook's own.
func checkGoStack(t *testing.T, defs *format.Defs, e *format.Event) {
	t.Helper()
	ids, ok := defs.Walk(e.Stack, nil)
	if !ok || len(ids) == 0 {
		t.Errorf("%s has no stack", line(e))
		return
	}
	for i, id := range ids {
		f, _ := defs.Frame(id)
		if f.Kind != format.FrameGo || f.Line <= 0 || !strings.HasSuffix(f.File, ".go") {
			t.Errorf("frame %d is %+v", i, f)
		}
		if strings.Contains(f.Function, "(*Hook)") || strings.Contains(f.Function, "(*stackCache)") || strings.Contains(f.Function, "(*Recorder).event") {
			t.Errorf("frame %d is the hook's own: %s", i, f.Function)
		}
	}
	if f, _ := defs.Frame(ids[0]); f.Function != "testing.tRunner" {
		t.Errorf("the outermost frame is %s", f.Function)
	}
	if f, _ := defs.Frame(ids[len(ids)-1]); !strings.Contains(f.Function, "TestHook.func") {
		t.Errorf("the innermost frame is %s", f.Function)
	}
}

// The duration of a call is that between its callbacks: so both follow from it.
func TestHookDurations(t *testing.T) {
	const outer, inner = 4 * time.Millisecond, 2 * time.Millisecond
	trace := recordSelf(t, Options{}, func(r *Recorder) {
		h := r.Hook()
		h.MallocPre(0, 512, 512)
		h.AllocPre(0, 512)
		time.Sleep(inner)
		h.AllocPost(0, 512, 0x1000)
		time.Sleep(outer - inner)
		h.MallocPost(0, 512, 512, 0x1000, 7)
		h.FreePre(0, 512, 0x1000, 7)
		time.Sleep(inner)
		h.FreePost(0, 512, 0x1000, 7)
		h.MallocPost(0, 512, 512, 0x1000, 8) // its Pre never came
	})
	events, _ := read(t, trace)
	want := map[format.API]time.Duration{format.APIGoAlloc: inner, format.APIGoPool: outer}
	frees := 0
	for i := range events {
		e := &events[i]
		switch {
		case e.Kind == format.Alloc && e.Object == 8:
			if e.Duration != format.Unknown {
				t.Errorf("a call without a Pre took %d ns", e.Duration)
			}
		case e.Kind == format.Alloc:
			if time.Duration(e.Duration) < want[e.API] || e.Post()-e.Pre() != format.Time(e.Duration) {
				t.Errorf("%s took %v, at least %v is right", e.API, time.Duration(e.Duration), want[e.API])
			}
		case e.Kind == format.FreeDone:
			frees++
			if time.Duration(e.Duration) < inner || e.Object != 7 || e.Address != 0x1000 {
				t.Errorf("the free's end is %+v", e)
			}
		}
	}
	if frees != 1 {
		t.Errorf("%d FreeDone, want 1", frees)
	}
}

// Case E2 and A1: goroutines that take, hand over and free, none of them lost,
// nothing live at the end, no free before its alloc.
func TestHookConcurrent(t *testing.T) {
	const workers, rounds = 8, 2000
	trace := recordSelf(t, Options{Wait: true}, func(r *Recorder) {
		h := r.Hook()
		var addresses sync.Pool
		var next struct {
			sync.Mutex
			n uint64
		}
		addresses.New = func() any {
			next.Lock()
			defer next.Unlock()
			next.n += 4096
			return next.n
		}
		blocks := make(chan [2]uint64, workers)
		var wg sync.WaitGroup
		for range workers {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for i := range rounds {
					h.MallocPre(0, 100, 512)
					a := addresses.Get().(uint64)
					id := a ^ uint64(i)<<40
					h.MallocPost(0, 100, 512, a, id)
					blocks <- [2]uint64{a, id}
					b := <-blocks // perhaps another goroutine's
					h.FreePre(0, 512, b[0], b[1])
					addresses.Put(b[0])
					h.FreePost(0, 512, b[0], b[1])
				}
			}()
		}
		wg.Wait()
	})
	events, _ := read(t, trace)
	state := live.New()
	allocs, frees := 0, 0
	for i := range events {
		state.Apply(&events[i])
		switch events[i].Kind {
		case format.Alloc:
			allocs++
		case format.Free:
			frees++
		}
	}
	if allocs != workers*rounds || frees != allocs {
		t.Errorf("%d allocs and %d frees, want %d of each", allocs, frees, workers*rounds)
	}
	for _, p := range state.Processes() {
		if p.Pool().Now != 0 || p.UnknownFrees != 0 || p.LostFrees != 0 {
			t.Errorf("at the end %d bytes are live, %d frees unknown, %d lost", p.Pool().Now, p.UnknownFrees, p.LostFrees)
		}
	}
}

func TestOpenFails(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(Options{Output: dir}); err == nil {
		t.Error("an existing directory was recorded into")
	}
	long := filepath.Join(dir, strings.Repeat("x", 200))
	if _, err := Open(Options{Output: filepath.Join(dir, "t.gpurec"), SocketDir: long}); err == nil {
		t.Error("a socket directory that is not there was used")
	}
}

// What a pool pays for a malloc from its cache and its free.
func BenchmarkHook(b *testing.B) {
	for _, depth := range []int{1, 30} {
		b.Run(fmt.Sprintf("depth=%d", depth), func(b *testing.B) {
			// Without waiting: the cost is the program's, not how fast the recorder is.
			r, err := Open(Options{Output: filepath.Join(b.TempDir(), "t.gpurec")})
			if err != nil {
				b.Fatal(err)
			}
			h := r.Hook()
			pair := func() {
				h.MallocPre(0, 100, 512)
				h.MallocPost(0, 100, 512, 0x1000, 7)
				h.FreePre(0, 512, 0x1000, 7)
				h.FreePost(0, 512, 0x1000, 7)
			}
			var at func(int)
			at = func(n int) {
				if n > 0 {
					at(n - 1)
					return
				}
				for b.Loop() {
					pair()
				}
			}
			at(depth)
			b.StopTimer()
			if _, err := r.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}
