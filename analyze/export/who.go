package export

import (
	"strings"

	"github.com/gpurec/gpurec/format"
)

// A traceRow is one recording.
type traceRow struct {
	t    *trace
	meta format.Meta
	end  format.Time
}

var traceColumns = []column[*traceRow]{
	{name: "trace", typ: text, doc: "the trace's name", str: func(r *traceRow) string { return r.t.name }},
	{name: "trace_id", typ: text, doc: "of the recording", str: func(r *traceRow) string { return r.meta.TraceID }},
	{name: "host", typ: text, doc: "", str: func(r *traceRow) string { return r.meta.Host }},
	{name: "command", typ: text, doc: "that was recorded", str: func(r *traceRow) string { return strings.Join(r.meta.Command, " ") }},
	{name: "timestamp", typ: instant, doc: "start, wall clock", num: func(r *traceRow) int64 { return r.t.start }},
	{name: "end_ns", typ: i64, doc: "last moment there is, or the window's end; since the start of the recording", num: func(r *traceRow) int64 { return r.t.since(r.end) }},
	{name: "ending", typ: text, doc: "closed, repaired, failed; empty while it grows", str: func(r *traceRow) string { return string(r.meta.Ending) }},
}

// A deviceRow is one device of one trace.
type deviceRow struct {
	format.DeviceRow
	t *trace
}

var deviceColumns = []column[*deviceRow]{
	{name: "trace", typ: text, doc: "the trace's name", str: func(r *deviceRow) string { return r.t.name }},
	{name: "device", typ: i16, doc: "index in the trace", num: func(r *deviceRow) int64 { return int64(r.ID) }},
	{name: "device_uuid", typ: text, doc: "the same in every trace", str: func(r *deviceRow) string { return r.UUID }},
	{name: "device_name", typ: text, doc: "model", str: func(r *deviceRow) string { return r.Name }},
	{name: "total", typ: i64, doc: "the device's memory", num: func(r *deviceRow) int64 { return r.Total }},
	{name: "nvml_index", typ: i32, doc: "-1 without NVML", num: func(r *deviceRow) int64 { return int64(r.NVML) }},
}

// A processRow is one process of one trace.
type processRow struct {
	format.Process
	t *trace
}

var processColumns = []column[*processRow]{
	{name: "trace", typ: text, doc: "the trace's name", str: func(r *processRow) string { return r.t.name }},
	{name: "process", typ: u32, doc: "number in the trace: pids are used again", num: func(r *processRow) int64 { return int64(r.ID) }},
	{name: "pid", typ: i32, doc: "process id", num: func(r *processRow) int64 { return int64(r.PID) }},
	{name: "parent_pid", typ: i32, doc: "", num: func(r *processRow) int64 { return int64(r.Parent) }},
	{name: "rank", typ: i32, doc: "of a distributed job, -1 for none", num: func(r *processRow) int64 { return int64(r.Rank) }},
	{name: "command", typ: text, doc: "command line", str: func(r *processRow) string { return r.Command }},
	{name: "used_layer", typ: text, doc: "the layer whose bytes are its used ones: pool, or driver for a process without a pool", str: (*processRow).usedLayer},
	{name: "begin_ns", typ: i64, doc: "first seen, since the start of the recording; -1 unknown", num: func(r *processRow) int64 { return r.t.sinceKnown(r.Begin) }},
	{name: "end_ns", typ: i64, doc: "-1 unknown", num: func(r *processRow) int64 { return r.t.sinceKnown(r.End) }},
	{name: "status", typ: i32, doc: "exit status, 128+signal, -1 unknown", num: func(r *processRow) int64 { return int64(r.Status) }},
}

func (r *processRow) usedLayer() string {
	if r.t.pass.Pooled(r.ID) {
		return format.LayerPool.String()
	}
	return format.LayerDriver.String()
}

func (t *trace) sinceKnown(at format.Time) int64 {
	if at == format.Unknown {
		return format.Unknown
	}
	return t.since(at)
}

// who writes the rows of a trace itself, when it ends.
func (x *Exporter) who() error {
	t := x.t
	err := x.traces.add(&traceRow{t, t.pass.Trace.Meta(), t.pass.End(t.last)})
	for _, d := range t.defs.Devices() {
		if err == nil {
			err = x.devices.add(&deviceRow{d, t})
		}
	}
	for _, p := range t.defs.Processes() {
		if err == nil {
			err = x.processes.add(&processRow{p, t})
		}
	}
	return err
}
