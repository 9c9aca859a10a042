package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/gpurec/gpurec/cuda"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/recorder"
)

const runHelp = `gpurec run [flags] -- COMMAND [ARG…]

Records every event that takes or gives back GPU memory in COMMAND and all its
children, into a directory that gpuanalyze reads. The command's output, signals
and exit status are unchanged.

The recording ends when the command has ended and all its children too, at most
2 seconds after the command, or when gpurec is interrupted meanwhile. NVML is read
from when a program first uses a device, or from 0.25 seconds on: what is over
sooner and uses none does without.

Exit: the command's own status, 128+signal for a signal; 127 the command is not
there, 126 it cannot be run, 125 gpurec itself failed and the command was not
started: the trace cannot be made, say. With --best-effort the command runs
unrecorded then, and stderr says so. What fails later, a full disk, a directory
that goes, never touches the command: the trace ends there and says why.

With --metrics the numbers of this moment can be scraped by Prometheus, used, peak
and free bytes by device and process, at http://127.0.0.1:PORT/metrics unless a
host is named. A port that is taken is said, and the recording goes on.

With --retain a job of any length records in bounded space: the oldest parts of
the trace go, the newest answer alone, and every report says since when they do.

Examples:
  gpurec run -- python train.py --epochs 3
  gpurec run --retain 2GiB -o last.gpurec -- python serve.py
  gpurec run -o train.gpurec --stacks none -- ./a.out
  gpurec run --metrics 9400 -- torchrun --nproc-per-node 8 train.py
  torchrun --nproc-per-node 8 --no-python gpurec run -o 'rank%r.gpurec' -- python train.py
  GPUREC_OUTPUT=/scratch/%h-%p-%t.gpurec gpurec run -- ./job.sh
`

// grace is how long the command's children may outlive it and still be recorded:
// those that finish up. Daemons are left running and unrecorded.
const grace = 2 * time.Second

// settings are the flags of a recording.
type settings struct {
	output      string
	stacks      choice
	maxFrames   int
	interval    time.Duration
	laneSize    size
	onFull      choice
	waitBudget  time.Duration
	rotateSize  size
	rotateEvery time.Duration
	retain      retention
	metrics     endpoint
	symbolize   time.Duration
	simulate    int
	noPython    bool
	deepbind    bool
	bestEffort  bool
	redact      bool
	verbose     bool
	quiet       bool
}

func (o *settings) flags(name string) *pflag.FlagSet {
	f := pflag.NewFlagSet(name, pflag.ContinueOnError)
	f.SortFlags = false
	o.stacks = choice{"auto", []string{"auto", "none", "python", "native", "both"}}
	o.onFull = choice{"drop", []string{"drop", "wait"}}
	o.laneSize = format.DefaultLane
	f.StringVarP(&o.output, "output", "o", "", "trace to make, in a directory that is there; %h host, %p process, %t time, %r rank (torchrun's, MPI's or Slurm's, else 0) (default COMMAND-HOST-PID-TIME.gpurec)")
	f.Var(&o.stacks, "stacks", "whose frames to record; auto: Python's, and native ones on threads without and beside them where the driver is called")
	f.IntVar(&o.maxFrames, "max-frames", 128, "frames of a stack, the innermost ones")
	f.DurationVar(&o.interval, "sample-interval", 10*time.Millisecond, "between readings of NVML, 0 for none")
	f.Var(&o.laneSize, "lane-size", "buffer of each thread, 256KiB to 256MiB, rounded up to a power of two")
	f.Var(&o.onFull, "on-full", "what a full buffer does: drop and count, or let the thread wait")
	f.DurationVar(&o.waitBudget, "wait-budget", time.Second, "with --on-full wait: for how long of each second a thread may be held; beyond it a full buffer drops and counts")
	f.Var(&o.rotateSize, "rotate-size", "begin a new part of the trace after so many bytes, 0 never")
	f.DurationVar(&o.rotateEvery, "rotate-every", 0, "begin a new part of the trace after this time, 0 never")
	f.Var(&o.retain, "retain", "keep the newest parts of the trace, in so many bytes of disk or of so much time at least (10m is minutes, 10MiB bytes); parts are then an eighth of the bytes, a quarter of the time; 0 keeps all")
	f.Var(&o.metrics, "metrics", metricsUsage)
	f.DurationVar(&o.symbolize, "symbolize", 2*time.Second, "CPU time for naming native frames when the recording has ended, so that a trace that is carried elsewhere has names; 0 leaves that to gpuanalyze symbolize")
	f.IntVar(&o.simulate, "simulate-gpu", 0, "put gpurec's simulated GPU in front of the real one, with 2 devices or =N, of 16GiB each or of GPUREC_SIM_MEMORY")
	f.Lookup("simulate-gpu").NoOptDefVal = "2"
	f.BoolVar(&o.noPython, "no-python", false, "keep gpurec's Python package off the path: CuPy's pool is then not seen, and import gpurec fails")
	f.BoolVar(&o.redact, "redact", false, "leave out of the trace command lines but for the program's name, the host's name, also from the trace's own unless -o has it, and of paths all but the last two elements; native frames stay addresses")
	f.BoolVar(&o.deepbind, "deepbind", false, "record libraries that are opened with RTLD_DEEPBIND too: their ways to the driver are led past the flag, their other functions are not")
	f.BoolVar(&o.bestEffort, "best-effort", false, "run the command unrecorded where no trace can be made, instead of not at all")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "say what was recorded and what was not, also when stderr is no terminal")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "say nothing but errors")
	return f
}

func run(ctx context.Context, stdout, stderr io.Writer, args []string) int {
	var o settings
	flags := o.flags("run")
	if status, done := parse(flags, runHelp, stdout, stderr, args); done {
		return status
	}
	if flags.NArg() == 0 {
		fmt.Fprintln(stderr, "gpurec: no command; type: gpurec run -- COMMAND [ARG…]")
		return failed
	}
	if err := o.check(); err != nil {
		fmt.Fprintf(stderr, "gpurec: %v; see gpurec run --help\n", err)
		return failed
	}
	return o.record(stderr, flags.Args(), args)
}

func (o *settings) check() error {
	switch {
	case o.laneSize < format.MinLaneSize || o.laneSize > format.MaxLaneBytes:
		return fmt.Errorf("--lane-size %s: want %d KiB to %d MiB", o.laneSize.String(), format.MinLaneSize>>10, format.MaxLaneBytes>>20)
	case o.maxFrames < 1 || o.maxFrames > format.MaxFrames:
		return fmt.Errorf("--max-frames %d: want 1 to %d", o.maxFrames, format.MaxFrames)
	case o.interval < 0 || o.interval > 0 && o.interval < time.Millisecond:
		return fmt.Errorf("--sample-interval %v: want 1ms or more, or 0", o.interval)
	case o.waitBudget <= 0 || o.waitBudget > time.Second:
		return fmt.Errorf("--wait-budget %v: want more than 0 and 1s at most", o.waitBudget)
	case o.rotateEvery < 0:
		return fmt.Errorf("--rotate-every %v: want a positive time, or 0 for never", o.rotateEvery)
	case o.retain.check() != nil:
		return o.retain.check()
	case o.retain.Bytes > 0 && int64(o.rotateSize) > o.retain.Bytes/4:
		return fmt.Errorf("--rotate-size %s: want a quarter of --retain %s at most, or nothing", o.rotateSize.String(), o.retain.String())
	case o.symbolize < 0:
		return fmt.Errorf("--symbolize %v: want a time, or 0 for not at all", o.symbolize)
	case o.quiet && o.verbose:
		return errors.New("--quiet and --verbose exclude each other")
	case checkOutput(o.output) != nil:
		return checkOutput(o.output)
	}
	return checkSimulated(o.simulate, os.Getenv)
}

// processors is for the three loops of a recording and the collector. The one
// that empties the lanes must run when its time comes, also while compression has
// every core: the kernel then shares them out among threads, where Go would make
// it wait for a goroutine's turn. More would only be more to look through for work
// at each wake-up, of which a machine with many cores has as many.
const processors = 4

// record is the whole of gpurec run:
//
//	1 the hook, the Python package and, if asked, the simulated GPU
//	2 NVML, without which there are no samples; it may come while the command runs
//	3 the session: from here on there is a trace
//	4 the command, until it ends and its children do
//	5 the trace is closed; words
//
// What fails in 1 or 3 is told before anything has started, with status 125: a
// job that would run unrecorded for hours helps nobody who asked for a trace. A
// platform that records every job asks for --best-effort.
func (o *settings) record(stderr io.Writer, command, options []string) int {
	runtime.GOMAXPROCS(processors)
	go format.Prepare()
	// The command's stderr is ours: where it goes into a file, it must be the
	// file that the command alone would have made. Failures are said anyway.
	talk := !o.quiet && (o.verbose || terminal(stderr))
	say := func(string) {}
	if talk {
		say = newSpeaker(stderr).say
	}
	notes := misspelled(os.Environ())
	for _, text := range notes {
		say(text)
	}
	fail := func(err error) int {
		if o.bestEffort {
			fmt.Fprintf(stderr, "gpurec: %s; the command runs unrecorded\n", printable(err.Error()))
			return unrecorded(stderr, command)
		}
		fmt.Fprintf(stderr, "gpurec: %s; the command was not started\n", printable(err.Error()))
		return failed
	}
	env := cuda.Environment{Stacks: o.stacks.value, MaxFrames: o.maxFrames, LaneSize: powerOfTwo(int64(o.laneSize)), OnFull: o.onFull.value, Verbose: o.verbose, Deepbind: o.deepbind}
	var err error
	if env.Hook, err = cuda.Hook("", say); err != nil {
		return fail(err)
	}
	if !o.noPython {
		if env.Python, err = cuda.PythonDir(""); err != nil {
			return fail(err)
		}
	}
	meta := format.Meta{Tool: version(), Command: command, Options: options[:len(options)-len(command)], Notes: notes}
	var sim *simulation
	if o.simulate > 0 {
		if sim, err = simulate(o.simulate, say); err != nil {
			return fail(err)
		}
		defer sim.close()
		env.Simulator, env.SimulatorState = sim.dir, sim.state
		meta.Simulated = true
	}
	if o.redact && o.output == "" {
		o.output = fileName(filepath.Base(command[0])) + "-%p-%t.gpurec"
	}
	opt := recorder.Options{
		Output:      output(o.output, command[0]),
		Meta:        meta,
		Wait:        o.onFull.value == "wait",
		WaitBudget:  o.waitBudget,
		RotateSize:  int64(o.rotateSize),
		RotateEvery: o.rotateEvery,
		Say:         say,
		Writer:      format.WriterOptions{Retain: o.retain.Retention, Redact: o.redact},
	}
	defer sampled(&opt, sim, o.interval)()
	session, err := recorder.Start(opt)
	if err != nil {
		return fail(cannotMake(opt.Output, err))
	}
	env.Socket = session.Socket()
	if trace, err := filepath.Abs(session.Output()); err == nil {
		env.Trace = trace
	}
	defer o.metrics.show(session, stderr, say)()

	var rest context.Context // from the command's end on
	status, err := recorder.Launch(command, env.Environ(os.Environ()), func(pid, status int) {
		rest = untilSignal()
		session.Exited(pid, status)
	})
	var launch *recorder.LaunchError
	if errors.As(err, &launch) {
		session.Close(nil)
		os.RemoveAll(session.Output()) // nothing ran: no trace
		fmt.Fprintf(stderr, "gpurec: %v\n", err)
		return launch.Status
	}
	ctx, cancel := context.WithTimeout(rest, grace)
	left := session.WaitQuiet(ctx)
	cancel()
	summary, err := session.Close(func(m *format.Meta) {
		m.Status = &status
		m.Stats.CPUNanos, m.Stats.PeakMemory = recorder.CPUTime(), recorder.PeakMemory()
		if reason := outlived(left); reason != "" && m.Reason != "" {
			m.Reason += "; " + reason
		} else if reason != "" {
			m.Reason = reason
		}
	})
	native := ""
	if err != nil {
		fmt.Fprintf(stderr, "gpurec: %s\n", printable(err.Error()))
	} else {
		if reason := outlived(left); reason != "" {
			say(reason)
		}
		if o.symbolize > 0 && !o.redact {
			native = symbolize(rest, session.Output(), o.symbolize, o.retain.Bytes, say)
		}
	}
	if talk && status == 127 && summary.Stats.Events == 0 && o.simulate == 0 {
		sayNoDriver(say, command[0])
	}
	if talk {
		words(stderr, session.Output(), summary, native)
	}
	return status
}

// sayNoDriver says what 127 may be of a command that was there: the loader ends a
// program so where a library is missing, which the driver's is on a machine without one.
func sayNoDriver(say func(string), command string) {
	const driver = "libcuda.so.1"
	for _, dir := range filepath.SplitList(os.Getenv("LD_LIBRARY_PATH")) {
		if _, err := os.Stat(filepath.Join(dir, driver)); err == nil {
			return
		}
	}
	if library(driver) == "" {
		say(fmt.Sprintf("%s is not on this machine, and a program that needs it is ended by the loader with 127: gpurec info %s says more; gpurec run --simulate-gpu has one for tests",
			driver, shellWord(command)))
	}
}

// untilSignal ends when somebody does not want to wait for what comes after the
// command: its status is known and its trace to be closed, and what can be left out
// is. Who tells it twice means it.
func untilSignal() context.Context {
	var signals []os.Signal
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(s) {
			signals = append(signals, s)
		}
	}
	if len(signals) == 0 { // which would mean all
		return context.Background()
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	context.AfterFunc(ctx, stop)
	return ctx
}

// unrecorded runs a command without a recording.
func unrecorded(stderr io.Writer, command []string) int {
	status, err := recorder.Launch(command, os.Environ(), func(int, int) {})
	var launch *recorder.LaunchError
	if errors.As(err, &launch) {
		fmt.Fprintf(stderr, "gpurec: %v\n", err)
		return launch.Status
	}
	return status
}

// outlived says who was left running, "" if nobody was.
func outlived(l recorder.Left) string {
	n := l.Traced + l.Silent
	if n == 0 {
		return ""
	}
	text := "1 process"
	if n > 1 {
		text = fmt.Sprintf("%d processes", n)
	}
	text += " outlived the command; what was done there later is not recorded"
	if l.Silent > 0 {
		text += fmt.Sprintf(" (%d had no event until then)", l.Silent)
	}
	return text
}
