package main

import (
	"context"
	"time"

	"github.com/gpurec/gpurec/analyze/symbols"
	"github.com/gpurec/gpurec/recorder"
)

const (
	// mostDWARF is how much debug information of one file the end of a recording
	// waits for: a program's own, not that of the libraries of a framework. 8 MiB,
	// of gpuanalyze itself, take 0.2 s, and 400 MiB of symbols alone 0.4 s.
	mostDWARF = 64 << 20

	// patience is how many times as long as its CPU time naming may take where
	// others have the machine.
	patience = 4
)

// symbolize names the native frames of a trace that has just been closed, while
// the binaries are where they were: it may be read elsewhere. It ends after so much
// CPU time; what it has not come to, gpuanalyze symbolize does.
func symbolize(trace string, most time.Duration, verbose bool, say func(string)) {
	start, cpu := time.Now(), recorder.CPUTime()
	r, err := symbols.Trace(context.Background(), trace, "", symbols.Options{
		Debug:    []string{symbols.DebugDir},
		MaxDWARF: mostDWARF,
		Stop: func() bool {
			return time.Duration(recorder.CPUTime()-cpu) > most || time.Since(start) > patience*most
		},
	})
	switch {
	case err != nil:
		say("native frames stay addresses: " + err.Error() + "; gpuanalyze symbolize tries again")
	case r.Frames > 0 && verbose:
		s := r.String()
		if r.Named < r.Frames || r.Stopped {
			s += "; gpuanalyze symbolize says why, and does the rest"
		}
		say(s)
	}
}
