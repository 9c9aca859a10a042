//go:build cgo

package nvml

import (
	"fmt"
	"math"
	"sort"
	"strings"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/dl"
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpurec/gpurec/format"
)

// loaded is the library this process is bound to. It stands at package level
// because the binding does: go-nvml calls C functions by name, the linker
// resolves each name at its first call, and from then on that address is used
// whatever is loaded later. go-nvml's choice among versions of a function is
// package state too, made anew by each first Init, so all users share one.
var loaded struct {
	sync.Mutex
	path string
	lib  *library
	refs int
}

// required are the functions called without looking first. A name that is
// missing would end the process at its first call ("symbol lookup error"), so
// all are looked up before any is called. Each entry lists the versions of
// which one must be there, those go-nvml chooses from.
var required = [][]string{
	{"nvmlInit_v2", "nvmlInit"},
	{"nvmlShutdown"},
	{"nvmlErrorString"},
	{"nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"},
	{"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex"},
	{"nvmlDeviceGetUUID"},
	{"nvmlDeviceGetName"},
	{"nvmlDeviceGetMemoryInfo"},
}

// openLibrary loads and initialises the library.
func openLibrary(path string) (driver, error) {
	loaded.Lock()
	defer loaded.Unlock()
	if loaded.lib != nil && loaded.path == path {
		return initLibrary()
	}
	// go-nvml keeps the linker's words to itself, so the library is opened here
	// first. This reference also holds it in memory between two Opens.
	so := dl.New(path, dl.RTLD_LAZY|dl.RTLD_GLOBAL)
	if err := so.Open(); err != nil {
		e := &LibraryError{Path: path, Op: "load", Err: err}
		if strings.Contains(err.Error(), "cannot open shared object file: No such file") {
			e.Err, e.Hint = fmt.Errorf("%w: %v", ErrNoLibrary, err), "it comes with the NVIDIA driver; without it there is no history of device memory"
		}
		return nil, e
	}
	has := remembered(func(name string) bool { return so.Lookup(name) == nil })
	for _, names := range required {
		found := false
		for _, name := range names {
			found = found || has(name)
		}
		if !found {
			so.Close()
			return nil, &LibraryError{Path: path, Op: "look up " + names[0] + " in", Err: fmt.Errorf("not there"), Hint: "is this NVIDIA's libnvidia-ml.so.1?"}
		}
	}
	if loaded.lib != nil {
		so.Close()
		return nil, &LibraryError{Path: path, Op: "load", Err: fmt.Errorf("this process is already bound to %s", loaded.path)}
	}
	loaded.path, loaded.lib = path, &library{lib: nvml.New(nvml.WithLibraryPath(path)), has: has}
	return initLibrary()
}

// remembered looks each function up once: the linker has a lock and a long list.
func remembered(has func(string) bool) func(string) bool {
	var known sync.Map
	return func(name string) bool {
		v, ok := known.Load(name)
		if !ok {
			v, _ = known.LoadOrStore(name, has(name))
		}
		return v.(bool)
	}
}

// initLibrary counts one more user of the loaded library. One that failed to
// initialise stays loaded and may be tried again.
func initLibrary() (driver, error) {
	if loaded.refs == 0 {
		if r := loaded.lib.lib.Init(); r != nvml.SUCCESS {
			return nil, &LibraryError{Path: loaded.path, Op: "initialise", Err: status(r), Hint: hint(int(r))}
		}
	}
	loaded.refs++
	return loaded.lib, nil
}

// library is a driver over go-nvml.
type library struct {
	lib nvml.Interface
	has func(function string) bool
}

func (l *library) close() error {
	loaded.Lock()
	defer loaded.Unlock()
	if loaded.refs--; loaded.refs > 0 {
		return nil
	}
	if r := l.lib.Shutdown(); r != nvml.SUCCESS {
		return status(r)
	}
	return nil
}

func (l *library) version() string {
	if !l.has("nvmlSystemGetNVMLVersion") {
		return ""
	}
	if v, r := l.lib.SystemGetNVMLVersion(); r == nvml.SUCCESS {
		return v
	}
	return ""
}

func (l *library) driver() string {
	if !l.has("nvmlSystemGetDriverVersion") {
		return ""
	}
	if v, r := l.lib.SystemGetDriverVersion(); r == nvml.SUCCESS {
		return v
	}
	return ""
}

func (l *library) devices() ([]handle, error) {
	count, r := l.lib.DeviceGetCount()
	if r != nvml.SUCCESS {
		return nil, status(r)
	}
	var hs []handle
	for i := 0; i < count; i++ {
		dev, r := l.lib.DeviceGetHandleByIndex(i)
		if r != nvml.SUCCESS {
			// A lost GPU keeps its index and answers nothing; the others do.
			continue
		}
		gpu := l.device(dev, i)
		if mig := l.instances(dev, gpu.d); len(mig) > 0 {
			hs = append(hs, mig...)
			continue
		}
		hs = append(hs, gpu)
	}
	return hs, nil
}

func (l *library) device(dev nvml.Device, index int) *device {
	d := Device{NVML: index, GI: -1, CI: -1}
	d.UUID, _ = dev.GetUUID()
	d.Name, _ = dev.GetName()
	d.GPU = d.UUID
	return &device{lib: l, dev: dev, d: d}
}

// instances lists the MIG instances of a split GPU, none of one that is whole.
func (l *library) instances(gpu nvml.Device, of Device) []handle {
	for _, f := range []string{"nvmlDeviceGetMigMode", "nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigDeviceHandleByIndex"} {
		if !l.has(f) {
			return nil
		}
	}
	if mode, _, r := gpu.GetMigMode(); r != nvml.SUCCESS || mode != nvml.DEVICE_MIG_ENABLE {
		return nil
	}
	max, r := gpu.GetMaxMigDeviceCount()
	if r != nvml.SUCCESS {
		return nil
	}
	var hs []handle
	for i := 0; i < max; i++ {
		dev, r := gpu.GetMigDeviceHandleByIndex(i)
		if r != nvml.SUCCESS { // an index without an instance: they are not dense
			continue
		}
		m := l.device(dev, of.NVML)
		m.d.MIG, m.d.GPU = true, of.UUID
		if l.has("nvmlDeviceGetGpuInstanceId") {
			if id, r := dev.GetGpuInstanceId(); r == nvml.SUCCESS {
				m.d.GI = id
			}
		}
		if l.has("nvmlDeviceGetComputeInstanceId") {
			if id, r := dev.GetComputeInstanceId(); r == nvml.SUCCESS {
				m.d.CI = id
			}
		}
		hs = append(hs, m)
	}
	return hs
}

// device is a handle over go-nvml. One goroutine at a time may read its memory:
// api is what the first reading found to answer.
type device struct {
	lib *library
	dev nvml.Device
	d   Device

	mu  sync.Mutex
	api int8
}

func (h *device) describe() Device { return h.d }

// memory asks version 2, which tells reserved memory apart, and version 1 where
// the library or the driver does not know it. What answered once is asked
// again: a trace whose numbers change their meaning half way would be wrong.
func (h *device) memory() (Memory, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.api == 2 || h.api == 0 && h.lib.has("nvmlDeviceGetMemoryInfo_v2") {
		m, r := h.dev.GetMemoryInfo_v2()
		if r == nvml.SUCCESS {
			h.api = 2
			return Memory{Total: bytes(m.Total), Used: bytes(m.Used), Free: bytes(m.Free), Reserved: bytes(m.Reserved), API: 2}, nil
		}
		if h.api == 2 || Final(status(r)) && r != nvml.ERROR_NOT_SUPPORTED && r != nvml.ERROR_FUNCTION_NOT_FOUND {
			return Memory{}, status(r)
		}
	}
	m, r := h.dev.GetMemoryInfo()
	if r != nvml.SUCCESS {
		return Memory{}, status(r)
	}
	h.api = 1
	return Memory{Total: bytes(m.Total), Used: bytes(m.Used), Free: bytes(m.Free), Reserved: format.Unknown, API: 1}, nil
}

// processes joins NVML's two lists: a process that computes and draws stands in
// both with the same bytes.
func (h *device) processes() ([]format.ProcessReading, error) {
	if !h.hasList("nvmlDeviceGetComputeRunningProcesses") {
		return nil, &Status{Code: int(nvml.ERROR_FUNCTION_NOT_FOUND), Text: "this library lists no processes"}
	}
	list, r := h.dev.GetComputeRunningProcesses()
	if r != nvml.SUCCESS {
		return nil, status(r)
	}
	if h.hasList("nvmlDeviceGetGraphicsRunningProcesses") {
		if more, r := h.dev.GetGraphicsRunningProcesses(); r == nvml.SUCCESS {
			list = append(list, more...)
		}
	}
	used := make(map[int32]int64, len(list))
	for _, p := range list {
		n := int64(format.Unknown) // the driver may not say, under Windows' memory model for one
		if p.UsedGpuMemory != math.MaxUint64 {
			n = bytes(p.UsedGpuMemory)
		}
		if old, ok := used[int32(p.Pid)]; !ok || n > old {
			used[int32(p.Pid)] = n
		}
	}
	out := make([]format.ProcessReading, 0, len(used))
	for pid, n := range used {
		out = append(out, format.ProcessReading{PID: pid, Used: n})
	}
	sort.Slice(out, func(i, j int) bool { return out[i].PID < out[j].PID })
	return out, nil
}

func (h *device) hasList(name string) bool {
	return h.lib.has(name+"_v3") || h.lib.has(name+"_v2") || h.lib.has(name)
}

// bytes keeps a nonsensical answer from becoming a negative size.
func bytes(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

func status(r nvml.Return) *Status { return &Status{Code: int(r), Text: r.Error()} }
