package main

import (
	"context"
	"io"

	"github.com/gpurec/gpurec/analyze/ranks"
)

func ranksCommand() *command {
	return &command{
		name:  "ranks",
		args:  "TRACE...",
		short: "the processes of a job beside each other: peaks, outliers, imbalance, who died first",
		long: `
A row for each process that took GPU memory, of all traces: its rank where the
environment said one, its peaks, what it held at its end, how it ended and which
scopes were open then (step#3: the third of its process). An outlier is a rank whose
peak of used bytes is farther from the median than 3.5 deviations (median absolute
deviation times 1.4826) and than 5 % of it; it takes 3 ranks to say so. The imbalance
is the largest peak against the mean.

A rank has died when its status is not 0, and has run out of memory when a request
failed for the program: what the driver refused and the pool's retry served is in a
column of its own. Between hosts times are as good as their clocks.`,
		examples: []string{
			"gpuanalyze ranks rank0.gpurec",
			"gpuanalyze ranks --json train.gpurec",
		},
		run: runRanks,
	}
}

func runRanks(ctx context.Context, stdout, stderr io.Writer, args []string) error {
	a := newAnalysis(ranksCommand(), stdout).withStacks()
	q, traces, err := a.query(args)
	if err != nil {
		return err
	}
	ans := ranks.New()
	c, err := a.answer(ctx, stderr, traces, q, ans)
	if err != nil {
		return err
	}
	r := ans.Report(c)
	return a.print(stdout, stderr, c, r, r.WriteText)
}
