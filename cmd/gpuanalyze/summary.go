package main

import (
	"context"
	"io"

	"github.com/gpurec/gpurec/analyze/summary"
)

func summaryCommand() *command {
	return &command{
		name:  "summary",
		args:  "TRACE...",
		short: "what was recorded, of whom and when, how complete it is, peaks and failures",
		long: `
What a trace is: command, host, devices, processes, threads, events by kind, layer
and function, what was lost or not recorded, the peak of each device (used and
acquired are exact, NVML's is sampled) and process, and failed allocations: where
they were, and the command that says what was live then. With --from and --to
every number is that of the time in between.`,
		examples: []string{
			"gpuanalyze summary train.gpurec",
			"gpuanalyze summary --json --from scope:step#3 --to scope:step#3 train.gpurec",
		},
		run: runSummary,
	}
}

func runSummary(ctx context.Context, stdout, stderr io.Writer, args []string) error {
	a := newAnalysis(summaryCommand(), stdout).withStacks()
	q, traces, err := a.query(args)
	if err != nil {
		return err
	}
	ans := summary.New()
	c, err := a.answer(ctx, stderr, traces, q, ans)
	if err != nil {
		return err
	}
	r := ans.Report(c)
	return a.print(stdout, stderr, c, r, r.WriteText)
}
