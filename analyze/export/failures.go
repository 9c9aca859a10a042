package export

import (
	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
)

// A failureRow is one request for device memory that was refused, however often
// the driver was asked: see live.Refusals.
type failureRow struct {
	*format.Event               // the report to the program, or the driver's first refusal
	r             *live.Refusal // nil where the driver was not asked
	t             *trace
	outcome       string
	process       format.Process
	device        format.DeviceRow
	stack         stackText
	path          string
}

var failureColumns = []column[*failureRow]{
	{name: "trace", typ: text, doc: "the trace's name", str: func(r *failureRow) string { return r.t.name }},
	{name: "timestamp", typ: instant, doc: "wall clock", num: func(r *failureRow) int64 { return r.t.wall(r.Time) }},
	{name: "time_ns", typ: i64, doc: "when the program was told, or was refused first; since the start of the recording", num: func(r *failureRow) int64 { return r.t.since(r.Time) }},
	{name: "outcome", typ: text, doc: "told: the program was; retried: a retry worked, and it never knew", str: func(r *failureRow) string { return r.outcome }},
	{name: "reporter", typ: text, doc: "who told it, or refused", str: func(r *failureRow) string { return r.t.defs.API(r.API) }},
	{name: "process", typ: u32, doc: "number in the trace", num: func(r *failureRow) int64 { return int64(r.Process) }},
	{name: "pid", typ: i32, doc: "process id", num: func(r *failureRow) int64 { return int64(r.process.PID) }},
	{name: "thread", typ: u32, doc: "", num: func(r *failureRow) int64 { return int64(r.Thread) }},
	{name: "device", typ: i16, doc: "index in the trace, -1 unknown", num: func(r *failureRow) int64 { return int64(r.Device) }},
	{name: "asked", typ: i64, doc: "bytes asked for", num: func(r *failureRow) int64 { return live.Asked(r.Event) }},
	{name: "asked_driver", typ: i64, doc: "bytes that the driver was asked for, -1 where it was not", num: func(r *failureRow) int64 {
		return r.driver(func(f *live.Refusal) int64 { return live.Asked(&f.First) }, format.Unknown)
	}},
	{name: "refusals", typ: i64, doc: "how often the driver refused this request", num: func(r *failureRow) int64 { return r.driver(func(f *live.Refusal) int64 { return f.Count }, 0) }},
	{name: "free", typ: i64, doc: "device bytes free by the driver's word, -1 unknown", num: func(r *failureRow) int64 {
		return r.driver(func(f *live.Refusal) int64 { return f.Free }, format.Unknown)
	}},
	{name: "site", typ: text, doc: "innermost line, file:line:function", str: func(r *failureRow) string { return r.stack.site }},
	{name: "own_site", typ: text, doc: "innermost line of the program's own code, inferred from file names", str: func(r *failureRow) string { return r.stack.own }},
	{name: "stack", typ: text, doc: "frames as file:line:function, outermost first, joined by ;", str: func(r *failureRow) string { return r.stack.text }},
	{name: "scope_path", typ: text, doc: "names of the scope and those around it, outermost first, joined by /", str: func(r *failureRow) string { return ownPath(r.Event, r.path) }},
	{name: "inferred_scope_path", typ: text, doc: "of a thread that opened no scope: the path of the one that another thread was in, empty where that is not known", str: func(r *failureRow) string { return inferredPath(r.Event, r.path) }},
	{name: "device_uuid", typ: text, doc: "the same in every trace", str: func(r *failureRow) string { return r.device.UUID }},
	{name: "rank", typ: i32, doc: "of a distributed job, -1 for none", num: func(r *failureRow) int64 { return int64(r.process.Rank) }},
}

func (r *failureRow) driver(f func(*live.Refusal) int64, none int64) int64 {
	if r.r == nil {
		return none
	}
	return f(r.r)
}

func (x *Exporter) follow(t *trace) {
	t.refusals.OnTold = func(r *live.Refusal, e *format.Event) { x.failure(r, e, "told") }
	t.refusals.OnServed = func(r *live.Refusal, _ *format.Event) { x.failure(r, &r.First, "retried") }
}

func (x *Exporter) failure(f *live.Refusal, e *format.Event, outcome string) {
	t := x.t
	asked := e
	if f != nil {
		asked = &f.First
	}
	if t.failed != nil || !t.pass.Matches(asked, analyze.ByAll) && !t.pass.Matches(e, analyze.ByAll) {
		return
	}
	r := failureRow{Event: e, r: f, t: t, outcome: outcome, process: t.process(e.Process), stack: t.stacks.of(e.Stack), path: t.scopes[e.Scope]}
	r.device, _ = t.defs.Device(e.Device)
	t.failed = x.failures.add(&r)
}
