//go:build linux || darwin

package symbols

import (
	"errors"
	"os"
	"syscall"
)

// lock keeps others from changing a trace in place meanwhile: of two that do, each
// would rename the other's half. It ends with the process at the latest. A file
// system without locks has none.
func lock(dir string) (unlock func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		f.Close()
		return nil, errors.New("another process is naming its frames; wait for that, or name a copy with -o")
	}
	return func() { f.Close() }, nil
}
