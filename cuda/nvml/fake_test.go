package nvml

import (
	"sync"
	"sync/atomic"

	"github.com/gpurec/gpurec/format"
)

// fakeDriver is a driver whose devices answer what a test hands them.
type fakeDriver struct {
	hs     []handle
	closed atomic.Bool
}

func (f *fakeDriver) devices() ([]handle, error) { return f.hs, nil }
func (f *fakeDriver) version() string            { return "13.580.159" }
func (f *fakeDriver) driver() string             { return "580.159" }
func (f *fakeDriver) close() error {
	f.closed.Store(true)
	return nil
}

// fakeHandle answers from its lists, the last entry for ever.
type fakeHandle struct {
	d Device

	mu    sync.Mutex
	mem   []memAnswer
	procs []procAnswer
	hang  chan struct{} // when not nil, memory waits for it once the list is at its end
	asked int
}

type memAnswer struct {
	m   Memory
	err error
}

type procAnswer struct {
	p   []format.ProcessReading
	err error
}

func (h *fakeHandle) describe() Device { return h.d }

func (h *fakeHandle) memory() (Memory, error) {
	h.mu.Lock()
	h.asked++
	a := h.mem[0]
	last := len(h.mem) == 1
	if !last {
		h.mem = h.mem[1:]
	}
	h.mu.Unlock()
	if last && h.hang != nil {
		<-h.hang
	}
	return a.m, a.err
}

func (h *fakeHandle) processes() ([]format.ProcessReading, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := h.procs[0]
	if len(h.procs) > 1 {
		h.procs = h.procs[1:]
	}
	return a.p, a.err
}

func fakeNVML(hs ...*fakeHandle) *NVML {
	f := &fakeDriver{}
	for _, h := range hs {
		f.hs = append(f.hs, h)
	}
	n, _ := newNVML(f)
	return n
}

const gib = 1 << 30

// used is a reading of a device of 16 GiB that keeps 1 GiB to itself: used and
// free do not add up to total.
func used(n int64) Memory {
	return Memory{Total: 16 * gib, Used: n, Free: 15*gib - n, Reserved: gib, API: 2}
}

func lost() error { return &Status{Code: 15, Text: "GPU is lost"} }
