package recorder

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/recorder/ring"
)

// A poller is an epoll set in which the loop sleeps, and the timer that ends its
// sleep. It sleeps as goroutines do, in the runtime's own poller, which has the
// set as one of its descriptors. A thread in epoll_wait itself would keep its P,
// and then the runtime's monitor wakes up every 20 µs to see whether somebody
// wants it: at a pause of 10 ms that was a third of what the recorder took at
// 50,000 events a second. And for a timer of the runtime the monitor wakes up too,
// and the thread that polls, to learn of it: the kernel's comes as an event.
type poller struct {
	fd, timer int
	file      *os.File
	conn      syscall.RawConn
	pause     time.Duration // the timer's
}

func newPoller() (*poller, error) {
	wrong := func(err error) (*poller, error) { return nil, fmt.Errorf("epoll for the recorder's loop: %w", err) }
	fd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return wrong(err)
	}
	syscall.SetNonblock(fd, true) // what makes the runtime poll it
	p := &poller{fd: fd, timer: -1, file: os.NewFile(uintptr(fd), "epoll")}
	if p.conn, err = p.file.SyscallConn(); err == nil {
		err = p.file.SetReadDeadline(time.Time{})
	}
	if err == nil {
		err = p.makeTimer()
	}
	if err != nil {
		p.close()
		return wrong(err)
	}
	return p, nil
}

func (p *poller) makeTimer() error {
	const monotonic = 1
	fd, _, errno := syscall.RawSyscall(syscall.SYS_TIMERFD_CREATE, monotonic, syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if errno != 0 {
		return errno
	}
	p.timer = int(fd)
	return syscall.EpollCtl(p.fd, syscall.EPOLL_CTL_ADD, p.timer, &syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(p.timer)})
}

// set makes the timer end after each pause.
func (p *poller) set(pause time.Duration) {
	t := syscall.NsecToTimespec(int64(pause))
	every := [2]syscall.Timespec{t, t} // the interval, the first
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_TIMERFD_SETTIME, uintptr(p.timer), 0, uintptr(unsafe.Pointer(&every)), 0, 0, 0); errno == 0 {
		p.pause = pause
	}
}

func (p *poller) close() {
	p.file.Close()
	if p.timer >= 0 {
		syscall.Close(p.timer)
	}
}

func (p *poller) watch(fd int) error {
	err := syscall.EpollCtl(p.fd, syscall.EPOLL_CTL_ADD, fd, &syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(fd)})
	if err != nil {
		return fmt.Errorf("epoll for the recorder's loop: %w", err)
	}
	return nil
}

// ready fills events with what is there already. It does not wait, so that the
// runtime need not be told of the call.
func (p *poller) ready(events []syscall.EpollEvent) []syscall.EpollEvent {
	for {
		n, _, errno := syscall.RawSyscall6(syscall.SYS_EPOLL_PWAIT, uintptr(p.fd), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), 0, 0, 0)
		if errno == 0 {
			return events[:n]
		}
		if !errors.Is(errno, syscall.EINTR) {
			return nil
		}
	}
}

// wait sleeps until something is there or a pause is over, which began when the
// wait before ended, and returns what is there, at a time or later.
func (p *poller) wait(pause time.Duration, events []syscall.EpollEvent) (at format.Time, found []syscall.EpollEvent) {
	if pause != p.pause {
		p.set(pause)
	}
	at = ring.Now()
	p.conn.Read(func(uintptr) bool {
		at = ring.Now()
		found = p.ready(events)
		return len(found) > 0
	})
	for i := range found {
		if found[i].Fd == int32(p.timer) {
			var ends [8]byte // the kernel starts it again when its end is read
			syscall.RawSyscall(syscall.SYS_READ, uintptr(p.timer), uintptr(unsafe.Pointer(&ends)), 8)
		}
	}
	return at, found
}

// accept takes a connection in, without blocking as the listener is.
func accept(listener int) (int, error) {
	fd, _, errno := syscall.RawSyscall6(syscall.SYS_ACCEPT4, uintptr(listener), 0, 0, syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0, 0)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}
