package main

import (
	"context"
	"io"

	"github.com/gpurec/gpurec/analyze/devices"
)

func devicesCommand() *command {
	return &command{
		name:  "devices",
		args:  "TRACE...",
		short: "which device was freest when, and what each device held",
		long: `
The first table is the history of the device with the most free memory: each row
is a stretch of time, the device (at a tie the one with the lowest index), and
its free bytes at the start, and the least and most of them in between. Below
stand each device's curves, with means weighted by time.

used, free and reserved are NVML's, of all processes, and sampled: between two
samples a peak may be missed. acquired is what the traced processes took from
the driver, and is exact, or "at least" where events are missing; --process,
--rank, --thread, --layer and --scope limit it alone. used + free is not total: NVML's second memory call keeps reserved
apart, its first counts it in used, and the table says which one it was.

Without samples, free is a device's total less acquired.`,
		examples: []string{
			"gpuanalyze devices train.gpurec",
			"gpuanalyze devices --from 10s --to 20s train.gpurec",
			"gpuanalyze devices --device GPU-5c2f --json train.gpurec",
		},
		run: runDevices,
	}
}

func runDevices(ctx context.Context, stdout, stderr io.Writer, args []string) error {
	a := newAnalysis(devicesCommand(), stdout)
	q, traces, err := a.query(args)
	if err != nil {
		return err
	}
	var ans devices.Answer
	c, err := a.answer(ctx, stderr, traces, q, &ans)
	if err != nil {
		return err
	}
	r := ans.Report(c)
	return a.print(stdout, stderr, c, r, r.WriteText)
}
