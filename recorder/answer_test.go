package recorder

import (
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/recorder/ring"
)

// An asker is a lane whose thread asks, as the hook does it.
type asker struct {
	*rawLane
	s    *Session
	slot int
	seq  uint32
}

func newAsker(t *testing.T, s *Session) *asker {
	a := &asker{rawLane: newRawLane(t), s: s}
	a.announce(t, s, nil, a.fd)
	return a
}

// say publishes one record; a question does not count in seq.
func (a *asker) say(r []byte) format.Time {
	h := ring.Record(r).Head()
	h.Time, h.Seq = uint64(ring.Now()), a.seq
	if h.Kind != format.WireAsk {
		a.seq++
	}
	atomic.StoreUint32(&a.header.Busy, 1)
	h.Time = uint64(ring.Now())
	a.put(a.slot, r)
	a.slot += len(r) / format.SlotSize
	atomic.StoreUint64(&a.header.Head, uint64(a.slot*format.SlotSize))
	atomic.StoreUint32(&a.header.Busy, 0)
	return format.Time(h.Time)
}

func scopeRecord(kind format.Kind, number uint64, asks uint8) []byte {
	w := format.WireScope{WireHead: format.WireHead{Slots: 1, Kind: kind}, API: format.APIScope, Device: -1, Asks: asks, Depth: -1, Range: number}
	return append([]byte(nil), unsafe.Slice((*byte)(unsafe.Pointer(&w)), unsafe.Sizeof(w))...)
}

// ask publishes a question and waits for its answer, for as long as a starved
// machine may need.
func (a *asker) ask(t *testing.T, r []byte) format.WireAnswer {
	t.Helper()
	asked := a.say(r)
	atomic.StoreUint64(&a.header.Asked, uint64(asked))
	a.knock(t)
	if !within(20*time.Second, func() bool { return atomic.LoadUint64(&a.header.Answer.Asked) == uint64(asked) }) {
		t.Fatal("no answer")
	}
	return a.header.Answer
}

// knock wakes the recorder.
func (a *asker) knock(t *testing.T) {
	t.Helper()
	magic := uint64(format.AskMagic)
	a.announce(t, a.s, unsafe.Slice((*byte)(unsafe.Pointer(&magic)), 8))
}

// An answer is what was folded up to the question, of an open scope, of one that
// ends with it and of one that has ended; it knows no other process's scopes.
func TestAnswers(t *testing.T) {
	s := record(t, Options{Say: func(text string) { t.Error(text) }})
	a := newAsker(t, s)
	alloc := func(address uint64, size int64) {
		e := wireEvent(format.Alloc, format.APIMemAlloc, address, size)
		e.Slots, e.Kind, e.Layer, e.Class = 1, format.Alloc, format.LayerDriver, format.ClassDevice
		a.say(append([]byte(nil), unsafe.Slice((*byte)(unsafe.Pointer(e)), unsafe.Sizeof(*e))...))
	}
	free := func(address uint64) {
		e := wireEvent(format.Free, format.APIMemFree, address, -1)
		e.Slots, e.Kind, e.Layer = 1, format.Free, format.LayerDriver
		a.say(append([]byte(nil), unsafe.Slice((*byte)(unsafe.Pointer(e)), unsafe.Sizeof(*e))...))
	}
	check := func(name string, r []byte, state uint32, begin, end, most int64) {
		t.Helper()
		got := a.ask(t, r)
		if got.State != state || got.Begin[CurveUsed] != begin || got.End[CurveUsed] != end || got.Max[CurveUsed] != most {
			t.Errorf("%s: state %d, used %d to %d, at most %d; want state %d, %d to %d, at most %d", name,
				got.State, got.Begin[CurveUsed], got.End[CurveUsed], got.Max[CurveUsed], state, begin, end, most)
		}
		if got.Lost != 0 {
			t.Errorf("%s: %d events lost", name, got.Lost)
		}
	}
	alloc(1<<20, 100)
	a.say(scopeRecord(format.ScopeBegin, 1, 0))
	check("at once", scopeRecord(format.WireAsk, 1, 0), format.AnswerDriver, 100, 100, 100)
	alloc(2<<20, 50)
	free(2 << 20)
	a.say(scopeRecord(format.ScopeBegin, 2, 0))
	alloc(3<<20, 7)
	check("a peak between", scopeRecord(format.WireAsk, 1, 0), format.AnswerDriver, 100, 107, 150)
	check("a later one has its own", scopeRecord(format.ScopeReport, 2, 1), format.AnswerDriver, 100, 107, 107)
	a.say(scopeRecord(format.ScopeReset, 1, 0))
	check("begun anew", scopeRecord(format.WireAsk, 1, 0), format.AnswerDriver, 107, 107, 107)
	check("the end", scopeRecord(format.ScopeEnd, 1, 1), format.AnswerDriver, 107, 107, 107)
	alloc(4<<20, 1000)
	check("what the end had", scopeRecord(format.WireAsk, 1, 0), format.AnswerDriver, 107, 107, 107)
	check("and the open one has what came since", scopeRecord(format.WireAsk, 2, 0), format.AnswerDriver, 100, 1107, 1107)
	check("nobody's", scopeRecord(format.WireAsk, 3, 0), format.AnswerUnknown, 0, 0, 0)

	// Another process has numbers of its own.
	own := a
	a = &asker{rawLane: newRawLane(t), s: s}
	a.hello.StartTime++
	a.announce(t, s, nil, a.fd)
	check("another's", scopeRecord(format.WireAsk, 2, 0), format.AnswerUnknown, 0, 0, 0)
	a = own
	check("its own still", scopeRecord(format.WireAsk, 2, 0), format.AnswerDriver, 100, 1107, 1107)

	r := finish(t, s)
	if n := r.count(format.ScopeReport); n != 1 {
		t.Errorf("%d reports in the trace, want the one that was a report", n)
	}
	if r.meta.Stats.Lost != 0 || r.meta.Stats.ClosedLanes != 0 || r.meta.Stats.Late != 0 {
		t.Errorf("%+v", r.meta.Stats)
	}
}

// A scope that ended before its process had a pool is answered for as a replay of
// all of the trace does it.
func TestAnswerOfAPool(t *testing.T) {
	s := record(t, Options{})
	a := newAsker(t, s)
	a.say(scopeRecord(format.ScopeBegin, 1, 0))
	alloc := func(layer format.Layer, api format.API, address uint64, size int64) {
		e := wireEvent(format.Alloc, api, address, size)
		e.Slots, e.Kind, e.Layer, e.Class = 1, format.Alloc, layer, format.ClassDevice
		a.say(append([]byte(nil), unsafe.Slice((*byte)(unsafe.Pointer(e)), unsafe.Sizeof(*e))...))
	}
	alloc(format.LayerDriver, format.APIMemAlloc, 1<<20, 100)
	if got := a.ask(t, scopeRecord(format.ScopeEnd, 1, 1)); got.State != format.AnswerDriver || got.Max[CurveUsed] != 100 {
		t.Errorf("without a pool: %+v", got)
	}
	alloc(format.LayerPool, format.APICuPy, 1<<20, 10)
	got := a.ask(t, scopeRecord(format.WireAsk, 1, 0))
	if got.State != format.AnswerPool || got.Max[CurveUsed] != 0 || got.Max[CurveAcquired] != 100 {
		t.Errorf("with a pool: %+v", got)
	}
	finish(t, s)
}

// Askers that lie and askers that never stop: the good one beside them is
// answered, and nothing is said or closed.
func TestHostileAskers(t *testing.T) {
	s := record(t, Options{Say: func(text string) { t.Error(text) }})
	for _, asked := range []uint64{1, 1 << 62, 1<<64 - 1, uint64(ring.Now())} {
		newAsker(t, s).header.Asked = asked
	}
	pest := newAsker(t, s)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			atomic.StoreUint64(&pest.header.Asked, uint64(ring.Now()))
			if c, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_NONBLOCK, 0); err == nil {
				magic := uint64(format.AskMagic)
				if syscall.Connect(c, &syscall.SockaddrUnix{Name: s.Socket()}) == nil {
					syscall.Sendmsg(c, unsafe.Slice((*byte)(unsafe.Pointer(&magic)), 8), nil, nil, syscall.MSG_DONTWAIT)
				}
				syscall.Close(c)
			}
			time.Sleep(100 * time.Microsecond)
		}
	}()
	a := newAsker(t, s)
	a.say(scopeRecord(format.ScopeBegin, 1, 0))
	for range 20 {
		if got := a.ask(t, scopeRecord(format.WireAsk, 1, 0)); got.State == format.AnswerUnknown {
			t.Fatalf("%+v", got)
		}
	}
	close(stop)
	<-done
	if r := finish(t, s); r.meta.Stats.ClosedLanes != 0 {
		t.Errorf("%+v", r.meta.Stats)
	}
}

// The least pause is for as long as somebody waits: of a question that nobody will
// answer, as its record never came, drain makes no haste for ever.
func TestAsksEnd(t *testing.T) {
	l := &lane{}
	r := newRawLane(t)
	consumers, err := ring.Map(duplicate(t, r.fd), &r.hello)
	if err != nil {
		t.Fatal(err)
	}
	l.ring = consumers[0]
	defer l.ring.Close()
	const asked = format.Time(1 << 40)
	for _, row := range []struct {
		name            string
		asked, answered format.Time
		at              format.Time
		want            bool
	}{
		{"never asked", 0, 0, asked, false},
		{"asked", asked, 0, asked + 1, true},
		{"asked since the turn began", asked, 0, asked - 1000, true},
		{"answered", asked, asked, asked + 1, false},
		{"asked again", asked, asked - 5, asked + 1, true},
		{"given up", asked, 0, asked + format.AnswerWait, false},
		{"of the future", asked, 0, asked - 2*margin, false},
	} {
		r.header.Asked = uint64(row.asked)
		l.answered.Store(int64(row.answered))
		if got := l.asks(row.at); got != row.want {
			t.Errorf("%s: %v", row.name, got)
		}
	}
}
