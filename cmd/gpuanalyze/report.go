package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/report"
)

func reportCommand() *command {
	return &command{
		name:  "report",
		args:  "TRACE... -o FILE.html",
		short: "one page of all answers, for a browser, offline",
		long: `
Memory over time per device with contexts and failures, a flame graph of what was
live at the peak, at other moments, at the end and of all that was ever taken,
tables of lines and contexts, which device was freest when, why memory ran out,
what leaked, what the peak was made of.

The page is one file of at most 5 MiB, whatever the trace's size, and needs no
network: curves have the least and the most of each stretch of time, lists their
largest rows and the sum of the others. Moments are the highest of each of at
most 512 stretches of time. A file that is there is replaced; - is stdout.`,
		examples: []string{
			"gpuanalyze report train.gpurec -o train.html",
			"gpuanalyze report rank0.gpurec rank1.gpurec -o job.html",
			"gpuanalyze report --from scope:step#3 --to scope:step#3 train.gpurec -o step.html",
		},
		run: runReport,
	}
}

func runReport(ctx context.Context, stdout, stderr io.Writer, args []string) error {
	a := newAnalysis(reportCommand(), stdout).withStacks()
	out := a.StringP("output", "o", "", "write the page to this `FILE`")
	q, traces, err := a.query(args)
	if err != nil {
		return err
	}
	switch {
	case *out == "":
		return usagef("-o FILE.html is missing")
	case *out == "-" && a.json:
		return usagef("-o - and --json exclude each other")
	}
	if *out != "-" {
		if err := outside(*out, traces); err != nil {
			return err
		}
	}
	q.Short = !a.view.full // the page is read by people also where --json says what it is
	filtered := len(q.Processes)+len(q.Ranks)+len(q.Devices)+len(q.Threads)+len(q.Layers)+len(q.Scopes) > 0
	r, err := report.Make(ctx, len(traces), filtered, func(ctx context.Context, ans analyze.Answer, show bool) (*analyze.Completeness, error) {
		if !show {
			return a.answer(ctx, io.Discard, traces, q, ans)
		}
		return a.answer(ctx, stderr, traces, q, ans)
	})
	if err != nil {
		return err
	}
	c := r.Completeness
	var page bytes.Buffer
	if err := r.WriteHTML(&page, version(), a.limits()); err != nil {
		return err
	}
	if *out == "-" {
		if _, err := stdout.Write(page.Bytes()); err != nil {
			return err
		}
		return a.conclude(stderr, c)
	}
	if err := replace(*out, page.Bytes()); err != nil {
		return err
	}
	if a.json {
		err := writeJSON(stdout, struct {
			Completeness *analyze.Completeness `json:"completeness"`
			Output       string                `json:"output"`
			Bytes        int                   `json:"bytes"`
		}{c, *out, page.Len()})
		if err != nil {
			return fmt.Errorf("write what was made: %w", err)
		}
	} else if !a.quiet {
		fmt.Fprintf(stderr, "%s: %d bytes\n", analyze.Line(*out), page.Len())
	}
	return a.conclude(stderr, c)
}

// limits are the filters and the window, as they were given.
func (a *analysis) limits() string {
	var words []string
	for _, name := range []string{"process", "device", "thread", "rank", "layer", "scope", "from", "to"} {
		if f := a.Lookup(name); f.Changed {
			value := f.Value.String()
			if s, ok := f.Value.(pflag.SliceValue); ok {
				value = strings.Join(s.GetSlice(), ",")
			}
			words = append(words, "--"+name+" "+value)
		}
	}
	return analyze.Line(strings.Join(words, " "))
}

// replace writes a file beside its place and puts it there, so that nobody
// reads half of it. What is no file, as a pipe, is written to as it is.
func replace(path string, b []byte) error {
	if at, err := filepath.EvalSymlinks(path); err == nil {
		path = at
	}
	if fi, err := os.Stat(path); err == nil && !fi.Mode().IsRegular() {
		return os.WriteFile(path, b, 0o644)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".gpuanalyze-*")
	if err != nil {
		var at *os.PathError
		if errors.As(err, &at) {
			at.Path = path // the name that was asked for
		}
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(b)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Chmod(f.Name(), 0o644); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
