package recorder

import (
	"os"
	"syscall"
	"unsafe"
)

// A signal that this process gets was sent to it alone, and the command must get
// it too, or to the whole process group, and the command has it already:
// timeout(1), a batch system, a shell and the terminal send to groups. Passing
// on both would make a program take the second one for impatience, passing on
// none leave it running. The kernel does not say which it was: siginfo has the
// sender, not whom it was sent to.
//
// A group of its own for the command would tell, but then a SIGKILL or SIGSTOP
// for the group would not reach it. So there is a witness: a process in this
// group that blocks all signals and counts them. What the witness got as well
// was sent to the group.
//
// It is a fork, made by spawn, that makes nothing but system calls: no second
// program to find, no start to wait for. It ends when its socket closes, so it
// does not outlive this process, however that ends.
//
// Its count is final when this process has the signal: it is the younger, and
// the kernel gives a group's signal to its youngest member first.
type witness struct {
	pid  int
	sock int
}

// witnessSockets are this process's and the witness's end of a connection, both
// -1 where there is none to be had.
func witnessSockets() (ours, theirs int) {
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, -1
	}
	// A witness that was stopped does not answer; nobody waits for it for long.
	syscall.SetsockoptTimeval(pair[0], syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &syscall.Timeval{Sec: 1})
	return pair[0], pair[1]
}

// count is how often the group got a signal since the last count of it.
func (w *witness) count(s syscall.Signal) (int, error) {
	b := [1]byte{byte(s)}
	if _, err := syscall.Write(w.sock, b[:]); err != nil {
		return 0, err
	}
	for {
		n, err := syscall.Read(w.sock, b[:])
		if err == syscall.EINTR { // the runtime's own signals
			continue
		}
		if err == nil && n != 1 {
			err = os.ErrClosed
		}
		return int(b[0]), err
	}
}

func (w *witness) close() {
	syscall.Close(w.sock)
	syscall.Kill(w.pid, syscall.SIGKILL) // our child and not reaped: the pid is its own
	for {
		if _, err := syscall.Wait4(w.pid, nil, 0, nil); err != syscall.EINTR {
			return
		}
	}
}

// witnessMemory is all that the witness uses, made before the fork.
type witnessMemory struct {
	mask uint64
	sock uintptr
	poll [2]struct {
		fd              int32
		events, revents int16
	}
	name   [16]byte
	info   [128]byte // struct signalfd_siginfo; the signal comes first
	counts [65]uint8
	byte   [1]byte
}

const sysCloseRange = 436 // since 5.9

// serve is the witness: it keeps its socket alone of all descriptors, counts the
// signals it gets and answers with the count of one; then it ends.
//
//go:norace
//go:nosplit
func (m *witnessMemory) serve() {
	const sock, pollIn = 3, 1
	syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_NAME, uintptr(unsafe.Pointer(&m.name)), 0)
	syscall.RawSyscall(syscall.SYS_DUP3, m.sock, sock, 0) // fails if it is 3 already
	for fd := uintptr(0); fd < sock; fd++ {
		syscall.RawSyscall(syscall.SYS_CLOSE, fd, 0, 0)
	}
	if _, _, errno := syscall.RawSyscall(sysCloseRange, sock+1, 1<<32-1, 0); errno != 0 {
		for fd := uintptr(sock + 1); fd < 4096; fd++ {
			syscall.RawSyscall(syscall.SYS_CLOSE, fd, 0, 0)
		}
	}
	signals, _, errno := syscall.RawSyscall6(syscall.SYS_SIGNALFD4, ^uintptr(0), uintptr(unsafe.Pointer(&m.mask)), 8, 0, 0, 0)
	for errno == 0 {
		m.poll[0].fd, m.poll[0].events, m.poll[0].revents = sock, pollIn, 0
		m.poll[1].fd, m.poll[1].events, m.poll[1].revents = int32(signals), pollIn, 0
		_, _, errno = syscall.RawSyscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&m.poll)), 2, 0, 0, 0, 0)
		if errno != 0 {
			break
		}
		if m.poll[1].revents != 0 { // first: what came before a question is in the answer
			n, _, e := syscall.RawSyscall(syscall.SYS_READ, signals, uintptr(unsafe.Pointer(&m.info)), uintptr(len(m.info)))
			if errno = e; n == uintptr(len(m.info)) && m.info[0] < uint8(len(m.counts)) && m.counts[m.info[0]] < 255 {
				m.counts[m.info[0]]++
			}
			continue
		}
		n, _, _ := syscall.RawSyscall(syscall.SYS_READ, sock, uintptr(unsafe.Pointer(&m.byte)), 1)
		if n != 1 || m.byte[0] >= uint8(len(m.counts)) {
			break
		}
		s := m.byte[0]
		m.byte[0] = m.counts[s]
		m.counts[s] = 0
		_, _, errno = syscall.RawSyscall(syscall.SYS_WRITE, sock, uintptr(unsafe.Pointer(&m.byte)), 1)
	}
	for {
		syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 0, 0, 0)
	}
}
