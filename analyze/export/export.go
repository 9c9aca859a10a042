// Package export writes traces as tables for other tools: gpuanalyze export.
//
//	export.go    Exporter: what to write where, one trace after the other
//	events.go    the events table, with all it refers to joined
//	stacktexts.go  a stack in words
//	allocations.go  every allocation with its begin and end
//	samples.go   NVML's samples and the measured scopes
//	failures.go  requests that were refused
//	who.go       the traces, processes and devices
//	table.go     columns, rows and batches, for every format alike
//	arrow.go, parquet.go, csv.go, jsonl.go   the sinks
//	duckdb.go    Parquet with the SQL that loads it and answers
//	place.go    where an export grows until it is whole; File, for exports of one file
//	stacks/     by stack: pprof, folded, speedscope
//	perfetto/   a timeline
//	torch/      PyTorch's memory snapshot
//
// A part of a trace can be read by these tools as it lies; an export is what
// people want of it: texts in place of numbers, the wall clock beside the
// recording's own, file, line and function, the whole stack, the scope's path,
// who and where, and what was live after each event. Several traces go into one
// table, with the trace's name as a column.
//
// It promises that rows are in the order of effect, that 64-bit integers stay
// integers, and that nothing is null: unknown is -1 for a signed quantity, 0 for
// an identifier and "" for a text, as in the trace. It streams: memory is
// bounded by the live set, the definitions and one batch a table.
// It refuses to write over a file, and leaves none that is not whole.
package export

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
)

// units stands in every file.
const units = "sizes are bytes, names in _ns are nanoseconds; -1, 0 and the empty text are unknown"

// Formats are the formats by name. An opener makes a sink of the table's shape.
var Formats = []struct {
	Name string
	open func(*os.File, *batch) (sink, error)
}{
	{"arrow", func(f *os.File, b *batch) (sink, error) { return openArrow(f, b) }},
	{"parquet", func(f *os.File, b *batch) (sink, error) { return openParquet(f, b) }},
	{"csv", func(f *os.File, b *batch) (sink, error) { return openCSV(f, b) }},
	{"jsonl", func(f *os.File, b *batch) (sink, error) { return openJSONL(f, b) }},
}

// DuckDB is a directory of Parquet files and the SQL that loads them.
const DuckDB = "duckdb"

// An Exporter writes one export of the traces that a pass feeds it. Where out
// ends in the format's name it is a file with the events alone, else a directory
// with one file for each table.
type Exporter struct {
	*place
	format string // of the files
	single bool
	sql    bool
	by     []string
	files  []*os.File
	tables []table

	events      *writer[*eventRow]
	allocations *writer[*allocationRow] // nil, as all below, where it is single
	samples     *writer[*sampleRow]
	scopes      *writer[*scopeRow]
	failures    *writer[*failureRow]
	devices     *writer[*deviceRow]
	processes   *writer[*processRow]
	traces      *writer[*traceRow]

	t   *trace
	row eventRow
}

// Partitions are the columns that tables can be partitioned by.
var Partitions = []string{"trace", "process", "pid", "rank", "device"}

// Create begins an export in the named format, or for DuckDB. Its large tables
// are partitioned by those of the columns that they have. It ends with ctx.
func Create(ctx context.Context, out, format string, by ...string) (*Exporter, error) {
	x := &Exporter{format: format, sql: format == DuckDB, single: strings.HasSuffix(out, "."+format), by: by}
	if x.sql {
		x.format, x.single = "parquet", false
	}
	known := false
	for _, f := range Formats {
		known = known || f.Name == x.format
	}
	if !known {
		return nil, fmt.Errorf("%q: no such format", format)
	}
	if len(by) > 0 && (x.single || x.sql) {
		return nil, fmt.Errorf("%s: one file, and what SQL loads, cannot be partitioned", out)
	}
	var err error
	if x.place, err = newPlace(ctx, out); err != nil {
		return nil, err
	}
	if err = x.open(); err != nil {
		x.Abort()
		return nil, fmt.Errorf("create %s: %w", out, cause(err))
	}
	return x, nil
}

// open makes the tables, in the order in which they are counted.
func (x *Exporter) open() (err error) {
	x.events = add(x, "events", true, eventColumns, &err)
	if x.single {
		return err
	}
	x.samples = add(x, "samples", true, sampleColumns, &err)
	x.scopes = add(x, "scopes", true, scopeColumns, &err)
	x.allocations = add(x, "allocations", true, allocationColumns, &err)
	x.failures = add(x, "failures", true, failureColumns, &err)
	x.devices = add(x, "devices", false, deviceColumns, &err)
	x.processes = add(x, "processes", false, processColumns, &err)
	x.traces = add(x, "traces", false, traceColumns, &err)
	return err
}

// add makes a table, if err is nil still.
func add[R any](x *Exporter, name string, large bool, cols []column[R], err *error) *writer[R] {
	if *err != nil {
		return nil
	}
	if x.sql {
		cols = slices.Clone(cols)
		for i := range cols {
			if cols[i].typ == instant {
				cols[i].typ = naive
				cols[i].doc += ", UTC"
			}
		}
	}
	file := func(path string, b *batch) (sink, error) {
		f, err := x.create(path + name + "." + x.format)
		if err != nil {
			return nil, err
		}
		x.files = append(x.files, f)
		for _, format := range Formats {
			if format.Name == x.format {
				return format.open(f, b)
			}
		}
		return nil, fmt.Errorf("no format %q", x.format)
	}
	if w := newPartitioned(name, cols, x.by, func(path string, b *batch) (sink, error) { return file(name+"/"+path, b) }); large && len(w.by) > 0 {
		x.tables = append(x.tables, w)
		return w
	}
	w, e := newWriter(name, cols, func(b *batch) (sink, error) { return file("", b) })
	*err = e
	x.tables = append(x.tables, w)
	return w
}

// A trace is what rows need of the trace they come from.
type trace struct {
	pass    *analyze.Pass
	name    string
	start   int64 // wall clock, ns since 1970, at mono
	mono    format.Time
	defs    *format.Defs
	state   *live.State
	stacks  stackTexts
	devices map[format.Device]*live.Device
	scopes  map[format.ScopeID]string // paths of open ones
	last    format.Time               // the latest of all events and samples
	failed  error

	lives    lives
	refusals live.Refusals
}

func (t *trace) wall(at format.Time) int64  { return t.start + int64(at-t.mono) }
func (t *trace) since(at format.Time) int64 { return int64(at - t.mono) }

func (x *Exporter) Needs() analyze.Needs {
	return analyze.Needs{Pooled: true, Samples: true, Scopes: analyze.ScopesShown} // scopes are measured on NVML's curve too
}

// Begin begins a trace. Filters choose rows; what was live after an event is
// the whole process's and device's.
func (x *Exporter) Begin(p *analyze.Pass) error {
	m := p.Trace.Meta()
	x.t = &trace{pass: p, name: name(p.Trace.Path()), mono: m.Monotonic, defs: p.Defs, state: p.State, stacks: newStackTexts(p.Defs),
		scopes: map[format.ScopeID]string{}, devices: map[format.Device]*live.Device{},
		last: m.Monotonic, lives: lives{begun: map[allocationKey]life{}}}
	if !m.Start.IsZero() { // a text twin need not say when it was
		x.t.start = m.Start.UnixNano()
	}
	p.State.OnScopeEnd = x.scopeEnded
	p.State.OnBegin = func(a *live.Allocation, e *format.Event) {
		x.allocationBegan(a, e)
		x.began(a, e)
	}
	p.State.OnEnd = func(a *live.Allocation, e *format.Event) {
		x.allocationEnded(a, e)
		x.allocation(a, moment{p.Event, e.Time}, e.Kind.String())
	}
	if !x.single {
		x.follow(x.t)
	}
	return nil
}

// name is what people call the trace at path; a file's name need not be UTF-8,
// which every table's texts are.
func name(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs // "." has no name
	}
	return strings.ToValidUTF8(filepath.Base(path), "\uFFFD")
}

// A Count is how much there is of something in an export.
type Count struct {
	What string
	N    int64
}

// Counts is how many rows were written of each table.
func (x *Exporter) Counts() (n []Count) {
	for _, t := range x.tables {
		n = append(n, Count{t.shape().table, t.count()})
	}
	return n
}

// Close makes the export whole and gives it its name.
func (x *Exporter) Close() error {
	var err error
	for _, t := range x.tables {
		err = errors.Join(err, t.close())
	}
	if x.sql && err == nil {
		err = x.writeSQL()
	}
	for _, f := range x.files {
		if e := f.Close(); e != nil && !errors.Is(e, os.ErrClosed) { // Parquet's writer closes its file
			err = errors.Join(err, e)
		}
	}
	x.files = nil
	switch {
	case err != nil:
	case x.single:
		err = x.nameFile("events." + x.format)
	default:
		err = x.nameAll()
	}
	x.Abort()
	if err != nil {
		return fmt.Errorf("write %s: %w", x.out, cause(err))
	}
	return nil
}

// Abort drops what is not whole. After Close it does nothing.
func (x *Exporter) Abort() {
	for _, f := range x.files {
		f.Close()
	}
	x.files = nil
	x.clear()
}
