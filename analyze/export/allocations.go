package export

import (
	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/tree"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
)

// An allocationRow is one allocation, when it ends or where the trace does. What
// a refused free took away and gave back lived twice.
type allocationRow struct {
	*live.Allocation
	t       *trace
	process format.Process
	device  format.DeviceRow
	stack   stackText
	path    string
	amount  tree.Amount
	begin   moment
	end     moment // row -1 where it is live still
	by      string // what ended it
}

// A moment is the number of an event, and its time.
type moment struct {
	row int64
	at  format.Time
}

var allocationColumns = []column[*allocationRow]{
	{name: "trace", typ: text, doc: "the trace's name", str: func(r *allocationRow) string { return r.t.name }},
	{name: "begin_row", typ: i64, doc: "number of the event since which it is live; of one that was live before the window, the number before the window's first", num: func(r *allocationRow) int64 { return r.begin.row }},
	{name: "end_row", typ: i64, doc: "number of the event that ended it, -1 where it is live at the end", num: func(r *allocationRow) int64 { return r.end.row }},
	{name: "begin_ns", typ: i64, doc: "time of begin_row, since the start of the recording", num: func(r *allocationRow) int64 { return r.t.since(r.begin.at) }},
	{name: "end_ns", typ: i64, doc: "time of end_row, -1 where it is live at the end", num: (*allocationRow).endNS},
	{name: "ended_by", typ: text, doc: "kind of the event that ended it, empty where it is live at the end", str: func(r *allocationRow) string { return r.by }},
	{name: "timestamp", typ: instant, doc: "when it was taken, wall clock", num: func(r *allocationRow) int64 { return r.t.wall(r.Time) }},
	{name: "time_ns", typ: i64, doc: "when it was taken, since the start of the recording", num: func(r *allocationRow) int64 { return r.t.since(r.Time) }},
	{name: "layer", typ: text, doc: "driver, pool or host", str: func(r *allocationRow) string { return r.Layer.String() }},
	{name: "class", typ: text, doc: "kind of memory", str: func(r *allocationRow) string { return r.Class.String() }},
	{name: "api", typ: text, doc: "function or source that took it", str: func(r *allocationRow) string { return r.t.defs.API(r.API) }},
	{name: "process", typ: u32, doc: "number in the trace: pids are used again", num: func(r *allocationRow) int64 { return int64(r.Process) }},
	{name: "pid", typ: i32, doc: "process id", num: func(r *allocationRow) int64 { return int64(r.process.PID) }},
	{name: "thread", typ: u32, doc: "that took it", num: func(r *allocationRow) int64 { return int64(r.Thread) }},
	{name: "device", typ: i16, doc: "index in the trace, -1 for none", num: func(r *allocationRow) int64 { return int64(r.Device) }},
	{name: "address", typ: u64, doc: "device or host address", num: func(r *allocationRow) int64 { return int64(r.Address) }},
	{name: "size", typ: i64, doc: "bytes as the layer rounds them", num: func(r *allocationRow) int64 { return r.Bytes() }},
	{name: "requested", typ: i64, doc: "bytes asked for, -1 unknown", num: func(r *allocationRow) int64 { return r.Requested }},
	{name: "used", typ: i64, doc: "its part of used bytes", num: func(r *allocationRow) int64 { return r.amount.Used }},
	{name: "acquired", typ: i64, doc: "its part of acquired bytes", num: func(r *allocationRow) int64 { return r.amount.Acquired }},
	{name: "blocks", typ: i64, doc: "1 where it is in used bytes", num: func(r *allocationRow) int64 { return r.amount.Blocks }},
	{name: "site", typ: text, doc: "innermost line, file:line:function", str: func(r *allocationRow) string { return r.stack.site }},
	{name: "own_site", typ: text, doc: "innermost line of the program's own code, inferred from file names", str: func(r *allocationRow) string { return r.stack.own }},
	{name: "file", typ: text, doc: "of the innermost frame; the module of a native one without", str: func(r *allocationRow) string { return r.stack.frame.File }},
	{name: "line", typ: i32, doc: "of the innermost frame, 0 unknown", num: func(r *allocationRow) int64 { return int64(r.stack.frame.Line) }},
	{name: "function", typ: text, doc: "of the innermost frame; +address of a native one without", str: func(r *allocationRow) string { return r.stack.frame.Function }},
	{name: "stack", typ: text, doc: "frames as file:line:function, outermost first, joined by ;", str: func(r *allocationRow) string { return r.stack.text }},
	{name: "scope", typ: u64, doc: "innermost open scope of the thread, 0 for none", num: func(r *allocationRow) int64 { return ownScope(&r.Event) }},
	{name: "scope_path", typ: text, doc: "names of the scope and those around it when it was taken, outermost first, joined by /", str: func(r *allocationRow) string { return ownPath(&r.Event, r.path) }},
	{name: "inferred_scope_path", typ: text, doc: "of a thread that opened no scope: the path of the one that another thread was in, empty where that is not known", str: func(r *allocationRow) string { return inferredPath(&r.Event, r.path) }},
	{name: "object", typ: u64, doc: "CuPy's pmem_id, a VMM handle, a CUarray", num: func(r *allocationRow) int64 { return int64(r.Object) }},
	{name: "stream", typ: u64, doc: "CUstream", num: func(r *allocationRow) int64 { return int64(r.Stream) }},
	{name: "device_uuid", typ: text, doc: "the same in every trace", str: func(r *allocationRow) string { return r.device.UUID }},
	{name: "rank", typ: i32, doc: "of a distributed job, -1 for none", num: func(r *allocationRow) int64 { return int64(r.process.Rank) }},
}

func (r *allocationRow) endNS() int64 {
	if r.end.row < 0 {
		return format.Unknown
	}
	return r.t.since(r.end.at)
}

// lives says since when what is live is.
type lives struct {
	begun    map[allocationKey]life
	restated []allocationKey // by the checkpoint that is being read
	enter    moment          // before the window's first event
	entered  bool
}

type life struct {
	moment
	scope format.ScopeID
	path  string
	in    bool // it was taken in a wanted scope
}

// allocationKey is what the fold knows an allocation by, and when it was taken:
// a handle that is used again while the old memory is mapped has two.
type allocationKey struct {
	process format.ProcessID
	space   format.Space
	value   uint64
	object  uint64
	taken   format.Time
}

func keyOf(a *live.Allocation) allocationKey {
	return allocationKey{a.Process, a.API.Space(), a.Address, a.Object, a.Time}
}

// began notes where an allocation begins. What a checkpoint says begins at its
// end: before that its sums are those of no moment.
func (x *Exporter) began(a *live.Allocation, e *format.Event) {
	if x.allocations == nil {
		return
	}
	k := keyOf(a)
	x.t.lives.begun[k] = life{moment{x.t.pass.Event, e.Time}, a.Scope, x.t.scopes[a.Scope], x.t.pass.Matches(e, analyze.ByScope)}
	if e.Kind.Checkpoint() {
		x.t.lives.restated = append(x.t.lives.restated, k)
	}
}

// settle gives what a checkpoint restated its moment.
func (t *trace) settle() {
	if len(t.lives.restated) == 0 || t.state.Loading() {
		return
	}
	at := moment{t.pass.Event, t.state.Now()}
	for _, k := range t.lives.restated {
		if l, ok := t.lives.begun[k]; ok {
			l.moment, l.path = at, t.scopes[l.scope] // its scope may stand below it
			l.in = t.pass.Matches(&format.Event{Kind: format.Live, Scope: l.scope}, analyze.ByScope)
			t.lives.begun[k] = l
		}
	}
	t.lives.restated = t.lives.restated[:0]
}

// Enter is where the window begins: what was live before lives from just
// before its first event.
func (x *Exporter) Enter(p *analyze.Pass) {
	if !p.Windowed() {
		return
	}
	at := p.State.Now()
	if from, known := p.From(); known {
		at = max(at, from)
	}
	x.t.lives.enter, x.t.lives.entered = moment{p.Event - 1, at}, true
}

// allocation writes a row; the fold has ended a, or the trace ends.
func (x *Exporter) allocation(a *live.Allocation, end moment, by string) {
	t := x.t
	if x.allocations == nil {
		return
	}
	k := keyOf(a)
	l, known := t.lives.begun[k]
	delete(t.lives.begun, k)
	if !known {
		l.moment, l.in = end, t.pass.Matches(&a.Event, analyze.ByScope)
	}
	if t.failed != nil || !t.pass.In || !l.in || !t.pass.Matches(&a.Event, analyze.ByAll&^analyze.ByScope) {
		return
	}
	if t.lives.entered && l.row < t.lives.enter.row {
		l.moment = t.lives.enter
	}
	r := allocationRow{Allocation: a, t: t, path: l.path, begin: l.moment, end: end, by: by, stack: t.stacks.of(a.Stack)}
	r.process = t.process(a.Process)
	r.device, _ = t.defs.Device(a.Device)
	r.amount, _ = tree.AmountOf(t.pass, a)
	t.failed = x.allocations.add(&r)
}

// process is a row of the process table; what is not in it has no rank.
func (t *trace) process(id format.ProcessID) format.Process {
	p, ok := t.defs.Process(id)
	if !ok {
		p.Rank, p.Parent, p.Begin, p.End, p.Status = format.Unknown, format.Unknown, format.Unknown, format.Unknown, format.Unknown
	}
	return p
}
