package recorder

import (
	"syscall"
	"unsafe"
)

// childInfo is siginfo_t as waitid fills it.
type childInfo struct {
	signo, errno, code, _ int32
	pid                   int32
	uid                   uint32
	status                int32
	_                     [25]int32
}

// wait is the status as a shell tells it.
func (c *childInfo) wait() int {
	const exited = 1 // CLD_EXITED
	if c.code == exited {
		return int(c.status)
	}
	return 128 + int(c.status) // CLD_KILLED, CLD_DUMPED
}

// waitid waits for a child of this process. Package os reaps what it waits for;
// the recorder needs a status while the pid still is the child's.
func waitid(pid, options int) (childInfo, error) {
	const pPID = 1
	var info childInfo
	for {
		_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, pPID, uintptr(pid), uintptr(unsafe.Pointer(&info)), uintptr(options), 0, 0)
		if errno == syscall.EINTR {
			continue
		}
		if errno != 0 {
			return childInfo{}, errno
		}
		return info, nil
	}
}
