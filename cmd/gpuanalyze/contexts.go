package main

import (
	"context"
	"fmt"
	"io"

	"github.com/gpurec/gpurec/analyze/scopes"
)

func contextsCommand() *command {
	return &command{
		name:  "contexts",
		args:  "TRACE...",
		short: "what each context (NVTX range or gpurec scope) used and peaked at",
		long: `
used is the curve at the scope's end less the curve at its begin; peaked is the
highest value in between less the higher of both ends. begin, end and max are
the curve's values, in bytes; n counts the scopes of a name: step#2 is its second.
Scopes may nest and overlap, each has its own peak. The curves used and acquired
are exact, and the process's: what other threads take in between is in them. nvml
is sampled, and is the device's: all processes.

--process, --rank, --thread and --scope choose scopes; --device and --layer
choose what is counted. --from and --to choose scopes that begin in between. --domain
chooses by NVTX domain, in which libraries have their ranges: "default" are those
of none, and gpurec's scopes. --without-domain leaves some out.

--units fastai prints the lines of fastai's GPUMemTrace, in whole MB: one for
each report of a scope, and one at the end of a scope that reported nothing. Its
curve is nvml unless --curve says otherwise, or used where there are no samples.`,
		examples: []string{
			"gpuanalyze contexts train.gpurec",
			"gpuanalyze contexts --by name train.gpurec",
			"gpuanalyze contexts --curve acquired --scope step#3 train.gpurec",
			"gpuanalyze contexts --domain default train.gpurec",
			"gpuanalyze contexts --units fastai train.gpurec",
		},
		run: runContexts,
	}
}

func runContexts(ctx context.Context, stdout, stderr io.Writer, args []string) error {
	a := newAnalysis(contextsCommand(), stdout)
	curveName := a.String("curve", "used", "`used|acquired|nvml`")
	by := a.String("by", "scope", "a row for each `scope|name`")
	only := a.StringSlice("domain", nil, "only ranges of these NVTX `DOMAIN`s; default is none")
	without := a.StringSlice("without-domain", nil, "no ranges of these NVTX `DOMAIN`s")
	units := a.String("units", "bytes", "`bytes|fastai`")
	q, traces, err := a.query(args)
	if err != nil {
		return err
	}
	curve, err := scopes.ParseCurve(*curveName)
	if err != nil {
		return usagef("--curve: %v", err)
	}
	if *by != "scope" && *by != "name" {
		return usagef("--by %s: it is scope or name", *by)
	}
	if *units != "bytes" && *units != "fastai" {
		return usagef("--units %s: it is bytes or fastai", *units)
	}
	if *units == "fastai" && *by == "name" {
		return usagef("--units fastai and --by name exclude each other: fastai's lines are each a scope's")
	}
	free := *units == "fastai" && !a.Changed("curve")
	if free {
		curve = scopes.NVML
	}
	ans := scopes.New(curve, len(traces)).Domains(*only, *without)
	c, err := a.answer(ctx, stderr, traces, q, ans)
	if err == nil && free && !ans.Sampled() {
		curve = scopes.Used
		ans = scopes.New(curve, len(traces)).Domains(*only, *without)
		c, err = a.answer(ctx, stderr, traces, q, ans)
	}
	if err != nil {
		return err
	}
	r := ans.Report(c)
	skipped := 0
	switch {
	case a.json && *by == "name":
		err = writeJSON(stdout, r.ByName())
	case a.json:
		err = writeJSON(stdout, r)
	case *units == "fastai":
		skipped, err = r.WriteFastai(stdout)
	case *by == "name":
		err = r.ByName().WriteText(stdout)
	default:
		err = r.WriteText(stdout)
	}
	if err != nil {
		return err
	}
	if !a.quiet && !a.json {
		if free && curve == scopes.Used {
			fmt.Fprintln(stderr, "note: there are no samples, so the curve is used and not nvml")
		}
		if skipped > 0 {
			fmt.Fprintf(stderr, "note: %d lines left out: the curve is unknown there\n", skipped)
		}
		if len(r.Scopes) == 0 {
			fmt.Fprintln(stderr, "note: there are no contexts")
		}
	}
	return a.conclude(stderr, c)
}
