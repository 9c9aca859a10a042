package recorder

import (
	"math"
	"sync"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/recorder/ring"
)

// A Hook takes the callbacks of a memory pool written in Go, and turns them
// into the pool's events. They are CuPy's six, with CuPy's arguments and in
// CuPy's order:
//
//	MallocPre                    the pool's malloc is entered
//	  AllocPre … AllocPost       only on a cache miss, around each attempt to take memory from the driver
//	MallocPost                   the end of malloc, success or failure
//	FreePre … FreePost           around a block's way back to the pool
//
//	device    the program's own ordinal
//	size      bytes the caller asked for, may be 0
//	memSize   bytes the pool accounts: size rounded up as the pool rounds
//	memPtr    address of the block; 0 on failure, and for a success of size 0
//	pmemID    names the block as long as it lives, whatever the pool calls it; 0 on failure
//
// So a malloc of size 0 that succeeds has memPtr 0 and a pmemID, one that failed
// has neither. Each Post must follow its Pre also when the call fails, or the
// event is lost; a Pre alone records nothing.
//
// What they become: an Alloc or AllocFailed (api go) for a malloc, an Alloc or
// AllocFailed (api go.alloc, driver layer) for each attempt at the driver, a
// Free for a free, published before the block can be handed out again. A
// pool's callbacks never say that memory goes back to the driver; Release does.
//
// A Hook may be used by any number of goroutines at once, and by one that frees
// in the middle of another's malloc. Calls in flight at the same time with the
// same callback and arguments cannot be told apart, so that one may be given
// another's duration.
type Hook struct {
	r     *Recorder
	flags format.Flags

	mu   sync.Mutex
	open map[opened][]format.Time // begins of calls in flight, of equal ones the latest last
}

// opened are the arguments by which a Post finds its Pre.
type opened struct {
	kind          callKind
	device        int
	size, memSize int64
	memPtr, id    uint64
}

type callKind uint8

const (
	callMalloc callKind = iota
	callAlloc
	callFree
)

// freeDoneOver is the duration over which a free's is worth an event of its own.
const freeDoneOver = 10 * time.Microsecond

// maxInFlight bounds what a pool costs that never calls Post.
const maxInFlight = 4096

// Hook makes a hook for a pool that takes its memory from the driver.
func (r *Recorder) Hook() *Hook { return &Hook{r: r, open: map[opened][]format.Time{}} }

// SegmentHook makes a hook for a pool whose blocks are another hooked pool's
// segments: they are not counted again in used bytes. The pool above must not
// call AllocPre and AllocPost for them, since it is not the driver they come from.
func (r *Recorder) SegmentHook() *Hook {
	h := r.Hook()
	h.flags = format.FlagNested
	return h
}

// MallocPre says that the pool's malloc was entered.
func (h *Hook) MallocPre(device int, size, memSize int64) {
	h.begin(opened{kind: callMalloc, device: device, size: size, memSize: memSize})
}

// AllocPre says that the pool is about to ask the driver.
func (h *Hook) AllocPre(device int, memSize int64) {
	h.begin(opened{kind: callAlloc, device: device, memSize: memSize})
}

// AllocPost says what the driver gave; memPtr 0 is a refusal.
func (h *Hook) AllocPost(device int, memSize int64, memPtr uint64) {
	d := h.end(opened{kind: callAlloc, device: device, memSize: memSize})
	e := event(format.Alloc, format.APIGoAlloc, device)
	e.Flags, e.Address, e.Size, e.A = format.FlagInPool, memPtr, memSize, memSize
	h.publish(&e, d, memPtr == 0)
}

// MallocPost says what malloc returns; memPtr and pmemID 0 is a failure.
func (h *Hook) MallocPost(device int, size, memSize int64, memPtr, pmemID uint64) {
	d := h.end(opened{kind: callMalloc, device: device, size: size, memSize: memSize})
	e := event(format.Alloc, format.APIGoPool, device)
	e.Flags, e.Address, e.Size, e.A, e.B = h.flags, memPtr, memSize, size, pmemID
	h.publish(&e, d, memPtr == 0 && pmemID == 0)
}

// FreePre says that a block is about to go back to the pool. Call it before the
// block can be handed out again, or its next owner's Alloc could come first.
func (h *Hook) FreePre(device int, memSize int64, memPtr, pmemID uint64) {
	e := event(format.Free, format.APIGoPool, device)
	e.Address, e.B = memPtr, pmemID
	h.r.event(&e, nil)
	h.begin(opened{callFree, device, 0, memSize, memPtr, pmemID}) // its duration is the pool's, not ours
}

// FreePost says that the block is back.
func (h *Hook) FreePost(device int, memSize int64, memPtr, pmemID uint64) {
	d := h.end(opened{callFree, device, 0, memSize, memPtr, pmemID})
	if d <= int64(freeDoneOver) {
		return
	}
	e := event(format.FreeDone, format.APIGoPool, device)
	e.Address, e.B = memPtr, pmemID
	h.r.event(&e, &format.WireCall{Duration: d, Free: format.Unknown})
}

// Release says that memory an AllocPost gave is about to go back to the driver.
// CuPy's hooks have no word for it; without it acquired bytes only grow.
func (h *Hook) Release(device int, memPtr uint64) {
	e := event(format.Free, format.APIGoFree, device)
	e.Address = memPtr
	h.r.event(&e, nil)
}

// publish sends an Alloc, or what it is when it failed. A negative size is the
// caller's mistake and becomes 0: the lane holds none.
func (h *Hook) publish(e *format.WireEvent, duration int64, failed bool) {
	e.Size = max(e.Size, 0)
	c := format.WireCall{Duration: duration, Free: format.Unknown}
	if failed {
		e.Kind, e.Address = format.AllocFailed, 0
		c.Status = outOfMemory
	}
	h.r.event(e, &c)
}

// outOfMemory is CUDA_ERROR_OUT_OF_MEMORY: the callbacks do not say why a call
// failed, and this is what a pool's failure is but for bugs.
const outOfMemory = 2

func event(kind format.Kind, api format.API, device int) format.WireEvent {
	row := api.Info()
	e := format.WireEvent{API: api, Class: row.Class, Device: ordinal(device), Size: format.Unknown, A: format.Unknown}
	e.Kind, e.Layer = kind, row.Layer
	return e
}

// ordinal is a device as it travels.
func ordinal(device int) int16 {
	if device < 0 || device > math.MaxInt16 {
		return int16(format.NoDevice)
	}
	return int16(device)
}

func (h *Hook) begin(o opened) {
	now := ring.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.open) < maxInFlight && len(h.open[o]) < maxInFlight {
		h.open[o] = append(h.open[o], now)
	}
}

// end is the duration since the latest begin of o that has none yet.
func (h *Hook) end(o opened) int64 {
	now := ring.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.open[o]
	if len(t) == 0 {
		return format.Unknown
	}
	if len(t) == 1 {
		delete(h.open, o)
	} else {
		h.open[o] = t[:len(t)-1]
	}
	return int64(now - t[len(t)-1])
}
