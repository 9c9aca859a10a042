package ring

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpurec/gpurec/format"
)

// pair is a writer and a reader of one small lane in ordinary memory: small
// enough that a test can draw it.
func pair(slots int) (*Producer, *Consumer) {
	mem := make([]byte, format.LaneHeaderSize+slots*format.SlotSize)
	p := produce(mem, 0, slots*format.SlotSize)
	clock := format.Time(100)
	p.now = func() format.Time { clock++; return clock }
	return p, consume(&mapping{mem: mem}, 0, slots*format.SlotSize)
}

// at moves both ends of an empty lane to a byte count, as if so much had gone
// through it.
func at(p *Producer, c *Consumer, slots uint64, seq uint64) {
	p.head, p.seq = slots*format.SlotSize, seq
	p.header.Head, p.header.Tail = p.head, p.head
	c.tail = p.head
}

func event(kind format.Kind, address uint64) *format.WireEvent {
	return &format.WireEvent{WireHead: format.WireHead{Kind: kind, Layer: format.LayerDriver}, Class: format.ClassDevice, API: format.APIMemAlloc, Address: address}
}

// drain reads all there is and draws it: a letter for each record's kind (A
// alloc, F free, n s c d definitions), a capital or digit for its length.
func drain(t *testing.T, c *Consumer) string {
	t.Helper()
	var s strings.Builder
	b := make([]byte, 1<<20)
	for {
		n, err := c.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return strings.TrimSpace(s.String())
		}
		for r, rest := Next(b[:n]); r != nil; r, rest = Next(rest) {
			letter := map[format.Kind]string{format.Alloc: "A", format.Free: "F", format.WireName: "n", format.WireStack: "s", format.WireCode: "c", format.WireDevice: "d", format.ThreadBegin: "T", format.ScopeBegin: "B"}[r.Kind()]
			fmt.Fprintf(&s, "%s%d:%d ", letter, len(r)/format.SlotSize, r.Head().Seq)
		}
	}
}

// TestCursors draws lanes of eight slots with hand-set positions. A step is a
// letter: a, f one slot; A, F two slots; R reads all; a ! after it says that it
// must be refused.
func TestCursors(t *testing.T) {
	for _, row := range []struct {
		name  string
		start uint64 // slots that went through before
		seq   uint64
		steps string
		want  string // what R drew, in order
		drops uint64
		head  uint64 // slots published at the end, pads included
	}{
		{"empty", 0, 0, "R", "", 0, 0},
		{"one", 0, 0, "aR", "A1:0", 0, 1},
		{"two slots", 0, 0, "AR", "A2:0", 0, 2},
		{"fits to the end", 6, 0, "AR", "A2:0", 0, 8},
		{"one slot at the end", 7, 0, "aR", "A1:0", 0, 8},
		{"pad one slot, then wrap", 7, 0, "AR", "A2:0", 0, 10},
		{"wraps without pad", 6, 0, "aaaR", "A1:0 A1:1 A1:2", 0, 9},
		{"alloc refused above 7/8", 0, 0, "aaaaaaaa!R", "A1:0 A1:1 A1:2 A1:3 A1:4 A1:5 A1:6", 1, 7},
		{"free taken above 7/8", 0, 0, "aaaaaaaf", "", 0, 8},
		{"free refused when full", 0, 0, "aaaaaaaff!R", "A1:0 A1:1 A1:2 A1:3 A1:4 A1:5 A1:6 F1:7", 1, 8},
		{"two slots do not fit in one", 0, 0, "aaaaaaaF!f", "", 1, 8},
		{"a pad needs room too", 1, 0, "aaaaaaF!R", "A1:0 A1:1 A1:2 A1:3 A1:4 A1:5", 1, 7},
		{"after a loss the gap is one", 0, 0, "aaaaaaaa!Ra", "A1:0 A1:1 A1:2 A1:3 A1:4 A1:5 A1:6", 1, 8},
		{"gap is seen", 0, 0, "aaaaaaaa!a!RaR", "A1:0 A1:1 A1:2 A1:3 A1:4 A1:5 A1:6 A1:9", 2, 8},
		{"seq wraps at 2^32", 0, 1<<32 - 1, "aaR", "A1:4294967295 A1:0", 0, 2},
		{"cursors beyond 2^32", 1 << 40, 0, "AaR", "A2:0 A1:1", 0, 1<<40 + 3},
		{"cursors wrap at 2^64", (1<<64 - 64) / 64, 0, "aaR", "A1:0 A1:1", 0, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			p, c := pair(8)
			at(p, c, row.start, row.seq)
			got, visited := "", 0
			for i := 0; i < len(row.steps); i++ {
				refused := i+1 < len(row.steps) && row.steps[i+1] == '!'
				var err error
				switch row.steps[i] {
				case 'a':
					err = p.Event(event(format.Alloc, 1), nil)
				case 'A':
					err = p.Event(event(format.Alloc, 1), &format.WireCall{})
				case 'f':
					err = p.Event(event(format.Free, 1), nil)
				case 'F':
					err = p.Event(event(format.Free, 1), &format.WireCall{})
				case 'R':
					got = strings.TrimSpace(got + " " + drain(t, c))
				case '!':
					continue
				}
				visited++
				if refused != errors.Is(err, ErrDropped) {
					t.Fatalf("step %d (%c): refused=%v, error %v", i, row.steps[i], refused, err)
				}
			}
			if visited == 0 {
				t.Fatal("no step ran")
			}
			if got != row.want {
				t.Errorf("read %q, want %q", got, row.want)
			}
			if p.header.Dropped != row.drops || c.Dropped() != row.drops {
				t.Errorf("dropped %d, want %d", p.header.Dropped, row.drops)
			}
			if want := row.head * format.SlotSize; p.header.Head != want {
				t.Errorf("head at slot %d, want %d", p.header.Head/format.SlotSize, row.head)
			}
			if p.header.Busy != 0 {
				t.Error("busy after publishing")
			}
		})
	}
}

func TestDefinitions(t *testing.T) {
	p, c := pair(64)
	name := DefineName("forward")
	e := event(format.Alloc, 1)
	for range 2 {
		if err := p.Event(e, nil, name); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := drain(t, c), "n1:0 A1:0 A1:1"; got != want {
		t.Errorf("sent once: read %q, want %q", got, want)
	}
	c.SetEpoch(1)
	p.Event(e, nil, name)
	if got, want := drain(t, c), "n1:2 A1:2"; got != want {
		t.Errorf("after the epoch: read %q, want %q", got, want)
	}

	// Dropped together: a definition that found no room counts as not sent.
	for p.Event(e, nil) == nil {
	}
	other := DefineName("backward")
	if err := p.Event(e, nil, other); !errors.Is(err, ErrDropped) {
		t.Fatalf("full lane took a definition: %v", err)
	}
	drain(t, c)
	p.Event(e, nil, other)
	if got := drain(t, c); !strings.HasPrefix(got, "n1:") {
		t.Errorf("after the loss: read %q, want the definition again", got)
	}
}

func TestRecordsRoundTrip(t *testing.T) {
	p, c := pair(4096)
	frames := []format.WireFrame{{Code: 7, Instruction: 12, Kind: uint32(format.FramePython)}, {Code: 8, Instruction: -1, Kind: uint32(format.FrameNative)}}
	table := []byte{1, 2, 3, 4, 5}
	uuid := []byte("0123456789abcdef")
	code, stack, name, dev := DefineCode("/a/b.py", "f", 42, 0x30c, table), DefineStack(frames), DefineName(strings.Repeat("x", 5000)), DefineDevice(1, uuid, "H200", 1<<37)
	module := DefineModule(7, "/lib/libfoo.so", uuid)
	err := p.Event(event(format.Alloc, 0xdead), &format.WireCall{Duration: 5, Stream: 9}, code, stack, name, dev, module)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1<<20)
	n, err := c.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for r, rest := Next(b[:n]); r != nil; r, rest = Next(rest) {
		seen++
		switch r.Kind() {
		case format.WireCode:
			d, f, nm, tb := r.Code()
			if d.Key != code.Key || string(f) != "/a/b.py" || string(nm) != "f" || string(tb) != string(table) || d.FirstLine != 42 || d.Python != 0x30c {
				t.Errorf("code came back as %+v %q %q %v", d, f, nm, tb)
			}
		case format.WireStack:
			d, fr := r.Stack()
			if d.Hash != stack.Key || len(fr) != 2 || fr[0] != frames[0] || fr[1] != frames[1] {
				t.Errorf("stack came back as %+v %v", d, fr)
			}
		case format.WireName:
			if d, text := r.Name(); d.Hash != name.Key || len(text) != format.MaxNameBytes {
				t.Errorf("name came back as %+v, %d bytes", d, len(text))
			}
		case format.WireDevice:
			if d := r.Device(); d.Ordinal != 1 || d.Known != 1 || string(d.UUID[:]) != string(uuid) || d.Total != 1<<37 || string(d.Name[:4]) != "H200" {
				t.Errorf("device came back as %+v", d)
			}
		case format.WireModule:
			if d, id, path := r.Module(); d.Number != 7 || string(id) != string(uuid) || string(path) != "/lib/libfoo.so" {
				t.Errorf("module came back as %+v %q %q", d, id, path)
			}
		case format.Alloc:
			if e, call := r.Event(), r.Call(); e.Address != 0xdead || call == nil || call.Duration != 5 || call.Stream != 9 {
				t.Errorf("event came back as %+v %+v", e, call)
			}
		}
	}
	if seen != 6 {
		t.Errorf("%d records, want 6", seen)
	}
}

// TestSmallBuffer reads through a buffer that holds less than what is published.
func TestSmallBuffer(t *testing.T) {
	p, c := pair(16)
	for range 5 {
		p.Event(event(format.Alloc, 1), &format.WireCall{})
	}
	b := make([]byte, 3*format.SlotSize+10) // one record and a half
	total := 0
	for {
		n, err := c.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			break
		}
		if n != 2*format.SlotSize {
			t.Fatalf("read %d bytes, want one whole record", n)
		}
		total++
	}
	if total != 5 || c.Pending() != 0 {
		t.Errorf("%d records, %d bytes left", total, c.Pending())
	}
}

// TestHostile sets a lane up as a broken or malicious writer would.
func TestHostile(t *testing.T) {
	put := func(c *Consumer, slot int, kind format.Kind, slots uint16) []byte {
		b := c.ring[slot*format.SlotSize:]
		h := Record(b).Head()
		h.Kind, h.Slots, h.Layer = kind, slots, format.LayerDriver
		return b
	}
	for _, row := range []struct {
		name string
		lie  func(c *Consumer)
		want error
	}{
		{"head beyond the capacity", func(c *Consumer) { c.header.Head = uint64(len(c.ring)) + format.SlotSize }, errCursor},
		{"head behind the tail", func(c *Consumer) { c.tail = 128; c.header.Head = 64 }, errCursor},
		{"head inside a slot", func(c *Consumer) { put(c, 0, format.Alloc, 1); c.header.Head = 65 }, errCursor},
		{"no length", func(c *Consumer) { put(c, 0, format.Alloc, 0); c.header.Head = 64 }, errLength},
		{"runs past the head", func(c *Consumer) { put(c, 0, format.Alloc, 2); c.header.Head = 64 }, errRunsOut},
		{"runs past the end", func(c *Consumer) { c.tail = 64 * 63; c.header.Head = 64 * 65; put(c, 63, format.Alloc, 2) }, errRunsOut},
		{"event of three slots", func(c *Consumer) { put(c, 0, format.Alloc, 3); c.header.Head = 192 }, errLength},
		{"longest length", func(c *Consumer) { put(c, 0, format.WireCode, 65535); c.header.Head = 64 * 64 }, errLength},
		{"pad in the middle", func(c *Consumer) { put(c, 0, format.WirePad, 1); c.header.Head = 128 }, errLength},
		{"pad past the end", func(c *Consumer) { put(c, 0, format.WirePad, 65535); c.header.Head = 128 }, errLength},
		{"pad not published whole", func(c *Consumer) { put(c, 0, format.WirePad, 64); c.header.Head = 128 }, errLength},
		{"kind none", func(c *Consumer) { put(c, 0, format.KindNone, 1); c.header.Head = 64 }, errKind},
		{"kind of a checkpoint", func(c *Consumer) { put(c, 0, format.Live, 1); c.header.Head = 64 }, errKind},
		{"kind of the recorder's", func(c *Consumer) { put(c, 0, format.ProcessEnd, 1); c.header.Head = 64 }, errKind},
		{"kind unknown", func(c *Consumer) { put(c, 0, 200, 1); c.header.Head = 64 }, errKind},
		{"layer unknown", func(c *Consumer) { put(c, 0, format.Alloc, 1)[15] = 9; c.header.Head = 64 }, errValue},
		{"class unknown", func(c *Consumer) { put(c, 0, format.Alloc, 1)[16] = 9; c.header.Head = 64 }, errValue},
		{"alloc of less than nothing", func(c *Consumer) { Record(put(c, 0, format.Alloc, 1)).Event().Size = -1; c.header.Head = 64 }, errValue},
		{"stack of 2^32-1 frames", func(c *Consumer) {
			Record(put(c, 0, format.WireStack, 1)).Head()
			binary.LittleEndian.PutUint32(c.ring[24:], 1<<32-1)
			c.header.Head = 64
		}, errLength},
		{"stack longer than its record", func(c *Consumer) {
			put(c, 0, format.WireStack, 1)
			binary.LittleEndian.PutUint32(c.ring[24:], 1)
			c.header.Head = 64
		}, errLength},
		{"name longer than its record", func(c *Consumer) {
			put(c, 0, format.WireName, 1)
			binary.LittleEndian.PutUint32(c.ring[24:], 33)
			c.header.Head = 64
		}, errLength},
		{"name shorter than its record", func(c *Consumer) { put(c, 0, format.WireName, 3); c.header.Head = 192 }, errLength},
		{"code with texts of 4 GiB", func(c *Consumer) {
			put(c, 0, format.WireCode, 1)
			for i := 28; i < 44; i += 4 {
				binary.LittleEndian.PutUint32(c.ring[i:], 1<<32-1)
			}
			c.header.Head = 64
		}, errLength},
		{"device in one slot", func(c *Consumer) { put(c, 0, format.WireDevice, 1); c.header.Head = 64 }, errLength},
		{"thread in two slots", func(c *Consumer) { put(c, 0, format.ThreadBegin, 2); c.header.Head = 128 }, errLength},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, c := pair(64)
			row.lie(c)
			b := make([]byte, 64*format.SlotSize)
			n, err := c.Read(b)
			var corrupt *CorruptError
			if !errors.As(err, &corrupt) || !errors.Is(err, row.want) {
				t.Fatalf("read %d bytes, error %v, want %v", n, err, row.want)
			}
		})
	}
}

// FuzzLane reads a lane of arbitrary bytes and cursors. Whatever Read returns
// must be whole records that every accessor can look at.
func FuzzLane(f *testing.F) {
	p, _ := pair(64)
	p.Event(event(format.Alloc, 1), &format.WireCall{}, DefineName("n"), DefineStack([]format.WireFrame{{Code: 1}}), DefineCode("f", "g", 1, 0x30c, []byte{1}), DefineDevice(0, nil, "d", 1), DefineModule(1, "/m", []byte{1, 2}))
	p.Scope(&format.WireScope{WireHead: format.WireHead{Kind: format.ScopeBegin}})
	p.Thread(&format.WireThread{WireHead: format.WireHead{Kind: format.ThreadBegin}})
	f.Add(p.ring[:p.head], uint64(0), p.head, 4096)
	f.Add(p.ring[:], uint64(62*64), uint64(66*64), 4096)
	f.Add([]byte{}, uint64(1<<63), uint64(0), 0)
	f.Fuzz(func(t *testing.T, content []byte, tail, head uint64, size int) {
		_, c := pair(64)
		copy(c.ring, content)
		c.tail, c.header.Head = tail&^(format.SlotSize-1), head
		b := make([]byte, min(max(size, 0), 1<<16))
		for range 100 {
			n, err := c.Read(b)
			if err != nil || n == 0 {
				return
			}
			walked := 0
			for r, rest := Next(b[:n]); r != nil; r, rest = Next(rest) {
				walked += len(r)
				touch(r)
			}
			if walked != n {
				t.Fatalf("records cover %d of %d bytes", walked, n)
			}
		}
	})
}

// touch reads everything that the accessors give out.
func touch(r Record) (sum int) {
	switch r.Kind() {
	case format.WireCode:
		_, a, b, c := r.Code()
		for _, c := range slices.Concat(a, b, c) {
			sum += int(c)
		}
	case format.WireStack:
		_, frames := r.Stack()
		for _, f := range frames {
			sum += int(f.Kind)
		}
	case format.WireName:
		_, b := r.Name()
		for _, c := range b {
			sum += int(c)
		}
	case format.WireDevice:
		sum = int(r.Device().Name[63])
	case format.WireModule:
		_, id, path := r.Module()
		for _, c := range append(id[:len(id):len(id)], path...) {
			sum += int(c)
		}
	default:
		sum = int(r.Event().B)
		if c := r.Call(); c != nil {
			sum += int(c.Spare2[1])
		}
	}
	return sum
}

// TestWait lets a full lane hold its writer: until there is room, not beyond
// the budget, and not when nobody reads.
func TestWait(t *testing.T) {
	full := func() (*Producer, *Consumer) {
		p, c := pair(8)
		for p.Event(event(format.Alloc, 1), nil) == nil {
		}
		return p, c
	}
	t.Run("until there is room", func(t *testing.T) {
		p, c := full()
		c.Attend(1, uint64(time.Hour))
		c.Beat(Now() + format.Time(time.Hour))
		done := make(chan error)
		go func() { done <- p.Event(event(format.Alloc, 2), nil) }()
		for b := make([]byte, 4096); ; {
			if n, err := c.Read(b); err != nil {
				t.Fatal(err)
			} else if n > 0 {
				break
			}
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
	t.Run("not beyond the budget", func(t *testing.T) {
		p, c := full()
		c.Attend(1, uint64(time.Microsecond))
		c.Beat(Now() + format.Time(time.Hour))
		if err := p.Event(event(format.Alloc, 2), nil); !errors.Is(err, ErrDropped) {
			t.Fatal(err)
		}
	})
	t.Run("not when nobody reads", func(t *testing.T) {
		p, c := full()
		c.Attend(1, uint64(time.Hour))
		c.Beat(Now() - 2*staleAfter)
		if err := p.Event(event(format.Alloc, 2), nil); !errors.Is(err, ErrDropped) {
			t.Fatal(err)
		}
	})
}
