package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/verify"
	"github.com/gpurec/gpurec/format"
)

func verifyCommand() *command {
	return &command{
		name:  "verify",
		args:  "TRACE...",
		short: "read everything, and say whether it holds together",
		long: `
Every table of every part is read. What no writer writes is a fault: damage, ids
without a definition, missing numbers in a thread's events that no Lost row
counts, a checkpoint that is not the fold of the events before it. A trace is
partial when it is sound and events are known to be missing. PyTorch's own sums,
where it reported them, are compared with the fold's.

Exit status: 0 sound, 3 sound but partial, 1 faulty.`,
		examples: []string{"gpuanalyze verify train.gpurec", "gpuanalyze verify --json train.gpurec"},
		run:      runVerify,
	}
}

func runVerify(ctx context.Context, stdout, stderr io.Writer, args []string) error {
	f := newFlagSet(verifyCommand(), stdout)
	asJSON := f.Bool("json", false, "print JSON")
	quiet := f.BoolP("quiet", "q", false, "no report: only faults, and what is missing, on stderr")
	if err := f.parse(args); err != nil {
		return err
	}
	if f.NArg() == 0 {
		return usagef("no trace given")
	}
	var reports []*verify.Report
	faults, partial := 0, false
	for _, path := range f.Args() {
		t, err := format.Open(path)
		if err != nil {
			return err
		}
		var show func(done, of int)
		bar := newProgress(stderr, "parts")
		if bar != nil {
			show = func(done, of int) { bar.show(int64(done), int64(of)) }
		}
		r, err := verify.Verify(ctx, t, show)
		if bar != nil {
			bar.clear()
		}
		if err != nil {
			return err
		}
		reports = append(reports, r)
		faults += len(r.Faults)
		partial = partial || len(r.Partial) > 0
	}
	switch {
	case *asJSON:
		err := writeJSON(stdout, struct {
			Traces []*verify.Report `json:"traces"`
		}{reports})
		if err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
	case *quiet:
		for _, r := range reports {
			for _, s := range slices.Concat(r.Faults, r.Partial) {
				fmt.Fprintln(stderr, analyze.Line(r.Path+": "+s))
			}
		}
	default:
		for i, r := range reports {
			if i > 0 {
				fmt.Fprintln(stdout)
			}
			if err := r.WriteText(stdout); err != nil {
				return fmt.Errorf("write the report: %w", err)
			}
		}
	}
	switch {
	case faults == 1:
		return fmt.Errorf("there is a fault")
	case faults > 1:
		return fmt.Errorf("there are %d faults", faults)
	case partial:
		if !*quiet {
			fmt.Fprintln(stderr, "gpuanalyze verify: sound, but events are missing")
		}
		return errPartial
	}
	return nil
}
