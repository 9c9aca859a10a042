package cuda

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/recorder/ring"
)

// A receiver stands where the recorder stands: it takes lanes from its socket
// and keeps every record. It knows nothing of order or meaning.
type receiver struct {
	t       *testing.T
	path    string
	fd      int
	wait    atomic.Bool  // lets full lanes wait, a second each second
	paused  atomic.Bool  // reads no lane: they fill up
	answers atomic.Bool  // gives who asks State 1 and Max 1, 2, 3
	pause   atomic.Int64 // the longest time between two rounds, ns: on a starved machine a writer must take it for dead

	mu    sync.Mutex
	lanes []*lane
	stop  chan struct{}
	done  chan struct{}
}

type lane struct {
	hello   format.WireHello
	c       *ring.Consumer
	records []ring.Record
	dropped uint64
	busy    bool // at the end
	call    format.WireCallSlot
	inCall  bool
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	dir, err := os.MkdirTemp("", "gpurec-hook-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	r := &receiver{t: t, path: filepath.Join(dir, "s"), stop: make(chan struct{}), done: make(chan struct{})}
	r.fd, err = syscall.Socket(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
	if err == nil {
		err = syscall.Bind(r.fd, &syscall.SockaddrUnix{Name: r.path})
	}
	if err == nil {
		err = syscall.Listen(r.fd, 4096) // as the recorder does
	}
	if err != nil {
		t.Fatal(err)
	}
	go r.loop()
	t.Cleanup(func() { r.finish() })
	return r
}

func (r *receiver) loop() {
	defer close(r.done)
	buf := make([]byte, 1<<20)
	for round := time.Now(); ; {
		r.pause.Store(max(r.pause.Load(), int64(time.Since(round))))
		round = time.Now()
		last := false
		select {
		case <-r.stop:
			last = true
		default:
		}
		for r.accept() {
		}
		busy := false
		for _, l := range r.lanes {
			if l.c == nil || r.paused.Load() && !last {
				continue
			}
			l.c.Beat(ring.Now())
			for {
				n, err := l.c.Read(buf)
				if err != nil {
					r.t.Errorf("the lane of thread %d: %v", l.hello.TID, err)
					l.c.Close()
					l.c = nil
					break
				}
				if n == 0 {
					break
				}
				busy = true
				b := bytes.Clone(buf[:n])
				r.mu.Lock()
				for rec, rest := ring.Next(b); rec != nil; rec, rest = ring.Next(rest) {
					l.records = append(l.records, rec)
					if asks := rec.Kind() == format.WireAsk || ring.ShapeOf(rec.Kind()) == ring.ShapeScope && rec.Scope().Asks != 0; asks && r.answers.Load() {
						l.c.Answer(&format.WireAnswer{Asked: rec.Head().Time, Known: 7, State: format.AnswerPool, Max: [3]int64{1, 2, 3}})
					}
				}
				r.mu.Unlock()
			}
		}
		if last {
			for _, l := range r.lanes {
				if l.c != nil {
					l.dropped, l.busy = l.c.Dropped(), l.c.Busy()
					l.call, l.inCall = l.c.Call()
					l.c.Close()
				}
			}
			return
		}
		if !busy {
			time.Sleep(time.Millisecond)
		}
	}
}

// accept takes one lane; false when nobody waits.
func (r *receiver) accept() bool {
	fd, _, err := syscall.Accept4(r.fd, syscall.SOCK_CLOEXEC)
	if err != nil {
		return false
	}
	defer syscall.Close(fd)
	var hello format.WireHello
	b := unsafe.Slice((*byte)(unsafe.Pointer(&hello)), unsafe.Sizeof(hello))
	oob := make([]byte, 64)
	n, oobn, _, _, err := syscall.Recvmsg(fd, b, oob, syscall.MSG_CMSG_CLOEXEC)
	if err == nil && n == 8 && hello.Magic == format.AskMagic {
		return true
	}
	if err != nil || n != len(b) {
		r.t.Errorf("hello of %d bytes: %v", n, err)
		return true
	}
	messages, err := syscall.ParseSocketControlMessage(oob[:oobn])
	if err != nil || len(messages) != 1 {
		r.t.Errorf("control messages: %v, %v", messages, err)
		return true
	}
	fds, err := syscall.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		r.t.Errorf("descriptors: %v, %v", fds, err)
		return true
	}
	all, err := ring.Map(fds[0], &hello)
	if err != nil {
		r.t.Errorf("map: %v", err)
		return true
	}
	r.mu.Lock()
	for _, c := range all {
		onFull := uint32(0)
		if r.wait.Load() {
			onFull = 1
		}
		c.Attend(onFull, 1e9)
		r.lanes = append(r.lanes, &lane{hello: hello, c: c})
	}
	r.mu.Unlock()
	return true
}

// finish reads what is left and returns the lanes that a thread has had, in the
// order of their births.
func (r *receiver) finish() []*lane {
	select {
	case <-r.stop:
	default:
		close(r.stop)
		<-r.done
		syscall.Close(r.fd)
	}
	return slices.DeleteFunc(slices.Clone(r.lanes), func(l *lane) bool { return len(l.records) == 0 && l.dropped == 0 })
}

// waitFor polls until some record satisfies ok: for tests that act on a living program.
func (r *receiver) waitFor(ok func(ring.Record) bool) {
	r.t.Helper()
	for i := 0; i < 5000; i++ {
		r.mu.Lock()
		found := slices.ContainsFunc(r.lanes, func(l *lane) bool { return slices.ContainsFunc(l.records, ok) })
		r.mu.Unlock()
		if found {
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
	r.t.Fatal("the record that the test waits for has not come")
}

// ---- what lanes say ----------------------------------------------------------

// events are the lane's records but for definitions and ThreadBegin.
func (l *lane) events() (out []ring.Record) {
	for _, r := range l.records {
		if !r.Definition() && r.Kind() != format.ThreadBegin {
			out = append(out, r)
		}
	}
	return out
}

// checkSeq says where the lane's numbering has a gap, and how many are missing in all.
func (l *lane) missing() (n uint64) {
	next := uint32(0)
	for _, r := range l.records {
		n += uint64(r.Head().Seq - next)
		next = r.Head().Seq
		if !r.Definition() && r.Kind() != format.WireAsk {
			next++
		}
	}
	return n
}

// all are the events of all lanes, lane by lane.
func all(lanes []*lane) (out []ring.Record) {
	for _, l := range lanes {
		out = append(out, l.events()...)
	}
	return out
}

func count(rs []ring.Record, k format.Kind) (n int) {
	for _, r := range rs {
		if r.Kind() == k {
			n++
		}
	}
	return n
}

// text is an event in one line, for comparisons; addresses are left out.
func text(r ring.Record) string {
	e := r.Event()
	s := fmt.Sprintf("%s %s %s/%s dev=%d size=%d", r.Kind(), e.API, e.Layer, e.Class, e.Device, e.Size)
	if c := r.Call(); c != nil && c.Status != 0 {
		s += fmt.Sprintf(" status=%d", c.Status)
	}
	for i, name := range []string{"captured", "nested", "echo", "estimate", "open", "range", "inpool"} {
		if e.Flags&(1<<i) != 0 {
			s += " " + name
		}
	}
	return s
}

// ---- running programs ----------------------------------------------------------

// libs are the libraries compiled as gpurec compiles them, warnings being errors.
var libs = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "gpurec-cuda-test-")
	if err != nil {
		return "", err
	}
	libsDir = dir
	return dir, Build(dir, "-Werror")
})

var libsDir string

func TestMain(m *testing.M) {
	code := m.Run()
	if libsDir != "" {
		os.RemoveAll(libsDir)
	}
	os.Exit(code)
}

func libraryDirectory(t *testing.T) string {
	t.Helper()
	dir, err := libs()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// emulator is the command that runs the programs of another machine, for which
// CC and CXX then compile: `make test-aarch64` says which. The tests and the
// receiver stay this machine's; both are little-endian and share the lanes.
var emulator = strings.Fields(os.Getenv("GPUREC_TEST_EMULATOR"))

// arch is the machine's that the hook is tested on, as GOARCH says it.
func arch() string {
	if len(emulator) > 0 {
		return "arm64"
	}
	return runtime.GOARCH
}

// emulate prefixes the emulator to a command, which is another machine's. What
// its loader is told is not for the emulator's own loader, and libraries have the
// paths that /proc has of them.
func emulate(args, env []string) ([]string, []string) {
	if len(emulator) == 0 {
		return args, env
	}
	all, kept := slices.Clone(emulator), []string{}
	for _, v := range env {
		if strings.HasPrefix(v, "LD_") {
			if strings.HasPrefix(v, "LD_LIBRARY_PATH=") {
				root := emulator[len(emulator)-1]
				v += ":" + root + "/lib:" + root + "/lib/aarch64-linux-gnu:" + root + "/usr/lib/aarch64-linux-gnu"
			}
			all = append(all, "-E", v)
		} else {
			kept = append(kept, v)
		}
	}
	return append(all, args...), kept
}

// compiled are the programs that cc has made, by their arguments.
var compiled sync.Map

// cc compiles sources into a file of that name, in a directory of its own.
func cc(t *testing.T, out string, args ...string) string {
	t.Helper()
	once, _ := compiled.LoadOrStore(out+"\x00"+strings.Join(args, "\x00"), sync.OnceValues(func() (string, error) {
		dir, err := os.MkdirTemp(libraryDirectory(t), "program")
		if err != nil {
			return "", err
		}
		path := filepath.Join(dir, out)
		all := append([]string{"-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-I", "hook", "-o", path}, args...)
		if b, err := exec.Command(compiler(), all...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("cc %s: %v\n%s", strings.Join(all, " "), err, b)
		}
		return path, nil
	}))
	path, err := once.(func() (string, error))()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// A program is run under the hook and on the simulated GPU.
type program struct {
	env  []string // beside what Environ gives
	e    Environment
	args []string
}

func (p program) command(t *testing.T, r *receiver) *exec.Cmd {
	t.Helper()
	dir := libraryDirectory(t)
	e := p.e
	e.Hook = filepath.Join(dir, HookName)
	if r != nil {
		e.Socket = r.path
	}
	if e.Simulator == "" {
		e.Simulator = dir
	}
	args, env := emulate(p.args, append(e.Environ(os.Environ()), p.env...))
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = env
	return cmd
}

// run returns the lanes and what the program printed; it must succeed.
func (p program) run(t *testing.T, r *receiver) ([]*lane, string) {
	t.Helper()
	cmd := p.command(t, r)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if errs.Len() > 0 {
		t.Logf("stderr of %s:\n%s", p.args[0], errs.String())
	}
	if err != nil {
		var exit *exec.ExitError
		errors.As(err, &exit)
		t.Fatalf("%s: %v\n%s", strings.Join(p.args, " "), err, out.String())
	}
	if r == nil {
		return nil, out.String()
	}
	return r.finish(), out.String()
}
