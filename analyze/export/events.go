package export

import (
	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
)

// An eventRow is one event with all that it refers to looked up.
type eventRow struct {
	*format.Event
	t       *trace
	process format.Process
	device  format.DeviceRow
	frame   format.Frame // innermost
	stack   string
	path    string // of its scope

	used, acquired             int64 // of the process, after the event
	deviceUsed, deviceAcquired int64

	news bool // a checkpoint row of what nothing before it told of

	// What a row that gives memory back ended, since it carries no size itself.
	ended          int
	endedSize      int64
	endedRequested int64
	endedAt        format.Time
	endedDevice    format.Device
}

// eventColumns is the events table: a row for each event.
var eventColumns = []column[*eventRow]{
	{name: "trace", typ: text, doc: "the trace's name", str: func(r *eventRow) string { return r.t.name }},
	{name: "row", typ: i64, doc: "number of the event in its trace, checkpoint rows counted: the order of effect", num: func(r *eventRow) int64 { return r.t.pass.Event }},
	{name: "timestamp", typ: instant, doc: "moment of effect, wall clock", num: func(r *eventRow) int64 { return r.t.wall(r.Time) }},
	{name: "time_ns", typ: i64, doc: "moment of effect, since the start of the recording", num: func(r *eventRow) int64 { return r.t.since(r.Time) }},
	{name: "duration_ns", typ: i64, doc: "of the call; -1 where the source reports once", num: func(r *eventRow) int64 { return r.Duration }},
	{name: "kind", typ: text, doc: "what happened", str: func(r *eventRow) string { return r.Kind.String() }},
	{name: "layer", typ: text, doc: "driver, pool or host", str: func(r *eventRow) string { return r.Layer.String() }},
	{name: "class", typ: text, doc: "kind of memory", str: func(r *eventRow) string { return r.Class.String() }},
	{name: "api", typ: text, doc: "function or source that caused it", str: func(r *eventRow) string { return r.t.defs.API(r.API) }},
	{name: "process", typ: u32, doc: "number in the trace: pids are used again", num: func(r *eventRow) int64 { return int64(r.Process) }},
	{name: "pid", typ: i32, doc: "process id", num: func(r *eventRow) int64 { return int64(r.process.PID) }},
	{name: "thread", typ: u32, doc: "thread id of the operating system", num: func(r *eventRow) int64 { return int64(r.Thread) }},
	{name: "device", typ: i16, doc: "index in the trace, -1 for none; of what is given back, where it was taken", num: (*eventRow).deviceIndex},
	{name: "address", typ: u64, doc: "device or host address", num: func(r *eventRow) int64 { return int64(r.Address) }},
	{name: "size", typ: i64, doc: "bytes as the layer rounds them; of what is given back, the bytes that ended", num: (*eventRow).size},
	{name: "requested", typ: i64, doc: "bytes asked for, -1 unknown", num: (*eventRow).requested},
	{name: "lifetime_ns", typ: i64, doc: "of the allocation that the event ended, -1 for none or several", num: (*eventRow).lifetime},
	{name: "process_used", typ: i64, doc: "live bytes of the process at the pool layer after the event, at the driver layer for a process without a pool", num: func(r *eventRow) int64 { return r.used }},
	{name: "process_acquired", typ: i64, doc: "live bytes of the process at the driver layer after the event", num: func(r *eventRow) int64 { return r.acquired }},
	{name: "device_used", typ: i64, doc: "used of all traced processes on the device after the event, -1 without a device", num: func(r *eventRow) int64 { return r.deviceUsed }},
	{name: "device_acquired", typ: i64, doc: "acquired of all traced processes on the device after the event, -1 without a device", num: func(r *eventRow) int64 { return r.deviceAcquired }},
	{name: "file", typ: text, doc: "of the innermost frame; the module of a native one without", str: func(r *eventRow) string { return r.frame.File }},
	{name: "line", typ: i32, doc: "of the innermost frame, 0 unknown", num: func(r *eventRow) int64 { return int64(r.frame.Line) }},
	{name: "function", typ: text, doc: "of the innermost frame; +address of a native one without", str: func(r *eventRow) string { return r.frame.Function }},
	{name: "stack", typ: text, doc: "frames as file:line:function, outermost first, joined by ;", str: func(r *eventRow) string { return r.stack }},
	{name: "scope", typ: u64, doc: "innermost open scope of the thread, 0 for none", num: func(r *eventRow) int64 { return ownScope(r.Event) }},
	{name: "scope_path", typ: text, doc: "names of the scope and those around it, outermost first, joined by /", str: func(r *eventRow) string { return ownPath(r.Event, r.path) }},
	{name: "inferred_scope_path", typ: text, doc: "of a thread that opened no scope: the path of the one that another thread was in, empty where that is not known", str: func(r *eventRow) string { return inferredPath(r.Event, r.path) }},
	{name: "name", typ: text, doc: "of a scope, a mark, a thread, a function looked up", str: func(r *eventRow) string { return r.t.defs.Name(r.Name) }},
	{name: "note", typ: text, doc: "a scope's domain, a report's sub-context", str: func(r *eventRow) string { return r.t.defs.Name(r.Note) }},
	{name: "status", typ: i32, doc: "CUresult, or an exit status; 0 is success", num: func(r *eventRow) int64 { return int64(r.Status) }},
	{name: "flags", typ: text, doc: "joined by |", str: (*eventRow).flags},
	{name: "object", typ: u64, doc: "CuPy's pmem_id, a VMM handle, a CUarray", num: func(r *eventRow) int64 { return int64(r.Object) }},
	{name: "allocated", typ: i64, doc: "PyTorch's own sum of live bytes, -1 elsewhere", num: func(r *eventRow) int64 { return r.Allocated }},
	{name: "reserved", typ: i64, doc: "PyTorch's own sum of reserved bytes; device bytes free at a failed alloc; -1 unknown", num: func(r *eventRow) int64 { return r.Reserved }},
	{name: "cuctx", typ: u64, doc: "CUcontext", num: func(r *eventRow) int64 { return int64(r.CUctx) }},
	{name: "stream", typ: u64, doc: "CUstream", num: func(r *eventRow) int64 { return int64(r.Stream) }},
	{name: "pool", typ: u64, doc: "stream-ordered pool", num: func(r *eventRow) int64 { return int64(r.Pool) }},
	{name: "seq", typ: u64, doc: "number in its lane", num: func(r *eventRow) int64 { return int64(r.Seq) }},
	{name: "device_uuid", typ: text, doc: "the same in every trace", str: func(r *eventRow) string { return r.device.UUID }},
	{name: "device_name", typ: text, doc: "model", str: func(r *eventRow) string { return r.device.Name }},
	{name: "command", typ: text, doc: "the process's command line", str: func(r *eventRow) string { return r.process.Command }},
	{name: "rank", typ: i32, doc: "of a distributed job, -1 for none", num: func(r *eventRow) int64 { return int64(r.process.Rank) }},
}

func (r *eventRow) deviceIndex() int64 {
	if r.Device == format.NoDevice && r.ended > 0 {
		return int64(r.endedDevice)
	}
	return int64(r.Device)
}

func (r *eventRow) size() int64 {
	if r.Size < 0 && r.ended > 0 {
		return r.endedSize
	}
	return r.Size
}

func (r *eventRow) requested() int64 {
	if r.Requested < 0 && r.ended > 0 {
		return r.endedRequested
	}
	return r.Requested
}

func (r *eventRow) lifetime() int64 {
	if r.ended != 1 {
		return format.Unknown
	}
	return int64(r.Time - r.endedAt)
}

func (r *eventRow) flags() string {
	flags := r.Flags &^ analyze.Inferred
	if flags == 0 {
		return ""
	}
	return flags.String()
}

// ownScope is the scope that an event's thread had open itself, ownPath the path
// of it, and inferredPath that of one that was inferred.
func ownScope(e *format.Event) int64 {
	if e.Flags&analyze.Inferred != 0 {
		return 0
	}
	return int64(e.Scope)
}

func ownPath(e *format.Event, path string) string {
	if e.Flags&analyze.Inferred != 0 {
		return ""
	}
	return path
}

func inferredPath(e *format.Event, path string) string {
	if e.Flags&analyze.Inferred == 0 {
		return ""
	}
	return path
}

// allocationEnded is the fold's word, during Apply, that e ended a. What an
// Alloc ends was freed unseen before, and is no part of it.
func (x *Exporter) allocationEnded(a *live.Allocation, e *format.Event) {
	if e.Kind == format.Alloc || e.Kind == format.Import {
		return
	}
	r := &x.row
	if r.ended == 0 {
		r.endedAt, r.endedDevice = a.Time, a.Device
	} else if r.endedDevice != a.Device {
		r.endedDevice = format.NoDevice
	}
	r.ended++
	r.endedSize += a.Bytes()
	if a.Requested < 0 || r.endedRequested < 0 {
		r.endedRequested = format.Unknown
	} else {
		r.endedRequested += a.Requested
	}
}

// allocationBegan is the fold's word that e made a live.
func (x *Exporter) allocationBegan(_ *live.Allocation, e *format.Event) {
	x.row.news = e.Kind == format.Live
}

// Event writes e, which the fold has taken. Of a checkpoint only the
// allocations are rows that nothing before them told of: those from before the
// trace, or from a gap in it. Its other rows are bookkeeping.
func (x *Exporter) Event(p *analyze.Pass, e *format.Event) error {
	defer func() {
		r := &x.row
		r.news, r.ended, r.endedSize, r.endedRequested = false, 0, 0, 0
		if e.Kind == format.ScopeEnd {
			delete(x.t.scopes, e.Scope)
		}
	}()
	t, r := x.t, &x.row
	if t.failed != nil {
		return t.failed
	}
	switch e.Kind {
	case format.ScopeBegin, format.LiveScope:
		t.openScope(e)
	}
	t.follow(e)
	if e.Kind.Checkpoint() && !(r.news && (p.In || p.Whole())) || !e.Kind.Checkpoint() && !p.In {
		return nil
	}
	r.Event, r.t = e, t
	r.process, r.frame, r.stack = t.process(e.Process), format.Frame{}, ""
	r.device = format.DeviceRow{}
	r.used, r.acquired, r.deviceUsed, r.deviceAcquired = 0, 0, format.Unknown, format.Unknown
	if p := t.state.Process(e.Process); p != nil {
		used, _ := t.state.Used(p)
		r.used, r.acquired = used.Now, p.Acquired().Now
	}
	id := format.Device(r.deviceIndex())
	if id >= 0 {
		r.device, _ = t.defs.Device(id)
		if d := t.device(id, e); d != nil {
			r.deviceUsed, r.deviceAcquired = d.Used.Now, d.Acquired.Now
		}
	}
	if p.Filtered(analyze.ByAll) {
		asked := *e
		asked.Device = id
		if !p.Matches(&asked, analyze.ByAll) {
			return nil
		}
	}
	if e.Stack != 0 {
		s := t.stacks.of(e.Stack)
		r.stack, r.frame = s.text, s.frame
	}
	r.path = t.scopes[e.Scope]
	return x.events.add(r)
}

// follow keeps what other tables need of every event.
func (t *trace) follow(e *format.Event) {
	t.settle()
	if !e.Kind.Checkpoint() {
		t.last = max(t.last, e.Time)
	}
	if t.pass.In || e.Kind != format.AllocFailed {
		t.refusals.Event(e)
	}
}

// device returns the fold's sums of a device, nil before its first allocation.
func (t *trace) device(id format.Device, e *format.Event) *live.Device {
	if d := t.devices[id]; d != nil {
		return d
	}
	if e.Kind == format.Alloc || e.Kind == format.FreeFailed || e.Kind.Checkpoint() {
		for _, d := range t.state.Devices() {
			t.devices[d.ID] = d
		}
	}
	return t.devices[id]
}

// longPath is where a path of scopes is begun anew, after a mark: a path of
// every scope of a recursion would grow with the square of its depth.
const longPath = 4096

// openScope remembers the path of a scope while it is open.
func (t *trace) openScope(e *format.Event) {
	if _, ok := t.scopes[e.Scope]; ok {
		return
	}
	path := t.defs.Name(e.Name)
	if around := t.scopes[e.Parent]; around != "" && e.Parent != e.Scope {
		if len(around) > longPath {
			around = "…"
		}
		path = around + "/" + path
	}
	t.scopes[e.Scope] = path
}
