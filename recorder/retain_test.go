package recorder

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
)

// blocksOf is what a directory takes, as du counts it. Where parts come or go
// meanwhile it is a sum of what was never there together, and 0.
func blocksOf(dir string) (n int64) {
	before := entries(dir)
	filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if fi, err := d.Info(); err == nil && !d.IsDir() {
			n += (fi.Size() + 4095) / 4096 * 4096
		} else if err == nil {
			n += 4096
		}
		return nil
	})
	if !slices.Equal(before, entries(dir)) {
		return 0
	}
	return n
}

func entries(dir string) (names []string) {
	list, _ := os.ReadDir(dir)
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

// heapBytes is what this process holds on to. Its resident memory would be that
// of the tests before it too, and of the race detector.
func heapBytes() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// watchBound looks at a trace's directory until it is stopped, and returns the
// most that was there.
func watchBound(dir string) (stop func() int64) {
	var disk atomic.Int64
	end := make(chan struct{})
	var ended sync.WaitGroup
	ended.Add(1)
	go func() {
		defer ended.Done()
		for {
			disk.Store(max(disk.Load(), blocksOf(dir)))
			select {
			case <-end:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	return func() int64 {
		close(end)
		ended.Wait()
		return disk.Load()
	}
}

// TestRetain records many times what may stay, as fast as it goes: at no moment
// is the directory larger than the bound, memory does not grow with the number of
// events, and the first part that is left says what was live before it.
func TestRetain(t *testing.T) {
	const most, blocks, events = 1 << 20, 300, 600_000
	s := record(t, Options{Wait: true, QueueBytes: 4 << 20, Writer: format.WriterOptions{Retain: format.Retention{Bytes: most}}})
	p := join(t, s, 1, format.DefaultLane)
	stop := watchBound(s.Output())
	state := uint64(1)
	random := func(n uint64) uint64 {
		state = state*6364136223846793005 + 1442695040888963407
		return state >> 33 % n
	}
	var size [blocks]int64
	send := func(n int) {
		for range n {
			a := random(blocks)
			kind, api := format.Alloc, format.APIMemAlloc
			if size[a] > 0 {
				kind, api, size[a] = format.Free, format.APIMemFree, 0
			} else {
				size[a] = int64(random(1<<20)) + 1
			}
			if err := p.Event(wireEvent(kind, api, (a+1)<<21, size[a]), &format.WireCall{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	// The first tenth makes queues, buffers and tables as large as they get.
	send(events / 10)
	warm, memory := heapBytes(), int64(0)
	for range 9 {
		send(events / 10)
		memory = max(memory, heapBytes())
	}
	summary, err := s.Close(nil)
	disk := stop()
	if err != nil {
		t.Fatal(err)
	}
	r := readTrace(t, s.Output())
	tr, err := format.Open(s.Output())
	if err != nil {
		t.Fatal(err)
	}
	first := tr.Parts()[0].Index()
	t.Logf("%d events, %d parts begun, from part %d on kept, %d bytes of disk at most, memory %d then %d", r.meta.Stats.Events, r.meta.Parts, first, disk, warm, memory)
	if disk > most || disk < most/2 {
		t.Errorf("the directory had %d bytes at most, the bound is %d", disk, most)
	}
	if memory > warm+16<<20 {
		t.Errorf("memory went from %d to %d bytes", warm, memory)
	}
	// Where writing is late a part is up to a quarter of the bound, and as the last
	// one closes its copy counts too (see partsOfSize): two are sure to be left.
	if first == 0 || first != r.meta.Parts-len(tr.Parts()) || len(tr.Parts()) < 2 {
		t.Errorf("parts from %d on, %d of %d", first, len(tr.Parts()), r.meta.Parts)
	}
	if r.meta.Stats.Events < uint64(events) || r.meta.Stats.Lost > 0 {
		t.Errorf("%d events and %d lost, of %d", r.meta.Stats.Events, r.meta.Stats.Lost, events)
	}
	if summary.Since <= 0 || r.meta.Since-r.meta.Monotonic != format.Time(summary.Since) {
		t.Errorf("kept since %v, trace.json has %d", summary.Since, r.meta.Since)
	}
	whole := live.New()
	for i := range r.events {
		if e := &r.events[i]; !(e.Kind == format.ProcessEnd) {
			whole.Apply(e)
		}
	}
	sum, n := int64(0), 0
	for _, b := range size {
		if sum += b; b > 0 {
			n++
		}
	}
	for _, q := range whole.Processes() {
		if got := q.Acquired(); q.LiveCount != int64(n) || got.Now != sum || q.UnknownFrees+q.LostFrees > 0 {
			t.Errorf("live at the end: %d blocks, %+v, unknown frees %d, lost %d; want %d blocks of %d bytes", q.LiveCount, got, q.UnknownFrees, q.LostFrees, n, sum)
		}
	}
}

// TestRetainTooTight says once that the bound cannot be kept, goes on, and writes
// it down.
func TestRetainTooTight(t *testing.T) {
	var mu sync.Mutex
	var said []string
	s := record(t, Options{Wait: true, Say: func(text string) {
		mu.Lock()
		defer mu.Unlock()
		said = append(said, text)
	}, Writer: format.WriterOptions{Retain: format.Retention{Bytes: 256 << 10}}})
	p := join(t, s, 1, format.DefaultLane)
	for i := range 60_000 { // all of them stay live
		if err := p.Event(wireEvent(format.Alloc, format.APIMemAlloc, uint64(i+1)<<12, int64(i)*977), &format.WireCall{}); err != nil {
			t.Fatal(err)
		}
	}
	r := finishKept(t, s)
	mu.Lock()
	defer mu.Unlock()
	if len(said) != 1 || !strings.Contains(said[0], "256.00 KiB twice") || !strings.Contains(r.meta.Reason, said[0]) {
		t.Errorf("said %q, trace.json's reason is %q", said, r.meta.Reason)
	}
	if r.meta.Ending != format.EndClosed || r.meta.Stats.Lost > 0 {
		t.Errorf("ending %q, %d lost", r.meta.Ending, r.meta.Stats.Lost)
	}
}

func finishKept(t *testing.T, s *Session) *recorded {
	t.Helper()
	if _, err := s.Close(nil); err != nil {
		t.Fatal(err)
	}
	return readTrace(t, s.Output())
}

// TestRetainTime keeps what is younger than the bound and lets go of the rest.
func TestRetainTime(t *testing.T) {
	const most = 200 * time.Millisecond
	s := record(t, Options{Wait: true, Writer: format.WriterOptions{Retain: format.Retention{Time: most}}})
	p := join(t, s, 1, format.DefaultLane)
	for began := time.Now(); time.Since(began) < 5*most; time.Sleep(2 * time.Millisecond) {
		for _, e := range []*format.WireEvent{wireEvent(format.Alloc, format.APIMemAlloc, 1<<12, 512), wireEvent(format.Free, format.APIMemFree, 1<<12, 0)} {
			if err := p.Event(e, &format.WireCall{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	r := finishKept(t, s)
	kept := time.Duration(r.meta.End - r.meta.Since)
	if r.meta.Since == 0 || kept < most || kept > 4*most {
		t.Errorf("%v are kept of %v, since %d, the bound is %v", kept, time.Duration(r.meta.End-r.meta.Monotonic), r.meta.Since, most)
	}
}
