package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/gpurec/gpurec/cuda/nvml"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/recorder"
	"github.com/gpurec/gpurec/recorder/ring"
)

const sampleHelp = `gpurec sample [flags]

Records NVML's view of every device, and nothing else, until it is interrupted:
total, used, free and reserved bytes, the largest use between two rows. A reading
that repeats the last one is written once a second.

An interrupt (Ctrl-C, SIGTERM or SIGHUP) is the normal end and closes the trace
in good order.

Exit: 0 interrupted or --duration over, 1 failed (also when every device stopped
answering; the history until then is kept), 2 wrong usage.

Examples:
  gpurec sample -o night.gpurec --duration 8h
  gpurec sample --sample-interval 1s & ./job.sh; kill %1
  gpurec sample --sample-interval 1s --retain 24h -o node.gpurec     # a day, for as long as it runs
  gpurec sample --metrics 0.0.0.0:9400 -o node.gpurec
  gpuanalyze devices night.gpurec
`

// sampleSettings are the flags of gpurec sample.
type sampleSettings struct {
	output   string
	interval time.Duration
	duration time.Duration
	metrics  endpoint
	simulate int
	retain   retention
	quiet    bool
}

func (o *sampleSettings) flags() *pflag.FlagSet {
	f := pflag.NewFlagSet("sample", pflag.ContinueOnError)
	f.SortFlags = false
	f.StringVarP(&o.output, "output", "o", "", "trace to make, in a directory that is there; %h host, %p process, %t time, %r rank (torchrun's, MPI's or Slurm's, else 0) (default sample-HOST-PID-TIME.gpurec)")
	f.DurationVar(&o.interval, "sample-interval", nvml.DefaultInterval, "between readings")
	f.DurationVar(&o.duration, "duration", 0, "end after this time, 0 when interrupted")
	f.Var(&o.metrics, "metrics", metricsUsage)
	f.IntVar(&o.simulate, "simulate-gpu", 0, "read gpurec's simulated GPU with so many devices")
	f.Lookup("simulate-gpu").NoOptDefVal = "2"
	f.Var(&o.retain, "retain", "keep the newest parts of the history, in so many bytes of disk or of so much time at least (10m is minutes, 10MiB bytes); 0 keeps all")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "say nothing but errors")
	return f
}

func sample(ctx context.Context, stdout, stderr io.Writer, args []string) int {
	var o sampleSettings
	f := o.flags()
	if status, done := parse(f, sampleHelp, stdout, stderr, args); done {
		if status != 0 {
			return 2
		}
		return 0
	}
	if err := o.check(f.Args()); err != nil {
		fmt.Fprintf(stderr, "gpurec: %v; see gpurec sample --help\n", err)
		return 2
	}
	if err := o.record(ctx, stderr, args); err != nil {
		fmt.Fprintf(stderr, "gpurec: %s\n", printable(err.Error()))
		return 1
	}
	return 0
}

func (o *sampleSettings) check(args []string) error {
	switch {
	case len(args) > 0:
		return fmt.Errorf("sample takes no arguments, and there is %q; to record a command: gpurec run -- %s", args[0], args[0])
	case o.interval < nvml.MinInterval:
		return fmt.Errorf("--sample-interval %v: want %v or more", o.interval, nvml.MinInterval)
	case o.duration < 0:
		return fmt.Errorf("--duration %v: want a positive time, or 0 until interrupted", o.duration)
	}
	if err := cmp.Or(o.retain.check(), checkOutput(o.output)); err != nil {
		return err
	}
	return checkSimulated(o.simulate, os.Getenv)
}

// record runs until ctx, a signal, the duration or the devices end it.
func (o *sampleSettings) record(ctx context.Context, stderr io.Writer, options []string) error {
	// There are no lanes, so nothing needs to run beside a reading; with a second
	// processor each would wake a thread to look for something that does.
	runtime.GOMAXPROCS(1)
	// A second interrupt ends the program the hard way.
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	say := newSpeaker(stderr).say
	meta := format.Meta{Tool: version(), Options: options, Notes: misspelled(os.Environ())}
	for _, text := range meta.Notes {
		say(text)
	}
	var sim *simulation
	if o.simulate > 0 {
		var err error
		if sim, err = simulate(o.simulate, say); err != nil {
			return err
		}
		defer sim.close()
		meta.Simulated = true
	}
	lib, err := nvml.Open(sim.nvmlPath())
	if err != nil {
		return err
	}
	defer lib.Close()
	meta.NVML, meta.Driver = lib.Version(), lib.Driver()
	// No process is recorded, so readings of what each uses would find no owner.
	source := &watched{Source: &nvml.Sampler{NVML: lib, Interval: o.interval, OnError: func(err error) { say(err.Error()) }}, ended: make(chan struct{})}
	path := output(o.output, "sample")
	session, err := recorder.Start(recorder.Options{Output: path, Meta: meta, Sources: []recorder.Source{source}, Say: say,
		Writer: format.WriterOptions{Retain: o.retain.Retention}})
	if err != nil {
		return cannotMake(path, err)
	}
	words := say
	if o.quiet || !terminal(stderr) {
		words = func(string) {}
	}
	defer o.metrics.show(session, stderr, words)()
	if !o.quiet && terminal(stderr) {
		say(fmt.Sprintf("recording %d devices into %s until interrupted", len(lib.Devices()), path))
	}
	var after <-chan time.Time
	if o.duration > 0 {
		t := time.NewTimer(o.duration)
		defer t.Stop()
		after = t.C
	}
	lost := false
	select {
	case <-ctx.Done():
	case <-after:
	case <-source.ended:
		lost = true
	}
	stop()
	if _, err := session.Close(func(m *format.Meta) {
		m.End = ring.Now() // there was no event to tell
		m.Stats.CPUNanos, m.Stats.PeakMemory = recorder.CPUTime(), recorder.PeakMemory()
	}); err != nil {
		return err
	}
	if lost {
		return fmt.Errorf("no device answers any more; the history until then is in %s", path)
	}
	if !o.quiet && terminal(stderr) {
		say(fmt.Sprintf("trace %s; next: gpuanalyze devices %s", path, shellWord(path)))
	}
	return nil
}

// watched is a source that tells of its end.
type watched struct {
	recorder.Source
	ended chan struct{}
}

func (w *watched) Run(ctx context.Context, emit func(*format.Reading)) error {
	defer close(w.ended)
	return w.Source.Run(ctx, emit)
}
