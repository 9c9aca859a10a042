package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/export"
)

func exportCommand() *command {
	return &command{
		name:  "export",
		args:  "TRACE... --to " + strings.Join(exportFormats(), "|") + " -o OUT",
		short: "tables for pandas, polars, DuckDB: events, samples, scopes, all joined",
		long: `
OUT is a new directory with events, samples and scopes, or the events alone when
it ends in the format's name. Several traces go into the same tables, with the
trace's name as a column. Every event has its time on the wall clock and since
the start, words in place of numbers, file, line and function of its innermost
frame and the whole stack, its scope's path, process, command and device, and
what was live after it. Nothing is null: unknown is -1, 0 or the empty text.

The window's end is --until here, because --to is the format.`,
		examples: []string{
			"gpuanalyze export train.gpurec -o train.parquet",
			"gpuanalyze export rank0.gpurec rank1.gpurec --to arrow -o job",
		},
		run: runExport,
	}
}

func exportFormats() (names []string) {
	for _, f := range export.Formats {
		names = append(names, f.Name)
	}
	return names
}

func runExport(ctx context.Context, stdout, stderr io.Writer, args []string) error {
	a := newAnalysisUntil(exportCommand(), stdout, "until")
	out := a.StringP("output", "o", "", "`OUT`, which must not exist")
	to := a.String("to", "", "`"+strings.Join(exportFormats(), "|")+"`; without it the ending of OUT says")
	q, traces, err := a.query(args)
	if err != nil {
		return err
	}
	if *out == "" {
		return usagef("-o OUT is missing")
	}
	if *to == "" {
		*to = strings.TrimPrefix(filepath.Ext(*out), ".")
	}
	known := false
	for _, name := range exportFormats() {
		known = known || name == *to
	}
	if !known {
		return usagef("--to %q: it is %s", *to, strings.Join(exportFormats(), " or "))
	}
	for _, name := range exportFormats() {
		if name != *to && strings.HasSuffix(*out, "."+name) {
			return usagef("--to %s and -o %s disagree", *to, *out)
		}
	}
	x, err := export.Create(*out, *to)
	if err != nil {
		return err
	}
	defer x.Abort()
	c, err := a.answer(ctx, stderr, traces, q, x)
	if err != nil {
		return err
	}
	if err := x.Close(); err != nil {
		return err
	}
	events, samples, scopes := x.Rows()
	if a.json {
		err := writeJSON(stdout, struct {
			Completeness *analyze.Completeness `json:"completeness"`
			Output       string                `json:"output"`
			Events       int64                 `json:"events"`
			Samples      int64                 `json:"samples"`
			Scopes       int64                 `json:"scopes"`
		}{c, *out, events, samples, scopes})
		if err != nil {
			return fmt.Errorf("write what was exported: %w", err)
		}
	} else if !a.quiet {
		fmt.Fprintf(stderr, "%s: %d events", analyze.Line(*out), events)
		if !x.Single() {
			fmt.Fprintf(stderr, ", %d samples, %d scopes", samples, scopes)
		}
		fmt.Fprintln(stderr)
	}
	return a.conclude(stderr, c)
}
