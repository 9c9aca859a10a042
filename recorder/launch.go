package recorder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"syscall"
	"time"
	"unsafe"
)

// A LaunchError says that a command did not start. Status is what env(1) exits
// with: 127 for a command that is not there, 126 for one that cannot be run.
type LaunchError struct {
	Command string
	Status  int
	Err     error
}

// Error names the command as it could be typed; one that is empty, or would do
// something to a terminal, in quotes and with escapes.
func (e *LaunchError) Error() string {
	name := e.Command
	if q := strconv.Quote(name); name == "" || q != `"`+name+`"` {
		name = q
	}
	return fmt.Sprintf("cannot run %s: %v", name, e.Err)
}
func (e *LaunchError) Unwrap() error { return e.Err }

// forwarded are the signals that go on to the command when this process gets
// them, unless the whole process group did.
var forwarded = []os.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2}

// Launch runs a command in the foreground, with this process's standard files,
// and returns its status: its exit status, or 128 and the signal that ended it.
// ended, which may be nil, is called before the process is reaped. The command
// is in this process's group, as under env(1): job control, nohup and the
// terminal treat both as one. An error is a *LaunchError: it did not start.
//
// This process outlives the command's signals, to close the trace.
func Launch(args, env []string, ended func(pid, status int)) (status int, err error) {
	return launch(args, env, stages{ended: ended})
}

// stages are called, those that are there, as a launch comes by.
type stages struct {
	listening func() // for signals; there is no command yet
	started   func()
	ended     func(pid, status int)
}

func launch(args, env []string, at stages) (status int, err error) {
	path, err := find(args[0])
	if err != nil {
		return 0, err
	}
	signals := make(chan os.Signal, 16)
	for _, s := range forwarded {
		// One that is ignored here (nohup, a background job) stays so: to catch it
		// would give the command its default back.
		if !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}
	defer signal.Stop(signals)
	if at.listening != nil {
		at.listening()
	}

	pid, witness, err := start(path, args, env)
	if err != nil {
		return 0, err
	}
	if at.started != nil {
		at.started()
	}
	f := &forwarder{signals: signals, witness: witness}
	defer func() {
		if f.witness != nil {
			f.witness.close()
		}
	}()
	gone, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		f.run(pid, gone)
	}()
	info, err := waitid(pid, syscall.WEXITED|syscall.WNOWAIT)
	close(gone)
	<-done
	if err != nil {
		return 0, &LaunchError{args[0], 126, fmt.Errorf("wait for it: %w", err)}
	}
	status = info.wait()
	if at.ended != nil {
		at.ended(pid, status)
	}
	waitid(pid, syscall.WEXITED)
	return status, nil
}

func find(name string) (string, error) {
	path, err := exec.LookPath(name)
	switch {
	case err == nil, errors.Is(err, exec.ErrDot): // PATH has ".", as execvp takes it
		return path, nil
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EISDIR):
		return "", &LaunchError{name, 126, fs.ErrPermission}
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return "", &LaunchError{name, 127, errors.New("no such command")}
	}
	return "", &LaunchError{name, 126, err}
}

func start(path string, args, env []string) (int, *witness, error) {
	pid, witness, err := spawn(path, args, env)
	if err != nil {
		status := 126
		if errors.Is(err, fs.ErrNotExist) { // a script's interpreter
			status = 127
		}
		return 0, nil, &LaunchError{args[0], status, err}
	}
	return pid, witness, nil
}

// settle is how long signals gather before, and after, it is asked who got them.
const settle = 2 * time.Millisecond

// A forwarder passes signals on that the command did not get by itself. What was
// sent to this process alone is passed on as often as it came. Equal signals that
// come together, some of them to the group, count as one, which the command has:
// for the witness they may have become one on their way, when it had to wait for
// a core, as they may for the command.
type forwarder struct {
	signals chan os.Signal
	witness *witness // nil: none could be made, or it fell silent
}

// run asks again when more has come while it waited for an answer, which may
// have counted that already.
func (f *forwarder) run(pid int, gone <-chan struct{}) {
	const asks = 3 // a flood is passed on too
	for {
		var got []syscall.Signal
		select {
		case s := <-f.signals:
			got = append(got, s.(syscall.Signal))
		case <-gone:
			return
		}
		has := map[syscall.Signal]bool{} // that the command has
		known := 0
		for range asks {
			time.Sleep(settle)
			if got = f.gather(got); len(got) == known {
				break
			}
			known = len(got)
			for _, s := range slices.Compact(slices.Sorted(slices.Values(got))) {
				if f.reached(s, pid) {
					has[s] = true
				}
			}
		}
		for _, s := range got {
			if !has[s] {
				syscall.Kill(pid, s) // not reaped: the pid is its own
			}
		}
	}
}

// gather appends the signals that have come.
func (f *forwarder) gather(got []syscall.Signal) []syscall.Signal {
	for {
		select {
		case s := <-f.signals:
			got = append(got, s.(syscall.Signal))
		default:
			return got
		}
	}
}

// reached reports whether the command has got a signal by itself that came here.
// Without a witness those of a terminal are known to have, and the others are
// passed on: twice is a nuisance, never would be a job that cannot be ended.
func (f *forwarder) reached(s syscall.Signal, pid int) bool {
	if f.witness != nil {
		n, err := f.witness.count(s)
		if err == nil {
			group, err := syscall.Getpgid(pid)
			return n > 0 && err == nil && group == syscall.Getpgrp() // it may have made a group of its own
		}
		f.witness.close() // out of step from now on
		f.witness = nil
	}
	return (s == syscall.SIGINT || s == syscall.SIGQUIT) && foreground()
}

func foreground() bool {
	tty, err := os.OpenFile("/dev/tty", os.O_RDONLY|syscall.O_NOCTTY, 0)
	if err != nil {
		return false // no terminal: somebody sent it to this process alone
	}
	defer tty.Close()
	var group int32
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, tty.Fd(), syscall.TIOCGPGRP, uintptr(unsafe.Pointer(&group)))
	return errno == 0 && int(group) == syscall.Getpgrp()
}
