package recorder

import (
	"bytes"
	"context"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/gpurec/gpurec/format"
)

// Left are the processes that still ran when WaitQuiet gave up.
type Left struct {
	Traced int // announced a lane
	Silent int // have the socket in their environment, and had no event yet
}

// WaitQuiet waits until every process that ever announced a lane has ended, and
// every one that was started with the socket in its environment, because it may
// still have its first event; or until ctx has ended. It returns who is left.
func (s *Session) WaitQuiet(ctx context.Context) Left {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	// Those found are watched; all processes are looked at again only when they
	// have gone, for what they have started meanwhile.
	for others := carriers(format.EnvSocket, s.socket); len(others) > 0; {
		select {
		case <-ctx.Done():
			return s.left()
		case <-tick.C:
		}
		if others = keep(others, running); len(others) == 0 {
			others = carriers(format.EnvSocket, s.socket)
		}
	}
	defer s.hurry()()
	from := s.turns.Load()
	// A turn takes microseconds; a process that had its socket closed, longer.
	for pause := 50 * time.Microsecond; ; pause = min(2*pause, 2*time.Millisecond) {
		s.wake()
		// Two whole turns since then: whoever announced itself before is counted.
		if n := s.alive.Load(); n == 0 && s.turns.Load() >= from+2 {
			return Left{}
		}
		select {
		case <-ctx.Done():
			return s.left()
		case <-time.After(pause):
		}
	}
}

func (s *Session) left() Left {
	traced := int(s.alive.Load())
	return Left{Traced: traced, Silent: max(0, len(carriers(format.EnvSocket, s.socket))-traced)}
}

// carriers are the running processes that were started with this value of a
// variable, without this one. Not seen are those whose environment this user
// may not read, and those that have overwritten it.
func carriers(variable, value string) (found []processKey) {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer proc.Close()
	names, _ := proc.Readdirnames(-1)
	want := []byte("\x00" + variable + "=" + value + "\x00")
	b := make([]byte, 64<<10)
	for _, name := range names {
		pid, err := strconv.ParseInt(name, 10, 32)
		if err != nil || int(pid) == os.Getpid() || !contains("/proc/"+name+"/environ", want, b) {
			continue
		}
		if _, start, ok := readStat("/proc/" + name); ok {
			found = append(found, processKey{pid: int32(pid), start: start})
		}
	}
	return found
}

// contains looks for want in a file that is read as if a zero stood before it.
// b is room to read into, longer than want. The file is one of hundreds and of
// no poller's interest: package os takes a third longer.
func contains(path string, want, b []byte) bool {
	f, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer syscall.Close(f)
	b[0] = 0
	have := 1
	for {
		n, err := syscall.Read(f, b[have:])
		if err == syscall.EINTR {
			continue
		}
		if have += max(n, 0); bytes.Contains(b[:have], want) {
			return true
		}
		if err != nil || n == 0 {
			return false
		}
		if tail := len(want) - 1; have > tail {
			have = copy(b, b[have-tail:have])
		}
	}
}
