package export

import (
	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
)

// A sampleRow is one NVML reading, of a device or of one process on it.
type sampleRow struct {
	*format.Sample
	t       *trace
	device  format.DeviceRow
	process format.Process
}

var sampleColumns = []column[*sampleRow]{
	{name: "trace", typ: text, doc: "the trace's name", str: func(r *sampleRow) string { return r.t.name }},
	{name: "timestamp", typ: instant, doc: "wall clock", num: func(r *sampleRow) int64 { return r.t.wall(r.Time) }},
	{name: "time_ns", typ: i64, doc: "since the start of the recording", num: func(r *sampleRow) int64 { return r.t.since(r.Time) }},
	{name: "device", typ: i16, doc: "index in the trace", num: func(r *sampleRow) int64 { return int64(r.Device) }},
	{name: "device_uuid", typ: text, doc: "the same in every trace", str: func(r *sampleRow) string { return r.device.UUID }},
	{name: "device_name", typ: text, doc: "model", str: func(r *sampleRow) string { return r.device.Name }},
	{name: "total", typ: i64, doc: "the device's memory", num: func(r *sampleRow) int64 { return r.Total }},
	{name: "used", typ: i64, doc: "all processes; with nvml_api 1 it contains reserved", num: func(r *sampleRow) int64 { return r.Used }},
	{name: "free", typ: i64, doc: "used + free is not total", num: func(r *sampleRow) int64 { return r.Free }},
	{name: "reserved", typ: i64, doc: "by the driver; -1 with nvml_api 1", num: func(r *sampleRow) int64 { return r.Reserved }},
	{name: "peak_used", typ: i64, doc: "largest used read since the sample before", num: func(r *sampleRow) int64 { return r.PeakUsed }},
	{name: "nvml_api", typ: i16, doc: "version of NVML's memory call", num: func(r *sampleRow) int64 { return int64(r.API) }},
	{name: "process", typ: u32, doc: "number in the trace of the one that a row is about, 0 in a device's row", num: func(r *sampleRow) int64 { return int64(r.Process) }},
	{name: "pid", typ: i32, doc: "of a row about one process, 0 in a device's row", num: func(r *sampleRow) int64 { return int64(r.process.PID) }},
	{name: "process_used", typ: i64, doc: "of that process, -1 unknown", num: func(r *sampleRow) int64 { return r.ProcessUsed }},
}

// Sample writes one NVML reading, of the window and devices asked for.
func (x *Exporter) Sample(p *analyze.Pass, s *format.Sample) error {
	x.t.last = max(x.t.last, s.Time)
	from, known := p.From()
	switch {
	case x.single, known && s.Time < from, !known && !p.In && !p.Whole():
		return nil
	case !p.Matches(&format.Event{Device: s.Device}, analyze.ByDevice):
		return nil
	case s.Process != 0 && !p.Matches(&format.Event{Process: s.Process}, analyze.ByProcess):
		return nil
	}
	r := sampleRow{Sample: s, t: x.t}
	r.device, _ = x.t.defs.Device(s.Device)
	r.process, _ = x.t.defs.Process(s.Process)
	return x.samples.add(&r)
}

// A scopeRow is one scope, when it ends or where the trace does.
type scopeRow struct {
	live.Scope
	t              *trace
	process        format.Process
	path           string
	end            format.Time
	open           bool
	used, acquired live.Measure
	nvml           live.Measure
}

var scopeColumns = []column[*scopeRow]{
	{name: "trace", typ: text, doc: "the trace's name", str: func(r *scopeRow) string { return r.t.name }},
	{name: "scope", typ: u64, doc: "the trace's number of it", num: func(r *scopeRow) int64 { return int64(r.ID) }},
	{name: "parent", typ: u64, doc: "the scope around it, 0 for none", num: func(r *scopeRow) int64 { return int64(r.Parent) }},
	{name: "path", typ: text, doc: "its name and those around it, outermost first, joined by /", str: func(r *scopeRow) string { return r.path }},
	{name: "name", typ: text, doc: "", str: func(r *scopeRow) string { return r.t.defs.Name(r.Name) }},
	{name: "domain", typ: text, doc: "NVTX's, or who opened it", str: func(r *scopeRow) string { return r.t.defs.Name(r.Domain) }},
	{name: "api", typ: text, doc: "source", str: func(r *scopeRow) string { return r.t.defs.API(r.API) }},
	{name: "timestamp", typ: instant, doc: "of its begin, wall clock", num: func(r *scopeRow) int64 { return r.t.wall(r.Begin) }},
	{name: "begin_ns", typ: i64, doc: "since the start of the recording", num: func(r *scopeRow) int64 { return r.t.since(r.Begin) }},
	{name: "end_ns", typ: i64, doc: "since the start of the recording; where the trace ends for one that is open", num: func(r *scopeRow) int64 { return r.t.since(r.end) }},
	{name: "open", typ: i16, doc: "1 where the trace has no end of it", num: func(r *scopeRow) int64 { return number(r.open) }},
	{name: "late", typ: i16, doc: "1 where it began before the first row there is", num: func(r *scopeRow) int64 { return number(r.Late) }},
	{name: "process", typ: u32, doc: "number in the trace", num: func(r *scopeRow) int64 { return int64(r.Process) }},
	{name: "pid", typ: i32, doc: "", num: func(r *scopeRow) int64 { return int64(r.process.PID) }},
	{name: "thread", typ: u32, doc: "", num: func(r *scopeRow) int64 { return int64(r.Thread) }},
	{name: "used_begin", typ: i64, doc: "the process's used bytes at its begin", num: func(r *scopeRow) int64 { return r.used.Begin }},
	{name: "used_end", typ: i64, doc: "at its end", num: func(r *scopeRow) int64 { return r.used.End }},
	{name: "used_max", typ: i64, doc: "largest within", num: func(r *scopeRow) int64 { return r.used.Max }},
	{name: "used_delta", typ: i64, doc: "end less begin", num: func(r *scopeRow) int64 { return r.used.Used() }},
	{name: "used_peaked", typ: i64, doc: "max less the larger of begin and end", num: func(r *scopeRow) int64 { return r.used.Peaked() }},
	{name: "acquired_begin", typ: i64, doc: "the process's acquired bytes at its begin", num: func(r *scopeRow) int64 { return r.acquired.Begin }},
	{name: "acquired_end", typ: i64, doc: "at its end", num: func(r *scopeRow) int64 { return r.acquired.End }},
	{name: "acquired_max", typ: i64, doc: "largest within", num: func(r *scopeRow) int64 { return r.acquired.Max }},
	{name: "acquired_delta", typ: i64, doc: "end less begin", num: func(r *scopeRow) int64 { return r.acquired.Used() }},
	{name: "acquired_peaked", typ: i64, doc: "max less the larger of begin and end", num: func(r *scopeRow) int64 { return r.acquired.Peaked() }},
	{name: "nvml_begin", typ: i64, doc: "NVML's used bytes at its begin, sampled; -1 without samples", num: func(r *scopeRow) int64 { return known(r.nvml, r.nvml.Begin) }},
	{name: "nvml_end", typ: i64, doc: "at its end", num: func(r *scopeRow) int64 { return known(r.nvml, r.nvml.End) }},
	{name: "nvml_max", typ: i64, doc: "largest within", num: func(r *scopeRow) int64 { return known(r.nvml, r.nvml.Max) }},
}

func number(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func known(m live.Measure, v int64) int64 {
	if !m.Known {
		return format.Unknown
	}
	return v
}

func (x *Exporter) scopeEnded(sc *live.Scope, e *format.Event) {
	x.scope(sc, e.Time, e.Kind != format.ScopeEnd)
}

func (x *Exporter) scope(sc *live.Scope, end format.Time, open bool) {
	t := x.t
	if open {
		defer delete(t.scopes, sc.ID)
	}
	p := t.pass
	asked := format.Event{Kind: format.ScopeBegin, Process: sc.Process, Thread: sc.Thread, Device: sc.Device, Scope: sc.ID}
	if x.single || t.failed != nil || !p.In || !p.Matches(&asked, analyze.ByProcess|analyze.ByThread|analyze.ByScope) {
		return
	}
	r := scopeRow{Scope: *sc, t: t, path: t.scopes[sc.ID], end: end, open: open,
		used: t.state.Measure(sc, t.state.UsedCurve(sc)), acquired: t.state.Measure(sc, live.CurveAcquired), nvml: t.state.Measure(sc, live.CurveNVML)}
	r.process, _ = t.defs.Process(sc.Process)
	t.failed = x.scopes.add(&r) // an observer cannot say it: the next event does
}

// End ends a trace: what is open is written as open, what is live as live.
func (x *Exporter) End(p *analyze.Pass) error {
	for _, sc := range p.State.Scopes() {
		x.scope(sc, p.State.Now(), true)
	}
	x.t.refusals.End()
	p.State.Each(func(a *live.Allocation) bool {
		x.allocation(a, moment{row: format.Unknown}, "")
		return true
	})
	if x.t.failed == nil && !x.single {
		x.t.failed = x.who()
	}
	return x.t.failed
}
