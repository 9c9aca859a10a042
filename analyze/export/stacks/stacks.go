package stacks

import (
	"fmt"
	"path/filepath"
	"sort"
	"strings"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/tree"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
)

// A Value is one of the sums that each stack has.
type Value uint8

const (
	AllocObjects  Value = iota // allocations of used bytes that succeeded
	AllocSpace                 // their bytes
	InuseObjects               // live at the end
	InuseSpace                 //
	PeakObjects                // live when the device's used bytes were highest
	PeakSpace                  //
	AcquiredAlloc              // bytes of the driver layer: taken
	AcquiredInuse              // live at the end
	AcquiredPeak               // live when the device's used bytes were highest
	valueCount
)

// The first four names are those of Go's own heap profiles, which tools know.
func (v Value) String() string {
	return [...]string{"alloc_objects", "alloc_space", "inuse_objects", "inuse_space", "peak_objects", "peak_space",
		"acquired_alloc_space", "acquired_inuse_space", "acquired_peak_space"}[v]
}

// Unit is count or bytes.
func (v Value) Unit() string {
	if strings.HasSuffix(v.String(), "objects") {
		return "count"
	}
	return "bytes"
}

// Values are their names.
func Values() (names []string) {
	for v := range valueCount {
		names = append(names, v.String())
	}
	return names
}

// ParseValue reads the name of a value.
func ParseValue(s string) (Value, error) {
	for v := range valueCount {
		if v.String() == s {
			return v, nil
		}
	}
	return 0, fmt.Errorf("%q is none of %s", s, strings.Join(Values(), ", "))
}

// An Answer is the sums in the making.
type Answer struct {
	frames frames
	traces []*source
	rows   []row

	p     *analyze.Pass
	peaks *tree.Watch[format.Device]
	sums  map[key]*[valueCount]int64
}

// A source is a trace.
type source struct {
	name    string
	meta    format.Meta
	end     format.Time
	devices map[format.Device]format.DeviceRow
}

type key struct {
	device  format.Device
	process format.ProcessID
	stack   format.StackID
}

// A row is one stack of one process on one device.
type row struct {
	trace   *source
	device  format.Device
	process format.Process
	frames  []int // outermost first
	values  [valueCount]int64
}

// New returns an answer.
func New() *Answer { return &Answer{} }

func (a *Answer) Needs() analyze.Needs {
	return analyze.Needs{Pooled: true, Scopes: analyze.ScopesFiltered}
}

func (a *Answer) Begin(p *analyze.Pass) error {
	a.p, a.sums = p, map[key]*[valueCount]int64{}
	p.CountOnly(analyze.ByAll)
	a.peaks = tree.NewWatch(p, func(al *live.Allocation) format.Device { return al.Device },
		func(al *live.Allocation) tree.Key { return tree.Key{Process: al.Process, Stack: al.Stack} })
	p.State.OnBegin = func(al *live.Allocation, e *format.Event) {
		a.peaks.Change(al, 1)
		if p.In && e.Kind == format.Alloc {
			a.add(al, AllocObjects, AllocSpace, AcquiredAlloc)
		}
	}
	p.State.OnEnd = func(al *live.Allocation, e *format.Event) {
		a.peaks.Change(al, -1)
		if p.In && e.Kind == format.ProcessEnd {
			a.add(al, InuseObjects, InuseSpace, AcquiredInuse)
		}
	}
	return nil
}

func (a *Answer) Enter(*analyze.Pass) { a.peaks.Enter() }

func (a *Answer) Event(*analyze.Pass, *format.Event) error {
	a.peaks.Event()
	return nil
}

func (a *Answer) Sample(*analyze.Pass, *format.Sample) error { return nil }

func (a *Answer) add(al *live.Allocation, objects, space, acquired Value) {
	n, ok := tree.AmountOf(a.p, al)
	if !ok {
		return
	}
	v := a.at(key{al.Device, al.Process, al.Stack})
	v[objects] += n.Blocks
	v[space] += n.Used
	v[acquired] += n.Acquired
}

func (a *Answer) at(k key) *[valueCount]int64 {
	v := a.sums[k]
	if v == nil {
		v = &[valueCount]int64{}
		a.sums[k] = v
	}
	return v
}

func (a *Answer) End(p *analyze.Pass) error {
	p.State.Each(func(al *live.Allocation) bool {
		a.add(al, InuseObjects, InuseSpace, AcquiredInuse)
		return true
	})
	a.peaks.Each(func(x, y format.Device) bool { return x < y }, func(id format.Device, h *tree.High) {
		h.High(func(k tree.Key, n tree.Amount) {
			v := a.at(key{id, k.Process, k.Stack})
			v[PeakObjects] += n.Blocks
			v[PeakSpace] += n.Used
			v[AcquiredPeak] += n.Acquired
		})
	})
	s := &source{name: name(p.Trace.Path()), meta: p.Trace.Meta(), end: p.End(p.State.Now()), devices: map[format.Device]format.DeviceRow{}}
	a.traces = append(a.traces, s)
	for _, d := range p.Defs.Devices() {
		s.devices[d.ID] = d
	}
	a.resolve(s, p.Defs)
	return nil
}

// Stacks is how many rows of a device, process and stack there are.
func (a *Answer) Stacks() int64 { return int64(len(a.rows)) }

// resolve makes rows of the sums, in an order that is the same every time.
func (a *Answer) resolve(s *source, defs *format.Defs) {
	keys := make([]key, 0, len(a.sums))
	for k, v := range a.sums {
		if *v != ([valueCount]int64{}) {
			keys = append(keys, k)
		}
	}
	sort.Slice(keys, func(i, j int) bool {
		x, y := keys[i], keys[j]
		if x.device != y.device {
			return x.device < y.device
		}
		if x.process != y.process {
			return x.process < y.process
		}
		return x.stack < y.stack
	})
	for _, k := range keys {
		r := row{trace: s, device: k.device, frames: a.frames.of(k.stack, defs), values: *a.sums[k]}
		var known bool
		if r.process, known = defs.Process(k.process); !known {
			r.process.Rank = format.Unknown
		}
		a.rows = append(a.rows, r)
	}
	a.sums = nil
}

// name is what people call the trace at path, on one line as frames are.
func name(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs // "." has no name
	}
	return analyze.Printable(filepath.Base(path))
}

// several reports whether a stack alone does not say where its bytes were: of
// several devices or traces the peaks are several moments.
func (a *Answer) several() (traces, devices bool) {
	for i := range a.rows {
		devices = devices || a.rows[i].trace == a.rows[0].trace && a.rows[i].device != a.rows[0].device
	}
	for _, t := range a.traces {
		devices = devices || len(t.devices) > 1
	}
	return len(a.traces) > 1, devices
}

func deviceName(d format.Device) string {
	if d == format.NoDevice {
		return "device unknown"
	}
	return fmt.Sprintf("device %d", d)
}

// where is what stands outside a stack's outermost frame, nothing where the
// stack alone says it.
func (r *row) where(traces, devices bool) (names []string) {
	if traces {
		names = append(names, r.trace.name)
	}
	if devices {
		names = append(names, deviceName(r.device))
	}
	return names
}
