package recorder

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/recorder/ring"
)

// TestSoak records as many events as GPUREC_SOAK says, as fast as it goes, every
// fiftieth with a stack that never was before, and keeps 64 MiB: a job of an hour
// at 300,000 events a second is 1,080,000,000. Neither the disk nor the memory
// grows.
func TestSoak(t *testing.T) {
	events, err := strconv.Atoi(os.Getenv("GPUREC_SOAK"))
	if err != nil {
		t.Skip("takes as long as it is told to: GPUREC_SOAK=100000000 go test ./recorder -run TestSoak -timeout 0 -v")
	}
	const most, blocks = 64 << 20, 1000
	s := record(t, Options{Wait: true, Writer: format.WriterOptions{Retain: format.Retention{Bytes: most}}})
	p := join(t, s, 1, 8<<20)
	stop := watchBound(s.Output())
	alloc, free := wireEvent(format.Alloc, format.APIMemAlloc, 0, 512), wireEvent(format.Free, format.APIMemFree, 0, 0)
	call := &format.WireCall{Duration: 1000}
	stack := func(n int) []ring.Definition { // two frames, of which the inner one is nobody else's
		inner := ring.DefineCode("train.py", fmt.Sprintf("<lambda %d>", n), int32(n), 0, nil)
		outer := ring.DefineCode("train.py", "main", int32(n%1000), 0, nil)
		return []ring.Definition{inner, outer, ring.DefineStack([]format.WireFrame{{Code: inner.Key, Kind: uint32(format.FramePython)}, {Code: outer.Key, Kind: uint32(format.FramePython)}})}
	}
	began, early, distinct, lost, st := time.Now(), int64(0), 0, uint64(0), stack(0)
	for i := range events {
		e := alloc
		if i%2 == 1 {
			e = free
		} else if i%50 == 0 {
			distinct++
			st = stack(distinct)
			alloc.Stack = st[2].Key
		}
		e.Address = uint64(i/2%blocks+1) << 9
		if err := p.Event(e, call, st...); errors.Is(err, ring.ErrDropped) { // the recorder had no core for a second
			lost++
		} else if err != nil {
			t.Fatal(err)
		}
		if i%(events/10) == events/10-1 {
			t.Logf("%d events, %d distinct stacks, %v: %d MiB resident at most so far", i+1, distinct, time.Since(began).Round(time.Second), PeakMemory()>>20)
			if early == 0 && i > events/5 {
				early = PeakMemory()
			}
		}
	}
	if _, err := s.Close(nil); err != nil {
		t.Fatal(err)
	}
	disk, late := stop(), PeakMemory()
	m := readMeta(t, s.Output())
	took := time.Since(began)
	t.Logf("%d events in %v, %.0f a second; %d bytes of disk at most, bound %d; %d MiB resident at most, %d after 3 tenths; %d bytes written, %d lost, %d stacks unresolved",
		m.Stats.Events, took.Round(time.Second), float64(m.Stats.Events)/took.Seconds(), disk, most, late>>20, early>>20, m.Stats.Written, m.Stats.Lost, m.Stats.Unresolved)
	if disk > most || late > early+early/4 || m.Stats.Lost != lost || m.Stats.Unresolved > 0 || m.Stats.Events+lost < uint64(events) {
		t.Error("something grew, or is missing")
	}
}

func readMeta(t *testing.T, path string) format.Meta {
	t.Helper()
	tr, err := format.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return tr.Meta()
}
