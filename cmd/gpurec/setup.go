package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/gpurec/gpurec/cuda/nvml"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/recorder"
)

// version is what trace.json says made it.
func version() string {
	v := "gpurec"
	if b, ok := debug.ReadBuildInfo(); ok {
		v += " " + b.Main.Version
	}
	return v
}

// A speaker says sentences to the user, each once, also where an earlier one ended
// with it.
type speaker struct {
	w    io.Writer
	said map[string]bool
	lock chan struct{}
}

func newSpeaker(w io.Writer) *speaker {
	return &speaker{w: w, said: map[string]bool{}, lock: make(chan struct{}, 1)}
}

func (s *speaker) say(text string) {
	s.lock <- struct{}{}
	defer func() { <-s.lock }()
	for said := range s.said {
		if strings.HasSuffix(said, text) {
			return
		}
	}
	s.said[text] = true
	fmt.Fprintf(s.w, "gpurec: %s\n", printable(strings.TrimPrefix(text, "gpurec: ")))
}

// sampled gives a recording NVML's samples, or the reason why it has none. The
// real library takes a while to open, so it comes late and is left to the end of
// this process; the simulated one is there at once, and is closed by done.
func sampled(opt *recorder.Options, sim *simulation, interval time.Duration) (done func()) {
	say := opt.Say
	open := func() (recorder.Source, func(*format.Meta), error) {
		lib, err := nvml.Open(sim.nvmlPath())
		if err != nil {
			say("no samples: " + err.Error())
			return nil, nil, err
		}
		version, driver := lib.Version(), lib.Driver()
		s := &nvml.Sampler{NVML: lib, Interval: interval, Processes: true, OnError: func(err error) { say(err.Error()) }}
		return s, func(m *format.Meta) { m.NVML, m.Driver = version, driver }, nil
	}
	switch {
	case interval == 0:
		opt.Meta.NoSamples = "not asked: --sample-interval 0"
	case sim == nil:
		opt.Late = open
	default:
		src, meta, err := open()
		if err != nil {
			opt.Meta.NoSamples = err.Error()
			break
		}
		meta(&opt.Meta)
		opt.Sources = append(opt.Sources, src)
		return func() { src.(*nvml.Sampler).NVML.Close() }
	}
	return func() {}
}

// output is the trace's directory: the template with %h host, %p process, %t
// time and %r rank filled in, or a name made of what was run.
func output(template, command string) string {
	host, _ := os.Hostname()
	now := time.Now().Format("20060102T150405")
	pid := strconv.Itoa(os.Getpid())
	if template == "" {
		return fmt.Sprintf("%s-%s-%s-%s.gpurec", fileName(filepath.Base(command)), fileName(host), pid, now)
	}
	rank := strconv.Itoa(int(max(0, recorder.Rank(os.LookupEnv))))
	return strings.NewReplacer("%h", fileName(host), "%p", pid, "%t", now, "%r", rank, "%%", "%").Replace(template)
}

// checkOutput refuses a template with a letter that stands for nothing: the names
// of two jobs would be one.
func checkOutput(template string) error {
	for i := 0; i < len(template)-1; i++ {
		if template[i] != '%' {
			continue
		}
		if i++; !strings.ContainsRune("hptr%", rune(template[i])) {
			return fmt.Errorf("--output %q: %%%c stands for nothing; there are %%h host, %%p process, %%t time and %%r rank, and %%%% is a %%", template, template[i])
		}
	}
	return nil
}

// fileName keeps of a text what is harmless in a file's name.
func fileName(s string) string {
	return strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("._+-", c) {
			return c
		}
		return '_'
	}, s)
}
