package recorder

import (
	"bytes"
	"errors"
	"path/filepath"
	"testing"

	"github.com/gpurec/gpurec/recorder/ring"
)

// Case F2: the disk is full. The program runs on, its scopes say that the
// recording has ended, and nothing hangs.
func TestScopeAfterFailedWrite(t *testing.T) {
	failure := make(chan string, 16)
	r, err := Open(Options{Output: filepath.Join(t.TempDir(), "t.gpurec"), Say: func(s string) { failure <- s }})
	must(t, err)
	var out bytes.Buffer
	s := r.Scope("x").Output(&out)
	h := r.Hook()
	h.MallocPost(0, 1, testMB, 0x1000, 1)
	must(t, s.Report())
	r.Session().fail(errors.New("no space left on device")) // as a failed flush does
	<-failure
	for i := range 20000 { // several lanes full
		h.MallocPost(0, 1, testMB, uint64(i)<<20, uint64(i))
	}
	if err := s.Report(); !errors.Is(err, ErrEnded) {
		t.Errorf("report: %v", err)
	}
	if _, err := s.Data(); !errors.Is(err, ErrEnded) {
		t.Errorf("data: %v", err)
	}
	if err := s.Exit(); err == nil {
		t.Error("exit says nothing")
	}
	r.Close()
	if want := "△Used Peaked MB:      1      0 (x)\n"; out.String() != want {
		t.Errorf("printed %q", out.String())
	}
}

// A scope whose begin found no room in the lane says so, and nothing waits for
// an answer that cannot come.
func TestScopeBeginLost(t *testing.T) {
	var out bytes.Buffer
	recordSelf(t, Options{}, func(r *Recorder) {
		s := r.Scope("x").Output(&out)
		s.mu.Lock()
		s.number = 1 << 40 // what the recorder has not heard of
		s.mu.Unlock()
		if _, err := s.Data(); !errors.Is(err, ring.ErrDropped) {
			t.Errorf("data: %v", err)
		}
		if err := s.Report("a"); !errors.Is(err, ring.ErrDropped) {
			t.Errorf("report: %v", err)
		}
		if err := s.Exit(); !errors.Is(err, ring.ErrDropped) {
			t.Errorf("exit: %v", err)
		}
		if err := s.Stop(); !errors.Is(err, ring.ErrDropped) {
			t.Errorf("stop: %v", err)
		}
	})
	if out.Len() > 0 {
		t.Errorf("printed %q", out.String())
	}
}

// After the recording has ended, and after writing failed, a scope says so and
// nothing hangs.
func TestScopeAfterEnd(t *testing.T) {
	r, err := Open(Options{Output: filepath.Join(t.TempDir(), "t.gpurec")})
	must(t, err)
	var out bytes.Buffer
	stopped, running := r.Scope("stopped").Output(&out), r.Scope("running").Output(&out)
	h := r.Hook()
	h.MallocPost(0, 1, testMB, 0x1000, 1)
	must(t, stopped.Stop())
	_, err = r.Close()
	must(t, err)
	if d, err := stopped.Data(); err != nil || d.Used() != testMB {
		t.Errorf("the stopped scope says %+v, %v", d, err)
	}
	if _, err := running.Data(); !errors.Is(err, ErrEnded) {
		t.Errorf("the running scope says %v", err)
	}
	for name, err := range map[string]error{"report": running.Report(), "stop": running.Stop(), "exit": running.Exit()} {
		if err == nil {
			t.Errorf("%s after the end says nothing", name)
		}
	}
	running.Reset()
	running.Start()
	h.MallocPost(0, 1, testMB, 0x2000, 2)
	if _, err := r.Close(); err != nil {
		t.Errorf("closing twice: %v", err)
	}
}
