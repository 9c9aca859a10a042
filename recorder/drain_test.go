package recorder

import (
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/recorder/ring"
)

// A still is a drain that turns only when told, and its lanes, whose cursors
// and busy words are set by hand.
type still struct {
	d    *drain
	raws []*rawLane
	slot []int // published in each
}

func newStill(t *testing.T, lanes int) *still {
	t.Helper()
	l, err := listen(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := &Session{opt: Options{Say: func(text string) { t.Log(text) }, QueueBytes: 4 * bufferSize}}
	d, err := newDrain(s, l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.close)
	out := &still{d: d, slot: make([]int, lanes)}
	for range lanes {
		r := newRawLane(t)
		r.hello.Monotonic -= 1e9
		rings, err := ring.Map(duplicate(t, r.fd), &r.hello)
		if err != nil {
			t.Fatal(err)
		}
		pidfd, _, errno := syscall.Syscall(sysPidfdOpen, uintptr(os.Getpid()), 0, 0)
		if errno != 0 {
			pidfd = ^uintptr(0) // an old kernel: /proc is asked
		}
		if err := d.admit(&newcomer{hello: r.hello, pid: int32(r.hello.PID), pidfd: int(pidfd), rings: rings}); err != nil {
			t.Fatal(err)
		}
		out.raws = append(out.raws, r)
	}
	return out
}

// publish puts an event of this time into a lane.
func (s *still) publish(lane int, at format.Time) {
	r := s.raws[lane]
	r.put(s.slot[lane], rec(format.Alloc, uint64(at), uint64(s.slot[lane])))
	s.slot[lane]++
	atomic.StoreUint64(&r.header.Head, uint64(s.slot[lane]*format.SlotSize))
}

func (s *still) busy(lane int, v uint32) { atomic.StoreUint32(&s.raws[lane].header.Busy, v) }

// turn is one turn, with the watermark that it alone gave.
func (s *still) turn() (until, before, after format.Time) {
	s.d.out = &round{}
	before = ring.Now()
	s.d.turn(s.d.look())
	return s.d.out.until, before, ring.Now()
}

// TestWatermark sets lanes as threads can leave them between two instructions,
// and says how far the recorder may then go.
func TestWatermark(t *testing.T) {
	const soon = -1 // as far as the turn's own begin, less the margin
	born := func(s *still, lane int) format.Time { return format.Time(s.raws[lane].hello.Monotonic) }
	for _, row := range []struct {
		name  string
		lanes int
		set   func(s *still) (want format.Time)
	}{
		{"no lane", 0, func(s *still) format.Time { return soon }},
		{"idle", 2, func(s *still) format.Time { return soon }},
		{"idle, published", 2, func(s *still) format.Time { s.publish(0, ring.Now()); return soon }},
		{"busy before its first event", 2, func(s *still) format.Time { s.busy(1, 1); return born(s, 1) }},
		{"busy after an event", 2, func(s *still) format.Time {
			at := ring.Now() - 10*margin
			s.publish(0, at)
			s.busy(0, 1)
			return at
		}},
		{"busy, and it was idle before", 2, func(s *still) format.Time {
			before, _, _ := s.turn()
			s.busy(0, 1)
			return before // what it was then known to be younger than
		}},
		{"the least of two busy ones", 3, func(s *still) format.Time {
			at := ring.Now() - 10*margin
			s.publish(0, at)
			s.publish(1, at-500)
			s.busy(0, 1)
			s.busy(1, 1)
			return at - 500
		}},
		{"busy no more", 1, func(s *still) format.Time {
			s.busy(0, 1)
			s.turn()
			s.busy(0, 0)
			return soon
		}},
		{"busy for a second", 2, func(s *still) format.Time {
			s.busy(0, 1)
			s.turn()
			s.d.lanes[0].busySince -= stuckAfter
			return soon
		}},
		{"busy for a second, but publishing", 2, func(s *still) format.Time {
			s.busy(0, 1)
			s.turn()
			s.d.lanes[0].busySince -= stuckAfter
			at := ring.Now() - 10*margin
			s.publish(0, at)
			return at
		}},
		{"no room to copy it", 2, func(s *still) format.Time {
			at := ring.Now() - 10*margin
			s.publish(0, at)
			s.turn()
			s.d.current = nil
			s.d.s.inflight.Store(1 << 40)
			s.publish(0, ring.Now()) // stays in the ring
			s.publish(1, ring.Now())
			s.d.lanes[0].bound = at // it has been so for a while
			return at
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := newStill(t, row.lanes)
			want := row.set(s)
			until, before, after := s.turn()
			if want == soon {
				if until < before-margin || until > after-margin {
					t.Errorf("watermark %d, want the turn's begin less the margin, %d to %d", until, before-margin, after-margin)
				}
			} else if until != want {
				t.Errorf("watermark %d, want %d (%d later)", until, want, until-want)
			}
		})
	}
}

// TestLaggard fills the queue with one lane while another has events that are
// older: the next turns read that one, and the watermark goes on.
func TestLaggard(t *testing.T) {
	s := newStill(t, 2)
	old := ring.Now() - 10*margin
	s.d.s.inflight.Store(1 << 40)
	s.publish(0, old+1000)
	s.publish(1, old)
	s.d.lanes[1].bound = s.d.lanes[0].bound - 1 // the second lane is the one behind
	for range 3 {
		s.d.rounds = 1 // fold is at it still, and may make room
		if until, _, _ := s.turn(); until > old || len(s.d.out.chunks) > 0 {
			t.Fatalf("watermark %d, an event that was not copied is of %d; %d chunks beyond the bound", until, old, len(s.d.out.chunks))
		}
	}
	s.d.s.through.Store(1)
	for _, lane := range []int{1, 0} {
		s.d.current = nil
		until, _, _ := s.turn()
		if n := len(s.d.out.chunks); n != 1 || s.d.out.chunks[0].lane != s.d.lanes[lane] {
			t.Fatalf("copied %d chunks, want one of lane %d", n, lane)
		}
		if lane == 1 && until > old {
			t.Errorf("watermark %d is beyond an event that was not copied", until)
		}
	}
	if until, before, _ := s.turn(); until < before-margin {
		t.Errorf("watermark %d after everything is copied", until)
	}
}

// TestNewcomers announces a lane between the accept and the look: its events are
// younger than the watermark.
func TestNewcomers(t *testing.T) {
	s := newStill(t, 0)
	for range 20 {
		until, _, after := s.turn()
		p, err := ring.NewProducer(format.MinLaneSize)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Connect(s.d.listener.path, p.Hello(startTime(), 1)); err != nil {
			t.Fatal(err)
		}
		p.Event(wireEvent(format.Alloc, format.APIMemAlloc, 1, 1), nil)
		n := len(s.d.lanes)
		s.turn()
		if len(s.d.lanes) != n+1 || len(s.d.out.chunks) != 1 {
			t.Fatalf("%d lanes after the next turn, %d chunks", len(s.d.lanes), len(s.d.out.chunks))
		}
		r, _ := ring.Next(s.d.out.chunks[0].records)
		if r.Time() < until || r.Time() < after {
			t.Errorf("an event of %d came after the watermark %d", r.Time(), until)
		}
		p.Close()
	}
}

// TestManyLateHellos has more hellos come between two looks at the poller than
// one look holds. They stay ready until they are read.
func TestManyLateHellos(t *testing.T) {
	s := newStill(t, 0)
	var conns []int
	for range 100 {
		c := descriptor(syscall.Socket(syscall.AF_UNIX, syscall.SOCK_SEQPACKET, 0))
		t.Cleanup(func() { syscall.Close(c) })
		if err := syscall.Connect(c, &syscall.SockaddrUnix{Name: s.d.listener.path}); err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	s.turn()
	if len(s.d.waiting) != len(conns) {
		t.Fatalf("%d connections wait of %d", len(s.d.waiting), len(conns))
	}
	for _, c := range conns {
		if err := syscall.Sendmsg(c, []byte("no hello"), nil, nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan bool)
	_, found := s.d.look()
	go func() { done <- s.d.news(found) }()
	select {
	case any := <-done:
		if !any || len(s.d.waiting) != 0 {
			t.Errorf("news %v, %d still wait", any, len(s.d.waiting))
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the look has no end")
	}
}

// TestNumbersAreReused has a look find a newcomer and then a hello whose
// connection's number the newcomer's pidfd gets: nobody has died.
func TestNumbersAreReused(t *testing.T) {
	s := newStill(t, 0)
	connect := func() int {
		c := descriptor(syscall.Socket(syscall.AF_UNIX, syscall.SOCK_SEQPACKET, 0))
		t.Cleanup(func() { syscall.Close(c) })
		if err := syscall.Connect(c, &syscall.SockaddrUnix{Name: s.d.listener.path}); err != nil {
			t.Fatal(err)
		}
		return c
	}
	greet := func(c int, start uint64) {
		r := newRawLane(t)
		r.hello.StartTime = start
		hello := unsafe.Slice((*byte)(unsafe.Pointer(&r.hello)), unsafe.Sizeof(r.hello))
		if err := syscall.Sendmsg(c, hello, syscall.UnixRights(r.fd), nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	first := connect()
	s.turn()
	greet(connect(), 2) // the listener is ready before the first one's connection
	greet(first, 1)
	for _, found := s.d.look(); s.d.news(found); {
		_, found = s.d.look()
	}
	if len(s.d.processes) != 2 {
		t.Fatalf("%d processes", len(s.d.processes))
	}
	for key, p := range s.d.processes {
		if p.ended {
			t.Errorf("process %d, which lives, is taken for dead", key.start)
		}
	}
}

// TestTimerIsNoNews: the end of a pause that a look finds is nobody's hello, and
// does not hold the watermark back.
func TestTimerIsNoNews(t *testing.T) {
	s := newStill(t, 0)
	s.d.poller.set(time.Microsecond)
	time.Sleep(2 * time.Millisecond)
	_, found := s.d.look()
	if len(found) != 1 || found[0].Fd != int32(s.d.poller.timer) {
		t.Fatalf("the look finds %v", found)
	}
	if !s.d.meet(found) {
		t.Error("the timer is taken for news")
	}
}
