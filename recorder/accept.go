package recorder

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/recorder/ring"
)

// What package syscall does not name; the kernel's ABI.
const (
	soPeerPidfd  = 77  // since 6.5
	sysPidfdOpen = 434 // since 5.3
)

// maxSocketPath is what fits in a sockaddr_un with its final zero.
const maxSocketPath = 107

// A listener is the socket at which lanes are announced, in a directory of its
// own that only this user can enter.
type listener struct {
	fd   int
	lock int // of dir, for as long as this process lives
	dir  string
	path string
}

// listen makes the socket below base, or below the system's own places when
// base is empty or its path would not fit.
func listen(base string) (*listener, error) {
	bases := []string{base}
	if base == "" {
		bases = []string{os.Getenv("XDG_RUNTIME_DIR"), os.TempDir(), "/tmp"}
	}
	var first error
	for _, b := range bases {
		if b == "" {
			continue
		}
		l, err := listenIn(b)
		if err == nil {
			sweepSockets(b)
			return l, nil
		}
		if first == nil {
			first = err
		}
	}
	return nil, first
}

func listenIn(base string) (*listener, error) {
	dir, err := os.MkdirTemp(base, "gpurec-") // 0700
	if err != nil {
		return nil, fmt.Errorf("make a directory for the recorder's socket: %w", err)
	}
	l := &listener{fd: -1, lock: -1, dir: dir, path: dir + "/s"}
	if len(l.path) > maxSocketPath {
		l.close()
		return nil, fmt.Errorf("the recorder's socket would be at %s: longer than the %d bytes that a socket's path may have", l.path, maxSocketPath)
	}
	// Before there is a socket, so that one without a lock is a dead recorder's.
	// Where locks are not to be had, nothing is swept either.
	if l.lock, err = syscall.Open(dir, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0); err == nil {
		syscall.Flock(l.lock, syscall.LOCK_EX|syscall.LOCK_NB)
	}
	l.fd, err = syscall.Socket(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err == nil {
		err = syscall.Bind(l.fd, &syscall.SockaddrUnix{Name: l.path})
	}
	if err == nil {
		err = syscall.Listen(l.fd, 4096) // a burst of threads; the kernel cuts it to somaxconn
	}
	if err != nil {
		l.close()
		return nil, fmt.Errorf("listen at %s: %w", l.path, err)
	}
	return l, nil
}

func (l *listener) close() {
	if l.fd >= 0 {
		syscall.Close(l.fd)
		l.fd = -1
	}
	os.RemoveAll(l.dir)
	if l.lock >= 0 {
		syscall.Close(l.lock)
		l.lock = -1
	}
}

// mostMarks is how many marks of processes without a lane are read.
const mostMarks = 4096

// marks are why processes could make no lane, each by the errno that it left
// beside the socket (see birth.c).
func (l *listener) marks() (why []syscall.Errno) {
	if l.fd < 0 {
		return nil
	}
	dir, err := os.Open(l.dir)
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(mostMarks)
	for _, name := range names {
		if !isMark(name) {
			continue
		}
		text, err := os.Readlink(l.dir + "/" + name)
		n, bad := strconv.ParseUint(text, 10, 16)
		if err == nil && bad == nil {
			why = append(why, syscall.Errno(n))
		}
	}
	return why
}

// isMark reports whether a file in the socket's directory is a process's mark.
func isMark(name string) bool {
	digits, ok := strings.CutPrefix(name, "s.")
	return ok && digits != "" && strings.Trim(digits, "0123456789") == ""
}

// errNotYet says that a connection has not sent its hello.
var errNotYet = errors.New("no hello yet")

// errAsks says that a connection is a question's: nothing comes but a wake-up.
var errAsks = errors.New("a question")

// A newcomer is what a connection brought.
type newcomer struct {
	hello format.WireHello
	pid   int32 // as this process sees it: the hello's is of the peer's pid namespace
	pidfd int   // -1 where the kernel has none
	rings []*ring.Consumer
}

// receive takes the hello and the lane from a connection, which stays the
// caller's. What does not look like a lane of ours is refused with a reason;
// the descriptors that came with it are closed. A hello of a hook's comes back
// with the reason: the events in its lanes will be missing.
func receive(conn int) (*newcomer, error) {
	var n newcomer
	msg := unsafe.Slice((*byte)(unsafe.Pointer(&n.hello)), unsafe.Sizeof(n.hello))
	oob := make([]byte, syscall.CmsgSpace(8*4))
	size, oobn, flags, _, err := syscall.Recvmsg(conn, msg, oob, syscall.MSG_CMSG_CLOEXEC|syscall.MSG_DONTWAIT)
	if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EINTR) {
		return nil, errNotYet
	}
	if err != nil {
		return nil, fmt.Errorf("receive a hello: %w", err)
	}
	fds := rights(oob[:oobn])
	if size == 8 && n.hello.Magic == format.AskMagic && len(fds) == 0 {
		return nil, errAsks
	}
	lane, err := checkHello(&n.hello, size, flags, fds)
	if err == nil {
		err = n.checkPeer(conn)
	}
	for _, fd := range fds {
		if err != nil || fd != lane {
			syscall.Close(fd)
		}
	}
	if err == nil {
		n.rings, err = ring.Map(lane, &n.hello)
	}
	if err != nil {
		if n.hello.Magic != format.HelloMagic {
			return nil, err
		}
		return &n, err
	}
	n.pidfd = peerPidfd(conn, processKey{pid: n.pid, start: n.hello.StartTime})
	return &n, nil
}

func rights(oob []byte) (fds []int) {
	messages, err := syscall.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for _, m := range messages {
		if got, err := syscall.ParseUnixRights(&m); err == nil {
			fds = append(fds, got...)
		}
	}
	return fds
}

func checkHello(h *format.WireHello, size, flags int, fds []int) (lane int, err error) {
	switch {
	case size == 0 && len(fds) == 0:
		return -1, errors.New("a connection closed without a hello")
	case size != int(unsafe.Sizeof(*h)) || flags&(syscall.MSG_TRUNC|syscall.MSG_CTRUNC) != 0:
		return -1, fmt.Errorf("a hello of %d bytes, or cut on its way (flags %#x)", size, flags)
	case h.Magic != format.HelloMagic:
		return -1, fmt.Errorf("a message that is no hello (magic %#x)", h.Magic)
	case h.Version != format.Version:
		return -1, fmt.Errorf("a hook of wire version %d; this recorder speaks %d: use the hook that came with it", h.Version, format.Version)
	case len(fds) != 1:
		return -1, fmt.Errorf("a hello with %d descriptors, want the lane's alone", len(fds))
	}
	return fds[0], nil
}

// checkPeer accepts this user's processes and root's, who could do anything anyway.
func (n *newcomer) checkPeer(conn int) error {
	cred, err := syscall.GetsockoptUcred(conn, syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	if err != nil {
		return fmt.Errorf("ask who sent a hello: %w", err)
	}
	if int(cred.Uid) != os.Geteuid() && cred.Uid != 0 {
		return fmt.Errorf("a hello from user %d is refused: this recorder is user %d's", cred.Uid, os.Geteuid())
	}
	n.pid = cred.Pid
	if n.pid == 0 { // of a pid namespace that this process cannot see into
		n.pid = int32(n.hello.PID)
	}
	return nil
}

// peerPidfd is a descriptor that tells of the peer's death, -1 where there is
// none. The socket's own is free of the race in which a pid is another's by now;
// for one that pidfd_open made, the start time must still be the peer's.
func peerPidfd(conn int, key processKey) int {
	if fd, err := syscall.GetsockoptInt(conn, syscall.SOL_SOCKET, soPeerPidfd); err == nil {
		syscall.CloseOnExec(fd)
		return fd
	}
	fd, _, errno := syscall.Syscall(sysPidfdOpen, uintptr(key.pid), 0, 0)
	if errno != 0 {
		return -1
	}
	if !running(key) {
		syscall.Close(int(fd))
		return -1
	}
	return int(fd)
}
