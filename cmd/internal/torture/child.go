package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// patience is how long anything may take before it is called a hang: hundreds of
// times what it takes, because the machine may be busy.
const patience = 90 * time.Second

// prepare compiles the program, finds the commands, mounts the small disk, and
// makes this process the one that orphans go to, so that the end of a program
// whose gpurec was killed is seen.
func (t *torture) prepare(bin, program string) (err error) {
	if bin, err = filepath.Abs(bin); err != nil {
		return err
	}
	if t.dir, err = filepath.Abs(t.dir); err != nil {
		return err
	}
	if err := os.MkdirAll(t.dir, 0o700); err != nil {
		return err
	}
	t.gpurec, t.gpuanalyze, t.ledger = filepath.Join(bin, "gpurec"), filepath.Join(bin, "gpuanalyze"), filepath.Join(t.dir, "ledger")
	for _, p := range []string{t.gpurec, t.gpuanalyze} {
		if _, err := os.Stat(p); err != nil {
			return fmt.Errorf("%w; make build first", err)
		}
	}
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	if out, err := exec.Command(cc, "-std=gnu11", "-O2", "-o", t.ledger, program, "-lpthread", "-ldl").CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %v\n%s", program, err, out)
	}
	const subreaper = 36 // PR_SET_CHILD_SUBREAPER
	if _, _, errno := syscall.Syscall(syscall.SYS_PRCTL, subreaper, 1, 0); errno != 0 {
		return fmt.Errorf("become the reaper of orphans: %w", errno)
	}
	disk := filepath.Join(t.dir, "disk")
	if err := os.MkdirAll(disk, 0o700); err != nil {
		return err
	}
	if t.noDisk = syscall.Mount("torture", disk, "tmpfs", 0, "size=8m"); t.noDisk == nil {
		t.disk = disk
	} else {
		t.noDisk = fmt.Errorf("mount a file system of 8 MiB: %w", t.noDisk)
	}
	return nil
}

func (t *torture) unmount() {
	if t.disk != "" {
		syscall.Unmount(t.disk, syscall.MNT_DETACH)
	}
}

// start starts a command in a process group of its own, its output in files.
func (r *round) start(env []string, args ...string) (*os.Process, error) {
	var files [3]*os.File
	for i, name := range []string{os.DevNull, r.path("stdout"), r.path("stderr")} {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		files[i] = f
	}
	return os.StartProcess(args[0], args, &os.ProcAttr{Dir: r.dir, Env: append(os.Environ(), env...), Files: files[:], Sys: &syscall.SysProcAttr{Setpgid: true}})
}

// collect waits until no child is left, orphans included, and returns how each
// ended. Whoever is left after its patience is said, and killed.
func collect(group int) (map[int]syscall.WaitStatus, error) {
	ends := map[int]syscall.WaitStatus{}
	var hung error
	for deadline := time.Now().Add(patience); ; {
		var w syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &w, syscall.WNOHANG, nil)
		switch {
		case errors.Is(err, syscall.ECHILD):
			return ends, hung
		case err != nil && !errors.Is(err, syscall.EINTR):
			return ends, err
		case pid > 0:
			ends[pid] = w
			continue
		}
		if hung == nil && time.Now().After(deadline) {
			hung = fmt.Errorf("hangs: %s", strings.Join(offspring(), "; "))
			syscall.Kill(-group, syscall.SIGKILL)
		}
		time.Sleep(500 * time.Microsecond)
	}
}

// offspring says of each child what it is and where it waits.
func offspring() (out []string) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		var state string
		var parent int
		if _, err := fmt.Sscanf(string(b[strings.LastIndexByte(string(b), ')')+1:]), "%s %d", &state, &parent); err == nil && parent == os.Getpid() {
			where, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "wchan"))
			out = append(out, fmt.Sprintf("%s state %s in %s", b[:strings.LastIndexByte(string(b), ')')+1], state, where))
		}
	}
	return out
}

// status is how a process ended, a shell's way.
func status(w syscall.WaitStatus) int {
	if w.Signaled() {
		return 128 + int(w.Signal())
	}
	return w.ExitStatus()
}

// maxAnswer is the memory that an answer about a small trace may take, however
// that is damaged.
const maxAnswer = 1 << 30

// analyze runs gpuanalyze: it must end, with a status and memory that it may have.
func (r *round) analyze(args ...string) (code int, output string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c := exec.CommandContext(ctx, r.t.gpuanalyze, args...)
	c.Dir = r.dir
	b, err := c.CombinedOutput()
	line := "gpuanalyze " + strings.Join(args, " ")
	switch {
	case ctx.Err() != nil:
		return 0, "", fmt.Errorf("%s: hangs", line)
	case c.ProcessState == nil:
		return 0, "", err
	}
	code = c.ProcessState.ExitCode()
	crashed := strings.Contains(string(b), "goroutine ") || strings.Contains(string(b), "runtime error")
	if crashed || code != 0 && code != 1 && code != 3 || code != 0 && len(b) == 0 {
		return code, "", fmt.Errorf("%s: status %d\n%s", line, code, b)
	}
	if kib := c.ProcessState.SysUsage().(*syscall.Rusage).Maxrss; kib<<10 > maxAnswer {
		return code, "", fmt.Errorf("%s: took %d MiB", line, kib>>10)
	}
	return code, string(b), nil
}

// A watch measures for how long the threads of a process wait for a core that
// others have: what it cannot do meanwhile is the machine's doing. The kernel
// counts it; where it does not, it is 0.
type watch struct {
	pid  int
	stop chan struct{}
	done chan []turn
}

type turn struct {
	at     time.Time
	waited time.Duration // since the process began, by all threads together
}

func newWatch(pid int) *watch {
	w := &watch{pid: pid, stop: make(chan struct{}), done: make(chan []turn, 1)}
	go func() {
		turns := []turn{w.turn()}
		for {
			select {
			case <-w.stop:
				w.done <- append(turns, w.turn())
				return
			case <-time.After(50 * time.Millisecond):
				turns = append(turns, w.turn())
			}
		}
	}()
	return w
}

func (w *watch) turn() turn {
	t := turn{at: time.Now()}
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", w.pid))
	for _, path := range tasks {
		var ran, waited int64
		if b, err := os.ReadFile(path); err == nil {
			fmt.Sscan(string(b), &ran, &waited)
			t.waited += time.Duration(waited)
		}
	}
	return t
}

// end is how long it waited in the last second and a half.
func (w *watch) end() time.Duration {
	close(w.stop)
	turns := <-w.done
	last := turns[len(turns)-1]
	first := turns[0]
	for _, t := range turns {
		if last.at.Sub(t.at) > 1500*time.Millisecond {
			first = t
		}
	}
	return max(last.waited-first.waited, 0)
}
