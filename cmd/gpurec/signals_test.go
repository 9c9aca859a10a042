package main

import (
	"bufio"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpurec/gpurec/format"
)

// counting says what it gets, and leaves when it has been told to.
const counting = `trap 'echo got' TERM; trap 'echo int' INT; trap 'exit 5' USR1; echo ready $$; while :; do sleep 0.01; done`

// startCounting runs it under gpurec, which leads a process group of its own.
func startCounting(t *testing.T, command ...string) (c *exec.Cmd, out *bufio.Scanner, child int) {
	t.Helper()
	c = gpurec(t, t.TempDir(), append([]string{"run", "-o", "t.gpurec", "--"}, command...)...)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	pipe, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	out = bufio.NewScanner(pipe)
	if !out.Scan() {
		t.Fatal("it says nothing")
	}
	child, err = strconv.Atoi(strings.TrimPrefix(out.Text(), "ready "))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Kill(child, syscall.SIGKILL); syscall.Kill(-c.Process.Pid, syscall.SIGKILL); c.Wait() })
	return c, out, child
}

// TestSignalsOnce sends signals the ways they are sent without a terminal. The
// command gets each as often as it was sent, whoever else did.
func TestSignalsOnce(t *testing.T) {
	sh := []string{"sh", "-c", counting}
	for _, row := range []struct {
		name    string
		command []string
		signal  syscall.Signal
		group   bool
		word    string
	}{
		{"to gpurec alone", sh, syscall.SIGTERM, false, "got"},
		{"to the group", sh, syscall.SIGTERM, true, "got"},
		{"interrupt to gpurec alone", sh, syscall.SIGINT, false, "int"},
		{"interrupt to the group", sh, syscall.SIGINT, true, "int"},
		{"to the group, and the command has its own", append([]string{"setsid"}, sh...), syscall.SIGTERM, true, "got"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if _, err := exec.LookPath(row.command[0]); err != nil {
				t.Skipf("there is no %s here", row.command[0])
			}
			if signal.Ignored(row.signal) { // by a shell that runs the tests in the background
				t.Skipf("signal %v is ignored here, and a shell cannot change that", row.signal)
			}
			c, out, child := startCounting(t, row.command...)
			stuck := time.AfterFunc(60*time.Second, func() { syscall.Kill(child, syscall.SIGKILL) })
			defer stuck.Stop()
			to := c.Process.Pid
			if row.group {
				to = -to
			}
			const times = 5
			for range times {
				if err := syscall.Kill(to, row.signal); err != nil {
					t.Fatal(err)
				}
				if !out.Scan() || out.Text() != row.word {
					t.Fatalf("it says %q, want %q", out.Text(), row.word)
				}
				time.Sleep(20 * time.Millisecond) // for one too many
			}
			syscall.Kill(c.Process.Pid, syscall.SIGUSR1)
			for out.Scan() {
				t.Errorf("%q once more than sent", out.Text())
			}
			c.Wait()
			if status := c.ProcessState.ExitCode(); status != 5 {
				t.Errorf("status %d, want 5", status)
			}
		})
	}
}

// TestKilledWithGroup: a group that is killed leaves nothing behind; gpurec alone
// killed leaves the command running, and nothing of its own.
func TestKilledWithGroup(t *testing.T) {
	children := func(pid int) (out []int) {
		list, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
		for _, path := range list {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range strings.Fields(string(b)) {
				n, _ := strconv.Atoi(f)
				out = append(out, n)
			}
		}
		return out
	}
	runs := func(pid int) bool {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		return err == nil && !strings.Contains(string(b), ") Z ")
	}
	for _, group := range []bool{true, false} {
		c, out, child := startCounting(t, "sh", "-c", counting)
		all := children(c.Process.Pid)
		if len(all) == 0 {
			t.Skip("this kernel does not list a process's children")
		}
		to := c.Process.Pid
		if group {
			to = -to
		}
		syscall.Kill(to, syscall.SIGKILL)
		c.Process.Wait()
		for _, pid := range all {
			stays := pid == child && !group
			for end := time.Now().Add(20 * time.Second); runs(pid) && !stays && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
			if runs(pid) != stays {
				t.Errorf("group=%v: process %d runs: %v (the command is %d)", group, pid, runs(pid), child)
			}
		}
		if !group {
			syscall.Kill(child, syscall.SIGTERM)
			if !out.Scan() || out.Text() != "got" {
				t.Errorf("the command left behind says %q", out.Text())
			}
		}
	}
}

// TestSignalAfterTheCommand: who interrupts while gpurec waits for what the command
// left running gets a closed trace at once, and the command's status.
func TestSignalAfterTheCommand(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if signal.Ignored(s) {
			t.Logf("%v is ignored here", s)
			continue
		}
		c, out, child := startCounting(t, "sh", "-c", `echo ready $$; sleep 60 >/dev/null 2>&1 & echo $!; exit 7`)
		if !out.Scan() {
			t.Fatal("it says nothing more")
		}
		left, err := strconv.Atoi(out.Text())
		if err != nil {
			t.Fatal(err)
		}
		for syscall.Kill(child, 0) == nil {
			time.Sleep(time.Millisecond)
		}
		syscall.Kill(c.Process.Pid, s) // it may have waited for long enough already
		c.Wait()
		syscall.Kill(left, syscall.SIGKILL)
		if status := c.ProcessState.ExitCode(); status != 7 {
			t.Errorf("after %v the status is %d, want 7", s, status)
		}
		if m := read(t, filepath.Join(c.Dir, "t.gpurec")).meta; m.Ending != format.EndClosed || m.Status == nil || *m.Status != 7 {
			t.Errorf("after %v the trace says %+v", s, m)
		}
	}
}
