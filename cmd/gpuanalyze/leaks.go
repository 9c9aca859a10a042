package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/leaks"
)

func leaksCommand() *command {
	return &command{
		name:  "leaks",
		args:  "TRACE...",
		short: "what was not given back: live at the end, growing from step to step, and what was only temporary",
		long: `
For each process, of what its used layer and pinned host memory hold (--layer
driver looks at what was taken from the driver, a pool's segments too):

live at end   what was live just before the process ended, or at the window's
              end. With --from or --scope: of what was taken there. A fact, no
              verdict: a program that ends need not tidy up.
growth        sites that hold more and more, by the least they held in each
              stretch of the run. A stretch is a turn of a scope that is
              repeated: the outermost one whose turns have at least half of all
              allocations, or --per; where there is none, a length of time. It
              takes 8 stretches (turns after the first, unless --per names the
              scope), of 10 ms or more; where there are over 32 they are joined.
              The first quarter is left out as warm-up, the rest cut into up to 8
              parts. A site grows when the mean of its rises in these is above 0
              with 95 % certainty: one jump is no growth. This is inferred.
temporaries   allocations that the same thread gave back within
              --temporary-events of its own events, or within --temporary-time.

A site is a whole stack, or with --by line or --by function all stacks of one
line or function of the program's own code, that is: not below site-packages and
the like. --suppress names a file of places whose memory is kept on purpose, a
pattern a line, compared with each file:line:function of a stack, or with what
follows a / of it: * is any text, # begins a comment.`,
		examples: []string{
			"gpuanalyze leaks train.gpurec",
			"gpuanalyze leaks --per step --by line train.gpurec",
			"gpuanalyze leaks --scope step#200 train.gpurec",
			"gpuanalyze leaks --json --from 1ms train.gpurec",
		},
		run: runLeaks,
	}
}

func runLeaks(ctx context.Context, stdout, stderr io.Writer, args []string) error {
	a := newAnalysis(leaksCommand(), stdout).withStacks()
	by := a.String("by", "stack", "a site is a `stack|line|function`")
	opt := leaks.Options{}
	a.StringVar(&opt.Per, "per", "", "growth from turn to turn of this `SCOPE`")
	a.Int64Var(&opt.TemporaryEvents, "temporary-events", leaks.TemporaryEvents, "a temporary is freed within `N` events of its thread; 0 for none")
	a.DurationVar(&opt.TemporaryTime, "temporary-time", 0, "or within this `TIME`")
	suppress := a.String("suppress", "", "leave out the places in this `FILE`")
	q, traces, err := a.query(args)
	if err != nil {
		return err
	}
	if opt.By, err = leaks.ParseBy(*by); err != nil {
		return usagef("--by: %v", err)
	}
	if opt.TemporaryEvents < 0 || opt.TemporaryTime < 0 {
		return usagef("a temporary cannot be freed before it was taken")
	}
	if *suppress != "" {
		if opt.Suppressions, err = readSuppressions(*suppress); err != nil {
			return err
		}
	}
	ans := leaks.New(opt)
	c, err := a.answer(ctx, stderr, traces, q, ans)
	if err != nil {
		return err
	}
	r := ans.Report(c)
	if err := a.write(stdout, r, r.WriteText); err != nil {
		return err
	}
	if !a.quiet {
		for _, n := range r.Rules.Unused {
			fmt.Fprintf(stderr, "note: %s: line %d matched nothing\n", analyze.Line(*suppress), n)
		}
	}
	return a.conclude(stderr, c)
}

func readSuppressions(path string) (*leaks.Suppressions, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	s, err := leaks.ReadSuppressions(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}
