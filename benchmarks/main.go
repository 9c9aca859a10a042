package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"
)

// A table is measured as one. On a GPU machine those marked host are measured
// too, since they are about its processor.
type table struct {
	name  string
	about string
	where place
	run   func(*suite) error
}

type place uint8

const (
	here place = 1 << iota // a machine with the repository, no GPU needed
	host                   // the processor of a GPU machine, from the kit
	gpu                    // its GPU
)

// In the order of what is least to be missed, should the time be over.
var tables = []table{
	{"torch", "an alloc or free of PyTorch's caching allocator (CPU time)", gpu, torchEvents},
	{"step", "a training step of a transformer of 12 layers (wall time)", gpu, torchStep},
	{"hook", "one event without a stack, 1 and N threads (CPU time)", here | host, hookThreads},
	{"instructions", "one event without a stack, of 1 and of 10 million (instructions)", here, instructions},
	{"stacks", "one event with a stack: Python's, native, both (CPU time)", here | host, hookStacks},
	{"cupy", "a malloc and its free in CuPy's pool (CPU time)", gpu, cupyEvents},
	{"record", "from lanes to the disk (the recorder's CPU time an event)", here | host, record},
	{"birth", "a thread's first event (wall time)", here | host, birth},
	{"commands", "start of the commands (wall and CPU time)", here | host, commands},
	{"size", "bytes of an event on disk", here, sizes},
	{"reading", "gpuanalyze on 5 million events (wall and CPU time, memory)", here, reading},
	{"wide", "gpuanalyze on 150,000 distinct stacks of 31 frames (wall and CPU time, memory)", here, wide},
	{"flat", "from lanes to the disk, of 1 and of 10 million events (the recorder's CPU time an event)", here | host, flat},
	{"share", "the recorder at 50,000 events a second (share of a core)", here | host, share},
	{"sampler", "NVML at 100 Hz (share of a core)", here | host, sampler},
}

func main() {
	if len(os.Args) > 1 {
		if role, ok := roles[os.Args[1]]; ok {
			if err := role(os.Args[2:]); err != nil {
				fmt.Fprintf(os.Stderr, "benchmarks %s: %v\n", os.Args[1], err)
				os.Exit(1)
			}
			return
		}
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "benchmarks:", err)
		os.Exit(1)
	}
}

// roles are the programs that the tables start besides: this binary again, in
// a process of its own so that its costs are its own.
var roles = map[string]func(args []string) error{}

func run() error {
	var s suite
	var pattern, output, sources string
	flag.StringVar(&s.root, "root", ".", "the repository, or the kit")
	flag.StringVar(&s.bin, "bin", "", "where gpurec and gpuanalyze are (default ROOT/bin)")
	flag.StringVar(&s.tools, "tools", "", "where the C programs are (default: built in ROOT/.build/benchmarks)")
	flag.StringVar(&pattern, "run", ".", "tables to measure, a regular expression")
	flag.StringVar(&output, "o", "", "also write into this file")
	flag.BoolVar(&s.quick, "quick", false, "a fifth of the rounds")
	flag.BoolVar(&s.gpu, "gpu", false, "this is the kit on a GPU machine")
	budget := flag.Duration("budget", 0, "begin no table after this time")
	list := flag.Bool("list", false, "name the tables")
	kit := flag.Bool("build", false, "build the C programs into -tools and end")
	flag.Parse()
	if *list {
		for _, t := range tables {
			fmt.Printf("%-10s %s\n", t.name, t.about)
		}
		return nil
	}
	want, err := regexp.Compile(pattern)
	if err != nil {
		return err
	}
	if s.root, err = filepath.Abs(s.root); err != nil {
		return err
	}
	if s.bin == "" {
		s.bin = filepath.Join(s.root, "bin")
	}
	if s.tools == "" {
		s.tools = filepath.Join(s.root, ".build", "benchmarks")
	}
	if s.tools, err = filepath.Abs(s.tools); err != nil {
		return err
	}
	s.scripts = filepath.Join(s.root, "benchmarks", "c")
	if sources = s.scripts; !s.gpu {
		if err := s.build(sources); err != nil {
			return err
		}
	}
	if *kit {
		return nil
	}
	if s.work, err = os.MkdirTemp("", "gpurec-benchmarks-"); err != nil {
		return err
	}
	defer os.RemoveAll(s.work)
	// gpurec run writes out its hook once; the first start is not what is measured.
	if _, err := measure(filepath.Join(s.bin, "gpurec"), "run", "-q", "-o", s.fresh("first.gpurec"), "--", "true"); err != nil {
		return fmt.Errorf("gpurec does not run here (make build?): %w", err)
	}
	var out io.Writer = os.Stdout
	if output != "" {
		f, err := os.Create(output)
		if err != nil {
			return err
		}
		defer f.Close()
		out = io.MultiWriter(os.Stdout, f)
	}
	machine(out)
	start := time.Now()
	var failed []error
	at := here
	if s.gpu {
		at = host | gpu
	}
	for _, t := range tables {
		if !want.MatchString(t.name) || t.where&at == 0 {
			continue
		}
		begin := time.Now()
		if *budget > 0 && begin.Sub(start) > *budget {
			fmt.Fprintf(out, "# ---- %s: left out, the time of -budget is over\n", t.name)
			continue
		}
		fmt.Fprintf(out, "# ---- %s: %s\n", t.name, t.about)
		s.sheet = &sheet{out: out}
		if err := t.run(&s); err != nil {
			failed = append(failed, fmt.Errorf("table %s: %w", t.name, err))
			fmt.Fprintf(out, "# FAILED: %s\n", strings.ReplaceAll(err.Error(), "\n", "\n# "))
		}
		s.sheet.print()
		fmt.Fprintf(os.Stderr, "%s took %.0f s\n", t.name, time.Since(begin).Seconds())
	}
	return errors.Join(failed...)
}

// machine prints what benchstat takes as the configuration, and the rest.
func machine(out io.Writer) {
	fmt.Fprintf(out, "goos: %s\ngoarch: %s\npkg: github.com/gpurec/gpurec/benchmarks\n", runtime.GOOS, runtime.GOARCH)
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for _, l := range strings.Split(string(b), "\n") {
			if name, value, _ := strings.Cut(l, ":"); strings.TrimSpace(name) == "model name" {
				fmt.Fprintf(out, "cpu: %s\n", strings.TrimSpace(value))
				break
			}
		}
	}
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	load, _ := os.ReadFile("/proc/loadavg")
	fmt.Fprintf(out, "date: %s\ncores: %d\nkernel: %s\nload: %s\n", time.Now().UTC().Format("2006-01-02T15:04Z"), runtime.NumCPU(), strings.TrimSpace(string(kernel)), strings.TrimSpace(string(load)))
	if gpu, err := exec.Command("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader").Output(); err == nil {
		fmt.Fprintf(out, "gpu: %s\n", strings.ReplaceAll(strings.TrimSpace(string(gpu)), "\n", "; "))
	}
}
