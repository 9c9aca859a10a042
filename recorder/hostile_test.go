package recorder

import (
	"errors"
	"fmt"
	"os"
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

// A rawLane is a lane whose every byte the test writes, as a broken or
// malicious program would.
type rawLane struct {
	fd     int
	mem    []byte
	header *format.LaneHeader
	hello  format.WireHello
}

func newRawLane(t testing.TB) *rawLane {
	t.Helper()
	name, size := []byte("raw\x00"), format.MinLaneSize+format.LaneHeaderSize
	fd, _, errno := syscall.Syscall(sysMemfd, uintptr(unsafe.Pointer(&name[0])), 3, 0)
	if errno != 0 {
		t.Fatal(errno)
	}
	const addSeals, shrinkGrow = 1033, 6
	if err := syscall.Ftruncate(int(fd), int64(size)); err != nil {
		t.Fatal(err)
	}
	syscall.Syscall(syscall.SYS_FCNTL, fd, addSeals, shrinkGrow)
	mem, err := syscall.Mmap(int(fd), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	r := &rawLane{fd: int(fd), mem: mem, header: (*format.LaneHeader)(unsafe.Pointer(&mem[0]))}
	*r.header = format.LaneHeader{Magic: format.LaneMagic, Version: format.Version, Header: format.LaneHeaderSize, Capacity: format.MinLaneSize}
	r.hello = format.WireHello{Magic: format.HelloMagic, Version: format.Version, PID: uint32(os.Getpid()), TID: 99, StartTime: startTime(), Image: 0xfeed,
		Monotonic: uint64(ring.Now()), Capacity: format.MinLaneSize, Lanes: 1}
	t.Cleanup(func() { syscall.Munmap(mem); syscall.Close(r.fd) })
	return r
}

// memfd_create by architecture.
var sysMemfd = map[uintptr]uintptr{63: 319, 160: 279}[syscall.SYS_UNAME]

func (r *rawLane) announce(t testing.TB, s *Session, message []byte, fds ...int) {
	t.Helper()
	c, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_SEQPACKET, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(c)
	if err := syscall.Connect(c, &syscall.SockaddrUnix{Name: s.Socket()}); err != nil {
		t.Fatal(err)
	}
	if message == nil {
		message = unsafe.Slice((*byte)(unsafe.Pointer(&r.hello)), unsafe.Sizeof(r.hello))
	}
	var rights []byte
	if len(fds) > 0 {
		rights = syscall.UnixRights(fds...)
	}
	if len(message) > 0 {
		if err := syscall.Sendmsg(c, message, rights, nil, 0); err != nil {
			t.Fatal(err)
		}
	}
}

// A hello that comes after its connection was accepted is taken in at once: the
// pause without lanes is longer than a fast thread takes to fill its own.
func TestLateHello(t *testing.T) {
	best := time.Hour
	for range 5 { // on a busy machine one may be put aside
		s := record(t, Options{})
		r := newRawLane(t)
		c := descriptor(syscall.Socket(syscall.AF_UNIX, syscall.SOCK_SEQPACKET, 0))
		if err := syscall.Connect(c, &syscall.SockaddrUnix{Name: s.Socket()}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
		hello := unsafe.Slice((*byte)(unsafe.Pointer(&r.hello)), unsafe.Sizeof(r.hello))
		if err := syscall.Sendmsg(c, hello, syscall.UnixRights(r.fd), nil, 0); err != nil {
			t.Fatal(err)
		}
		sent := time.Now()
		for atomic.LoadUint64(&r.header.Heartbeat) == 0 && time.Since(sent) < time.Minute {
			time.Sleep(100 * time.Microsecond)
		}
		best = min(best, time.Since(sent))
		syscall.Close(c)
		finish(t, s)
	}
	if best > paceAlone/2 {
		t.Errorf("its lane was first read %v later", best)
	}
}

func (r *rawLane) put(slot int, records ...[]byte) {
	at := format.LaneHeaderSize + slot*format.SlotSize
	for _, b := range records {
		at += copy(r.mem[at:], b)
	}
}

// TestHostile announces what is no lane, and lanes that lie. Each is said and
// counted, and a good lane beside them loses nothing.
func TestHostile(t *testing.T) {
	now := func() uint64 { return uint64(ring.Now()) }
	for _, row := range []struct {
		name   string
		do     func(t *testing.T, s *Session)
		say    string
		closed uint64
	}{
		{"closes at once", func(t *testing.T, s *Session) { newRawLane(t).announce(t, s, []byte{}) }, "without a hello", 0},
		{"a text", func(t *testing.T, s *Session) { newRawLane(t).announce(t, s, []byte("GET / HTTP/1.1")) }, "a hello of 14 bytes", 0},
		{"too long", func(t *testing.T, s *Session) { newRawLane(t).announce(t, s, make([]byte, 4096)) }, "or cut on its way", 0},
		{"another magic", func(t *testing.T, s *Session) { r := newRawLane(t); r.hello.Magic++; r.announce(t, s, nil, r.fd) }, "no hello", 0},
		{"another version", func(t *testing.T, s *Session) { r := newRawLane(t); r.hello.Version++; r.announce(t, s, nil, r.fd) }, "use the hook that came with it", 1},
		{"no descriptor", func(t *testing.T, s *Session) { newRawLane(t).announce(t, s, nil) }, "0 descriptors", 1},
		{"two descriptors", func(t *testing.T, s *Session) { r := newRawLane(t); r.announce(t, s, nil, r.fd, r.fd) }, "2 descriptors", 1},
		{"twenty descriptors", func(t *testing.T, s *Session) {
			r := newRawLane(t)
			r.announce(t, s, nil, r.fd, r.fd, r.fd, r.fd, r.fd, r.fd, r.fd, r.fd, r.fd, r.fd, r.fd, r.fd, r.fd, r.fd, r.fd, r.fd, r.fd, r.fd, r.fd, r.fd)
		}, "or cut on its way", 1},
		{"a directory", func(t *testing.T, s *Session) {
			r, dir := newRawLane(t), descriptor(syscall.Open(t.TempDir(), 0, 0))
			r.announce(t, s, nil, dir)
			syscall.Close(dir)
		}, "lane", 1},
		{"a head out of range", func(t *testing.T, s *Session) {
			r := newRawLane(t)
			r.header.Head = 1 << 40
			r.announce(t, s, nil, r.fd)
		}, "not where a writer can have put it", 1},
		{"a record of the recorder's own", func(t *testing.T, s *Session) {
			r := newRawLane(t)
			r.put(0, rec(format.Alloc, now(), 0), rec(format.ProcessEnd, now(), 1))
			r.header.Head = 128
			r.announce(t, s, nil, r.fd)
		}, "a kind that does not travel", 1},
		{"an event of the future", func(t *testing.T, s *Session) {
			r := newRawLane(t)
			r.put(0, rec(format.Alloc, 1<<62, 0))
			r.header.Head = 64
			r.announce(t, s, nil, r.fd)
		}, "future", 1},
		{"busy for ever", func(t *testing.T, s *Session) {
			r := newRawLane(t)
			r.header.Busy = 1
			r.announce(t, s, nil, r.fd)
		}, "", 0},
		{"a gap that was not counted", func(t *testing.T, s *Session) {
			r := newRawLane(t)
			r.put(0, rec(format.Alloc, now(), 1<<31))
			r.header.Head = 64
			r.announce(t, s, nil, r.fd)
		}, "did not count", 1},
		{"a counter without end", func(t *testing.T, s *Session) {
			r := newRawLane(t)
			r.header.Dropped = 1<<64 - 1
			r.announce(t, s, nil, r.fd)
		}, "", 0},
		{"a time of long ago", func(t *testing.T, s *Session) {
			r := newRawLane(t)
			r.put(0, rec(format.Alloc, 0, 0))
			r.header.Head = 64
			r.announce(t, s, nil, r.fd)
		}, "", 0},
		{"more lanes than one may have", func(t *testing.T, s *Session) {
			r := newRawLane(t)
			for range format.MaxLaneBytes/format.MinLaneSize + 1 {
				r.announce(t, s, nil, r.fd)
			}
		}, "more lanes than one may have", 1 + format.DefaultLane/format.MinLaneSize},
		{"connections that stay silent", func(t *testing.T, s *Session) {
			for range 50 {
				c := descriptor(syscall.Socket(syscall.AF_UNIX, syscall.SOCK_SEQPACKET, 0))
				if err := syscall.Connect(c, &syscall.SockaddrUnix{Name: s.Socket()}); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { syscall.Close(c) })
			}
		}, "", 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			var mu sync.Mutex
			var said []string
			s := record(t, Options{Wait: true, Say: func(text string) { mu.Lock(); said = append(said, text); mu.Unlock() }})
			p := join(t, s, 1, format.DefaultLane)
			for i := range 2000 {
				if i == 1000 {
					row.do(t, s)
				}
				if err := p.Event(wireEvent(format.Alloc, format.APIMemAlloc, uint64(i), 1), nil); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(20 * time.Millisecond) // so that the loop sees it before the end, too
			r := finish(t, s)
			good := 0
			for _, e := range r.events {
				if e.Kind == format.Alloc && e.Thread == 1 {
					good++
				}
			}
			if good != 2000 {
				t.Errorf("the good lane has %d of 2000 events", good)
			}
			if text := strings.Join(said, "\n"); !strings.Contains(text, row.say) || row.say == "" && text != "" {
				t.Errorf("said %q, want %q in it", text, row.say)
			}
			if r.meta.Stats.ClosedLanes != row.closed {
				t.Errorf("%d lanes closed, want %d", r.meta.Stats.ClosedLanes, row.closed)
			}
		})
	}
}

func descriptor(fd int, err error) int {
	if err != nil {
		panic(err)
	}
	return fd
}

// TestStuck freezes a thread between its clock and its publishing. It holds the
// others back for a second, not longer, and what it says later is passed on.
func TestStuck(t *testing.T) {
	s := record(t, Options{})
	r := newRawLane(t)
	r.header.Busy = 1
	frozen := uint64(ring.Now())
	r.announce(t, s, nil, r.fd)
	p := join(t, s, 1, format.MinLaneSize)
	for i := range 100 {
		p.Event(wireEvent(format.Alloc, format.APIMemAlloc, uint64(i), 1), nil)
	}
	sees := func(want int64) func() bool {
		return func() (ok bool) {
			s.View(t.Context(), func(v *View) { // only waits for what is before its own call
				for _, p := range v.Processes() {
					ok = ok || p.Acquired().Count == want
				}
			})
			return ok
		}
	}
	if !within(10*time.Second, sees(100)) {
		t.Fatal("the frozen lane holds the others back for ever")
	}
	r.put(0, rec(format.Alloc, frozen, 0))
	r.header.Head = 64
	r.header.Busy = 0
	if !within(10*time.Second, sees(101)) {
		t.Fatal("what the frozen lane said is not there")
	}
	if got := finish(t, s); got.count(format.Alloc) != 101 || got.meta.Stats.Late != 1 {
		t.Errorf("%d allocs, %d late, want 101 and 1", got.count(format.Alloc), got.meta.Stats.Late)
	}
}

func within(d time.Duration, ok func() bool) bool {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return true
		}
	}
	return false
}

// fullDisk takes so many bytes and then has no more room.
type fullDisk struct {
	mu   sync.Mutex
	left int
}

type fullFile struct {
	*os.File
	d *fullDisk
}

func (d *fullDisk) Mkdir(path string) error      { return os.Mkdir(path, 0o700) }
func (d *fullDisk) Rename(from, to string) error { return os.Rename(from, to) }
func (d *fullDisk) Remove(path string) error     { return os.Remove(path) }
func (d *fullDisk) Overwrite(path string, b []byte) error {
	return os.WriteFile(path, b, 0o600)
}

func (d *fullDisk) Create(path string) (format.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	return &fullFile{f, d}, err
}

func (f *fullFile) Write(b []byte) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if f.d.left -= len(b); f.d.left < 0 {
		return 0, syscall.ENOSPC
	}
	return f.File.Write(b)
}

// TestDiskFull fills the disk (F2): the writer is told by a full lane that does
// not hold it, nobody listens any more, and the trace says why it ends.
func TestDiskFull(t *testing.T) {
	var mu sync.Mutex
	var said []string
	s := record(t, Options{Wait: true, Say: func(text string) { mu.Lock(); said = append(said, text); mu.Unlock() },
		Writer: format.WriterOptions{Disk: &fullDisk{left: 200_000}}})
	p := join(t, s, 1, format.MinLaneSize)
	var err error
	for i := 0; err == nil; i++ { // ends only if a full lane refuses
		err = p.Event(wireEvent(format.Alloc, format.APIMemAlloc, uint64(i)*2654435761, int64(i)), &format.WireCall{CUctx: uint64(i) * 40503})
	}
	if !errors.Is(err, ring.ErrDropped) {
		t.Fatal(err)
	}
	late, err := ring.NewProducer(format.MinLaneSize)
	if err != nil {
		t.Fatal(err)
	}
	if err := late.Connect(s.Socket(), late.Hello(1, 1)); err == nil {
		t.Error("somebody still listens")
	}
	if _, err := s.Close(nil); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Close: %v, want no space", err)
	}
	tr, err := format.Open(s.Output())
	if err != nil {
		t.Fatal(err)
	}
	if m := tr.Meta(); m.Ending != format.EndFailed || !strings.Contains(m.Reason, "no space") {
		t.Errorf("the trace says %q, %q", m.Ending, m.Reason)
	}
	if text := fmt.Sprint(said); !strings.Contains(text, "stopped recording") {
		t.Errorf("said %q", text)
	}
}

func duplicate(t testing.TB, fd int) int {
	t.Helper()
	n, err := syscall.Dup(fd)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
