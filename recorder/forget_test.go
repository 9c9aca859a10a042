package recorder

import (
	"context"
	"fmt"
	"testing"
	"unsafe"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/recorder/ring"
)

// defineModule is a record of a module of that number.
func defineModule(number uint32) []byte {
	d := format.WireModuleDef{WireHead: format.WireHead{Kind: format.WireModule, Slots: 1}, Number: number}
	return append([]byte(nil), unsafe.Slice((*byte)(unsafe.Pointer(&d)), 64)...)
}

// defineStack is a record of a stack of one native frame in module 1, of which
// hash is the address too.
func defineStack(hash uint64) []byte {
	d := struct {
		format.WireStackDef
		format.WireFrame
		_ [48]byte
	}{format.WireStackDef{WireHead: format.WireHead{Kind: format.WireStack, Slots: 2}, Hash: hash, Count: 1},
		format.WireFrame{Code: hash, Instruction: 1, Kind: uint32(format.FrameNative)}, [48]byte{}}
	return append([]byte(nil), unsafe.Slice((*byte)(unsafe.Pointer(&d)), 128)...)
}

// TestForget sends stacks until the lanes are told to send again. What was sent
// before is found meanwhile; what is live keeps its id however often fold forgets;
// what nobody uses any more goes; and no id is another stack's later.
func TestForget(t *testing.T) {
	b := newBench(t, 1)
	b.f.s.opt.forgetAfter = 32 << 10
	l := b.lanes[0]
	seq := uint64(0)
	send := func(hash uint64, with bool, kind format.Kind, address uint64) format.StackID {
		var records [][]byte
		if with {
			records = append(records, defineModule(1), defineStack(hash))
		}
		r := rec(kind, 10+seq, seq)
		w := (*format.WireEvent)(unsafe.Pointer(&r[0]))
		w.Stack, w.Address = hash, address
		seq++
		b.rows = b.rows[:0]
		b.round(&round{chunks: []chunk{chunkOf(l, 0, append(records, r)...)}, until: format.Time(20 + seq)})
		return b.rows[len(b.rows)-1].Stack
	}
	hash, seen := uint64(10), map[format.StackID]bool{}
	flood := func() {
		epoch := l.epoch.Load()
		for l.epoch.Load() == epoch {
			hash++
			send(hash, true, format.Alloc, 1<<20)
			send(0, false, format.Free, 1<<20)
			if hash > 1<<17 {
				t.Fatal("the tables grow for ever")
			}
		}
	}
	held, used, unused := send(1, true, format.Alloc, 1), send(2, true, format.Alloc, 2), send(3, true, format.Alloc, 3)
	send(0, false, format.Free, 2)
	send(0, false, format.Free, 3)
	for round := range 4 {
		flood()
		if got := send(2, false, format.Alloc, 2); got != used {
			t.Errorf("round %d: stack %d, in use all the time, is %d", round, used, got)
		}
		send(0, false, format.Free, 2)
		if got := send(1, true, format.Alloc, 4); got != held {
			t.Errorf("round %d: stack %d, of a live block, is %d when it is sent again", round, held, got)
		}
		send(0, false, format.Free, 4)
	}
	flood()
	for range 5000 { // frees that a refusal could still take back
		send(0, false, format.Alloc, 5)
		send(0, false, format.Free, 5)
	}
	flood()
	flood()
	again := send(3, true, format.Alloc, 3)
	if again == unused || again <= held {
		t.Errorf("stack %d was forgotten, and is %d", unused, again)
	}
	if n := len(b.f.in.nodes); n > 1000 || len(b.f.in.frames) > 1000 {
		t.Errorf("%d nodes and %d frames are remembered", n, len(b.f.in.frames))
	}
	for _, id := range b.f.in.nodes {
		if seen[id] {
			t.Fatalf("stack %d twice", id)
		}
		seen[id] = true
	}
	if b.f.stats.Unresolved != 0 {
		t.Errorf("%d unresolved", b.f.stats.Unresolved)
	}
}

// TestManyStacks records more distinct stacks, names and code objects than fit
// the recorder's memory, one after the other and some of them live for long: it
// holds on to no more at the end than early, and each event of what is left finds
// its very stack and name.
func TestManyStacks(t *testing.T) {
	const events, deep, keep = 100_000, 4, 200
	s := record(t, Options{Wait: true, QueueBytes: 4 << 20, forgetAfter: 1 << 20, Writer: format.WriterOptions{Retain: format.Retention{Bytes: 2 << 20}}})
	p := join(t, s, 1, format.DefaultLane)
	device := ring.DefineDevice(0, nil, "", 1)
	tell := func(at, size uint64, kind format.Kind) {
		w := wireEvent(kind, format.APIMemAlloc, at, int64(size))
		var defs []ring.Definition
		if kind == format.Alloc {
			var frames []format.WireFrame
			for d := range uint64(deep) {
				n := size // the innermost frame is nobody else's
				if d > 0 {
					n = size % 1000
				}
				c := ring.DefineCode(fmt.Sprintf("file%d.py", n), fmt.Sprintf("f%d_%d", n, d), int32(d+1), 0, nil)
				defs = append(defs, c)
				frames = append(frames, format.WireFrame{Code: c.Key, Kind: uint32(format.FramePython)})
			}
			st := ring.DefineStack(frames)
			defs = append(defs, st)
			w.Stack, w.Device = st.Key, 0
			defs = append(defs, device)
		}
		if err := p.Event(w, &format.WireCall{}, defs...); err != nil {
			t.Fatal(err)
		}
	}
	held := map[uint64]bool{}
	send := func(from, to uint64) {
		for n := from; n < to; n++ {
			if n%500 == 0 { // half a lane: none fills up, however late the recorder gets a core
				if err := s.View(context.Background(), func(*View) {}); err != nil {
					t.Fatal(err)
				}
			}
			tell(n<<12, n, format.Alloc)
			if n%(events/keep) == 0 {
				held[n] = true
			} else {
				tell(n<<12, 0, format.Free)
			}
		}
	}
	send(1, events/4)
	warm, memory := heapBytes(), int64(0)
	for i := range uint64(3) {
		send(events/4*(i+1), events/4*(i+2))
		memory = max(memory, heapBytes())
	}
	if _, err := s.Close(nil); err != nil {
		t.Fatal(err)
	}
	tr, err := format.Open(s.Output())
	if err != nil {
		t.Fatal(err)
	}
	m := tr.Meta()
	t.Logf("%d events, %d unresolved, the last stack is %d, %d frames and %d nodes remembered, memory %d then %d", m.Stats.Events, m.Stats.Unresolved, s.fold.in.stack, len(s.fold.in.frames), len(s.fold.in.nodes), warm, memory)
	if m.Stats.Unresolved > 0 || m.Stats.Lost > 0 {
		t.Errorf("%d unresolved, %d lost", m.Stats.Unresolved, m.Stats.Lost)
	}
	if memory > warm+16<<20 {
		t.Errorf("memory went from %d to %d bytes", warm, memory)
	}
	parts, live := 0, map[uint64]bool{}
	for _, part := range tr.Parts() { // each alone
		parts++
		defs := format.NewDefs()
		if err := part.LoadDefs(defs); err != nil {
			t.Fatal(err)
		}
		live = map[uint64]bool{}
		for _, e := range readPart(t, part) {
			if e.Kind == format.Alloc || e.Kind == format.Live {
				frames, ok := defs.Walk(e.Stack, nil)
				if !ok || len(frames) != deep {
					t.Fatalf("part %d: %+v has %d frames", part.Index(), e, len(frames))
				}
				fr, _ := defs.Frame(frames[deep-1])
				if want := fmt.Sprintf("f%d_0", e.Size); fr.Function != want {
					t.Fatalf("part %d: block %d was taken by %s", part.Index(), e.Size, fr.Function)
				}
				live[uint64(e.Size)] = true
			}
			if e.Kind == format.Free {
				delete(live, e.Address>>12)
			}
		}
	}
	for n := range held {
		if !live[n] {
			t.Errorf("block %d, never given back, is not live at the end", n)
		}
	}
	if parts < 3 || len(held) < keep/2 {
		t.Errorf("%d parts, %d held", parts, len(held))
	}
}
