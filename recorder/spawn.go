package recorder

import (
	"encoding/binary"
	"runtime"
	"sync"
	"syscall"
	"unsafe"
)

// spawn starts a command, and with it the witness of the signals that the
// command gets by itself. os.StartProcess would do but for the witness's birth,
// which must fall between the command's own and its exec, whoever has to wait
// for a core meanwhile:
//
//	a signal for the group, sent      the command  the witness
//	before the command is born        has it not   has it not   is passed on
//	before the witness is born        ends of it   has it not   is passed on to nobody
//	later                             has it       has it       is not passed on
//
// The second row holds because a program begins with no handler: what is pending
// at exec is ignored, and then so here too, or ends it. So:
//
//  1. This process forks, with all signals blocked.
//  2. The fork forks the witness, as its sibling: a child that the command did
//     not start would confuse it.
//  3. It becomes what the command expects: no handlers, this process's mask (the
//     runtime has taken a few out of it, SIGCHLD for one) and limit of files.
//  4. It execs. The report pipe, closed by that, says to this process that it
//     did, or else why not.
//
// Witness is nil where there could be none.
func spawn(path string, args, env []string) (pid int, w *witness, err error) {
	m := &spawnMemory{mask: ^uint64(0)}
	if err := m.fill(path, args, env); err != nil {
		return 0, nil, err
	}
	var report [2]int
	if err := syscall.Pipe2(report[:], syscall.O_CLOEXEC); err != nil {
		return 0, nil, err
	}
	defer syscall.Close(report[0])
	m.report = uintptr(report[1])
	sock, theirs := witnessSockets()
	m.witness.mask, m.witness.sock = m.mask, uintptr(theirs)
	copy(m.witness.name[:], "gpurec-witness")

	syscall.ForkLock.Lock()
	runtime.LockOSThread()
	pid, errno := m.fork()
	runtime.UnlockOSThread()
	syscall.ForkLock.Unlock()
	runtime.KeepAlive(m)
	syscall.Close(report[1])
	if theirs >= 0 {
		syscall.Close(theirs)
	}
	if errno != 0 {
		err = errno
	} else {
		var sibling int
		if sibling, err = readReport(report[0]); err != nil {
			waitid(pid, syscall.WEXITED)
		}
		if sibling > 0 {
			w = &witness{sibling, sock}
		}
	}
	if w == nil && sock >= 0 {
		syscall.Close(sock)
	}
	if err != nil && w != nil {
		w.close()
		w = nil
	}
	return pid, w, err
}

// readReport is the witness's pid, 0 if there is none, and why the command's
// exec failed.
func readReport(fd int) (witness int, err error) {
	var b [16]byte
	n := 0
	for n < len(b) {
		k, err := syscall.Read(fd, b[n:])
		if err == syscall.EINTR {
			continue
		}
		if err != nil || k == 0 {
			break
		}
		n += k
	}
	if n >= 8 {
		witness = int(binary.NativeEndian.Uint64(b[:8]))
	}
	if n == len(b) {
		err = syscall.Errno(binary.NativeEndian.Uint64(b[8:]))
	}
	return witness, err
}

// fileLimit is the limit of open files that this process was started with. The
// runtime raises it for itself, gives it back to what it starts, and tells
// nobody; a syscall.Exec gives it back before it fails.
var fileLimit = sync.OnceValue(func() (found syscall.Rlimit) {
	var raised syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &raised) != nil {
		return
	}
	syscall.Exec("", []string{""}, nil)
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &found) != nil {
		return raised
	}
	if found != raised {
		syscall.Setrlimit(syscall.RLIMIT_NOFILE, &raised)
	}
	return found
})

// spawnMemory is all that the forked process uses, made before the fork: it may
// not allocate, grow its stack or take a lock that another thread had.
type spawnMemory struct {
	mask, old uint64
	path, sh  *byte
	argv, env []*byte
	shArgv    []*byte // the same for a script without a first line, as execvp runs it
	limit     syscall.Rlimit
	report    uintptr
	number    uint64
	action    [4]uintptr // the kernel's struct sigaction, which begins with the handler
	witness   witnessMemory
}

func (m *spawnMemory) fill(path string, args, env []string) (err error) {
	pointer := func(s string) (p *byte) {
		if err == nil {
			p, err = syscall.BytePtrFromString(s)
		}
		return p
	}
	list := func(s []string) (l []*byte) {
		if err == nil {
			l, err = syscall.SlicePtrFromStrings(s)
		}
		return l
	}
	m.path, m.sh = pointer(path), pointer("/bin/sh")
	m.argv, m.env = list(args), list(env)
	m.shArgv = list(append([]string{"sh", path}, args[1:]...))
	m.limit = fileLimit()
	return err
}

const setMask = 2 // SIG_SETMASK

// fork returns in the parent only.
//
//go:norace
//go:nosplit
func (m *spawnMemory) fork() (int, syscall.Errno) {
	syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, setMask, uintptr(unsafe.Pointer(&m.mask)), uintptr(unsafe.Pointer(&m.old)), 8, 0, 0)
	pid, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if errno == 0 && pid == 0 {
		m.become()
	}
	syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, setMask, uintptr(unsafe.Pointer(&m.old)), 0, 8, 0, 0)
	return int(pid), errno
}

// become is the forked process until its exec.
//
//go:norace
//go:nosplit
func (m *spawnMemory) become() {
	if int(m.witness.sock) >= 0 {
		pid, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, syscall.CLONE_PARENT|uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
		if errno == 0 && pid == 0 {
			m.witness.serve()
		}
		if errno == 0 {
			m.number = uint64(pid)
		}
	}
	m.tell()
	for s := uintptr(1); s <= 64; s++ {
		// Before the mask is opened: the handlers need a runtime, which is not here.
		_, _, errno := syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, s, 0, uintptr(unsafe.Pointer(&m.action)), 8, 0, 0)
		if errno == 0 && m.action[0] > 1 { // neither SIG_DFL nor SIG_IGN
			m.action = [4]uintptr{}
			syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, s, uintptr(unsafe.Pointer(&m.action)), 0, 8, 0, 0)
		}
	}
	if m.limit.Max > 0 {
		syscall.RawSyscall6(syscall.SYS_PRLIMIT64, 0, syscall.RLIMIT_NOFILE, uintptr(unsafe.Pointer(&m.limit)), 0, 0, 0)
	}
	for fd := uintptr(0); fd < 3; fd++ {
		syscall.RawSyscall(syscall.SYS_FCNTL, fd, syscall.F_SETFD, 0)
	}
	syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, setMask, uintptr(unsafe.Pointer(&m.old)), 0, 8, 0, 0)
	env := uintptr(unsafe.Pointer(&m.env[0]))
	_, _, errno := syscall.RawSyscall(syscall.SYS_EXECVE, uintptr(unsafe.Pointer(m.path)), uintptr(unsafe.Pointer(&m.argv[0])), env)
	if errno == syscall.ENOEXEC {
		_, _, errno = syscall.RawSyscall(syscall.SYS_EXECVE, uintptr(unsafe.Pointer(m.sh)), uintptr(unsafe.Pointer(&m.shArgv[0])), env)
	}
	m.number = uint64(errno)
	m.tell()
	for {
		syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 126, 0, 0)
	}
}

// tell writes the next number of the report.
//
//go:norace
//go:nosplit
func (m *spawnMemory) tell() {
	syscall.RawSyscall(syscall.SYS_WRITE, m.report, uintptr(unsafe.Pointer(&m.number)), 8)
}
