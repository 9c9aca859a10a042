package recorder

import (
	"testing"
	"unsafe"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/recorder/ring"
)

// FuzzFold gives fold whatever a lane may hold that its reader lets through.
// Nothing may panic, every event must come out valid and with what it refers to
// defined, and the account must be the rows'.
func FuzzFold(f *testing.F) {
	scope := func(kind format.Kind, seq uint32, number uint64, depth int64, flags format.Flags) []byte {
		s := format.WireScope{WireHead: format.WireHead{Time: 5, Seq: seq, Slots: 1, Kind: kind}, Device: 3, Name: 1, Domain: 2, Depth: depth, Range: number, Flags: flags}
		return append([]byte(nil), unsafe.Slice((*byte)(unsafe.Pointer(&s)), 64)...)
	}
	join := func(records ...[]byte) (all []byte) {
		for _, r := range records {
			all = append(all, r...)
		}
		return all
	}
	f.Add(join(rec(format.Alloc, 1, 0), rec(format.Free, 2, 1)), uint64(0))
	f.Add(join(rec(format.Alloc, 1, 5), rec(format.FreeFailed, 1, 6), rec(format.Reset, 9, 9)), uint64(7))
	f.Add(join(scope(format.ScopeBegin, 0, 0, 1, 0), scope(format.ScopeBegin, 1, 7, 0, format.FlagRange), scope(format.ScopeEnd, 2, 0, 1, 0), scope(format.ScopeReport, 3, 7, 0, 0)), uint64(0))
	f.Add(join(rec(format.ThreadBegin, 1, 0), rec(format.Map, 1, 1), rec(format.Unmap, 1, 2), rec(format.Import, 1, 3)), uint64(0))
	f.Add(join(defineModule(1), defineStack(9), stacked(format.Alloc, 1, 9), defineStack(8), stacked(format.Free, 2, 8)), uint64(0))
	f.Fuzz(func(t *testing.T, content []byte, dropped uint64) {
		r := newRawLane(t)
		copy(r.mem[format.LaneHeaderSize:], content)
		r.header.Head = uint64(len(content)) &^ (format.SlotSize - 1)
		all, err := ring.Map(duplicate(t, r.fd), &r.hello)
		if err != nil {
			t.Fatal(err)
		}
		c := all[0]
		defer c.Close()
		b := newBench(t, 2)
		words := make([]uint64, 1<<17)
		buf := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), 1<<20)
		n, err := c.Read(buf)
		if err != nil || n == 0 {
			return
		}
		out := &buffer{}
		out.refs.Store(100)
		b.round(&round{chunks: []chunk{{b.lanes[0], buf[:n], out, dropped, true}}, until: 1 << 40})
		b.round(&round{left: []leaving{{lane: b.lanes[0], dropped: dropped}}, last: true})
		var lost uint64
		names := uint32(b.f.in.name)
		for i := range b.rows {
			e := &b.rows[i]
			if !e.Kind.Valid() || e.Kind.Checkpoint() || !e.Layer.Valid() || e.Process != 1 {
				t.Fatalf("row %d: %+v", i, e)
			}
			if e.Device != format.NoDevice && int(e.Device) >= len(b.f.in.devices) || e.Stack > b.f.in.stack || uint32(e.Name) > names || uint32(e.Note) > names {
				t.Fatalf("row %d refers to what is not defined: %+v", i, e)
			}
			if e.Kind == format.Lost {
				lost += uint64(e.Size)
			}
		}
		events := uint64(len(b.rows))
		if events != b.f.stats.Events || lost != b.f.stats.Lost && b.f.stats.Lost < 1<<62 {
			t.Fatalf("%d events and %d lost in the rows, the account says %+v", events, lost, b.f.stats)
		}
	})
}
