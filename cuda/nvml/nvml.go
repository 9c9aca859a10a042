package nvml

import (
	"fmt"
	"sync"

	"github.com/gpurec/gpurec/format"
)

// DefaultLibrary is the name by which the dynamic linker finds NVML. A full
// path names another build of it, such as the simulated one.
const DefaultLibrary = "libnvidia-ml.so.1"

// Memory is one reading of one device, in bytes.
type Memory struct {
	Total    int64
	Used     int64 // with API 1 it contains what the driver reserves
	Free     int64
	Reserved int64 // format.Unknown with API 1
	API      int8  // version of NVML's memory call that answered: 1 or 2
}

// A Device is a GPU, or an instance of one that is split by MIG. A split GPU
// stands here as its instances alone: CUDA can only use those, and the whole
// beside its pieces would count the same bytes twice.
type Device struct {
	Index int    // place in Devices
	NVML  int    // NVML's index of the GPU; instances of one GPU share it
	UUID  string // GPU-… or MIG-…
	Name  string
	MIG   bool
	GPU   string // the GPU's UUID; for a GPU its own
	GI    int    // an instance's GPU instance and compute instance, -1 for a GPU
	CI    int
	Total int64 // bytes; 0 where the device did not answer
}

// handle is a device of the library underneath.
type handle interface {
	describe() Device // all but Index and Total
	memory() (Memory, error)
	processes() ([]format.ProcessReading, error)
}

// driver is the library underneath: go-nvml, or a test's.
type driver interface {
	devices() ([]handle, error)
	version() string // of the library
	driver() string  // of the kernel's driver
	close() error
}

// An NVML is the opened library with the devices it had then. Its methods may
// be called from any goroutine; after Close they return errors.
type NVML struct {
	lib     driver
	handles []handle
	devices []Device

	mu     sync.Mutex
	calls  int // running in the library
	closed bool
}

// Open loads and initialises the library and lists the devices. An empty path
// is DefaultLibrary. A process can have one library at a time: the linker binds
// the functions to the first one loaded, so opening another path is refused.
//
// The error is a *LibraryError.
func Open(path string) (*NVML, error) {
	if path == "" {
		path = DefaultLibrary
	}
	lib, err := openLibrary(path)
	if err != nil {
		return nil, err
	}
	n, err := newNVML(lib)
	if err != nil {
		lib.close()
		return nil, &LibraryError{Path: path, Op: "list the devices of", Err: err}
	}
	return n, nil
}

func newNVML(lib driver) (*NVML, error) {
	hs, err := lib.devices()
	if err != nil {
		return nil, err
	}
	n := &NVML{lib: lib, handles: hs}
	for i, h := range hs {
		d := h.describe()
		d.Index = i
		if m, err := h.memory(); err == nil {
			d.Total = m.Total
		}
		n.devices = append(n.devices, d)
	}
	return n, nil
}

// Close gives the library back; a call still running in it, one that hangs
// included, does so when it returns, and Close does not wait. It is safe to
// call twice.
func (n *NVML) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil
	}
	n.closed = true
	if n.calls > 0 {
		return nil
	}
	return n.lib.close()
}

// Version is the library's version, and Driver the kernel driver's; empty where
// the library did not say.
func (n *NVML) Version() string { return n.lib.version() }
func (n *NVML) Driver() string  { return n.lib.driver() }

// Devices lists all devices in NVML's order, whatever CUDA_VISIBLE_DEVICES says.
// The slice is the caller's.
func (n *NVML) Devices() []Device { return append([]Device(nil), n.devices...) }

// Rows is the same list as a trace's device rows, their ids still to be given.
func (n *NVML) Rows() []format.DeviceRow {
	rows := make([]format.DeviceRow, len(n.devices))
	for i, d := range n.devices {
		rows[i] = format.DeviceRow{ID: format.Device(i), UUID: d.UUID, Name: d.Name, Total: d.Total, NVML: int32(d.NVML)}
	}
	return rows
}

// Memory reads one device. The error is a *DeviceError.
func (n *NVML) Memory(index int) (Memory, error) {
	var m Memory
	err := n.ask(index, "memory", func(h handle) (err error) {
		m, err = h.memory()
		return err
	})
	return m, err
}

// MemoryAll reads every device; errs[i] is nil where m[i] was read.
func (n *NVML) MemoryAll() (m []Memory, errs []error) {
	m, errs = make([]Memory, len(n.devices)), make([]error, len(n.devices))
	for i := range n.devices {
		m[i], errs[i] = n.Memory(i)
	}
	return m, errs
}

// Freest is the device with most free bytes, of equal ones the lowest index.
// Devices that do not answer are left out; ok is false where none is left.
func (n *NVML) Freest() (index int, m Memory, ok bool) {
	all, errs := n.MemoryAll()
	return freest(all, errs)
}

func freest(all []Memory, errs []error) (index int, m Memory, ok bool) {
	index = -1
	for i := range all {
		if errs[i] == nil && (index < 0 || all[i].Free > m.Free) {
			index, m = i, all[i]
		}
	}
	return index, m, index >= 0
}

// Processes reads what each process uses of one device, in pid order. Inside a
// container the pids are the host's, or there are none. The error is a *DeviceError.
func (n *NVML) Processes(index int) ([]format.ProcessReading, error) {
	var p []format.ProcessReading
	err := n.ask(index, "processes", func(h handle) (err error) {
		p, err = h.processes()
		return err
	})
	return p, err
}

func (n *NVML) ask(index int, op string, call func(handle) error) error {
	if index < 0 || index >= len(n.handles) {
		return &DeviceError{Index: index, Op: op, Err: fmt.Errorf("no such device, there are %d", len(n.handles))}
	}
	d := &n.devices[index]
	err := n.enter()
	if err == nil {
		err = call(n.handles[index])
		n.leave()
	}
	if err != nil {
		return &DeviceError{Index: index, UUID: d.UUID, Op: op, Err: err}
	}
	return nil
}

func (n *NVML) enter() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return &Status{Code: 1, Text: "closed"}
	}
	n.calls++
	return nil
}

func (n *NVML) leave() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls--
	if n.closed && n.calls == 0 {
		n.lib.close()
	}
}

// Index finds a device by its UUID.
func (n *NVML) Index(uuid string) (int, bool) {
	for i, d := range n.devices {
		if d.UUID == uuid {
			return i, true
		}
	}
	return -1, false
}

// UUID is the inverse of Index.
func (n *NVML) UUID(index int) (string, bool) {
	if index < 0 || index >= len(n.devices) {
		return "", false
	}
	return n.devices[index].UUID, true
}
