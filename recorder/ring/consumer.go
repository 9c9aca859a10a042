package ring

import (
	"errors"
	"fmt"
	"math/bits"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/gpurec/gpurec/format"
)

// A Consumer reads one lane. It is used by one goroutine.
//
// It trusts nothing in the lane: the capacity is the sealed file's, the tail is
// its own and never read back, a record is copied first and checked in the copy.
type Consumer struct {
	file     *mapping
	header   *format.LaneHeader
	ring     []byte
	pid, tid uint32
	tail     uint64
	newest   format.Time
	defines  bool // the latest Read
	closed   bool
}

// A mapping is a file of lanes, unmapped with the last of them.
type mapping struct {
	mem  []byte
	open int
}

func (m *mapping) close() {
	if m.open--; m.open == 0 {
		syscall.Munmap(m.mem)
	}
}

// Map takes over the lanes behind fd that a hello announced. It closes fd in any
// case: the mapping outlives it. All of them are used by one goroutine.
func Map(fd int, hello *format.WireHello) ([]*Consumer, error) {
	defer syscall.Close(fd)
	capacity := hello.Capacity
	if capacity < format.MinLaneSize || capacity > format.MaxLaneBytes || bits.OnesCount64(capacity) != 1 {
		return nil, fmt.Errorf("a lane's capacity of %d bytes is not a power of two between %d and %d", capacity, format.MinLaneSize, format.MaxLaneBytes)
	}
	lanes := uint64(hello.Lanes)
	if lanes < 1 || lanes > format.MaxLanesAFile || lanes*capacity > format.MaxLaneBytes {
		return nil, fmt.Errorf("a file of %d lanes of %d bytes, not of 1 to %d and %d together", lanes, capacity, format.MaxLanesAFile, format.MaxLaneBytes)
	}
	size := int64(lanes*capacity) + format.LaneHeaderSize
	if err := checkSealed(fd, size); err != nil {
		return nil, err
	}
	// The pages are taken here so that they are charged to the recorder's
	// cgroup and so that a full tmpfs shows now, as an error, not later as SIGBUS.
	if err := allocate(fd, size); err != nil {
		return nil, fmt.Errorf("allocate the pages of a lane: %w", err)
	}
	mem, err := syscall.Mmap(fd, 0, int(size), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map a lane: %w", err)
	}
	// A core of the recorder needs no lanes. Allocated pages are zeroed when first
	// touched, which is better done here than by the program: it can then map many
	// at once. An older kernel's refusal of either costs nothing.
	syscall.Madvise(mem, madvDontDump)
	syscall.Madvise(mem, madvPopulate)
	file := &mapping{mem: mem, open: 1}
	defer file.close()
	all := make([]*Consumer, lanes)
	for i := range all {
		c := consume(file, i, int(capacity))
		c.pid, c.tid = hello.PID, hello.TID
		all[i] = c
		h := *c.header
		if h.Magic != format.LaneMagic || h.Version != format.Version || h.Header != format.LaneHeaderSize || h.Capacity != capacity {
			for _, c := range all[:i+1] {
				c.Close()
			}
			return nil, fmt.Errorf("a lane's header does not agree with its hello (magic %#x, version %d, capacity %d)", h.Magic, h.Version, h.Capacity)
		}
	}
	return all, nil
}

func consume(file *mapping, i, capacity int) *Consumer {
	file.open++
	at := format.LaneHeaderSize + i*capacity
	return &Consumer{
		file:   file,
		header: (*format.LaneHeader)(unsafe.Pointer(&file.mem[i*format.LaneStride])),
		ring:   file.mem[at : at+capacity : at+capacity],
	}
}

// Close lets go of the lane.
func (c *Consumer) Close() {
	if !c.closed {
		c.closed = true
		c.file.close()
		c.file, c.header, c.ring = nil, nil, nil
	}
}

// Busy reports whether the writer may be between its reading of the clock and
// its publishing. Ask before Read. It pairs with the writer's plain stores
// around a record: a busy word that is still in the writer's store buffer is
// what the recorder's margin of 1 ms is for.
func (c *Consumer) Busy() bool { return atomic.LoadUint32(&c.header.Busy) != 0 }

// Newest is the time of the newest event that Read returned.
func (c *Consumer) Newest() format.Time { return c.newest }

// Defines reports whether what the latest Read returned has definitions.
func (c *Consumer) Defines() bool { return c.defines }

// Capacity is the lane's size without its header.
func (c *Consumer) Capacity() int { return len(c.ring) }

// Pending is how many bytes are published and not yet read. It may be nonsense
// in a lane that Read will refuse.
func (c *Consumer) Pending() uint64 { return atomic.LoadUint64(&c.header.Head) - c.tail }

// Dropped is the writer's count of refused records. Asked after Read it is at
// least the sum of the gaps in what Read returned.
func (c *Consumer) Dropped() uint64 { return atomic.LoadUint64(&c.header.Dropped) }

// Waited is for how many nanoseconds the lane has held its threads, as the writer
// says.
func (c *Consumer) Waited() uint64 { return atomic.LoadUint64(&c.header.Waited) }

// Attend tells the writer that somebody reads: what a full lane does, and how
// long it may hold its thread in a second.
func (c *Consumer) Attend(onFull uint32, budget uint64) {
	atomic.StoreUint64(&c.header.WaitBudget, budget)
	atomic.StoreUint32(&c.header.OnFull, onFull)
}

// Beat stores the heartbeat. A writer does not wait for a reader whose
// heartbeat is old.
func (c *Consumer) Beat(now format.Time) { atomic.StoreUint64(&c.header.Heartbeat, uint64(now)) }

// Asked is the time of the record by which the writer's thread asked last; 0: it
// never did.
func (c *Consumer) Asked() format.Time { return format.Time(atomic.LoadUint64(&c.header.Asked)) }

// Answer gives the writer's thread what it asked for and wakes it. Unlike the rest
// it may be called by another goroutine, but not beside Close.
func (c *Consumer) Answer(a *format.WireAnswer) {
	to := &c.header.Answer
	to.Known, to.State, to.Lost = a.Known, a.State, a.Lost
	to.Begin, to.End, to.Max = a.Begin, a.End, a.Max
	atomic.StoreUint64(&to.Asked, a.Asked) // pairs with the load in the hook's api.c
	syscall.RawSyscall(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(&to.Asked)), futexWake, 1)
}

// SetEpoch makes the writer forget which definitions it has sent.
func (c *Consumer) SetEpoch(n uint32) { atomic.StoreUint32(&c.header.Epoch, n) }

// Call is the driver call that the writer's thread is in, if any. It means
// something only after the writer's death.
func (c *Consumer) Call() (format.WireCallSlot, bool) {
	slot := c.header.Call
	return slot, slot.Since != 0
}

var (
	errCursor  = errors.New("the head is not where a writer can have put it")
	errRunsOut = errors.New("a record runs past what is published")
)

// Read copies whole records into b, up to the ring's end, and frees their place
// for the writer. It returns how many bytes of b are records; 0 when there is
// nothing, or when the next record is longer than b. Call it again for what
// lies beyond the ring's end.
//
// The order is the protocol's: the head is loaded with acquire, pairing with
// the writer's release store after the record; then the bytes are copied, then
// the copy is checked; then the tail is stored with release, pairing with the
// writer's acquire before it writes there again.
func (c *Consumer) Read(b []byte) (int, error) {
	head := atomic.LoadUint64(&c.header.Head)
	avail := head - c.tail
	if avail == 0 {
		return 0, nil
	}
	if avail > uint64(len(c.ring)) || head%format.SlotSize != 0 {
		return 0, c.corrupt(c.tail, errCursor)
	}
	at := c.tail & uint64(len(c.ring)-1)
	whole := min(avail, uint64(len(c.ring))-at)
	n := copy(b[:len(b)&^(format.SlotSize-1)], c.ring[at:at+whole])
	cut := uint64(n) < whole

	keep, skip := 0, 0
	c.defines = false
	for keep < n {
		h := Record(b[keep:]).Head()
		size := int(h.Slots) * format.SlotSize
		if h.Kind == format.WirePad {
			if size == 0 || at+uint64(keep+size) != uint64(len(c.ring)) || uint64(keep+size) > whole {
				return 0, c.corrupt(c.tail+uint64(keep), errLength)
			}
			skip = size
			break
		}
		if size == 0 || size > maxRecord {
			return 0, c.corrupt(c.tail+uint64(keep), errLength)
		}
		if keep+size > n {
			if !cut {
				return 0, c.corrupt(c.tail+uint64(keep), errRunsOut)
			}
			break
		}
		r := Record(b[keep : keep+size])
		if err := r.check(); err != nil {
			return 0, c.corrupt(c.tail+uint64(keep), err)
		}
		if r.Definition() {
			c.defines = true
		} else {
			c.newest = max(c.newest, r.Time())
		}
		keep += size
	}
	c.tail += uint64(keep + skip)
	atomic.StoreUint64(&c.header.Tail, c.tail)
	if keep == 0 && skip > 0 {
		return c.Read(b) // once more, from the ring's start
	}
	return keep, nil
}

func (c *Consumer) corrupt(at uint64, err error) error {
	return &CorruptError{PID: c.pid, TID: c.tid, At: at, Err: err}
}
