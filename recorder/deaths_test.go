package recorder

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/recorder/ring"
)

// TestEndBeforeSuccessor lets a process die and another take memory before the
// recorder looks: the end stands before the other's event, at no earlier time
// than there is evidence for, and the watermark has not gone beyond it.
func TestEndBeforeSuccessor(t *testing.T) {
	for _, row := range []struct {
		name, role string
		alive      bool // a turn saw it alive
		polled     bool // no pidfd, as before Linux 5.3
		unfinished int
	}{
		{"born and dead between two turns", "exit", false, false, 0},
		{"seen alive, then killed", "silently", true, false, 0},
		{"killed in a call", "call", true, false, 1},
		{"without a pidfd", "silently", true, true, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := newStill(t, 0)
			fake := &Session{socket: s.d.listener.path}
			c, out := child(t, fake, row.role)
			atLeast := format.Time(0)
			if row.alive {
				out.Scan()
				s.turn()
				if row.polled {
					for _, p := range s.d.processes {
						s.d.forgetPidfd(p)
					}
				}
				_, atLeast, _ = s.turn()
				c.Process.Kill()
			}
			if _, err := waitid(c.Process.Pid, syscall.WEXITED|syscall.WNOWAIT); err != nil {
				t.Fatal(err)
			}
			// Its successor, and a while in which the recorder does not run.
			p, err := ring.NewProducer(format.MinLaneSize)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			if err := p.Connect(s.d.listener.path, p.Hello(startTime(), 1)); err != nil {
				t.Fatal(err)
			}
			p.Event(wireEvent(format.Alloc, format.APIMemAlloc, 1, 1), nil)
			time.Sleep(3 * time.Duration(margin))

			previous := s.d.out.until
			var e *ending
			var last format.Time
			for range 100 { // polling waits for its time
				s.d.out = &round{}
				s.d.turn(s.d.look())
				for _, c := range s.d.out.chunks {
					for r, rest := ring.Next(c.records); r != nil; r, rest = ring.Next(rest) {
						if int(c.lane.process.key.pid) != os.Getpid() {
							last = r.Time()
						} else if until := s.d.out.until; e == nil && len(s.d.out.ended) == 0 && until > r.Time() {
							t.Errorf("the successor's event is passed on and the end is not known")
						} else if len(s.d.out.ended) == 1 && s.d.out.ended[0].time >= r.Time() {
							t.Errorf("the end is %d after the successor's event", s.d.out.ended[0].time-r.Time())
						}
					}
				}
				if len(s.d.out.ended) == 1 {
					e = &s.d.out.ended[0]
					break
				}
				if row.polled {
					previous = s.d.out.until
					time.Sleep(time.Millisecond)
				} else {
					t.Fatal("the death was not seen in the first turn after it")
				}
			}
			if e == nil {
				t.Fatal("the death was never seen")
			}
			if e.time < previous || e.time < last || !row.polled && e.time < atLeast {
				t.Errorf("the end at %d lies before the watermark %d, its last record %d or the turn that saw it alive %d", e.time, previous, last, atLeast)
			}
			if len(e.unfinished) != row.unfinished {
				t.Errorf("%d unfinished calls, want %d", len(e.unfinished), row.unfinished)
			}
		})
	}
}

// TestOneAfterTheOther records a shell's loop: never do two processes hold
// memory at one time.
func TestOneAfterTheOther(t *testing.T) {
	s := record(t, Options{})
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const runs = 20
	c := exec.Command("sh", "-c", `i=0; while [ $i -lt 20 ]; do "$0"; i=$((i+1)); done`, exe)
	c.Env = append(os.Environ(), roleEnv+"=exit", format.EnvSocket+"="+s.Socket())
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	r := finish(t, s)
	live := 0
	for _, e := range r.events {
		switch e.Kind {
		case format.Alloc:
			if live++; live > 1 {
				t.Fatalf("%d processes hold memory at %d", live, e.Time)
			}
		case format.ProcessEnd:
			live--
		}
	}
	if n := r.count(format.ProcessEnd); n != runs || r.meta.Stats.Late != 0 {
		t.Errorf("%d ends of %d, %d late", n, runs, r.meta.Stats.Late)
	}
}
