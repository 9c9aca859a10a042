package main

import (
	"context"
	"io"

	"github.com/gpurec/gpurec/analyze/peak"
	"github.com/gpurec/gpurec/analyze/tree"
)

func peakCommand() *command {
	return &command{
		name:  "peak",
		args:  "TRACE...",
		short: "what was live when a device's memory use was highest, and what NVML's number was made of",
		long: `
For each device the first moment at which its used bytes were highest: the open
contexts, what was live then by line, own line (the innermost outside installed
packages), function, context and size, and as a tree; and each process at its own
peak. The rows of each table add up to the peak.

The parts add up to what NVML read nearest to the peak and away from driver calls.
Used, pool slack and driver allocations outside pools are sums of events. Inferred
are: rounding, from the granules of 2 MiB that addresses touch; the context, what
NVML counts for a process beyond its allocations when it takes its first memory,
at most 4 GiB; modules, later steps of at most 256 MiB, and 2 GiB in all; other
processes, NVML's used bytes less those it names for the traced ones. Only
unexplained is a remainder. A context marked (inferred) is what a thread without
scopes took, as PyTorch's backward pass does, while one other was in it: --infer off
has none.`,
		examples: []string{
			"gpuanalyze peak train.gpurec",
			"gpuanalyze peak --by own-line --top 0 train.gpurec",
			"gpuanalyze peak --from scope:step#3 --to scope:step#3 --by tree train.gpurec",
			"gpuanalyze peak --json --process 4711 train.gpurec",
		},
		run: runPeak,
	}
}

func runPeak(ctx context.Context, stdout, stderr io.Writer, args []string) error {
	a := newAnalysis(peakCommand(), stdout).withStacks()
	by := a.String("by", "all", "`WHAT` to show: parts, tree, line, own-line, function, scope, size, process, or all of them")
	top := a.Int("top", 10, "this many `ROWS` of each table; 0 is all")
	depth := a.Int("max-depth", 0, "keep the root and the outermost lines down to this `DEPTH`; the root is 1; 0 keeps all")
	q, traces, err := a.query(args)
	if err != nil {
		return err
	}
	if _, err := tree.ParseBy(*by); err != nil && *by != "all" && *by != "parts" && *by != "tree" {
		return usagef("--by %s: it is parts, tree, line, own-line, function, scope, size or process", *by)
	}
	if *top < 0 {
		return usagef("--top %d: it is a number of rows, or 0 for all", *top)
	}
	ans := peak.New(*depth, len(traces))
	if !a.json {
		ans.Fold()
	}
	c, err := a.answer(ctx, stderr, traces, q, ans)
	if err != nil {
		return err
	}
	r := ans.Report(c)
	return a.print(stdout, stderr, c, r, func(w io.Writer) error { return r.WriteText(w, peak.Text{By: *by, Top: *top}) })
}
