package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/export"
	"github.com/gpurec/gpurec/analyze/export/stacks"
)

func exportCommand() *command {
	long := "\nFormats, by --to or by how OUT ends:\n"
	for _, f := range exportFormats {
		long += fmt.Sprintf("  %-11s %s\n", f.name, f.what)
	}
	return &command{
		name:  "export",
		args:  "TRACE... --to " + strings.Join(exportNames(), "|") + " -o OUT",
		short: "out to other tools: tables, profiles, flame graphs",
		long: long + `
Tables: OUT is a new directory with events, allocations (each with its begin and
end; --scope asks where it was taken), samples, scopes, failures, devices,
processes and traces, or the events alone when it ends in the format's name.
Several traces go into the same tables, with the trace's name as a column. Every
event has its time on the wall clock and since the start, words in place of
numbers, file, line and function of its innermost frame and the whole stack, its
scope's path, process, command and device, and what was live after it. Nothing is
null: unknown is -1, 0 or the empty text. With --partition the large tables are
directories COLUMN=VALUE, which readers of Hive's partitions take as columns.

duckdb is Parquet with schema.sql, views.sql and load.sql, which is both and the
loading: the views total_by_line, live_at_end, peaks, peak_by_line,
delta_by_context, device_history and oom, and live_at(NANOSECONDS), equal lines,
peak, contexts, devices and oom.

Bytes by stack, each the sum of one of
  ` + strings.Join(stacks.Values()[:4], ", ") + `,
  ` + strings.Join(stacks.Values()[4:], ", ") + `.
Without "acquired" they are used bytes. peak is when the used bytes of a device were highest, as lines
--at peak has it; inuse is live at the end, or at --until; alloc is what was
taken, without failed attempts. pprof labels each stack with device, pid, rank and
trace, for -tagfocus; folded has one of the values, speedscope all.

perfetto has a counter for used and acquired bytes of each process and device at
every event that changes them, NVML's readings, scopes as slices and refused
requests as instants, at the wall clock's time.

torch is one process in the shape of torch.cuda.memory._snapshot(): every alloc and
free of its pool and segments with its stack, and what there is at the end, as
pytorch.org/memory_viz and torch.cuda._memory_viz read them. --process says which.

The window's end is --until here, because --to is the format. A file may go to
stdout: -o -`,
		examples: []string{
			"gpuanalyze export train.gpurec -o train.parquet",
			"gpuanalyze export rank0.gpurec rank1.gpurec --to arrow -o job",
			"gpuanalyze export rank0.gpurec rank1.gpurec --to parquet --partition rank,device -o job",
			"gpuanalyze export train.gpurec --to duckdb -o train   # cd train; duckdb trace.db < load.sql",
			"gpuanalyze export train.gpurec -o train.pb.gz",
			"gpuanalyze export rank0.gpurec rank1.gpurec -o job.pftrace",
			"gpuanalyze export train.gpurec --until 2s -o train.pickle",
			"gpuanalyze export train.gpurec --to folded --value alloc_space -o -",
		},
		run: runExport,
	}
}

func runExport(ctx context.Context, stdout, stderr io.Writer, args []string) error {
	a := newAnalysisUntil(exportCommand(), stdout, "until").withStacks()
	o := exportOptions{stdout: stdout}
	a.StringVarP(&o.out, "output", "o", "", "`OUT`, which must not exist; - is stdout, where it is one file")
	a.StringVar(&o.format, "to", "", "`FORMAT`; without it the ending of OUT says")
	value := a.String("value", stacks.PeakSpace.String(), "of folded: the `VALUE` of each stack")
	a.StringSliceVar(&o.by, "partition", nil, "tables: a file for each value of these `COLUMNS`: "+strings.Join(export.Partitions, ", "))
	q, traces, err := a.query(args)
	if err != nil {
		return err
	}
	f, err := o.choose()
	if err != nil {
		return err
	}
	if o.value, err = stacks.ParseValue(*value); err != nil {
		return usagef("--value %v", err)
	}
	if a.Changed("value") && f.name != "folded" {
		return usagef("--value is for --to folded: %s has them all", f.name)
	}
	if err := o.partition(f); err != nil {
		return err
	}
	if a.json && o.out == "-" {
		return usagef("--json and -o - both want stdout")
	}
	if o.out != "-" {
		if err := outside(o.out, traces); err != nil {
			return err
		}
	}
	o.traces = len(traces)
	m, err := f.create(ctx, &o)
	if err != nil {
		return err
	}
	c, err := m.run(ctx, a, stderr, q, traces)
	if err != nil {
		return err
	}
	counts := m.counts()
	if a.json {
		rows := map[string]int64{}
		for _, n := range counts {
			rows[n.What] = n.N
		}
		err := writeJSON(stdout, struct {
			Completeness *analyze.Completeness `json:"completeness"`
			Output       string                `json:"output"`
			Rows         map[string]int64      `json:"rows"`
		}{c, o.out, rows})
		if err != nil {
			return fmt.Errorf("write what was exported: %w", err)
		}
	} else if !a.quiet {
		var said []string
		for _, n := range counts {
			said = append(said, fmt.Sprintf("%d %s", n.N, n.What))
		}
		fmt.Fprintf(stderr, "%s: %s\n", analyze.Line(o.out), strings.Join(said, ", "))
	}
	return a.conclude(stderr, c)
}

// partition checks what tables are to be partitioned by.
func (o *exportOptions) partition(f *exportFormat) error {
	if len(o.by) == 0 {
		return nil
	}
	if f.name == export.DuckDB || !f.tables || strings.HasSuffix(o.out, "."+f.name) {
		return usagef("--partition is for a directory of tables: --to arrow, parquet, csv or jsonl, and an OUT without ending")
	}
	for _, by := range o.by {
		if !slices.Contains(export.Partitions, by) {
			return usagef("--partition %s: it is %s", by, strings.Join(export.Partitions, ", "))
		}
	}
	return nil
}

// choose is the format that was asked for.
func (o *exportOptions) choose() (*exportFormat, error) {
	if o.out == "" {
		return nil, usagef("-o OUT is missing")
	}
	ending := exportFormatOf(o.out)
	if o.format == "" && ending != nil {
		o.format = ending.name
	}
	if o.format == "" {
		o.format = strings.TrimPrefix(filepath.Ext(o.out), ".")
	}
	if o.format == "" {
		return nil, usagef("-o %s does not say the format: add --to %s", o.out, strings.Join(exportNames(), "|"))
	}
	f := exportFormatNamed(o.format)
	if f == nil {
		return nil, usagef("--to %q: it is %s", o.format, strings.Join(exportNames(), ", "))
	}
	if ending != nil && ending != f {
		return nil, usagef("--to %s and -o %s disagree", o.format, o.out)
	}
	if o.out == "-" && f.tables {
		return nil, usagef("--to %s is a directory of tables: it needs a name", o.format)
	}
	return f, nil
}
