package main

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// openTerminal makes a pseudo-terminal.
func openTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("there are no pseudo-terminals here: %v", err)
	}
	t.Cleanup(func() { master.Close() })
	var unlock, number int32
	for _, call := range []struct {
		request uintptr
		value   *int32
	}{{syscall.TIOCSPTLCK, &unlock}, {syscall.TIOCGPTN, &number}} {
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, master.Fd(), call.request, uintptr(unsafe.Pointer(call.value))); errno != 0 {
			t.Fatal(errno)
		}
	}
	slave, err = os.OpenFile("/dev/pts/"+strconv.Itoa(int(number)), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slave.Close() })
	return master, slave
}

// TestTerminal types Ctrl-C at a recorded command: the command gets it once, and
// gpurec outlives it to close the trace and to say its five lines.
func TestTerminal(t *testing.T) {
	master, slave := openTerminal(t)
	dir := t.TempDir()
	c := gpurec(t, dir, "run", "-o", "t.gpurec", "--", "sh", "-c", `trap 'echo got it' INT; trap 'exit 5' USR1; echo ready; while :; do sleep 0.02; done`)
	c.Stdin, c.Stdout, c.Stderr = slave, slave, slave
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	screen := make(chan string)
	go func() {
		var all strings.Builder
		b := make([]byte, 4096)
		for {
			n, err := master.Read(b)
			all.Write(b[:n])
			screen <- all.String()
			if err != nil {
				close(screen)
				return
			}
		}
	}()
	limit := time.After(30 * time.Second)
	typed, last := false, ""
	for open := true; open; {
		select {
		case s, ok := <-screen:
			if open = ok; !ok {
				break
			}
			last = s
			if !typed && strings.Contains(s, "ready") {
				typed = true
				master.Write([]byte{3})
			}
			if typed && strings.Contains(s, "got it") {
				time.Sleep(100 * time.Millisecond) // for a second one, which must not come
				c.Process.Signal(syscall.SIGUSR1)
			}
		case <-limit:
			c.Process.Kill()
			t.Fatalf("the screen shows %q", last)
		}
	}
	c.Wait()
	if status := c.ProcessState.ExitCode(); status != 5 || strings.Count(last, "got it") != 1 {
		t.Errorf("status %d, the screen shows %q", status, last)
	}
	for _, words := range []string{"no GPU memory was taken", "out of memory: no", "0 events, 0 lost", "next: gpuanalyze summary t.gpurec"} {
		if !strings.Contains(last, words) {
			t.Errorf("the screen shows %q, want %q", last, words)
		}
	}
}
