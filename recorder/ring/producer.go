package ring

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/gpurec/gpurec/format"
)

// A Producer writes one lane. Goroutines change threads, so a mutex stands
// where the hook has the thread itself; the reader cannot tell them apart.
type Producer struct {
	mu      sync.Mutex
	fd      int
	mem     []byte
	header  *format.LaneHeader
	ring    []byte
	head    uint64
	seq     uint64
	dropped uint64
	epoch   uint32
	sent    map[uint64]struct{}
	budget  budget
	born    format.Time
	Wait    bool               // whether to wait before the reader has said so; set it before Connect
	now     func() format.Time // set by tests; Now otherwise
}

// A budget is how long full lanes may hold their threads in the current second.
type budget struct {
	second format.Time
	spent  time.Duration
}

// staleAfter is the age at which a heartbeat means that nobody reads: many
// times the recorder's longest pause, short enough for a user not to notice.
const staleAfter = format.Time(time.Second)

// NewProducer makes a lane of the given capacity, a power of two, in memory of
// its own. It is connected to nobody yet.
func NewProducer(capacity int) (*Producer, error) {
	if capacity < format.MinLaneSize || capacity > format.MaxLaneBytes || capacity&(capacity-1) != 0 {
		return nil, fmt.Errorf("a lane of %d bytes: want a power of two between %d and %d", capacity, format.MinLaneSize, format.MaxLaneBytes)
	}
	size := capacity + format.LaneHeaderSize
	fd, err := memfd(size)
	if err != nil {
		return nil, err
	}
	mem, err := syscall.Mmap(fd, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		syscall.Close(fd)
		return nil, fmt.Errorf("map a lane: %w", err)
	}
	syscall.Madvise(mem, madvDontDump)
	p := produce(mem, 0, capacity)
	p.fd = fd
	return p, nil
}

// produce makes lane i of a file's.
func produce(mem []byte, i, capacity int) *Producer {
	at := format.LaneHeaderSize + i*capacity
	p := &Producer{
		fd:     -1,
		mem:    mem,
		header: (*format.LaneHeader)(unsafe.Pointer(&mem[i*format.LaneStride])),
		ring:   mem[at : at+capacity : at+capacity],
		sent:   map[uint64]struct{}{},
		now:    Now,
		born:   Now(),
	}
	*p.header = format.LaneHeader{Magic: format.LaneMagic, Version: format.Version, Header: format.LaneHeaderSize,
		Capacity: uint64(len(p.ring)), PID: uint32(os.Getpid()), TID: uint32(syscall.Gettid())}
	return p
}

// Hello is what goes with the lane's descriptor to the recorder. The image
// tells processes of one pid and start time apart.
func (p *Producer) Hello(startTime, image uint64) format.WireHello {
	return format.WireHello{Magic: format.HelloMagic, Version: format.Version, PID: p.header.PID, TID: p.header.TID,
		StartTime: startTime, Image: image, Monotonic: uint64(Now()), Realtime: uint64(time.Now().UnixNano()), Capacity: uint64(len(p.ring)), Lanes: 1}
}

// Connect hands the lane to the recorder that listens at path, and lets go of
// the descriptor and the connection: neither outlives this.
func (p *Producer) Connect(path string, hello format.WireHello) error {
	s, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("socket for a lane: %w", err)
	}
	defer syscall.Close(s)
	if err := syscall.Connect(s, &syscall.SockaddrUnix{Name: path}); err != nil {
		return fmt.Errorf("connect to the recorder at %s: %w", path, err)
	}
	if err := syscall.Sendmsg(s, fixed(&hello), syscall.UnixRights(p.fd), nil, syscall.MSG_NOSIGNAL); err != nil {
		return fmt.Errorf("hand a lane to the recorder at %s: %w", path, err)
	}
	syscall.Close(p.fd)
	p.fd = -1
	return nil
}

// Close unmaps the lane; what is published stays readable.
func (p *Producer) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mem != nil {
		syscall.Munmap(p.mem)
		p.mem, p.header, p.ring = nil, nil, nil
	}
	if p.fd >= 0 {
		syscall.Close(p.fd)
		p.fd = -1
	}
}

// ErrDropped says that a record found no room. It is counted in the lane, and
// so in the trace.
var ErrDropped = errors.New("the lane is full: record dropped and counted")

// Event publishes an event, with the definitions it refers to that this lane
// has not sent yet: all together or not at all. Time and Seq are filled in here;
// a call is its second slot, nil for an event that has none.
func (p *Producer) Event(e *format.WireEvent, call *format.WireCall, defs ...Definition) error {
	var b [2 * format.SlotSize]byte
	n := copy(b[:], fixed(e))
	if call != nil {
		n += copy(b[n:], fixed(call))
	}
	return p.publish(b[:n], defs)
}

// Scope publishes a record of a scope's shape, Thread one of a thread's.
func (p *Producer) Scope(s *format.WireScope, defs ...Definition) error {
	var b [format.SlotSize]byte
	copy(b[:], fixed(s))
	return p.publish(b[:], defs)
}

func (p *Producer) Thread(t *format.WireThread) error {
	var b [format.SlotSize]byte
	copy(b[:], fixed(t))
	return p.publish(b[:], nil)
}

// Call says which driver call the writer is about to make; the reader looks at it
// only after the writer's death. The zero call says that it has returned.
func (p *Producer) Call(c format.WireCallSlot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mem == nil {
		return
	}
	since := c.Since
	atomic.StoreUint64(&p.header.Call.Since, 0)
	c.Since = 0
	p.header.Call = c
	atomic.StoreUint64(&p.header.Call.Since, since) // last: a slot with a time is whole
}

// publish reserves, stamps, copies and publishes:
//
//	1 forget what was sent when the reader raised the epoch
//	2 plan: which definitions are new, where each record lies, what must be padded
//	3 find room, waiting if the reader allows it; without room, drop and count
//	4 busy = 1, read the clock, copy, store the head with release, busy = 0
//	5 only now remember the definitions as sent
//
// The wait is in 3 and not in 4: a thread that waits while busy would hold back
// the recorder, for which it waits.
func (p *Producer) publish(rec []byte, defs []Definition) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mem == nil {
		return ErrDropped
	}
	if e := atomic.LoadUint32(&p.header.Epoch); e != p.epoch {
		p.epoch = e
		clear(p.sent)
	}
	all := make([][]byte, 0, 8)
	for i := range defs {
		if _, ok := p.sent[defs[i].Key]; !ok && len(defs[i].record) <= len(p.ring)/4 {
			all = append(all, defs[i].record)
		}
	}
	all = append(all, rec)
	total := uint64(0)
	for _, r := range all {
		total += p.pad(p.head+total, len(r)) + uint64(len(r))
	}

	kind := Record(rec).Kind()
	if !p.room(total, kind) && !p.wait(total, kind) {
		p.seq++
		p.dropped++
		atomic.StoreUint64(&p.header.Dropped, p.dropped)
		return ErrDropped
	}

	atomic.StoreUint32(&p.header.Busy, 1)
	now := p.now()
	at := p.head
	for _, r := range all {
		if n := p.pad(at, len(r)); n > 0 {
			p.copy(at, now, format.WirePad, n/format.SlotSize, nil)
			at += n
		}
		p.copy(at, now, Record(r).Kind(), uint64(len(r)/format.SlotSize), r)
		at += uint64(len(r))
	}
	p.head = at
	p.seq++
	atomic.StoreUint64(&p.header.Head, at) // pairs with the load in Consumer.Read
	atomic.StoreUint32(&p.header.Busy, 0)
	for i := range defs {
		p.sent[defs[i].Key] = struct{}{}
	}
	return nil
}

// pad is how many bytes at place at must be filled so that a record of n bytes
// is not split over the ring's end.
func (p *Producer) pad(at uint64, n int) uint64 {
	left := uint64(len(p.ring)) - at&uint64(len(p.ring)-1)
	if uint64(n) > left {
		return left
	}
	return 0
}

// copy writes a record at its place and gives it its head. A definition carries
// the seq of the event it precedes, so that a gap counts events.
func (p *Producer) copy(at uint64, now format.Time, kind format.Kind, slots uint64, r []byte) {
	b := p.ring[at&uint64(len(p.ring)-1):]
	copy(b, r)
	h := Record(b).Head()
	if r == nil {
		*h = format.WireHead{}
	}
	h.Time, h.Seq, h.Slots, h.Kind = uint64(now), uint32(p.seq), uint16(slots), kind
}

// room reports whether n more bytes fit. Above 7/8 full there is room for
// everything but an Alloc: a lost Alloc hides memory for its own life, a lost
// Free would be a leak for the rest of the trace.
func (p *Producer) room(n uint64, kind format.Kind) bool {
	used := p.head - atomic.LoadUint64(&p.header.Tail) // pairs with the store in Consumer.Read
	size := uint64(len(p.ring))
	if kind == format.Alloc {
		size -= size / 8
	}
	return used+n <= size
}

// wait gives the reader time to make room, within the budget of this second and
// only while its heartbeat is fresh.
func (p *Producer) wait(n uint64, kind format.Kind) bool {
	const nap = 50 * time.Microsecond
	for {
		now := Now()
		wait, budget := p.Wait, time.Second // until the reader's first sign of life
		beat := format.Time(atomic.LoadUint64(&p.header.Heartbeat))
		if beat == 0 {
			beat = p.born
		} else {
			wait = atomic.LoadUint32(&p.header.OnFull) == 1
			budget = time.Duration(atomic.LoadUint64(&p.header.WaitBudget))
		}
		if !wait || now-beat > staleAfter {
			return false
		}
		if now-p.budget.second >= format.Time(time.Second) {
			p.budget.second, p.budget.spent = now, 0
		}
		if p.budget.spent >= budget {
			return false
		}
		time.Sleep(nap)
		held := Now() - now
		p.budget.spent += time.Duration(held)
		atomic.AddUint64(&p.header.Waited, uint64(held))
		if p.room(n, kind) {
			return true
		}
	}
}
