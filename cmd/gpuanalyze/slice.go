package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/slice"
)

func sliceCommand() *command {
	return &command{
		name:  "slice",
		args:  "TRACE -o SLICE",
		short: "a range of a trace as a trace of its own, to attach to a ticket",
		long: `
The slice begins with what was live at the begin of the range, the open scopes and
the devices' latest readings; sums and peaks begin there too. An answer from it is
the one that --from and --to give of the whole, but that leaks takes what was live
at the begin for the slice's own, contexts lists what was open then, a sampled
peak begins with the reading that held, and of what was live at the begin no scope
is inferred. Times stay those since the recording's
start; scopes of a name are counted anew. --process and --rank leave the others out.

--redact is for a trace that others will see: of command lines the program's name
stays, of paths the last two elements (from site-packages on, where they have it),
of the host's name nothing, also not in reasons and names. Functions' and scopes'
names and the devices' UUIDs stay. Without a range it is all of the trace.`,
		examples: []string{
			"gpuanalyze slice --from scope:step#3 --to scope:step#4 train.gpurec -o steps.gpurec",
			"gpuanalyze slice --redact train.gpurec -o shown.gpurec",
			"gpuanalyze slice --from 1ms --to 3ms --process 4711 train.gpurec -o part.gpurec",
		},
		run: runSlice,
	}
}

func runSlice(ctx context.Context, stdout, stderr io.Writer, args []string) error {
	a := newAnalysis(sliceCommand(), stdout)
	out := a.StringP("output", "o", "", "the `TRACE` to make; it must not exist")
	redact := a.Bool("redact", false, "leave out command lines, the host's name, and where paths begin")
	q, traces, err := a.query(args)
	switch {
	case err != nil:
		return err
	case len(traces) > 1:
		return usagef("a slice is of one trace, not of %d", len(traces))
	case *out == "":
		return usagef("-o SLICE is missing")
	case len(q.Devices)+len(q.Threads)+len(q.Layers)+len(q.Scopes) > 0:
		return usagef("a slice is limited by --from, --to, --process and --rank only: a part of a process would have frees without their allocations")
	}
	if _, err := os.Lstat(*out); err == nil {
		return fmt.Errorf("%s: it exists already; name another output or remove it", *out)
	}
	if err := outside(*out, traces); err != nil {
		return err
	}
	ans := slice.New(*out)
	ans.Redact = *redact
	defer ans.Abort()
	c, err := a.answer(ctx, stderr, traces, q, ans)
	if err != nil {
		return err
	}
	if err := ans.Close(c); err != nil {
		return err
	}
	events, samples := ans.Rows()
	if a.json {
		err := writeJSON(stdout, struct {
			Completeness *analyze.Completeness `json:"completeness"`
			Output       string                `json:"output"`
			Events       int64                 `json:"events"`
			Samples      int64                 `json:"samples"`
		}{c, *out, events, samples})
		if err != nil {
			return err
		}
	} else if !a.quiet {
		fmt.Fprintf(stderr, "%s: %d events, %d samples\n", analyze.Line(*out), events, samples)
	}
	return a.conclude(stderr, c)
}
