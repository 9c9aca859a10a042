package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/diff"
)

func diffCommand() *command {
	return &command{
		name:  "diff",
		args:  "A [B]",
		short: "what changed between two traces, or two ranges, scopes, ranks or processes of one",
		long: `
Compares the peak of used bytes (with --layer, of that layer), what each line,
function and path of scopes held at it, its own peak, what it took and how
often. A line is the innermost one of the program's own code in a stack. Lines
that only moved within their function, or with their file, are put together; such
a row names both and is inferred. Addresses, times, ids and NVML's readings are
not compared, so two runs of one program show no difference.

--a and --b say what of a trace to take; with one trace given both are of it:
scope:NAME#N, FROM..TO (TIMEs, either may be left out), rank:N or process:PID;
given several times, all of them at once. Other filters count for both sides.

--fail-above makes the exit status 4 when the peak rose from A to B by more than
that, or a device's peak did. Devices are compared by UUID, or else in order.`,
		examples: []string{
			"gpuanalyze diff before.gpurec after.gpurec",
			"gpuanalyze diff --a scope:step#10 --b scope:step#200 train.gpurec",
			"gpuanalyze diff --by function,scope before.gpurec after.gpurec",
			"gpuanalyze diff --markdown --fail-above 5% before.gpurec after.gpurec",
			"gpuanalyze diff --json --a ..2ms --b 2ms.. train.gpurec",
		},
		run: runDiff,
	}
}

func runDiff(ctx context.Context, stdout, stderr io.Writer, args []string) error {
	a := newAnalysis(diffCommand(), stdout).withStacks()
	sides := [2]*[]string{
		a.StringArray("a", nil, "of the first take this `RANGE`"),
		a.StringArray("b", nil, "of the second, or of the same trace, take this `RANGE`"),
	}
	tables := a.StringSlice("by", []string{"line", "scope"}, "tables to show: `line,function,scope`")
	markdown := a.Bool("markdown", false, "print Markdown, for a pull request")
	above := a.String("fail-above", "", "exit with 4 when the peak rose by more than `BYTES|PERCENT`: 512MiB, 5%; a number alone is bytes")
	q, traces, err := a.query(args)
	if err != nil {
		return err
	}
	if a.json && *markdown {
		return usagef("--json and --markdown exclude each other")
	}
	var by []diff.By
	for _, t := range *tables {
		b, err := diff.ParseBy(t)
		if err != nil {
			return usagef("--by: %v", err)
		}
		by = append(by, b)
	}
	var limit diff.Limit
	gated := a.Changed("fail-above") // an empty one is a mistake, and no pass
	if gated {
		if limit, err = diff.ParseLimit(*above); err != nil {
			return usagef("--fail-above: %v", err)
		}
	}
	r, err := a.compare(ctx, stderr, traces, q, sides)
	if err != nil {
		return err
	}
	if gated {
		r.Judge(limit)
	}
	switch {
	case a.json:
		err = writeJSON(stdout, r)
	case *markdown:
		err = r.WriteMarkdown(stdout, by)
	default:
		err = r.WriteText(stdout, by)
	}
	if err != nil {
		return err
	}
	err = a.conclude(stderr, r.Completeness)
	if r.Gate != nil && r.Gate.Exceeded {
		fmt.Fprintf(stderr, "gpuanalyze diff: %s\n", r.Gate.Sentence)
		return errGate
	}
	return err
}

// compare makes a pass over each side.
func (a *analysis) compare(ctx context.Context, stderr io.Writer, traces []string, q *analyze.Query, sides [2]*[]string) (*diff.Report, error) {
	switch {
	case len(traces) > 2:
		return nil, usagef("two traces are compared, not %d", len(traces))
	case len(traces) == 1 && len(*sides[0])+len(*sides[1]) == 0:
		return nil, usagef("nothing to compare it with: give a second trace, or --a and --b")
	}
	both := &analyze.Completeness{Complete: true}
	var done [2]*diff.Side
	for i, ranges := range sides {
		name := string("AB"[i])
		side := *q
		for _, s := range *ranges {
			if err := parseRange(&side, s); err != nil {
				return nil, usagef("--%s %s: %v", strings.ToLower(name), s, err)
			}
		}
		done[i] = diff.NewSide()
		c, err := a.answer(ctx, stderr, traces[min(i, len(traces)-1):][:1], &side, done[i])
		if err != nil {
			return nil, err
		}
		join(both, c, name+": ")
	}
	r := diff.Compare(done[0], done[1], both)
	r.A.Range, r.B.Range = strings.Join(*sides[0], " "), strings.Join(*sides[1], " ")
	if len(q.Layers) > 0 {
		r.Curve = strings.Join(a.layers, "+")
	}
	return r, nil
}

func join(to, c *analyze.Completeness, prefix string) {
	to.Complete = to.Complete && c.Complete
	for _, s := range c.Partial {
		to.Partial = append(to.Partial, prefix+s)
	}
	for _, s := range c.Notes {
		to.Notes = append(to.Notes, prefix+s)
	}
}

// parseRange narrows q to what a RANGE says.
func parseRange(q *analyze.Query, s string) error {
	number := func(name string, to *[]int32) (bool, error) {
		v, ok := strings.CutPrefix(s, name+":")
		if !ok {
			return false, nil
		}
		n, err := strconv.ParseInt(v, 10, 32)
		switch {
		case err != nil:
			return true, fmt.Errorf("%q is no number of a %s", v, name)
		case len(*to) > 0:
			return true, fmt.Errorf("there is a %s already: give one, and no --%s", name, name)
		}
		*to = []int32{int32(n)}
		return true, nil
	}
	if ok, err := number("rank", &q.Ranks); ok {
		return err
	}
	if ok, err := number("process", &q.Processes); ok {
		return err
	}
	if !q.From.IsZero() || !q.To.IsZero() {
		return errors.New("there is a window already: give one, and no --from and --to")
	}
	if from, to, ok := strings.Cut(s, ".."); ok && from+to != "" {
		f, errFrom := momentOrNone(from)
		t, errTo := momentOrNone(to)
		if errFrom == nil && errTo == nil {
			q.From, q.To = f, t
			return nil
		}
	}
	if !strings.HasPrefix(s, "scope:") {
		return errors.New("it is none of scope:NAME#N, FROM..TO, rank:N, process:PID")
	}
	m, err := analyze.ParseMoment(s)
	q.From, q.To = m, m
	return err
}

func momentOrNone(s string) (analyze.Moment, error) {
	if s == "" {
		return analyze.Moment{}, nil
	}
	return analyze.ParseMoment(s)
}
