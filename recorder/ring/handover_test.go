package ring

import (
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/gpurec/gpurec/format"
)

func dup(t *testing.T, fd int) int {
	t.Helper()
	n, err := syscall.Dup(fd)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestHandOver maps one lane twice, as two processes do, and runs both ends at
// once: every record arrives once and in order, and what does not is counted.
func TestHandOver(t *testing.T) {
	p, err := NewProducer(format.MinLaneSize)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	hello := p.Hello(1, 2)
	c, err := Map(dup(t, p.fd), &hello)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const events = 200_000
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range events {
			var call *format.WireCall
			if i%3 == 0 {
				call = &format.WireCall{Duration: int64(i)}
			}
			p.Event(event(format.Alloc, uint64(i)), call)
		}
	}()
	b := make([]byte, 1<<20)
	next, got, lost := uint32(0), uint64(0), uint64(0)
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
			runtime.Gosched()
		}
		for {
			n, err := c.Read(b)
			if err != nil {
				t.Fatal(err)
			}
			if n == 0 {
				break
			}
			for r, rest := Next(b[:n]); r != nil; r, rest = Next(rest) {
				lost += uint64(r.Head().Seq - next)
				next = r.Head().Seq + 1
				if r.Event().Address != uint64(r.Head().Seq) {
					t.Fatalf("record %d carries %d", r.Head().Seq, r.Event().Address)
				}
				if call := r.Call(); call != nil && uint64(call.Duration) != r.Event().Address {
					t.Fatalf("record %d has another's second slot", r.Head().Seq)
				}
				got++
			}
		}
	}
	lost += events - uint64(next)
	if got+lost != events || lost != c.Dropped() || got == 0 {
		t.Errorf("%d read, %d missing, %d counted as dropped, of %d", got, lost, c.Dropped(), events)
	}
}

// TestMapRefuses offers descriptors that are no lanes.
func TestMapRefuses(t *testing.T) {
	good := func(t *testing.T) (int, format.WireHello) {
		p, err := NewProducer(format.MinLaneSize)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		return dup(t, p.fd), p.Hello(1, 2)
	}
	for _, row := range []struct {
		name, want string
		offer      func(t *testing.T) (int, format.WireHello)
	}{
		{"a good one", "", good},
		{"a file on disk", "not memory", func(t *testing.T) (int, format.WireHello) {
			f, err := os.CreateTemp(".", "lane-*") // t.TempDir may be a tmpfs
			t.Cleanup(func() { os.Remove(f.Name()) })
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			f.Truncate(format.MinLaneSize + format.LaneHeaderSize)
			return dup(t, int(f.Fd())), format.WireHello{Capacity: format.MinLaneSize}
		}},
		{"an unsealed one", "not sealed", func(t *testing.T) (int, format.WireHello) {
			name := []byte("x\x00")
			fd, _, errno := syscall.Syscall(sysMemfdCreate, uintptrOf(name), mfdAllowSeal, 0)
			if errno != 0 {
				t.Fatal(errno)
			}
			syscall.Ftruncate(int(fd), format.MinLaneSize+format.LaneHeaderSize)
			return int(fd), format.WireHello{Capacity: format.MinLaneSize}
		}},
		{"larger than it is", "was announced", func(t *testing.T) (int, format.WireHello) {
			fd, h := good(t)
			h.Capacity *= 2
			return fd, h
		}},
		{"no power of two", "power of two", func(t *testing.T) (int, format.WireHello) {
			fd, h := good(t)
			h.Capacity++
			return fd, h
		}},
		{"too small", "power of two", func(t *testing.T) (int, format.WireHello) {
			fd, h := good(t)
			h.Capacity = 4096
			return fd, h
		}},
		{"too large", "power of two", func(t *testing.T) (int, format.WireHello) {
			fd, h := good(t)
			h.Capacity = 1 << 60
			return fd, h
		}},
		{"another header", "header", func(t *testing.T) (int, format.WireHello) {
			p, err := NewProducer(format.MinLaneSize)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(p.Close)
			p.header.Version = 99
			return dup(t, p.fd), p.Hello(1, 2)
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			fd, hello := row.offer(t)
			c, err := Map(fd, &hello)
			if row.name == "a good one" {
				if err != nil {
					t.Fatal(err)
				}
				c.Close()
				return
			}
			if err == nil || !strings.Contains(err.Error(), row.want) {
				t.Fatalf("error %v, want %q in it", err, row.want)
			}
			var st syscall.Stat_t
			if syscall.Fstat(fd, &st) == nil {
				t.Error("the refused descriptor is still open")
			}
		})
	}
}

func uintptrOf(b []byte) uintptr { return uintptr(unsafe.Pointer(&b[0])) }
