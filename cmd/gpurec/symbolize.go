package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/gpurec/gpurec/analyze/symbols"
	"github.com/gpurec/gpurec/analyze/tree"
	"github.com/gpurec/gpurec/recorder"
)

const (
	// mostDWARF is how much debug information of one file the end of a recording
	// waits for: a program's own, not that of the libraries of a framework. 8 MiB,
	// of gpuanalyze itself, take 0.2 s, and 400 MiB of symbols alone 0.4 s.
	mostDWARF = 64 << 20

	// patience is how many times as long as its CPU time naming may take where
	// others have the machine, or a file system is slow; the second half of it is for
	// writing.
	patience = 4

	// handover is for what has been told to end to say what it did.
	handover = 100 * time.Millisecond
)

// symbolize names the native frames of a trace that has just been closed, while
// the binaries are where they were: it may be read elsewhere. It ends after so much
// CPU time, or with ctx; what it has not come to, gpuanalyze symbolize does. A file
// system that does not answer is not waited for longer than patience: the call to it
// is left behind, as by a recorder that is killed. Names take room, and tables are
// written beside: a trace that is kept within so many bytes, where that is not 0, is
// left as it is unless it surely stays within them. What became of the frames is
// returned as words, "" where there are none, and a failure is said.
func symbolize(ctx context.Context, trace string, most time.Duration, within int64, say func(string)) string {
	if within > 0 && !roomy(trace, within) {
		return "native frames stay addresses, so that the trace stays within --retain: gpuanalyze symbolize -o names them in a copy"
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience*most, errors.New("it took too long"))
	defer cancel()
	start, cpu := time.Now(), recorder.CPUTime()
	type answer struct {
		r   *symbols.Report
		err error
	}
	done := make(chan answer, 1)
	go func() {
		r, err := symbols.Trace(ctx, trace, "", symbols.Options{
			Debug:    symbols.DebugDirs(),
			MaxDWARF: mostDWARF,
			Stop: func() bool {
				return time.Duration(recorder.CPUTime()-cpu) > most || time.Since(start) > patience*most/2
			},
		})
		done <- answer{r, err}
	}()
	var a answer
	select {
	case a = <-done:
	case <-ctx.Done():
		select {
		case a = <-done:
		case <-time.After(handover):
			a.err = ctx.Err()
		}
	}
	switch r := a.r; {
	case a.err != nil && ctx.Err() != nil:
		say("not all native frames have names: " + context.Cause(ctx).Error() + "; gpuanalyze symbolize does the rest")
	case a.err != nil:
		say("native frames stay addresses: " + a.err.Error() + "; gpuanalyze symbolize tries again")
	case r.Frames > 0 || r.Stopped:
		return named(r)
	}
	return ""
}

// named says how many frames have names. Where some have none it is worth another try
// only if there was no time, or if the program's own modules miss some, whose debug
// files somebody may have: the system's libraries are stripped, and stay so.
func named(r *symbols.Report) string {
	s := fmt.Sprintf("%s of %s native frames have names", grouped(uint64(r.Named)), grouped(uint64(r.Frames)))
	own := 0
	for _, m := range r.Modules {
		if tree.OwnModule(m.Path) {
			own += m.Frames - m.Named
		}
	}
	switch {
	case r.Stopped:
		s += ": gpuanalyze symbolize does the rest"
	case own > 0:
		s += fmt.Sprintf(", %s of the program's own modules have none: gpuanalyze symbolize says why, and takes debug files", grouped(uint64(own)))
	case r.Named < r.Frames:
		s += ", all of the program's own modules"
	}
	return s
}

// roomy reports whether a trace's definitions may grow fourfold within so many
// bytes: an address becomes a name, and several nodes where calls are inlined.
func roomy(trace string, within int64) bool {
	var all, definitions int64
	err := filepath.WalkDir(trace, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		all += fi.Size()
		if base := filepath.Base(path); base == "frames.arrow" || base == "stacks.arrow" {
			definitions += fi.Size()
		}
		return nil
	})
	return err == nil && all+4*definitions < within
}
