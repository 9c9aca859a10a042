package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
)

func repairCommand() *command {
	return &command{
		name:  "repair",
		args:  "TRACE [-o OUT]",
		short: "close a trace whose recorder was killed, so that any tool opens its files",
		long: `
gpuanalyze answers from such a trace as it is; other tools want the files closed.
Each is cut behind its last whole batch and gets its footer, and trace.json says
that the trace was repaired, and why. OUT is a new trace, NAME-repaired.gpurec by
default; TRACE itself is changed only with --in-place. A trace that lacks nothing
is left alone, and no OUT is made.`,
		examples: []string{"gpuanalyze repair killed.gpurec", "gpuanalyze repair --in-place killed.gpurec"},
		run:      runRepair,
	}
}

// settled is for how long nothing of a trace has changed that nobody records:
// longer than a recorder keeps rows to itself.
const settled = 3 * time.Second

func runRepair(ctx context.Context, stdout, stderr io.Writer, args []string) error {
	f := newFlagSet(repairCommand(), stdout)
	out := f.StringP("output", "o", "", "the `TRACE` to make; it must not exist")
	inPlace := f.Bool("in-place", false, "change TRACE itself")
	quiet := f.BoolP("quiet", "q", false, "on stderr only errors")
	if err := f.parse(args); err != nil {
		return err
	}
	switch {
	case f.NArg() != 1:
		return usagef("want one trace, got %d", f.NArg())
	case *inPlace && *out != "":
		return usagef("--in-place makes no other trace: leave -o out")
	}
	path := f.Arg(0)
	if !*inPlace && *out == "" {
		*out = beside(path)
	}
	if *out != "" {
		if _, err := os.Lstat(*out); err == nil {
			return fmt.Errorf("%s: it exists already; name another output or remove it", *out)
		}
		if err := outside(*out, []string{path}); err != nil {
			return err
		}
	}
	if err := unattended(path, time.Now()); err != nil {
		return err
	}
	r, err := format.Repair(ctx, path, *out)
	switch {
	case err != nil:
		return err
	case *quiet:
	case !r.Needed():
		fmt.Fprintf(stderr, "%s: it is closed, there is nothing to repair\n", analyze.Line(path))
	case *inPlace:
		fmt.Fprintf(stderr, "%s: %s; %d events\n", analyze.Line(path), analyze.Line(r.String()), r.Events)
	default:
		fmt.Fprintf(stderr, "%s: %s; %d events\n", analyze.Line(*out), analyze.Line(r.String()), r.Events)
	}
	return nil
}

// beside is NAME-repaired.gpurec next to the trace, however that is named.
func beside(path string) string {
	path = filepath.Clean(path)
	if filepath.Base(path) == format.MetaFile {
		path = filepath.Dir(path)
	}
	if b := filepath.Base(path); b == "." || b == ".." { // they name nothing
		if abs, err := filepath.Abs(path); err == nil {
			path = abs
		}
	}
	return strings.TrimSuffix(path, ".gpurec") + "-repaired.gpurec"
}

// unattended refuses a trace that is being recorded, as far as this machine can
// tell: a process has a file of it open, or it has changed just now.
func unattended(path string, now time.Time) error {
	t, err := format.Open(path)
	if err != nil {
		return err
	}
	if t.Meta().Ending != format.EndGrowing {
		return nil
	}
	if pid := holder(t.Path()); pid != "" {
		return fmt.Errorf("%s: process %s has it open; repair it when that has ended", path, pid)
	}
	for _, p := range t.Parts() {
		files, _ := filepath.Glob(filepath.Join(p.Path(), "*"))
		for _, name := range files {
			if fi, err := os.Stat(name); err == nil && now.Sub(fi.ModTime()) < settled && now.After(fi.ModTime()) {
				return fmt.Errorf("%s: it changed less than %v ago and may still be recorded; try again when it has not", path, settled)
			}
		}
	}
	return nil
}

// holder is the process that has a file of a directory open, "" where none is
// seen: other users' are not, and only Linux tells.
func holder(dir string) string {
	real, err := filepath.EvalSymlinks(dir)
	if err == nil {
		real, err = filepath.Abs(real)
	}
	if err != nil {
		return ""
	}
	links, _ := filepath.Glob("/proc/[0-9]*/fd/[0-9]*")
	for _, l := range links {
		if to, err := os.Readlink(l); err == nil && strings.HasPrefix(to, real+string(filepath.Separator)) {
			return strings.Split(l, "/")[2]
		}
	}
	return ""
}
