package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
)

// asGpurec makes this test binary behave as gpurec itself, in a process of its
// own: signals, statuses and files are then the real ones.
const asGpurec = "GPUREC_TEST_AS_GPUREC"

func TestMain(m *testing.M) {
	if os.Getenv(asGpurec) == "1" {
		os.Unsetenv(asGpurec)
		main()
	}
	os.Exit(m.Run())
}

// gpurec is a command line of gpurec that runs in dir.
func gpurec(t *testing.T, dir string, args ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(exe, args...)
	c.Dir = dir
	c.Env = append(os.Environ(), asGpurec+"=1", "TMPDIR="+t.TempDir())
	return c
}

// does runs a command and returns its status, a shell's way.
func does(t *testing.T, c *exec.Cmd) int {
	t.Helper()
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if w := c.ProcessState.Sys().(syscall.WaitStatus); w.Signaled() {
		return 128 + int(w.Signal())
	}
	return c.ProcessState.ExitCode()
}

// program compiles one of testdata/programs.
func program(t *testing.T, name string) string {
	t.Helper()
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	if _, err := exec.LookPath(cc); err != nil {
		t.Skipf("there is no C compiler (%s) to build testdata/programs/%s.c", cc, name)
	}
	out := filepath.Join(t.TempDir(), name)
	b, err := exec.Command(cc, "-O2", "-o", out, "../../testdata/programs/"+name+".c", "-lpthread", "-ldl").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	return out
}

// A trace read whole, and folded.
type trace struct {
	meta    format.Meta
	defs    *format.Defs
	events  []format.Event
	samples []format.Sample
	state   *live.State
	kinds   map[format.Kind]int
}

func read(t *testing.T, path string) *trace {
	t.Helper()
	return readUpTo(t, path, io.EOF)
}

// readCut reads one whose files may end in the middle of a batch.
func readCut(t *testing.T, path string) *trace {
	t.Helper()
	return readUpTo(t, path, format.ErrTruncated)
}

func readUpTo(t *testing.T, path string, end error) *trace {
	t.Helper()
	tr, err := format.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	out := &trace{meta: tr.Meta(), defs: format.NewDefs(), state: live.New(), kinds: map[format.Kind]int{}}
	for _, p := range tr.Parts() {
		if err := p.LoadDefs(out.defs); err != nil && !errors.Is(err, end) {
			t.Fatal(err)
		}
		r, err := p.Events()
		if err != nil {
			t.Fatal(err)
		}
		for {
			b, err := r.Next()
			if err == io.EOF || errors.Is(err, end) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			out.events = append(out.events, b...)
		}
		r.Close()
	}
	out.samples = samples(t, tr)
	for i := range out.events {
		out.state.Apply(&out.events[i])
		out.kinds[out.events[i].Kind]++
	}
	return out
}

func TestStatus(t *testing.T) {
	for _, row := range []struct {
		name   string
		args   []string
		status int
		words  string // on stderr; all of it must be this when empty
	}{
		{"exit 7", []string{"run", "--", "sh", "-c", "exit 7"}, 7, ""},
		{"exit 0", []string{"run", "true"}, 0, ""},
		{"killed by TERM", []string{"run", "--", "sh", "-c", "kill -TERM $$"}, 143, ""},
		{"killed by KILL", []string{"run", "--", "sh", "-c", "kill -KILL $$"}, 137, ""},
		{"not there", []string{"run", "--", "/nonexistent"}, 127, "cannot run /nonexistent: no such command"},
		{"a directory", []string{"run", "--", "/"}, 126, "cannot run /"},
		{"no command", []string{"run"}, 125, "no command"},
		{"a flag that is not there", []string{"run", "--nonsense", "--", "true"}, 125, "--nonsense"},
		{"a word that is none of the choices", []string{"run", "--on-full", "panic", "--", "true"}, 125, "drop, wait"},
		{"lanes too small", []string{"run", "--lane-size", "4KiB", "--", "true"}, 125, "--lane-size"},
		{"no place for the trace", []string{"run", "-o", "/nonexistent/t.gpurec", "--", "true"}, 125, "the command was not started"},
		{"a letter that stands for nothing", []string{"run", "-o", "%z.gpurec", "--", "true"}, 125, `gpurec: --output "%z.gpurec": %z stands for nothing; there are %h host, %p process, %t time and %r rank, and %% is a %; see`},
		{"a sampler's too", []string{"sample", "-o", "100%%%d.gpurec"}, 2, "%d stands for nothing"},
		{"help", []string{"run", "--help"}, 0, ""},
		{"a flag that demo does not have", []string{"demo", "--nonsense"}, 2, "gpurec demo --help"},
		{"an argument to demo", []string{"demo", "train.py"}, 2, "takes no arguments"},
		{"a flag that info does not have", []string{"info", "--nonsense"}, 2, "gpurec info --help"},
		{"an empty command", []string{"run", "--", ""}, 127, `cannot run "": no such command`},
		{"a command with an escape", []string{"run", "--", "a\x1b[31m"}, 127, `cannot run "a\x1b[31m": no such command`},
		{"a flag with an escape", []string{"run", "--a\x1b[31m", "--", "true"}, 125, `unknown flag: --a\x1b[31m;`},
		{"too many devices", []string{"run", "--simulate-gpu=17", "--", "true"}, 125, "gpurec: --simulate-gpu 17: want 1 to 16 devices, or 0 for none; see"},
		{"a negative age", []string{"run", "--rotate-every=-1s", "--", "true"}, 125, "gpurec: --rotate-every -1s: want a positive time, or 0 for never; see"},
		{"retained in bytes", []string{"run", "--retain", "16MiB", "--", "true"}, 0, ""},
		{"retained for a time", []string{"run", "--retain", "10m", "--", "true"}, 0, ""},
		{"too little to retain", []string{"run", "--retain", "1MiB", "--", "true"}, 125, "gpurec: --retain 1MiB: want 16 MiB or more; see"},
		{"too short to retain", []string{"run", "--retain", "10ms", "--", "true"}, 125, "gpurec: --retain 10ms: want 1s or more; see"},
		{"retained neither nor", []string{"run", "--retain", "10 parts", "--", "true"}, 125, `"10 parts" is neither a size like 2GiB nor a time like 30m; see`},
		{"parts too large for the bound", []string{"run", "--retain", "1GiB", "--rotate-size", "512MiB", "--", "true"}, 125, "want a quarter of --retain 1GiB at most, or nothing; see"},
		{"no such thing", []string{"recrod"}, 2, "gpurec run -- recrod"},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir := t.TempDir()
			c := gpurec(t, dir, row.args...)
			var stderr bytes.Buffer
			c.Stderr = &stderr
			status := does(t, c)
			if status != row.status || !strings.Contains(stderr.String(), row.words) || row.words == "" && stderr.Len() > 0 {
				t.Errorf("status %d, want %d; stderr %q, want %q", status, row.status, stderr.String(), row.words)
			}
			left, _ := filepath.Glob(dir + "/*.gpurec")
			if ran := status < 125 && row.args[len(row.args)-1] != "--help" && status != 2 || status > 127; ran != (len(left) == 1) {
				t.Errorf("traces left: %q", left)
			}
			for _, path := range left {
				m := read(t, path).meta
				if m.Status == nil || *m.Status != row.status || m.Ending != format.EndClosed {
					t.Errorf("the trace says %+v", m)
				}
			}
		})
	}
}

// TestOutputUntouched compares what a program writes with and without gpurec.
func TestOutputUntouched(t *testing.T) {
	script := `printf 'out\0\377\n'; printf 'err\033[1m' >&2; ls /nonexistent; printf last; exit 3`
	run := func(c *exec.Cmd) (stdout, stderr string) {
		dir := t.TempDir()
		out, err1 := os.Create(dir + "/out")
		errs, err2 := os.Create(dir + "/err")
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		c.Stdout, c.Stderr = out, errs
		if status := does(t, c); status != 3 {
			t.Errorf("status %d", status)
		}
		a, _ := os.ReadFile(dir + "/out")
		b, _ := os.ReadFile(dir + "/err")
		return string(a), string(b)
	}
	out1, err1 := run(exec.Command("sh", "-c", script))
	out2, err2 := run(gpurec(t, t.TempDir(), "run", "--", "sh", "-c", script))
	if out1 != out2 || err1 != err2 || out1 == "" || err1 == "" {
		t.Errorf("without: %q %q\nwith:    %q %q", out1, err1, out2, err2)
	}
}

// TestProcesses records a program that forks, in a shell that runs two of them.
func TestProcesses(t *testing.T) {
	dir, fork := t.TempDir(), program(t, "fork")
	c := gpurec(t, dir, "run", "--simulate-gpu=1", "-o", "t.gpurec", "--", "sh", "-c", `"$0" & "$0"; wait`, fork)
	if status := does(t, c); status != 0 {
		t.Fatalf("status %d", status)
	}
	tr := read(t, dir+"/t.gpurec")
	rows := tr.defs.Processes()
	if len(rows) < 4 || tr.kinds[format.ProcessEnd] != len(rows) || tr.kinds[format.ProcessBegin] != len(rows) {
		t.Errorf("%d processes, %d begin, %d end", len(rows), tr.kinds[format.ProcessBegin], tr.kinds[format.ProcessEnd])
	}
	for _, p := range rows {
		// A process that lives for milliseconds may be gone before /proc is asked.
		if filepath.Base(p.Command) != "fork" || p.PID == 0 || p.Executable != "" && filepath.Base(p.Executable) != "fork" {
			t.Errorf("row %+v", p)
		}
	}
	for _, p := range tr.state.Processes() {
		if n := p.Acquired().Now; n != 0 {
			t.Errorf("process %d still has %d bytes after its end", p.ID, n)
		}
	}
}

// TestForwards sends gpurec a signal: the command gets it, and the trace is whole.
func TestForwards(t *testing.T) {
	dir := t.TempDir()
	c := gpurec(t, dir, "run", "-o", "t.gpurec", "--", "sh", "-c", `: >ready; exec sleep 100`)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(dir + "/ready"); err == nil {
			break
		}
	}
	c.Process.Signal(syscall.SIGTERM)
	c.Wait()
	if status := c.ProcessState.ExitCode(); status != 143 {
		t.Errorf("status %d, want 143", status)
	}
	if m := read(t, dir+"/t.gpurec").meta; m.Ending != format.EndClosed || *m.Status != 143 {
		t.Errorf("the trace says %q, status %d", m.Ending, *m.Status)
	}
}

// TestDaemon leaves a child running that has no event: the trace says so.
func TestDaemon(t *testing.T) {
	dir := t.TempDir()
	c := gpurec(t, dir, "run", "-v", "-o", "t.gpurec", "--", "sh", "-c", `sleep 100 >/dev/null 2>&1 & echo $! >pid; exit 4`)
	var words bytes.Buffer
	c.Stderr = &words
	status := does(t, c)
	pid := 0
	if b, err := os.ReadFile(dir + "/pid"); err != nil {
		t.Fatal(err)
	} else if fmt.Sscan(string(b), &pid); pid > 0 {
		defer syscall.Kill(pid, syscall.SIGKILL)
	}
	const want = "1 process outlived the command; what was done there later is not recorded (1 had no event until then)"
	if m := read(t, dir+"/t.gpurec").meta; status != 4 || m.Reason != want || !strings.Contains(words.String(), want) {
		t.Errorf("status %d, the trace says %q, stderr %q", status, m.Reason, words.String())
	}
}

// TestNested records a recording: what the outer one was told is not the inner
// one's, what the environment says is.
func TestNested(t *testing.T) {
	for _, row := range []struct {
		name, variable, between, want string
	}{
		{"defaults", "", "", "auto drop 128"},
		{"the environment's", "GPUREC_STACKS=python", "", "python drop 128"},
		{"between them", "", "GPUREC_MAX_FRAMES=11 ", "auto drop 11"},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir := t.TempDir()
			exe, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			inner := row.between + asGpurec + `=1 "$0" run -o inner.gpurec -- sh -c 'echo $GPUREC_STACKS $GPUREC_ON_FULL $GPUREC_MAX_FRAMES'`
			c := gpurec(t, dir, "run", "--stacks=none", "--on-full=wait", "--max-frames=5", "-o", "outer.gpurec", "--", "sh", "-c", inner, exe)
			if row.variable != "" {
				c.Env = append(c.Env, row.variable)
			}
			var out bytes.Buffer
			c.Stdout, c.Stderr = &out, os.Stderr
			if status := does(t, c); status != 0 || strings.TrimSpace(out.String()) != row.want {
				t.Errorf("status %d, the inner settings are %q, want %q", status, out.String(), row.want)
			}
		})
	}
}

// TestOutput is where the trace goes, and that nothing is overwritten.
func TestOutput(t *testing.T) {
	dir := t.TempDir()
	for _, want := range []int{0, 125} {
		if status := does(t, gpurec(t, dir, "run", "-o", "t.gpurec", "--", "true")); status != want {
			t.Errorf("status %d, want %d", status, want)
		}
	}
	c := gpurec(t, dir, "run", "-o", "%h-rank%r-100%%.gpurec", "--", "true")
	c.Env = append(c.Env, "RANK=3")
	does(t, c)
	if got, _ := filepath.Glob(dir + "/*-rank3-100%.gpurec"); len(got) != 1 {
		t.Errorf("found %q", got)
	}
	c = gpurec(t, dir, "run", "--", "true")
	c.Env = append(c.Env, "GPUREC_OUTPUT=by-environment.gpurec")
	does(t, c)
	if _, err := os.Stat(dir + "/by-environment.gpurec/trace.json"); err != nil {
		t.Error(err)
	}
	if got := does(t, gpurec(t, dir, "run", "--", "sh", "-c", "exit 1")); got != 1 {
		t.Errorf("status %d", got)
	}
	if got, _ := filepath.Glob(dir + "/sh-*-*-*.gpurec"); len(got) != 1 {
		t.Errorf("found %q", got)
	}
}

// TestDemo records the built-in example on the simulated GPU.
func TestDemo(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("there is no python3 to run the demo with")
	}
	dir := t.TempDir()
	c := gpurec(t, dir, "demo", "--simulate-gpu", "-q", "-o", "t.gpurec")
	var stderr bytes.Buffer
	c.Stderr = &stderr
	if status := does(t, c); status != 0 || stderr.Len() > 0 {
		t.Fatalf("status %d, stderr %q", status, stderr.String())
	}
	tr := read(t, dir+"/t.gpurec")
	if !tr.meta.Simulated || tr.kinds[format.Alloc] < 20 || tr.kinds[format.ScopeBegin] < 5 || tr.kinds[format.ScopeBegin] != tr.kinds[format.ScopeEnd] {
		t.Errorf("simulated=%v, %d allocs, %d scopes begun, %d ended", tr.meta.Simulated, tr.kinds[format.Alloc], tr.kinds[format.ScopeBegin], tr.kinds[format.ScopeEnd])
	}
	devices := map[format.Device]bool{}
	for _, s := range tr.samples {
		devices[s.Device] = true
	}
	if len(devices) != 2 {
		t.Errorf("samples of %d devices", len(devices))
	}
	for i := range tr.events {
		e := &tr.events[i]
		if e.Kind != format.Alloc {
			continue
		}
		frames, ok := tr.defs.Walk(e.Stack, nil)
		if !ok || len(frames) < 2 {
			t.Fatalf("an alloc has %d frames", len(frames))
		}
		if f, _ := tr.defs.Frame(frames[0]); filepath.Base(f.File) != "demo.py" && f.Kind == format.FramePython && !strings.Contains(f.File, "threading.py") {
			t.Errorf("an outermost frame is %s", f.String())
		}
	}
}

func TestSize(t *testing.T) {
	for _, row := range []struct {
		in   string
		want int64
		out  string
	}{
		{"0", 0, "0"}, {"4096", 4096, "4KiB"}, {"1MiB", 1 << 20, "1MiB"}, {"1.5g", 3 << 29, "1536MiB"}, {"2 GB", 2 << 30, "2GiB"}, {"77", 77, "77"}, {"3k", 3072, "3KiB"},
		{"", -1, ""}, {"x", -1, ""}, {"-1", -1, ""}, {"1PiB", -1, ""}, {"9999999999TiB", -1, ""}, {"MiB", -1, ""}, {"nan", -1, ""},
	} {
		var s size
		err := s.Set(row.in)
		if (err != nil) != (row.want < 0) || err == nil && (int64(s) != row.want || s.String() != row.out) {
			t.Errorf("%q: %d (%s), %v; want %d (%s)", row.in, s, s.String(), err, row.want, row.out)
		}
	}
}
