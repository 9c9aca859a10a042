// Command gpuanalyze answers from recorded traces: which line took the memory,
// what each context used and peaked at, which device was freest when.
//
//	main.go      the table of commands, help, exit codes
//	flags.go     what every analysis takes, and how it says how complete it is
//	NAME.go      one command each: a function of (ctx, stdout, stderr, args)
//
// It promises data on stdout, words on stderr, and to run wherever Go does: no
// cgo, no GPU. It refuses to record, and to be recorded.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
)

// A command is one row of what gpuanalyze can do.
type command struct {
	name     string
	args     string // after the flags, for the usage line
	short    string // one line
	long     string // help beyond it
	examples []string
	run      func(ctx context.Context, stdout, stderr io.Writer, args []string) error
}

// commands is the table, in the order of the help. A file adds its row here.
func commands() []*command {
	return []*command{
		summaryCommand(),
		linesCommand(),
		peakCommand(),
		timelineCommand(),
		contextsCommand(),
		devicesCommand(),
		oomCommand(),
		fragmentationCommand(),
		leaksCommand(),
		diffCommand(),
		ranksCommand(),
		statsCommand(),
		reportCommand(),
		eventsCommand(),
		verifyCommand(),
		repairCommand(),
		symbolizeCommand(),
		sliceCommand(),
		exportCommand(),
		importCommand(),
	}
}

// Exit codes, beside 0 and the 1 of any other error.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitPartial     = 3
	exitGate        = 4
	exitInterrupted = 130
)

// errPartial ends a command that has answered from an incomplete trace and has
// said so.
var errPartial = errors.New("answered, but events are missing")

// errGate ends a command that has answered, and a limit that the caller set is
// exceeded. It wins over errPartial.
var errGate = errors.New("a limit is exceeded")

// A usageError is the caller's mistake.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

func usagef(f string, a ...any) error { return usageError{fmt.Errorf(f, a...)} }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	go func() {
		<-ctx.Done()
		stop() // a second interrupt ends the program at once
	}()
	os.Exit(within(ctx, os.Stderr, moment, func() int { return run(ctx, os.Stdout, os.Stderr, os.Args[1:]) }))
}

// moment is what a command has for tidying up after an interrupt: longer than
// a batch takes, and shorter than anybody waits before asking again.
const moment = 2 * time.Second

// within runs f. Where it does not notice ctx's end in time, because it waits
// for a reader or a disk, it is left behind.
func within(ctx context.Context, stderr io.Writer, moment time.Duration, f func() int) int {
	done := make(chan int, 1)
	go func() { done <- f() }()
	select {
	case code := <-done:
		return code
	case <-ctx.Done():
	}
	select {
	case code := <-done:
		return code
	case <-time.After(moment):
		fmt.Fprintln(stderr, "gpuanalyze: interrupted")
		return exitInterrupted
	}
}

// run is main without the process.
func run(ctx context.Context, stdout, stderr io.Writer, args []string) int {
	if len(args) == 0 {
		writeHelp(stderr)
		return exitUsage
	}
	switch args[0] {
	case "--version":
		fmt.Fprintln(stdout, version())
		return 0
	case "help", "-h", "--help":
		if len(args) > 1 {
			return run(ctx, stdout, stderr, []string{args[1], "--help"})
		}
		writeHelp(stdout)
		return 0
	}
	for _, c := range commands() {
		if c.name == args[0] {
			return code(ctx, stderr, c, c.run(ctx, stdout, stderr, args[1:]))
		}
	}
	if _, err := format.Open(args[0]); err == nil {
		fmt.Fprintf(stderr, "gpuanalyze: there is no command %q, which is a trace; to see what it has type: gpuanalyze summary %s\n", args[0], analyze.Word(args[0]))
		return exitUsage
	}
	fmt.Fprintf(stderr, "gpuanalyze: there is no command %q; gpuanalyze help lists them\n", args[0])
	return exitUsage
}

func version() string {
	v := "gpuanalyze"
	if b, ok := debug.ReadBuildInfo(); ok {
		v += " " + b.Main.Version
	}
	return v
}

// code is the exit status of a command's error, which it prints.
func code(ctx context.Context, stderr io.Writer, c *command, err error) int {
	var usage usageError
	switch {
	case err == nil, errors.Is(err, pflag.ErrHelp):
		return 0
	case errors.Is(err, errPartial):
		return exitPartial
	case errors.Is(err, errGate):
		return exitGate
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		fmt.Fprintln(stderr, "gpuanalyze: interrupted")
		return exitInterrupted
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "gpuanalyze %s: %s\nusage: %s\ngpuanalyze %s --help says more\n", c.name, sentence(err), c.usage(), c.name)
		return exitUsage
	case errors.Is(err, syscall.EPIPE):
		return exitFailed // the reader has gone and needs no words
	}
	fmt.Fprintf(stderr, "gpuanalyze %s: %s%s\n", c.name, sentence(err), hint(err))
	return exitFailed
}

// hint is what to do about an error, where that is known.
func hint(err error) string {
	var not *format.NotTraceError
	if errors.As(err, &not) {
		if name, twin := strings.CutSuffix(strings.TrimSuffix(not.Path, ".zst"), ".txt"); twin {
			return analyze.Line(fmt.Sprintf("; gpuanalyze import text %s -o %s.gpurec makes one of a text twin", analyze.Word(not.Path), analyze.Word(filepath.Base(name))))
		}
	}
	return ""
}

// sentence is an error on one line that steers no terminal: paths and arguments
// are in it.
func sentence(err error) string { return analyze.Line(strings.ReplaceAll(err.Error(), "\n", "; ")) }

func (c *command) usage() string { return "gpuanalyze " + c.name + " [flags] " + c.args }

func writeHelp(w io.Writer) {
	fmt.Fprint(w, "gpuanalyze answers from traces that gpurec recorded.\n\nusage: gpuanalyze COMMAND [flags] TRACE...\n\n")
	for _, c := range commands() {
		fmt.Fprintf(w, "  %-13s %s\n", c.name, c.short)
	}
	fmt.Fprint(w, "\nexit status: 0 answered, 1 failed, 2 wrong usage, 3 answered but events are missing, 4 more than --fail-above, 130 interrupted\ngpuanalyze COMMAND --help says more, gpuanalyze --version which one this is\n")
}
