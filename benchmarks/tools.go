package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/gpurec/gpurec/format"
)

// A suite is one run: where things are, and how long to measure.
type suite struct {
	root    string // of the repository, or of the kit
	bin     string // gpurec and gpuanalyze
	tools   string // the C programs
	scripts string // the Python ones
	work    string // scratch
	quick   bool
	gpu     bool // run on a GPU machine
	sheet   *sheet
}

// rounds is how often to measure: n, or a glimpse.
func (s *suite) rounds(n int) int {
	if s.quick {
		return max(3, n/5)
	}
	return n
}

// fewer is rounds, of a slow table whose place is not the GPU machine's dear time.
func (s *suite) fewer(n int) int {
	if s.gpu {
		return 3
	}
	return s.rounds(n)
}

// fresh is a path in the scratch folder where nothing is.
func (s *suite) fresh(name string) string {
	p := filepath.Join(s.work, name)
	os.RemoveAll(p)
	return p
}

// cflags are those of the hook, so that contenders differ in what they do.
var cflags = []string{"-std=gnu11", "-O2", "-fPIC", "-Wall", "-Wextra", "-Werror"}

// The C programs: arguments of the compiler, in order.
var programs = [][]string{
	{"libc10.so", "-shared", "-Wl,-soname=libc10.so", "libc10.c"},
	{"libburst.so", "-shared", "-Wl,-soname=libburst.so", "burst.c", "-l:libc10.so", "-ldl"},
	{"hookbench", "threads.c", "-l:libburst.so", "-l:libc10.so", "-pthread"},
	{"nativebench", "native.c", "-l:libburst.so", "-l:libc10.so"},
	{"count", "count.c", "-l:libburst.so", "-l:libc10.so"},
	{"birthbench", "birth.c", "-l:libburst.so", "-l:libc10.so", "-pthread"},
	{"nvmlloop", "nvmlloop.c", "-ldl"},
	{"meter", "meter.c"},
}

// build compiles the C programs from sources into s.tools.
func (s *suite) build(sources string) error {
	if err := os.MkdirAll(s.tools, 0o755); err != nil {
		return err
	}
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	for _, p := range programs {
		args := append([]string{}, cflags...)
		args = append(args, "-o", filepath.Join(s.tools, p[0]), "-L"+s.tools, "-Wl,-rpath,$ORIGIN")
		for _, a := range p[1:] {
			if strings.HasSuffix(a, ".c") {
				a = filepath.Join(sources, a)
			}
			args = append(args, a)
		}
		if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
			return fmt.Errorf("compile %s: %w\n%s", p[0], err, out)
		}
	}
	return s.buildGo(sources)
}

// buildGo compiles cgobench, which is Go and calls libburst.so.
func (s *suite) buildGo(sources string) error {
	c := exec.Command("go", "build", "-o", filepath.Join(s.tools, "cgobench"), "./cgo")
	c.Dir = filepath.Dir(sources)
	c.Env = append(os.Environ(), "CGO_ENABLED=1", "CGO_LDFLAGS=-L"+s.tools+" -Wl,-rpath,$ORIGIN -l:libburst.so -l:libc10.so")
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("compile cgobench: %w\n%s", err, out)
	}
	return nil
}

// A cost is what a program and the children it waited for took.
type cost struct {
	wall, cpu time.Duration
	rss       int64 // bytes, the largest; of metered alone
	out       []byte
}

// measure runs a program to its end.
func measure(path string, args ...string) (cost, error) {
	cmd := exec.Command(path, args...)
	var out, text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &text
	begin := time.Now()
	err := cmd.Run()
	c := cost{wall: time.Since(begin), out: out.Bytes()}
	if err != nil {
		return c, fmt.Errorf("%s %s: %w\n%s", filepath.Base(path), strings.Join(args, " "), err, text.Bytes())
	}
	c.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return c, nil
}

// metered is measure with the largest resident size, see meter.c.
func (s *suite) metered(path string, args ...string) (cost, error) {
	file := s.fresh("meter")
	c, err := measure(filepath.Join(s.tools, "meter"), append([]string{file, path}, args...)...)
	if err != nil {
		return c, err
	}
	b, err := os.ReadFile(file)
	if err == nil {
		_, err = fmt.Sscan(string(b), &c.cpu, &c.rss)
	}
	return c, err
}

// own is the CPU time of this process so far.
func own() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// recorded runs a program under gpurec and adds what it prints. It says how
// many events the trace has and lacks: a lost event cost less than a recorded one.
func (s *suite) recorded(flags []string, program ...string) error {
	trace := s.fresh("recorded.gpurec")
	args := append([]string{"run", "-q", "-o", trace}, flags...)
	c, err := measure(filepath.Join(s.bin, "gpurec"), append(append(args, "--"), program...)...)
	s.sheet.read(bytes.NewReader(c.out))
	if err != nil {
		return err
	}
	s.account(trace)
	return os.RemoveAll(trace)
}

func (s *suite) account(trace string) {
	t, err := format.Open(trace)
	if err != nil {
		s.sheet.add("trace: " + err.Error())
		return
	}
	if m := t.Meta(); m.Stats.Lost > 0 {
		s.sheet.add(fmt.Sprintf("ATTENTION: %d events recorded, %d lost: those cost another time", m.Stats.Events, m.Stats.Lost))
	}
}

// pythons are the interpreters to measure with: python3, and in the place
// where pyenv keeps them those whose frames the hook reads another way.
func (s *suite) pythons() (out [][2]string) {
	seen := map[string]bool{}
	try := func(path string) {
		v, err := exec.Command(path, "-c", "import sys; print('%d.%d' % sys.version_info[:2])").Output()
		if version := strings.TrimSpace(string(v)); err == nil && !seen[version] {
			seen[version] = true
			out = append(out, [2]string{version, path})
		}
	}
	try("python3")
	if home, err := os.UserHomeDir(); err == nil && !s.gpu {
		for _, v := range []string{"3.11", "3.12", "3.13", "3.14"} {
			if found, _ := filepath.Glob(filepath.Join(home, ".pyenv/versions", v+".*/bin/python3")); len(found) > 0 {
				try(found[0])
			}
		}
	}
	return out
}
