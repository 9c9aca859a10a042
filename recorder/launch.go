package recorder

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"os/signal"
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
	// After the command: who looks for this process's child finds that one first.
	f := &forwarder{signals: signals}
	if w, err := newWitness(); err == nil { // else reached does without
		f.witness = w
	}
	defer func() {
		if f.witness != nil {
			f.witness.close()
		}
	}()
	gone, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		f.run(child, gone)
	}()
	info, err := waitid(child.Pid, syscall.WEXITED|syscall.WNOWAIT)
	close(gone)
	<-done
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

// settle is how long signals gather before it is asked who got them: one for
// the group has long reached every member then.
const settle = 2 * time.Millisecond

// A forwarder passes signals on that the command did not get by itself. What was
// sent to this process is passed on as often as it came; two that the kernel or
// the runtime merged on their way count as one, as they might for the command.
type forwarder struct {
	signals chan os.Signal
	witness *witness // nil: none could be made, or it fell silent
}

func (f *forwarder) run(child *os.Process, gone <-chan struct{}) {
	for {
		var got []os.Signal
		select {
		case s := <-f.signals:
			got = append(got, s)
		case <-gone:
			return
		}
		time.Sleep(settle)
		for more := true; more; {
			select {
			case s := <-f.signals:
				got = append(got, s)
			default:
				more = false
			}
		}
		has := map[os.Signal]int{} // that the command has
		for _, s := range got {
			if _, asked := has[s]; !asked {
				has[s] = f.reached(s.(syscall.Signal), child.Pid)
			}
			if has[s]--; has[s] < 0 {
				child.Signal(s)
			}
		}
	}
}

// reached is how many of the signals that came here the command has got by
// itself. Without a witness those of a terminal are known to have, and the others
// are passed on: twice is a nuisance, never would be a job that cannot be ended.
func (f *forwarder) reached(s syscall.Signal, pid int) int {
	const all = math.MaxInt
	if f.witness != nil {
		n, err := f.witness.count(s)
		if err == nil {
			if group, err := syscall.Getpgid(pid); err != nil || group != syscall.Getpgrp() {
				return 0 // it has made a group of its own
			}
			return n
		}
		f.witness.close() // out of step from now on
		f.witness = nil
	}
	if (s == syscall.SIGINT || s == syscall.SIGQUIT) && foreground() {
		return all
	}
	return 0
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
