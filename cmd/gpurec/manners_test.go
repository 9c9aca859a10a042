package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpurec/gpurec/cuda"
	"github.com/gpurec/gpurec/format"
)

// documented are the variables that a recorded command finds set (format/wire.go
// lists them), with its own value in what the loader and Python read.
func documented(name string) bool {
	return strings.HasPrefix(name, "GPUREC_") || slices.Contains([]string{"LD_PRELOAD", "NVTX_INJECTION64_PATH", "PYTHONPATH"}, name)
}

// TestManners asks a program what it finds around it, with gpurec and without.
func TestManners(t *testing.T) {
	environment := func(lines []string) []string {
		return slices.DeleteFunc(lines, func(l string) bool { name, _, _ := strings.Cut(l, "="); return documented(name) })
	}
	libraries := func(lines []string) (out []string) {
		for _, l := range lines {
			if base := filepath.Base(l); !strings.HasPrefix(base, "libgpurec") && !strings.HasPrefix(base, "libdl") { // which that needs
				out = append(out, l)
			}
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	for _, row := range []struct {
		name, script string
		own          func([]string) []string // leaves out what may differ
	}{
		{"environment", "env | sort", environment},
		{"environment of a child's child", "sh -c 'sh -c env' | sort", environment},
		{"descriptors", "ls /proc/self/fd", nil},
		{"files mapped", "cat /proc/self/maps | sed -n 's/.* //p' | grep /", libraries},
		{"threads, signals, rights, memory locked", "grep -E '^(Threads|Sig[BIC]|Shd|Cap|Seccomp|NoNewPrivs|VmLck|VmPin|Umask|Cpus_allowed:)' /proc/self/status", nil},
		{"limits", "cat /proc/self/limits", nil},
		{"directory, priority, group, session", `pwd; nice; umask; cut -d ' ' -f 6 /proc/self/stat; cat /proc/self/oom_score_adj /proc/self/coredump_filter`, nil},
		{"children that it did not start", `read c </proc/$$/task/$$/children; echo "children: $c"`, nil},
		{"a name that it is called by", `cat /proc/$$/comm; tr '\0' ' ' </proc/$$/cmdline | cut -c 1-40`, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir := t.TempDir()
			run := func(recorded bool) []string {
				c := exec.Command("sh", "-c", row.script)
				c.Dir = dir
				if recorded {
					c = gpurec(t, dir, "run", "-o", "t.gpurec", "--", "sh", "-c", row.script)
				}
				c.Env = append(c.Environ(), "TMPDIR=/tmp", "PWD="+dir)
				out, err := c.Output()
				var exit *exec.ExitError
				if err != nil && !errors.As(err, &exit) {
					t.Fatal(err)
				}
				lines := strings.Split(string(out), "\n")
				if row.own != nil {
					lines = row.own(lines)
				}
				return lines
			}
			without, with := run(false), run(true)
			if !slices.Equal(without, with) || len(strings.Join(without, "")) == 0 {
				t.Errorf("without gpurec:\n%s\nwith:\n%s", strings.Join(without, "\n"), strings.Join(with, "\n"))
			}
		})
	}
}

// gpuanalyzeProgram builds gpuanalyze as it is shipped: static.
func gpuanalyzeProgram(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gpuanalyze")
	c := exec.Command("go", "build", "-trimpath", "-o", path, "../gpuanalyze")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		t.Skipf("gpuanalyze cannot be built here: %v\n%s", err, out)
	}
	return path
}

// TestAnalyzerIsNotRecorded starts gpuanalyze under gpurec, over the trace that is
// being written (F3): it answers, and no process of the trace is its own. After
// the command nothing of what gpurec set is left.
func TestAnalyzerIsNotRecorded(t *testing.T) {
	dir, storm, gpuanalyze := t.TempDir(), program(t, "storm"), gpuanalyzeProgram(t)
	script := `"$0" --threads 2 --events 1000 && { n=0; until "$1" verify -q t.gpurec; s=$?; [ $s -eq 3 ] || [ $n -gt 2000 ]; do n=$((n+1)); sleep 0.01; done; } 2>/dev/null; "$1" lines t.gpurec >lines 2>words; echo $? >status`
	c := gpurec(t, dir, "run", "--simulate-gpu=1", "-o", "t.gpurec", "--", "sh", "-c", script, storm, gpuanalyze)
	if status := does(t, c); status != 0 {
		t.Fatalf("status %d", status)
	}
	status, _ := os.ReadFile(dir + "/status")
	words, _ := os.ReadFile(dir + "/words")
	if strings.TrimSpace(string(status)) != "3" || !strings.Contains(string(words), "not closed: it is still being recorded") {
		t.Errorf("gpuanalyze under gpurec: status %s, %s", status, words)
	}
	tr := read(t, dir+"/t.gpurec")
	for _, p := range tr.defs.Processes() {
		if !strings.HasSuffix(p.Executable, "/storm") && p.Executable != "" {
			t.Errorf("the trace has the process %s", p.Command)
		}
	}
	if tr.meta.Ending != format.EndClosed || tr.kinds[format.Alloc] == 0 {
		t.Errorf("the trace is %q with %d allocs", tr.meta.Ending, tr.kinds[format.Alloc])
	}
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); name == format.EnvSocket || name == "LD_PRELOAD" && strings.Contains(v, "libgpurec") {
			t.Errorf("%s is set here", name)
		}
	}
}

// TestNestedRecords runs gpurec under gpurec: the inner trace has the program's
// events, and the outer one is whole and has none of them.
func TestNestedRecords(t *testing.T) {
	dir, storm := t.TempDir(), program(t, "storm")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	script := `"$0" --threads 2 --events 100 >/dev/null; ` + asGpurec + `=1 "$1" run --simulate-gpu=1 -o inner.gpurec -- sh -c '"$0" --threads 2 --events 500; exit 9' "$0"`
	if status := does(t, gpurec(t, dir, "run", "--simulate-gpu=1", "-o", "outer.gpurec", "--", "sh", "-c", script, storm, exe)); status != 9 {
		t.Fatalf("status %d", status)
	}
	for name, calls := range map[string]int{"outer": 200, "inner": 1000} {
		tr := read(t, dir+"/"+name+".gpurec")
		if n := tr.kinds[format.Alloc] + tr.kinds[format.Free] + int(tr.meta.Stats.Lost); tr.meta.Ending != format.EndClosed || n != calls {
			t.Errorf("%s: %q, %d calls, want %d", name, tr.meta.Ending, n, calls)
		}
	}
}

// TestFirstProcess runs gpurec as process 1 of a namespace, as in a container
// whose entry point it is. Signals reach the command although the kernel keeps
// those without a handler from process 1, and orphans that end do not stop it.
func TestFirstProcess(t *testing.T) {
	if out, err := exec.Command("unshare", "--pid", "--fork", "--mount-proc", "true").CombinedOutput(); err != nil {
		t.Skipf("no namespace of processes can be made here: %v %s", err, bytes.TrimSpace(out))
	}
	storm := program(t, "storm")
	for _, row := range []struct {
		name, script string
		signal       syscall.Signal
		status       int
		allocs       bool
	}{
		{"a command", `"$0" --threads 2 --events 500 >/dev/null; exit 7`, 0, 7, true},
		{"orphans that end", `for i in 1 2 3; do (sleep 0.1 & ) ; done; "$0" --threads 2 --events 500 >/dev/null; exit 8`, 0, 8, true},
		{"an orphan that stays", `(sleep 1000 >/dev/null 2>&1 & ); exit 9`, 0, 9, false},
		{"SIGTERM", `: >ready; exec sleep 1000`, syscall.SIGTERM, 143, false},
		{"SIGINT", `: >ready; exec sleep 1000`, syscall.SIGINT, 130, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			if row.signal != 0 && signal.Ignored(row.signal) { // by a shell that runs the tests in the background
				t.Skipf("signal %v is ignored here, and a shell cannot change that", row.signal)
			}
			dir := t.TempDir()
			c := gpurec(t, dir, "run", "--simulate-gpu=1", "-o", "t.gpurec", "--", "sh", "-c", row.script, storm)
			inner := "echo $$ >first; exec \"$0\" \"$@\"" // what unshare starts is process 1 and becomes gpurec
			c.Args = append([]string{"unshare", "--pid", "--fork", "--mount-proc", "sh", "-c", inner}, c.Args...)
			c.Args[len([]string{"unshare", "--pid", "--fork", "--mount-proc", "sh", "-c", inner})] = c.Path
			var err error
			if c.Path, err = exec.LookPath("unshare"); err != nil {
				t.Fatal(err)
			}
			var stderr bytes.Buffer
			c.Stderr = &stderr
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			stuck := time.AfterFunc(time.Minute, func() { c.Process.Kill() })
			if row.signal != 0 {
				until(t, "the command runs", func() bool { _, err := os.Stat(dir + "/ready"); return err == nil })
				list, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", c.Process.Pid, c.Process.Pid))
				var first int
				if _, serr := fmt.Sscan(string(list), &first); err != nil || serr != nil {
					c.Process.Kill()
					c.Wait()
					t.Skipf("this kernel does not list a process's children: %v", err)
				}
				syscall.Kill(first, row.signal)
			}
			c.Wait()
			if !stuck.Stop() {
				t.Fatal("it hangs")
			}
			if first, _ := os.ReadFile(dir + "/first"); strings.TrimSpace(string(first)) != "1" {
				t.Fatalf("gpurec was process %s", first)
			}
			if status := c.ProcessState.ExitCode(); status != row.status {
				t.Errorf("status %d, want %d\n%s", status, row.status, stderr.String())
			}
			tr := read(t, dir+"/t.gpurec")
			if tr.meta.Ending != format.EndClosed || *tr.meta.Status != row.status || (tr.kinds[format.Alloc] > 0) != row.allocs {
				t.Errorf("the trace is %q, status %d, with %d allocs", tr.meta.Ending, *tr.meta.Status, tr.kinds[format.Alloc])
			}
		})
	}
}

// TestTermThenKill ends a job as schedulers do: SIGTERM to all of it, which the
// command does not heed, and after a while SIGKILL. What was recorded is there.
func TestTermThenKill(t *testing.T) {
	dir := t.TempDir()
	c := gpurec(t, dir, "run", "--simulate-gpu=1", "-o", "t.gpurec", "--", "sh", "-c", `trap '' TERM; exec "$0" --log log --ms 100000 --pause 20000`, program(t, "ledger"))
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	rows := func() (n int) {
		tr, err := format.Open(dir + "/t.gpurec")
		if err != nil || len(tr.Parts()) == 0 {
			return 0
		}
		r, err := tr.Parts()[0].Events()
		if err != nil {
			return 0
		}
		defer r.Close()
		for {
			b, err := r.Next()
			if n += len(b); err != nil {
				return n
			}
		}
	}
	defer syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
	until(t, "events are on disk", func() bool { return rows() > 10 })
	syscall.Kill(-c.Process.Pid, syscall.SIGTERM)
	before := rows()
	until(t, "the recording goes on after SIGTERM", func() bool { return rows() > before })
	syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
	c.Wait()
	tr, err := format.Open(dir + "/t.gpurec")
	if err != nil {
		t.Fatal(err)
	}
	if tr.Meta().Ending != format.EndGrowing || rows() <= before {
		t.Errorf("the trace is %q with %d rows, %d before SIGTERM", tr.Meta().Ending, rows(), before)
	}
	if _, err := readEnd(tr); err != nil && err != io.EOF && !errors.Is(err, format.ErrTruncated) {
		t.Error(err)
	}
}

// readEnd is how the events of a trace's last part end.
func readEnd(tr *format.Trace) (n int, err error) {
	r, err := tr.Parts()[len(tr.Parts())-1].Events()
	if err != nil {
		return 0, err
	}
	defer r.Close()
	for {
		b, err := r.Next()
		if n += len(b); err != nil {
			return n, err
		}
	}
}

// until waits for what must come about.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("a minute is over, and not yet: %s", what)
		}
	}
}

// TestDiesOutOfMemory: a program that ends because memory ran out does so with
// its own words and its own status (F5).
func TestDiesOutOfMemory(t *testing.T) {
	simulator, err := cuda.Simulator("", func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	ledger := program(t, "ledger")
	run := func(recorded bool) (status int, stdout, stderr string) {
		dir := t.TempDir()
		args := []string{ledger, "--log", dir + "/log", "--threads", "1", "--calls", "400", "--ms", "100000", "--pause", "0", "--status", "5"}
		c := exec.Command(args[0], args[1:]...)
		if recorded {
			c = gpurec(t, dir, append([]string{"run", "--simulate-gpu=1", "-o", "t.gpurec", "--"}, args...)...)
		} else {
			c.Env = append(os.Environ(), "LD_LIBRARY_PATH="+simulator, "GPUREC_SIM_DEVICES=1")
		}
		c.Env = append(c.Env, "GPUREC_SIM_MEMORY=8MiB", "GPUREC_SIM_CONTEXT_BYTES=6MiB")
		var out, errs bytes.Buffer
		c.Stdout, c.Stderr = &out, &errs
		status = does(t, c)
		if recorded {
			if tr := read(t, dir+"/t.gpurec"); tr.kinds[format.AllocFailed] == 0 || *tr.meta.Status != status {
				t.Errorf("%d failures, status %d in the trace", tr.kinds[format.AllocFailed], *tr.meta.Status)
			}
		}
		return status, out.String(), errs.String()
	}
	status1, out1, errs1 := run(false)
	status2, out2, errs2 := run(true)
	if status1 != 1 || status2 != status1 || out2 != out1 || errs2 != errs1 || !strings.Contains(errs1, "the driver answered 2") {
		t.Errorf("without: %d %q %q\nwith:    %d %q %q", status1, out1, errs1, status2, out2, errs2)
	}
}
