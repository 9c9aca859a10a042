package main

import (
	"context"
	"io"

	"github.com/gpurec/gpurec/analyze/oom"
)

func oomCommand() *command {
	return &command{
		name:  "oom",
		args:  "TRACE...",
		short: "why memory ran out: the causes, who held the memory, what to do",
		long: `
A page for the failure that ended the program, or the latest: what was asked for
and by whom, where the device's memory was, who held it, what grew, which causes
the numbers support, and what these support doing. --all has a page for each.

A request counts once, however often the driver refused it and whoever reported
it. What the driver refused and a retry then got is listed apart: the program
never knew. The outcome is inferred from what came after.

Causes have thresholds, as shares of what programs can have of the device:
  own-limit           the pool refused without asking the driver
  larger-than-device  the request is
  limit-below-device  the driver refused though 5 % more than asked for was free
  kept-tensors        live memory is 25 %, and a quarter of it came with lines that
                      rose at 80 % of the looks at them, at the ends of steps: of
                      the outermost scopes that come again
  growing-memory      the same without such scopes: kept, or all of one step
  live-memory         live memory is 25 %
  huge-request        the request is 25 %
  fragmentation       what is cached and free is enough, in pieces too small
  unreachable-cache   the same, and one piece is large enough
  other-process       others have 10 %, and the request would fit without them;
                      of bytes that may be a context 1.5 GiB do not count
  untracked-use       the process has 10 % that no recorded call took, 1.5 GiB for its
                      CUcontext and modules left out
The first is the headline: what is certain, then what stands for most bytes.

The largest piece that is free in the pool is an upper bound: its streams and
private pools are not recorded. Free memory is NVML's, of the sample before or
after the failure, corrected by what recorded processes took in between.`,
		examples: []string{
			"gpuanalyze oom train.gpurec",
			"gpuanalyze oom --all --device 0 train.gpurec",
			"gpuanalyze oom --json train.gpurec",
		},
		run: runOOM,
	}
}

func runOOM(ctx context.Context, stdout, stderr io.Writer, args []string) error {
	a := newAnalysis(oomCommand(), stdout).withStacks()
	all := a.Bool("all", false, "a page for each failure")
	q, traces, err := a.query(args)
	if err != nil {
		return err
	}
	ans := oom.New()
	c, err := a.answer(ctx, stderr, traces, q, ans)
	if err != nil {
		return err
	}
	r := ans.Report(c)
	return a.print(stdout, stderr, c, r, func(w io.Writer) error { return r.WriteText(w, *all) })
}
