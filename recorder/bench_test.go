package recorder

import (
	"path/filepath"
	"testing"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/recorder/ring"
)

// BenchmarkRecord is the whole way from a lane to the disk, of events as they
// come from a driver: alloc and free in turns, a thousand blocks live.
func BenchmarkRecord(b *testing.B) {
	s, err := Start(Options{Output: filepath.Join(b.TempDir(), "t.gpurec"), Wait: true})
	if err != nil {
		b.Fatal(err)
	}
	p, err := ring.NewProducer(8 << 20)
	if err != nil {
		b.Fatal(err)
	}
	p.Wait = true
	if err := p.Connect(s.Socket(), p.Hello(startTime(), 1)); err != nil {
		b.Fatal(err)
	}
	stack := ring.DefineStack([]format.WireFrame{{Code: 1, Kind: uint32(format.FrameNative)}})
	alloc, free := wireEvent(format.Alloc, format.APIMemAlloc, 0, 512), wireEvent(format.Free, format.APIMemFree, 0, 0)
	alloc.Stack = stack.Key
	call := &format.WireCall{Duration: 1000}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		e := alloc
		if i%2 == 1 {
			e = free
		}
		e.Address = uint64(i/2%1000) << 9
		if i%2 == 1 && i/2%1000 == 7 {
			continue
		}
		if err := p.Event(e, call, stack); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := s.Close(nil); err != nil {
		b.Fatal(err)
	}
}
