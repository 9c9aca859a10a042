package main

import (
	"context"
	"fmt"
	"io"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/lines"
)

func linesCommand() *command {
	return &command{
		name:  "lines",
		args:  "TRACE...",
		short: "which line took the memory: a tree of file:line:function (used, acquired)",
		long: `
--at total (the default) is what CuPy's LineProfileHook prints, to the character:
everything ever taken, failed attempts included, nothing subtracted; where CuPy's
pool is used with Python's launchers and imports, as there. --at peak is what was
live when a device's used bytes were highest (with several devices a tree each),
--at end what was live when each process ended, and --at TIME what was live then.

used is what the pool layer handed out (PyTorch, CuPy, stream-ordered pools), or
the driver layer of a process that never used a pool; acquired is what was taken
from the driver. Inside a scope that gpurec.LineProfileHook opened, --scope makes
both CuPy's own numbers. A recursion, of up to four lines that call each other in
turn, is one line with a count (× 40) where people read what was live. [thread NAME] stands for what was taken where no Python
ran, as in PyTorch's backward pass. --scope is exact: what the scope's own thread
did; a note says what --infer scope adds.

--by-scope is a table in place of the tree: each line of the program's own code, and
under it how much it took in which scopes, whichever moment --at says.`,
		examples: []string{
			"gpuanalyze lines train.gpurec",
			"gpuanalyze lines --at peak --max-depth 6 train.gpurec",
			"gpuanalyze lines --at scope:step#200 train.gpurec",
			"gpuanalyze lines --scope forward#3 train.gpurec",
			"gpuanalyze lines --by-scope --at peak train.gpurec",
			"gpuanalyze lines --json --at end train.gpurec",
		},
		run: runLines,
	}
}

// deep is where indented JSON becomes mostly indentation.
const deep = 200

func runLines(ctx context.Context, stdout, stderr io.Writer, args []string) error {
	a := newAnalysis(linesCommand(), stdout).withStacks()
	at := a.String("at", "total", "`WHEN`: what was taken in total, or was live at the peak, at the end or at a TIME")
	depth := a.Int("max-depth", 0, "keep the root and the outermost lines down to this `DEPTH`; the root is 1; 0 or less keeps all, as CuPy's max_depth does")
	byScope := a.Bool("by-scope", false, "a table instead of the tree: the innermost line of the program's own code, and how much it took in which scopes")
	q, traces, err := a.query(args)
	if err != nil {
		return err
	}
	var kind lines.At
	switch *at {
	case "total":
		kind = lines.Total
	case "peak":
		kind = lines.Peak
	case "end":
		kind = lines.End
	default:
		if !q.To.IsZero() {
			return usagef("--at TIME and --to exclude each other")
		}
		kind = lines.Moment
		if q.To, err = analyze.ParseMoment(*at); err != nil {
			return usagef("--at: neither total, peak nor end: %v", err)
		}
	}
	if kind == lines.Total && !*byScope {
		q.Short = false // as CuPy prints it
	}
	ans := lines.New(kind, *depth, len(traces))
	if kind != lines.Total && !a.json {
		ans.Fold()
	}
	if *byScope {
		if a.Changed("max-depth") {
			return usagef("--by-scope is no tree: it has no --max-depth")
		}
		ans.ByScope()
	}
	c, err := a.answer(ctx, stderr, traces, q, ans)
	if err != nil {
		return err
	}
	r := ans.Report(c)
	if err := a.write(stdout, r, r.WriteText); err != nil {
		return err
	}
	if !a.quiet && !a.json {
		if kind == lines.Peak && len(r.Trees) == 1 && r.Trees[0].Title != "" {
			fmt.Fprintln(stderr, r.Trees[0].Title)
		}
		if w := r.NoLine.Words(); w != "" {
			fmt.Fprintf(stderr, "note: %s\n", w)
		}
	}
	return a.conclude(stderr, c)
}
