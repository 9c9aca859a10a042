package recorder

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
	"github.com/gpurec/gpurec/recorder/ring"
)

// roles are what this test binary does when it is started as another process.
var roles = map[string]func() error{
	"storm":    func() error { return storm(0) }, // publishes until it is killed, and prints how far it got
	"call":     func() error { return call(0) },  // is killed inside a driver call
	"first":    func() error { return call(77) }, // the same, of a thread that has published nothing
	"exec":     execute,                          // becomes another image
	"image":    image,                            // and is that image
	"exit":     exit,                             // one event, then exit 3
	"recorder": itself,                           // records itself until it is killed
	"silent":   connects,                         // connects and says nothing
	"late":     late,                             // sleeps, then one event
	"sleep":    sleeps,
	"silently": silently, // one event, then nothing until it is killed
}

const roleEnv = "GPUREC_TEST_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		if err := roles[role](); err != nil {
			fmt.Fprintln(os.Stderr, role+":", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func lane1(image uint64) (*ring.Producer, error) {
	p, err := ring.NewProducer(format.MinLaneSize)
	if err != nil {
		return nil, err
	}
	p.Wait = true
	return p, p.Connect(os.Getenv(format.EnvSocket), p.Hello(startTime(), image))
}

// storm publishes a thousand events, says how many there are, takes a pause, and
// so on.
func storm(pause time.Duration) error {
	p, err := lane1(1)
	if err != nil {
		return err
	}
	for i := uint64(1); ; i++ {
		if err := p.Event(wireEvent(format.Alloc, format.APIMemAlloc, i<<9, 512), &format.WireCall{}); err != nil {
			return err
		}
		if i%1000 == 0 {
			fmt.Println(i)
			time.Sleep(pause)
		}
	}
}

func call(thread uint32) error {
	p, err := lane1(1)
	if err != nil {
		return err
	}
	p.Event(wireEvent(format.Alloc, format.APIMemAlloc, 1, 1), nil)
	p.Call(format.WireCallSlot{Since: uint64(ring.Now()), API: format.APIMemFree, Device: -1, TID: thread, Address: 0xbeef, Size: 77})
	fmt.Println("in")
	time.Sleep(time.Hour)
	return nil
}

func execute() error {
	p, err := lane1(1)
	if err != nil {
		return err
	}
	p.Event(wireEvent(format.Alloc, format.APIMemAlloc, 1, 111), nil)
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	os.Setenv(roleEnv, "image")
	return syscall.Exec(exe, []string{"image-two"}, os.Environ())
}

func image() error {
	p, err := lane1(2)
	if err != nil {
		return err
	}
	return p.Event(wireEvent(format.Alloc, format.APIMemAlloc, 1, 222), nil)
}

func exit() error {
	p, err := lane1(1)
	if err != nil {
		return err
	}
	p.Event(wireEvent(format.Alloc, format.APIMemAlloc, 1, 1), nil)
	os.Exit(3)
	return nil
}

func silently() error {
	p, err := lane1(1)
	if err != nil {
		return err
	}
	p.Event(wireEvent(format.Alloc, format.APIMemAlloc, 1, 1), nil)
	fmt.Println("in")
	time.Sleep(time.Hour)
	return nil
}

func late() error {
	fmt.Println("in")
	time.Sleep(100 * time.Millisecond)
	return exit()
}

func sleeps() error {
	fmt.Println("in")
	time.Sleep(time.Hour)
	return nil
}

func connects() error {
	s, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_SEQPACKET, 0)
	if err != nil {
		return err
	}
	if err := syscall.Connect(s, &syscall.SockaddrUnix{Name: os.Getenv(format.EnvSocket)}); err != nil {
		return err
	}
	fmt.Println("in")
	time.Sleep(time.Hour)
	return nil
}

func itself() error {
	s, err := Start(Options{Output: os.Getenv("GPUREC_TEST_OUTPUT"), Wait: true})
	if err != nil {
		return err
	}
	os.Setenv(format.EnvSocket, s.Socket())
	return storm(50 * time.Millisecond)
}

// child starts this binary in a role.
func child(t *testing.T, s *Session, role string, env ...string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(exe)
	c.Env = append(append(os.Environ(), roleEnv+"="+role), env...)
	if s != nil {
		c.Env = append(c.Env, format.EnvSocket+"="+s.Socket())
	}
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Process.Kill(); c.Wait() })
	return c, bufio.NewScanner(out)
}

// quiet waits until a child has ended and the session has seen it. The child is
// not reaped, as when its parent is slow.
func quiet(t *testing.T, s *Session, c *exec.Cmd) {
	t.Helper()
	if _, err := waitid(c.Process.Pid, syscall.WEXITED|syscall.WNOWAIT); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if l := s.WaitQuiet(ctx); l != (Left{}) {
		t.Fatalf("still seem to run: %+v", l)
	}
}

// TestKilled kills programs in the middle of their events (F6): what they had
// published is in the trace, in order, then their end.
func TestKilled(t *testing.T) {
	for i := range 5 {
		s := record(t, Options{Wait: true})
		c, out := child(t, s, "storm")
		printed := uint64(0)
		for out.Scan() {
			fmt.Sscan(out.Text(), &printed)
			if printed >= uint64(3000*(i+1)) {
				break
			}
		}
		c.Process.Kill()
		for out.Scan() { // what it printed before it died
			fmt.Sscan(out.Text(), &printed)
		}
		quiet(t, s, c)
		c.Wait()
		r := finish(t, s)
		n := uint64(0)
		for _, e := range r.events {
			if e.Kind == format.Alloc {
				if n++; e.Seq != n || e.Address != n<<9 {
					t.Fatalf("event %d has seq %d and address %#x", n, e.Seq, e.Address)
				}
			}
		}
		if n < printed {
			t.Errorf("%d events were published and %d recorded", printed, n)
		}
		last := r.events[len(r.events)-1]
		if last.Kind != format.ProcessEnd || last.Status != 128+9 {
			t.Errorf("the last row is %s with status %d, want ProcessEnd with 137", last.Kind, last.Status)
		}
		p, _ := r.defs.Process(last.Process)
		if int(p.PID) != c.Process.Pid || p.Status != 137 || p.End != last.Time || !strings.Contains(p.Command, filepath.Base(os.Args[0])) || p.Parent != int32(os.Getpid()) {
			t.Errorf("its row is %+v", p)
		}
	}
}

// TestUnfinished kills a program inside a driver call. A lane may have been
// another thread's before: the call is that thread's which is in it.
func TestUnfinished(t *testing.T) {
	for _, row := range []struct {
		role   string
		thread func(lane uint32) uint32
	}{
		{"call", func(lane uint32) uint32 { return lane }},
		{"first", func(uint32) uint32 { return 77 }},
	} {
		t.Run(row.role, func(t *testing.T) {
			s := record(t, Options{})
			c, out := child(t, s, row.role)
			out.Scan()
			c.Process.Kill()
			quiet(t, s, c)
			c.Wait()
			r := finish(t, s)
			if n := len(r.events); n < 3 {
				t.Fatalf("%d rows", n)
			}
			e, end := r.events[len(r.events)-2], r.events[len(r.events)-1]
			if e.Kind != format.Unfinished || e.API != format.APIMemFree || e.Address != 0xbeef || e.Requested != 77 || e.Duration < 0 || end.Kind != format.ProcessEnd {
				t.Errorf("the last rows are %+v and %s", e, end.Kind)
			}
			if want := row.thread(r.events[0].Thread); e.Thread != want || want == 0 {
				t.Errorf("it is of thread %d, want %d", e.Thread, want)
			}
		})
	}
}

// TestExec becomes another image with the same pid and start time (F1): two
// processes, and the first one's memory ends with it.
func TestExec(t *testing.T) {
	s := record(t, Options{})
	c, _ := child(t, s, "exec")
	quiet(t, s, c)
	c.Wait()
	r := finish(t, s)
	var got []string
	for _, e := range r.events {
		p, _ := r.defs.Process(e.Process)
		if int(p.PID) != c.Process.Pid {
			t.Errorf("row of pid %d", p.PID)
		}
		got = append(got, fmt.Sprintf("%s %d image=%d size=%d status=%d", e.Kind, e.Process, p.Image, e.Size, e.Status))
	}
	compare(t, got, []string{
		"ProcessBegin 1 image=1 size=-1 status=0",
		"Alloc 1 image=1 size=111 status=0",
		"ProcessEnd 1 image=1 size=-1 status=-1",
		"ProcessBegin 2 image=2 size=-1 status=0",
		"Alloc 2 image=2 size=222 status=0",
		"ProcessEnd 2 image=2 size=-1 status=0",
	})
}

// TestSamePid announces two processes of one pid and different start times, as
// when a pid is used again within a recording (F1).
func TestSamePid(t *testing.T) {
	s := record(t, Options{})
	for i := range uint64(2) {
		p, err := ring.NewProducer(format.MinLaneSize)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Connect(s.Socket(), p.Hello(1000+i, 5)); err != nil {
			t.Fatal(err)
		}
		p.Event(wireEvent(format.Alloc, format.APIMemAlloc, 1, int64(i+1)), nil)
	}
	r := finish(t, s)
	if n := r.count(format.ProcessBegin); n != 2 {
		t.Errorf("%d processes, want 2", n)
	}
	for _, e := range r.events {
		if e.Kind == format.Alloc && e.Size != int64(e.Process) {
			t.Errorf("process %d has the other's event", e.Process)
		}
	}
}

// TestStatus is the exit status of a child, as the kernel tells its parent.
func TestStatus(t *testing.T) {
	s := record(t, Options{})
	c, _ := child(t, s, "exit")
	quiet(t, s, c)
	c.Wait()
	r := finish(t, s)
	if last := r.events[len(r.events)-1]; last.Kind != format.ProcessEnd || last.Status != 3 {
		t.Errorf("%s with status %d", last.Kind, last.Status)
	}
}

// TestRecorderKilled kills the recorder: the trace has all but the last moments,
// and the fold of what is there stands.
func TestRecorderKilled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.gpurec")
	c, out := child(t, nil, "recorder", "GPUREC_TEST_OUTPUT="+path)
	var first, at time.Time
	early := uint64(0) // published before at, two seconds before the kill
	for out.Scan() && (early == 0 || time.Since(at) < 2*time.Second) {
		if early == 0 {
			first = time.Now()
		}
		if time.Since(first) < 300*time.Millisecond {
			fmt.Sscan(out.Text(), &early)
			at = time.Now()
		}
	}
	c.Process.Kill()
	c.Wait()
	tr, err := format.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if tr.Meta().Ending != format.EndGrowing {
		t.Errorf("the trace says it ended: %q", tr.Meta().Ending)
	}
	r, err := tr.Parts()[0].Events()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	n, state := uint64(0), live.New()
	for {
		b, err := r.Next()
		for i := range b {
			state.Apply(&b[i])
			if b[i].Kind == format.Alloc {
				n++
			}
		}
		if err != nil {
			if err != io.EOF && !errors.Is(err, format.ErrTruncated) {
				t.Fatal(err)
			}
			break
		}
	}
	if n < early || early == 0 {
		t.Errorf("%d events are there, %d were published two seconds before the end", n, early)
	}
	if got := state.Processes()[0].Acquired().Now; got != int64(n)*512 {
		t.Errorf("%d bytes live, want %d", got, n*512)
	}
}
