package recorder

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/recorder/ring"
)

// record starts a session in a directory of the test's.
func record(t *testing.T, opt Options) *Session {
	t.Helper()
	opt.Output = filepath.Join(t.TempDir(), "t.gpurec")
	if opt.Say == nil {
		opt.Say = func(s string) { t.Log("gpurec:", s) }
	}
	s, err := Start(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(nil) })
	return s
}

// A recorded trace, read back whole.
type recorded struct {
	meta    format.Meta
	events  []format.Event
	samples []format.Sample
	defs    *format.Defs
	parts   [][]format.Event
}

// finish closes a session and reads its trace.
func finish(t *testing.T, s *Session) *recorded {
	t.Helper()
	if _, err := s.Close(nil); err != nil {
		t.Fatal(err)
	}
	r := readTrace(t, s.Output())
	n := uint64(0)
	for i := range r.events {
		if !r.events[i].Kind.Checkpoint() {
			n++
		}
	}
	if n != r.meta.Stats.Events {
		t.Errorf("the account says %d events, there are %d rows", r.meta.Stats.Events, n)
	}
	return r
}

func readTrace(t *testing.T, path string) *recorded {
	t.Helper()
	tr, err := format.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	out := &recorded{meta: tr.Meta(), defs: format.NewDefs()}
	for _, p := range tr.Parts() {
		if err := p.LoadDefs(out.defs); err != nil {
			t.Fatal(err)
		}
		part := readPart(t, p)
		out.parts = append(out.parts, part)
		out.events = append(out.events, part...)
		sr, err := p.Samples()
		if err != nil {
			t.Fatal(err)
		}
		for {
			b, err := sr.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			out.samples = append(out.samples, b...)
		}
		sr.Close()
	}
	return out
}

func readPart(t *testing.T, p *format.Part) (part []format.Event) {
	t.Helper()
	r, err := p.Events()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for {
		b, err := r.Next()
		if err == io.EOF {
			return part
		}
		if err != nil {
			t.Fatal(err)
		}
		part = append(part, b...)
	}
}

func (r *recorded) count(k format.Kind) (n int) {
	for i := range r.events {
		if r.events[i].Kind == k {
			n++
		}
	}
	return n
}

// lost is the sum of the Lost rows.
func (r *recorded) lost() (n int64) {
	for i := range r.events {
		if r.events[i].Kind == format.Lost {
			n += r.events[i].Size
		}
	}
	return n
}

// stack draws a stack, outermost first.
func (r *recorded) stack(id format.StackID) string {
	frames, ok := r.defs.Walk(id, nil)
	s := ""
	for i, f := range frames {
		fr, _ := r.defs.Frame(f)
		if i > 0 {
			s += " > "
		}
		s += fr.String()
	}
	if !ok {
		s += " (unknown)"
	}
	return s
}

// lane connects a new lane of this process to a session.
func join(t *testing.T, s *Session, tid uint32, size int) *ring.Producer {
	t.Helper()
	p, err := ring.NewProducer(size)
	if err != nil {
		t.Fatal(err)
	}
	p.Wait = s.opt.Wait
	hello := p.Hello(startTime(), 0xfeed)
	hello.TID = tid
	if err := p.Connect(s.Socket(), hello); err != nil {
		t.Fatal(err)
	}
	return p
}

func startTime() uint64 {
	_, start, _ := readStat("/proc/self")
	return start
}

func wireEvent(kind format.Kind, api format.API, address uint64, size int64) *format.WireEvent {
	info := api.Info()
	return &format.WireEvent{WireHead: format.WireHead{Kind: kind, Layer: info.Layer}, Class: info.Class, API: api, Address: address, Size: size, A: size, Device: -1}
}

// TestOrder lets eight lanes hand blocks to one another: each block is freed by
// another thread than its own, and its address is taken again at once by whoever
// comes next. In the trace every alloc must stand after the free of the block
// that had its address before (A1, A2), and nothing may be missing (E2).
func TestOrder(t *testing.T) {
	s := record(t, Options{Wait: true})
	const threads, steps, addresses = 8, 3_000, 16
	free := make(chan uint64, addresses)
	for i := range addresses {
		free <- uint64(i+1) << 12
	}
	taken := make(chan uint64, addresses)
	var lanes, work sync.WaitGroup
	for th := range threads {
		lanes.Add(1)
		work.Add(1)
		go func() {
			defer work.Done()
			p := join(t, s, uint32(1000+th), format.MinLaneSize)
			lanes.Done()
			rnd := rand.New(rand.NewPCG(uint64(th), 1))
			for range steps {
				if rnd.IntN(2) == 0 {
					select {
					case a := <-free: // the driver's call
						if err := p.Event(wireEvent(format.Alloc, format.APIMemAlloc, a, 512), &format.WireCall{}); err != nil {
							t.Error(err)
						}
						taken <- a
					default:
					}
				} else {
					select {
					case a := <-taken:
						if err := p.Event(wireEvent(format.Free, format.APIMemFree, a, 0), &format.WireCall{}); err != nil {
							t.Error(err)
						}
						free <- a
					default:
					}
				}
			}
		}()
	}
	work.Wait()
	r := finish(t, s)
	live, allocs := map[uint64]bool{}, 0
	for i := range r.events {
		switch e := &r.events[i]; e.Kind {
		case format.Alloc:
			allocs++
			if live[e.Address] {
				t.Fatalf("row %d: %#x is allocated twice", i, e.Address)
			}
			live[e.Address] = true
		case format.Free:
			if !live[e.Address] {
				t.Fatalf("row %d: %#x is freed but not live", i, e.Address)
			}
			delete(live, e.Address)
		}
	}
	if allocs < threads*steps/10 {
		t.Errorf("only %d allocs", allocs)
	}
	if r.meta.Stats.Lost != 0 || r.meta.Stats.Late != 0 || r.lost() != 0 {
		t.Errorf("lost %d, late %d", r.meta.Stats.Lost, r.meta.Stats.Late)
	}
	if got, want := len(live), len(taken); got != want {
		t.Errorf("%d live at the end, want %d", got, want)
	}
}

// TestLoss fills small lanes faster than they are emptied. What is recorded and
// what is lost add up exactly, per thread and in the trace's account (B1).
func TestLoss(t *testing.T) {
	s := record(t, Options{})
	const threads, each = 4, 40_000
	var work sync.WaitGroup
	for th := range threads {
		work.Add(1)
		go func() {
			defer work.Done()
			p := join(t, s, uint32(1+th), format.MinLaneSize)
			for i := range each {
				kind := format.Alloc
				if i%2 == 1 {
					kind = format.Free
				}
				p.Event(wireEvent(kind, format.APIMemAlloc, uint64(i), 1), &format.WireCall{})
			}
		}()
	}
	work.Wait()
	r := finish(t, s)
	got, lost, next := map[uint32]int64{}, map[uint32]int64{}, map[uint32]uint64{}
	for i := range r.events {
		switch e := &r.events[i]; e.Kind {
		case format.Lost:
			lost[e.Thread] += e.Size
			next[e.Thread] += uint64(e.Size)
		case format.Alloc, format.Free:
			got[e.Thread]++
			if next[e.Thread]++; e.Seq != next[e.Thread] {
				t.Fatalf("thread %d: seq %d where %d was next", e.Thread, e.Seq, next[e.Thread])
			}
		}
	}
	for th := uint32(1); th <= threads; th++ {
		if got[th]+lost[th] != each {
			t.Errorf("thread %d: %d recorded and %d lost of %d", th, got[th], lost[th], each)
		}
	}
	if r.lost() == 0 {
		t.Error("nothing was lost: the test shows nothing")
	}
	own := uint64(r.count(format.ProcessBegin) + r.count(format.ProcessEnd) + r.count(format.Lost))
	if int64(r.meta.Stats.Lost) != r.lost() || r.meta.Stats.Events-own+r.meta.Stats.Lost != threads*each {
		t.Errorf("the account says %+v, the rows %d lost", r.meta.Stats, r.lost())
	}
}

// TestSilentLoss loses a thread's last events: no later record shows the gap.
func TestSilentLoss(t *testing.T) {
	s := record(t, Options{QueueBytes: 1})
	p := join(t, s, 1, format.MinLaneSize)
	sent, dropped := 0, 0
	for dropped < 100 {
		if p.Event(wireEvent(format.Alloc, format.APIMemAlloc, 1, 1), nil) != nil {
			dropped++
		}
		sent++
	}
	r := finish(t, s)
	if got := r.count(format.Alloc); got != sent-int(r.lost()) || r.lost() < 100 {
		t.Errorf("%d sent, %d recorded, %d lost", sent, got, r.lost())
	}
}

func TestDefinitions(t *testing.T) {
	s := record(t, Options{})
	p := join(t, s, 7, format.MinLaneSize)
	code := ring.DefineCode("/app/main.py", "train", 10, 0x030b, []byte{0x80 | 11<<3 | 7, 0, 0, 0x80 | 12<<3 | 0, 0, 0})
	outer := ring.DefineCode("/app/main.py", "<module>", 1, 0x030b, nil)
	frames := []format.WireFrame{{Code: code.Key, Instruction: 17, Kind: uint32(format.FramePython)}, {Code: outer.Key, Instruction: -1, Kind: uint32(format.FramePython)}}
	stack := ring.DefineStack(frames)
	uuid := []byte{0xde, 0xad, 0xbe, 0xef, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}
	dev := ring.DefineDevice(0, uuid, "H200", 1<<37)

	thread := &format.WireThread{WireHead: format.WireHead{Kind: format.ThreadBegin}, TID: 8, Device: -1}
	copy(thread.Name[:], "worker")
	p.Thread(thread)
	e := wireEvent(format.Alloc, format.APIMemAlloc, 0x1000, 512)
	e.Stack, e.Device = stack.Key, 0
	p.Event(e, &format.WireCall{Duration: 77, CUctx: 5}, code, outer, stack, dev)
	p.Event(wireEvent(format.Alloc, format.APIMemAlloc, 0x2000, 1), nil) // no stack: the thread's
	e = wireEvent(format.Alloc, format.APIMemAlloc, 0x3000, 1)
	e.Stack = 12345 // never defined
	p.Event(e, nil)

	r := finish(t, s)
	var got []string
	for i := range r.events {
		e := &r.events[i]
		name := r.defs.Name(e.Name)
		d, _ := r.defs.Device(e.Device)
		got = append(got, fmt.Sprintf("%s thread=%d %s %s%s dur=%d", e.Kind, e.Thread, name, r.stack(e.Stack), d.UUID, e.Duration))
	}
	want := []string{
		"ProcessBegin thread=7   dur=-1",
		"ThreadBegin thread=8 worker  dur=-1",
		"DeviceInfo thread=8  GPU-deadbeef-0001-0203-0405-060708090a0b dur=-1",
		"Alloc thread=8  /app/main.py:1:<module> > /app/main.py:13:trainGPU-deadbeef-0001-0203-0405-060708090a0b dur=77",
		"Alloc thread=8  [thread worker] dur=-1",
		"Alloc thread=8   dur=-1",
	}
	compare(t, got, want)
	if r.meta.Stats.Unresolved != 1 {
		t.Errorf("%d unresolved, want 1", r.meta.Stats.Unresolved)
	}
}

func compare(t *testing.T, got, want []string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		g, w := "(nothing)", "(nothing)"
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			t.Errorf("row %d:\n got %s\nwant %s", i, g, w)
		}
	}
}

// TestView reads the fold while the recording runs: what was published before
// the call is in it.
func TestView(t *testing.T) {
	s := record(t, Options{})
	p := join(t, s, 1, format.MinLaneSize)
	for i := range 50 {
		p.Event(wireEvent(format.Alloc, format.APIMemAlloc, uint64(i+1)<<20, 1000), &format.WireCall{})
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		var live int64
		err := s.View(ctx, func(v *View) {
			for _, p := range v.Processes() {
				live += p.Acquired().Now
			}
		})
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		if want := int64(i+1) * 1000; live != want {
			t.Fatalf("after %d allocs %d bytes are live, want %d", i+1, live, want)
		}
	}
	finish(t, s)
	if err := s.View(context.Background(), func(*View) { t.Error("called after the end") }); err != ErrEnded {
		t.Errorf("after the end: %v", err)
	}
}

// TestSmallQueue records more than the queue holds while one lane is slow: fold
// must not wait for a lane that drain has no room to read.
func TestSmallQueue(t *testing.T) {
	s := record(t, Options{Wait: true, QueueBytes: 1})
	const threads, each = 6, 10_000
	var work sync.WaitGroup
	for th := range threads {
		work.Add(1)
		go func() {
			defer work.Done()
			p := join(t, s, uint32(1+th), format.DefaultLane)
			for i := range each {
				if err := p.Event(wireEvent(format.Alloc, format.APIMemAlloc, uint64(th)<<40|uint64(i), 1), &format.WireCall{}); err != nil {
					t.Error(err)
					return
				}
			}
		}()
	}
	work.Wait()
	if r := finish(t, s); r.count(format.Alloc) != threads*each {
		t.Errorf("%d recorded of %d", r.count(format.Alloc), threads*each)
	}
}

// TestEarlyFlush: the first events are on the disk soon after they happened, not
// only when the first regular flush comes or the trace is closed.
func TestEarlyFlush(t *testing.T) {
	if most := paceMost + handEvery + flushEvery; most > 900*time.Millisecond {
		t.Errorf("a killed recorder loses %v", most)
	}
	// The lane's birth reaches the disk first, by itself: that is not the event.
	for _, later := range []time.Duration{0, handEvery / 2, handEvery + flushFirst, 3 * handEvery} {
		s := record(t, Options{flushEvery: time.Hour})
		p := join(t, s, 1, format.MinLaneSize)
		time.Sleep(later)
		p.Event(wireEvent(format.Alloc, format.APIMemAlloc, 1, 1), nil)
		for end := time.Now().Add(10 * time.Second); readGrowing(t, s.Output()) < 2; time.Sleep(10 * time.Millisecond) { // ProcessBegin and it
			if time.Now().After(end) {
				t.Fatalf("the first event, %v after its lane, is not on the disk", later)
			}
		}
	}
}

// readGrowing counts the events that a trace has on the disk by now.
func readGrowing(t *testing.T, path string) (n int) {
	t.Helper()
	tr, err := format.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	r, err := tr.Parts()[0].Events()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for {
		b, err := r.Next()
		n += len(b)
		if err != nil {
			return n
		}
	}
}
