package main

import (
	"context"
	"io"

	"github.com/gpurec/gpurec/analyze/stats"
)

func statsCommand() *command {
	return &command{
		name:  "stats",
		args:  "TRACE...",
		short: "how memory is used: sizes, lifetimes, rates, functions, lines, pool hits, and what it was for",
		long: `
Sizes, rates and lines are of what was taken in the window, lifetimes of what was
given back in it; lines are the program's own, at the layer of used bytes. Time in
a function is that of its calls whose duration is recorded: all that take from the
driver, and frees over 10 µs.

A pool's allocation needed the driver when it lies in memory that the same thread
took from the driver since its allocation before.

What memory was for is inferred. The phase it was taken in is read from the names
of the open scopes (*forward*, *backward*, *optim*), else from the stack (functions
called forward; torch/autograd and its threads; torch/optim). What stays until the
process takes memory in another phase is activations, gradients or optimizer state,
what was given back before temporary. Taken outside the phases, what stays for at
least half of the run so far is weights, the rest inputs and other.`,
		examples: []string{
			"gpuanalyze stats train.gpurec",
			"gpuanalyze stats --json --from 1ms train.gpurec",
		},
		run: runStats,
	}
}

func runStats(ctx context.Context, stdout, stderr io.Writer, args []string) error {
	a := newAnalysis(statsCommand(), stdout).withStacks()
	q, traces, err := a.query(args)
	if err != nil {
		return err
	}
	ans := stats.New()
	c, err := a.answer(ctx, stderr, traces, q, ans)
	if err != nil {
		return err
	}
	r := ans.Report(c)
	return a.print(stdout, stderr, c, r, r.WriteText)
}
