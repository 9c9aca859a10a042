package main

import (
	"context"
	"io"

	"github.com/gpurec/gpurec/analyze/timeline"
)

func timelineCommand() *command {
	return &command{
		name:  "timeline",
		args:  "TRACE...",
		short: "live bytes over time per device, layer, class, process, context or line",
		long: `
A plot for each device, or a line for each series, all to one scale; --rows prints
the numbers. Time is cut into at most --points buckets, each with the least and
the most of its time, so that no peak is hidden: the largest bucket is the peak, to
the byte.

--by scope, line, own-line and function show the --top series with the largest
peaks, and all of them together; each has its peak at its own time. --by layer has
each layer and class, --by class what was taken from the driver or pinned. --curve
acquired follows the driver layer, nvml what NVML sampled of devices.`,
		examples: []string{
			"gpuanalyze timeline train.gpurec",
			"gpuanalyze timeline --by line --top 5 --points 60 train.gpurec",
			"gpuanalyze timeline --rows --from scope:step#3 --to scope:step#3 train.gpurec",
			"gpuanalyze timeline --json --points 1000 --by scope train.gpurec",
		},
		run: runTimeline,
	}
}

// mostPoints bounds what a series costs.
const mostPoints = 10_000

func runTimeline(ctx context.Context, stdout, stderr io.Writer, args []string) error {
	a := newAnalysis(timelineCommand(), stdout).withStacks()
	by := a.String("by", "device", "a series for each `WHAT`: device, layer, class, process, scope, line, own-line or function")
	curve := a.String("curve", "used", "`used|acquired|nvml`")
	points := a.Int("points", 64, "at most this `NUMBER` of buckets; a plot is as wide")
	top := a.Int("top", 10, "at most this `NUMBER` of series by scope, line, own-line and function; 0 is all")
	rows := a.Bool("rows", false, "print a row for each series and bucket, in bytes")
	q, traces, err := a.query(args)
	if err != nil {
		return err
	}
	o := timeline.Options{Points: *points, Top: *top}
	if o.By, err = timeline.ParseBy(*by); err != nil {
		return usagef("--by: %v", err)
	}
	if o.Curve, err = timeline.ParseCurve(*curve); err != nil {
		return usagef("--curve: %v", err)
	}
	switch {
	case o.Curve == timeline.NVML && o.By != timeline.ByDevice:
		return usagef("--curve nvml is of devices: it goes with --by device only")
	case *points < 1 || *points > mostPoints:
		return usagef("--points %d: it is 1 to %d", *points, mostPoints)
	case *top < 0:
		return usagef("--top %d: it is a number of series, or 0 for all", *top)
	case *rows && a.json:
		return usagef("--rows and --json exclude each other")
	}
	ans := timeline.New(o)
	c, err := a.answer(ctx, stderr, traces, q, ans)
	if err != nil {
		return err
	}
	r := ans.Report(c)
	switch {
	case a.json:
		err = writeJSONLine(stdout, r)
	case *rows:
		err = r.WriteRows(stdout)
	default:
		err = r.WritePlot(stdout)
	}
	if err != nil {
		return err
	}
	return a.conclude(stderr, c)
}
