package ring

import (
	"os"
	"os/signal"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
)

// TestMapInterrupted takes in lanes while signals rain on the thread that does:
// none of them may be refused for it. Large ones, so that there is time to.
func TestMapInterrupted(t *testing.T) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGUSR2)
	defer signal.Stop(c)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pid, tid := os.Getpid(), syscall.Gettid()
	var stop atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for !stop.Load() {
			syscall.Tgkill(pid, tid, syscall.SIGUSR2)
		}
	}()
	defer func() { stop.Store(true); <-done }()
	for range 20 {
		p, err := NewProducer(16 << 20)
		if err != nil {
			t.Fatal(err)
		}
		hello := p.Hello(1, 2)
		all, err := Map(dup(t, p.fd), &hello)
		p.Close()
		if err != nil {
			t.Fatal(err)
		}
		all[0].Close()
	}
}
