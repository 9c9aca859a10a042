package recorder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"unsafe"
)

// A LaunchError says that a command did not start. Status is what env(1) exits
// with: 127 for a command that is not there, 126 for one that cannot be run.
type LaunchError struct {
	Command string
	Status  int
	Err     error
}

func (e *LaunchError) Error() string { return fmt.Sprintf("cannot run %s: %v", e.Command, e.Err) }
func (e *LaunchError) Unwrap() error { return e.Err }

// forwarded are the signals that go on to the command when this process gets
// them. Those of the terminal reach it by themselves, see passes.
var forwarded = []os.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2}

// Launch runs a command in the foreground, with this process's standard files,
// and returns its status: its exit status, or 128 and the signal that ended it.
// ended, which may be nil, is called before the process is reaped. The command
// is in this process's group, as under env(1): job control, nohup and the
// terminal treat both as one. An error is a *LaunchError: it did not start.
//
// This process outlives the command's signals, to close the trace.
func Launch(args, env []string, ended func(pid, status int)) (status int, err error) {
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

	child, err := start(path, args, env)
	if err != nil {
		return 0, err
	}
	gone := make(chan struct{})
	go func() {
		for {
			select {
			case s := <-signals:
				if passes(s) {
					child.Signal(s)
				}
			case <-gone:
				return
			}
		}
	}()
	info, err := waitid(child.Pid, syscall.WEXITED|syscall.WNOWAIT)
	close(gone)
	if err != nil {
		return 0, &LaunchError{args[0], 126, fmt.Errorf("wait for it: %w", err)}
	}
	status = info.wait()
	if ended != nil {
		ended(child.Pid, status)
	}
	child.Wait()
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

func start(path string, args, env []string) (*os.Process, error) {
	attr := &os.ProcAttr{Env: env, Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}}
	child, err := os.StartProcess(path, args, attr)
	if errors.Is(err, syscall.ENOEXEC) { // a script without a first line, as execvp runs it
		child, err = os.StartProcess("/bin/sh", append([]string{"sh", path}, args[1:]...), attr)
	}
	if err != nil {
		status := 126
		if errors.Is(err, fs.ErrNotExist) { // a script's interpreter
			status = 127
		}
		var p *fs.PathError
		if errors.As(err, &p) {
			err = p.Err
		}
		return nil, &LaunchError{args[0], status, err}
	}
	return child, nil
}

// passes reports whether a signal must be passed on. Ctrl-C and Ctrl-\ reach
// every process in the terminal's foreground group by themselves, and a program
// that got them twice would take the second for impatience.
func passes(s os.Signal) bool {
	return s != syscall.SIGINT && s != syscall.SIGQUIT || !foreground()
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
