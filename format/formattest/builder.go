package formattest

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpurec/gpurec/format"
)

// Step is the time between two events of a Builder, in nanoseconds.
const Step = 1000

// A Builder makes a trace event by event. Times are 1000, 2000, … ns, threads
// number their events from 1, the process is the last one defined, the device
// the first, the thread its pid. Every event may be changed until Trace:
//
//	b := formattest.New(t)
//	b.Process("python train.py")
//	gpu := b.Device("GPU-0", 80<<30)
//	b.Stack("main.py:3:<module>", "model.py:10:forward")
//	b.Begin("forward")
//	b.Alloc(format.APITorch, 0x100, 512).Device = gpu
//	b.Free(format.APITorch, 0x100)
//	b.End()
//	tr := b.Trace()
type Builder struct {
	Meta format.Meta

	t       testing.TB
	defs    *format.Defs
	now     format.Time
	process format.ProcessID
	thread  uint32
	device  format.Device
	stack   format.StackID
	open    map[lane][]format.ScopeID
	scopes  format.ScopeID
	seq     map[lane]uint64
	frames  map[string]format.FrameID
	stacks  map[format.Stack]format.StackID
	names   map[string]format.NameID
	parts   []part
}

type lane struct {
	process format.ProcessID
	thread  uint32
}

type part struct {
	events  []*format.Event
	samples []*format.Sample
}

// New returns a Builder of a trace of one part that was closed in good order.
func New(t testing.TB) *Builder {
	return &Builder{
		Meta: format.Meta{TraceID: "test", Host: "host", Start: time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC), Monotonic: Step, Ending: format.EndClosed},
		t:    t, defs: format.NewDefs(), device: format.NoDevice,
		open: map[lane][]format.ScopeID{}, seq: map[lane]uint64{}, frames: map[string]format.FrameID{}, stacks: map[format.Stack]format.StackID{}, names: map[string]format.NameID{},
		parts: make([]part, 1),
	}
}

// Process defines the next process, and makes it and its first thread current.
func (b *Builder) Process(command string) format.ProcessID {
	b.process = format.ProcessID(len(b.defs.Processes()) + 1)
	pid := 4000 + int32(b.process)
	b.thread = uint32(pid)
	b.defs.PutProcess(format.Process{ID: b.process, PID: pid, Parent: 1, StartTime: uint64(b.process), Image: uint64(b.process), Begin: b.now,
		End: format.Unknown, Status: format.Unknown, Rank: format.Unknown, Command: command})
	return b.process
}

// Thread makes a thread of the current process current.
func (b *Builder) Thread(tid uint32) { b.thread = tid }

// In makes a process and one of its threads current.
func (b *Builder) In(p format.ProcessID, tid uint32) { b.process, b.thread = p, tid }

// Device defines the next device. The first one is every later event's.
func (b *Builder) Device(uuid string, total int64) format.Device {
	id := format.Device(len(b.defs.Devices()))
	b.defs.PutDevice(format.DeviceRow{ID: id, UUID: uuid, Name: "test", Total: total, NVML: int32(id)})
	if id == 0 {
		b.device = 0
	}
	return id
}

// Stack is the stack of these Python frames, outermost first, each as
// file:line:function; it becomes every later event's. Without frames it is 0.
func (b *Builder) Stack(frames ...string) format.StackID {
	b.stack = 0
	for _, s := range frames {
		f, ok := b.frames[s]
		if !ok {
			f = format.FrameID(len(b.frames) + 1)
			b.frames[s] = f
			b.defs.PutFrame(b.frame(f, s))
		}
		node := format.Stack{Parent: b.stack, Frame: f}
		id, ok := b.stacks[node]
		if !ok {
			id = format.StackBeforeRecording + 1 + format.StackID(len(b.stacks))
			b.stacks[node] = id
			b.defs.PutStack(format.Stack{ID: id, Parent: node.Parent, Frame: f})
		}
		b.stack = id
	}
	return b.stack
}

func (b *Builder) frame(id format.FrameID, s string) format.Frame {
	w := strings.SplitN(s, ":", 3)
	if len(w) == 3 {
		if line, err := strconv.ParseInt(w[1], 10, 32); err == nil {
			return format.Frame{ID: id, Kind: format.FramePython, File: w[0], Line: int32(line), Function: w[2]}
		}
	}
	b.t.Helper()
	b.t.Fatalf("frame %q is not file:line:function", s)
	return format.Frame{}
}

// Name is the id of a text.
func (b *Builder) Name(text string) format.NameID {
	id, ok := b.names[text]
	if !ok {
		id = format.NameID(len(b.names) + 1)
		b.names[text] = id
		b.defs.PutName(id, text)
	}
	return id
}

// Defs are the definitions so far, for what the Builder has no word for.
func (b *Builder) Defs() *format.Defs { return b.defs }

// Event adds an event of any kind.
func (b *Builder) Event(k format.Kind, api format.API) *format.Event {
	b.now += Step
	l := lane{b.process, b.thread}
	b.seq[l]++
	info := api.Info()
	e := &format.Event{Time: b.now, Duration: format.Unknown, Seq: b.seq[l], Size: format.Unknown, Requested: format.Unknown, Allocated: format.Unknown,
		Reserved: format.Unknown, Process: b.process, Thread: b.thread, Stack: b.stack, API: api, Device: b.device, Kind: k, Layer: info.Layer, Class: info.Class}
	if open := b.open[l]; len(open) > 0 {
		e.Scope = open[len(open)-1]
	}
	p := &b.parts[len(b.parts)-1]
	p.events = append(p.events, e)
	return e
}

// Alloc adds an allocation; where the api's space says so, value is the object.
func (b *Builder) Alloc(api format.API, value uint64, size int64) *format.Event {
	e := b.Event(format.Alloc, api)
	e.Size, e.Requested = size, size
	b.place(e, value)
	return e
}

// Free adds a free.
func (b *Builder) Free(api format.API, value uint64) *format.Event {
	e := b.Event(format.Free, api)
	b.place(e, value)
	return e
}

func (b *Builder) place(e *format.Event, value uint64) {
	switch e.API.Space() {
	case format.SpaceHandle, format.SpaceObject, format.SpaceCuPy, format.SpaceGo:
		e.Object = value
	default:
		e.Address = value
	}
}

// AllocFailed adds an allocation that failed.
func (b *Builder) AllocFailed(api format.API, requested int64) *format.Event {
	e := b.Event(format.AllocFailed, api)
	e.Size, e.Requested, e.Status = 0, requested, 2 // CUDA_ERROR_OUT_OF_MEMORY
	return e
}

// Begin opens a scope of the thread, inside the one that it has open.
func (b *Builder) Begin(name string) format.ScopeID {
	e := b.Event(format.ScopeBegin, format.APIScope)
	b.scopes++
	e.Parent, e.Scope, e.Name = e.Scope, b.scopes, b.Name(name)
	l := lane{b.process, b.thread}
	b.open[l] = append(b.open[l], e.Scope)
	return e.Scope
}

// End closes the scope that the thread opened last.
func (b *Builder) End() *format.Event {
	b.t.Helper()
	l := lane{b.process, b.thread}
	open := b.open[l]
	if len(open) == 0 {
		b.t.Fatal("the thread has no scope open")
	}
	e := b.Event(format.ScopeEnd, format.APIScope)
	b.open[l] = open[:len(open)-1]
	return e
}

// Mark adds a mark.
func (b *Builder) Mark(text string) *format.Event {
	e := b.Event(format.Mark, format.APINVTX)
	e.Name = b.Name(text)
	return e
}

// Sample adds an NVML reading of a device, at the next moment.
func (b *Builder) Sample(d format.Device, used int64) *format.Sample {
	b.now += Step
	r, _ := b.defs.Device(d)
	s := &format.Sample{Time: b.now, Device: d, Total: r.Total, Used: used, Free: r.Total - used, PeakUsed: used, ProcessUsed: format.Unknown, API: 2}
	p := &b.parts[len(b.parts)-1]
	p.samples = append(p.samples, s)
	return s
}

// Part begins the next part with a checkpoint's rows, its end included.
func (b *Builder) Part(checkpoint []format.Event) {
	var p part
	for _, e := range checkpoint {
		p.events = append(p.events, &e)
	}
	b.parts = append(b.parts, p)
}

// Events are all events so far, checkpoints included, in order.
func (b *Builder) Events() (out []format.Event) {
	for _, p := range b.parts {
		for _, e := range p.events {
			out = append(out, *e)
		}
	}
	return out
}

// Trace writes the trace to a directory of the test and opens it.
func (b *Builder) Trace() *format.Trace {
	b.t.Helper()
	tr, err := b.write(filepath.Join(b.t.TempDir(), "test.gpurec"))
	if err != nil {
		b.t.Fatalf("write a trace: %v", err)
	}
	return tr
}

func (b *Builder) write(dir string) (*format.Trace, error) {
	w, err := format.Create(dir, b.Meta, format.WriterOptions{})
	if err != nil {
		return nil, err
	}
	d := w.Defs()
	for _, r := range b.defs.Devices() {
		d.PutDevice(r)
	}
	for _, r := range b.defs.Processes() {
		d.PutProcess(r)
	}
	b.defs.Each(d.PutFrame, d.PutStack, d.PutName)
	for i, p := range b.parts {
		if i > 0 {
			if err := w.Rotate(nil); err != nil {
				return nil, err
			}
		}
		for _, e := range p.events {
			if err := w.Event(e); err != nil {
				return nil, err
			}
		}
		for _, s := range p.samples {
			if err := w.Sample(s); err != nil {
				return nil, err
			}
		}
	}
	if err := w.Close(func(m *format.Meta) { m.Ending = b.Meta.Ending }); err != nil {
		return nil, err
	}
	return format.Open(dir)
}

// Twin is the trace's text twin.
func Twin(t testing.TB, tr *format.Trace) string {
	t.Helper()
	var out bytes.Buffer
	if err := format.WriteText(&out, tr); err != nil {
		t.Fatalf("write the text twin of %s: %v", tr.Path(), err)
	}
	return out.String()
}

// String is the Builder in a test's log.
func (b *Builder) String() string {
	return fmt.Sprintf("%d events in %d parts", len(b.Events()), len(b.parts))
}
