package main

import (
	"context"
	"io"

	"github.com/gpurec/gpurec/analyze/fragmentation"
)

func fragmentationCommand() *command {
	return &command{
		name:  "fragmentation",
		args:  "TRACE...",
		short: "what of a pool's memory is free and cannot be used: segments, holes, what pins them",
		long: `
A pool is a process's on a device: PyTorch's caching allocator, CuPy's pool. What
it took from the driver in one piece is a segment. Free memory in a segment that
holds a block is pinned: it cannot be given back, and what is larger than the
hole does not fit.

--at worst (the default) is the moment with most pinned bytes, --at end when each
process ended, --at TIME that moment: the one that gpuanalyze oom names.

What still fits is an upper bound: which stream or private pool a hole belongs to
is not recorded. Of a line that pins, free is all that is free in its segments,
and alone what of it is in segments where no other line has a block.`,
		examples: []string{
			"gpuanalyze fragmentation train.gpurec",
			"gpuanalyze fragmentation --at 0.0035s --most 5 train.gpurec",
			"gpuanalyze fragmentation --at end --process 4711 train.gpurec",
			"gpuanalyze fragmentation --json train.gpurec",
		},
		run: runFragmentation,
	}
}

func runFragmentation(ctx context.Context, stdout, stderr io.Writer, args []string) error {
	a := newAnalysis(fragmentationCommand(), stdout).withStacks()
	at := a.String("at", "worst", "`worst|end|TIME`")
	most := a.Int("most", 20, "print at most so many segments and lines of a pool, `N`; 0 prints all, and so does --json")
	q, traces, err := a.query(args)
	if err != nil {
		return err
	}
	var kind fragmentation.At
	switch *at {
	case "worst":
		kind = fragmentation.Worst
	case "end":
		kind = fragmentation.End
	default:
		if !q.To.IsZero() {
			return usagef("--at TIME and --to exclude each other")
		}
		kind = fragmentation.Moment
		if q.To, err = parseMoment("--at", *at); err != nil {
			return err
		}
	}
	ans := fragmentation.New(kind)
	c, err := a.answer(ctx, stderr, traces, q, ans)
	if err != nil {
		return err
	}
	r := ans.Report(c)
	return a.print(stdout, stderr, c, r, func(w io.Writer) error { return r.WriteText(w, *most) })
}
