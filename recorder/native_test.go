package recorder

import (
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/recorder/ring"
)

// stacked is an event with a stack, of which seq is the time too.
func stacked(kind format.Kind, seq, hash uint64) []byte {
	r := rec(kind, 10+seq, seq)
	(*format.WireEvent)(unsafe.Pointer(&r[0])).Stack = hash
	return r
}

func named(seq uint64, name string) []byte {
	w := format.WireThread{WireHead: format.WireHead{Time: 1, Seq: uint32(seq), Slots: 1, Kind: format.ThreadBegin}, Device: -1, TID: 7}
	copy(w.Name[:], name)
	return append([]byte(nil), unsafe.Slice((*byte)(unsafe.Pointer(&w)), 64)...)
}

func framed(hash uint64, dropped uint32, frames ...format.WireFrame) []byte {
	d := format.WireStackDef{WireHead: format.WireHead{Kind: format.WireStack}, Hash: hash, Count: uint32(len(frames)), Dropped: dropped}
	b := append([]byte(nil), unsafe.Slice((*byte)(unsafe.Pointer(&d)), 64)...)
	for i := range frames {
		b = append(b, unsafe.Slice((*byte)(unsafe.Pointer(&frames[i])), 16)...)
	}
	for len(b)%format.SlotSize != 0 {
		b = append(b, 0)
	}
	(*format.WireHead)(unsafe.Pointer(&b[0])).Slots = uint16(len(b) / format.SlotSize)
	return b
}

// written is a stack as it stands in the trace, outermost frame first.
func (b *bench) written(id format.StackID) string {
	var out []string
	for id != 0 {
		key, _ := keyOf(b.f.in.nodes, id)
		f, _ := keyOf(b.f.in.frames, format.FrameID(uint32(key)))
		out = append([]string{f.String()}, out...)
		id = format.StackID(key >> 32)
	}
	return strings.Join(out, " > ")
}

// TestNativeStacks gives fold stacks of native frames: they stand under the names
// of their threads, those of several threads with the same frames too, merged ones
// do not, and what is left out is said where it is.
func TestNativeStacks(t *testing.T) {
	b := newBench(t, 2)
	code := ring.DefineCode("/a.py", "f", 3, 0, nil)
	native := func(address uint64, module int32) format.WireFrame {
		return format.WireFrame{Code: address, Instruction: module, Kind: uint32(format.FrameNative)}
	}
	python := format.WireFrame{Code: code.Key, Kind: uint32(format.FramePython)}
	lines := func(d *format.WireCodeDef) []byte {
		return append([]byte(nil), unsafe.Slice((*byte)(unsafe.Pointer(d)), 64)...)
	}
	c := format.WireCodeDef{WireHead: format.WireHead{Kind: format.WireCode, Slots: 1}, Key: code.Key, FirstLine: 3}
	var got []string
	send := func(lane int, records ...[]byte) {
		b.rows = b.rows[:0]
		b.round(&round{chunks: []chunk{chunkOf(b.lanes[lane], 0, records...)}, until: format.Time(1 << 20)})
		for i := range b.rows {
			if e := &b.rows[i]; e.Kind == format.Alloc {
				got = append(got, b.written(e.Stack))
			}
		}
	}
	send(0, named(0, "main"), defineModule(1), framed(5, 0, native(0x20, 1), native(0x10, 1)), stacked(format.Alloc, 1, 5))
	send(1, named(0, "worker"), stacked(format.Alloc, 1, 5))
	send(0, stacked(format.Alloc, 2, 5), framed(6, 9, native(0x30, 1)), stacked(format.Alloc, 3, 6))
	send(0, lines(&c), framed(9, 12, python), stacked(format.Alloc, 6, 9), framed(10, 1, python), stacked(format.Alloc, 7, 10), framed(7, 0, native(0x40, 1), python, native(0x50, 1), format.WireFrame{Kind: uint32(format.FrameNative)}, python), stacked(format.Alloc, 4, 7))
	want := []string{
		"[thread main] > +0x10 > +0x20",
		"[thread worker] > +0x10 > +0x20",
		"[thread main] > +0x10 > +0x20",
		"[thread main] > [outer frames left out] > +0x30",
		"[12 outer frames left out] > :3:",
		"[1 outer frame left out] > :3:",
		":3: > [native]:[outer frames left out] > +0x50 > :3: > +0x40",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) || b.f.stats.Unresolved != 0 {
		t.Errorf("%d unresolved in\n%s\nwant\n%s", b.f.stats.Unresolved, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if top := b.f.innermost(b.rows[0].Stack); top.Kind != format.FramePython {
		t.Errorf("a merged stack is called by %v", top)
	}
	send(0, framed(8, 0, native(0x60, 77)), stacked(format.Alloc, 5, 8))
	if b.f.stats.Unresolved != 1 {
		t.Errorf("%d unresolved of a module that was never defined", b.f.stats.Unresolved)
	}
	if top := b.f.innermost(b.rows[0].Stack); top.Function != "[thread main]" {
		t.Errorf("a stack without a name is called by %v", top)
	}
	for i := range 3 * maxUnder { // each of its threads has a name of its own
		send(1, named(uint64(2+2*i), fmt.Sprint("t", i)), stacked(format.Alloc, uint64(3+2*i), 5))
	}
	if s, _ := b.lanes[0].process.tables.stacks.get(5); len(s.under) > maxUnder {
		t.Errorf("a stack is found under %d threads", len(s.under))
	}
}
