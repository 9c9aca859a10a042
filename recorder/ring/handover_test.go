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
	all, err := Map(dup(t, p.fd), &hello)
	if err != nil {
		t.Fatal(err)
	}
	c := all[0]
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

// TestManyLanes writes into every lane of one file and takes them down one by
// one: what lane another is in, and when that ends, is nothing to it.
func TestManyLanes(t *testing.T) {
	const lanes, capacity = 3, format.MinLaneSize
	fd, err := memfd(format.LaneHeaderSize + lanes*capacity)
	if err != nil {
		t.Fatal(err)
	}
	mem, err := syscall.Mmap(fd, 0, format.LaneHeaderSize+lanes*capacity, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Munmap(mem)
	var writers [lanes]*Producer
	for i := range writers {
		writers[i] = produce(mem, i, capacity)
	}
	hello := writers[0].Hello(1, 2)
	hello.Lanes = lanes
	readers, err := Map(fd, &hello)
	if err != nil || len(readers) != lanes {
		t.Fatalf("%d lanes, %v", len(readers), err)
	}
	b := make([]byte, 2*capacity)
	for last := range lanes { // one fewer each time, and laps enough to meet every slot
		for lap := range 3 {
			for i := last; i < lanes; i++ {
				for n := range capacity/format.SlotSize - 1 {
					if err := writers[i].Event(event(format.Free, uint64(i<<32|lap<<24|n)), nil); err != nil {
						t.Fatal(err)
					}
				}
			}
			for i := last; i < lanes; i++ {
				next := 0
				for {
					n, err := readers[i].Read(b)
					if err != nil {
						t.Fatal(err)
					}
					if n == 0 {
						break
					}
					for r, rest := Next(b[:n]); r != nil; r, rest = Next(rest) {
						if got, want := r.Event().Address, uint64(i<<32|lap<<24|next); got != want {
							t.Fatalf("lane %d: %#x, want %#x", i, got, want)
						}
						next++
					}
				}
				if next != capacity/format.SlotSize-1 {
					t.Fatalf("lane %d: %d events", i, next)
				}
			}
		}
		readers[last].Close()
	}
	if readers[0].file != nil || mapped(t, "gpurec-lane") > 1 {
		t.Error("the file is still mapped after its last lane")
	}
}

// mapped counts this process's mappings of files of that name.
func mapped(t *testing.T, name string) int {
	b, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Skip(err)
	}
	return strings.Count(string(b), name)
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
			return dup(t, int(f.Fd())), format.WireHello{Capacity: format.MinLaneSize, Lanes: 1}
		}},
		{"an unsealed one", "not sealed", func(t *testing.T) (int, format.WireHello) {
			name := []byte("x\x00")
			fd, _, errno := syscall.Syscall(sysMemfdCreate, uintptrOf(name), mfdAllowSeal, 0)
			if errno != 0 {
				t.Fatal(errno)
			}
			syscall.Ftruncate(int(fd), format.MinLaneSize+format.LaneHeaderSize)
			return int(fd), format.WireHello{Capacity: format.MinLaneSize, Lanes: 1}
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
		{"no lanes", "of 0 lanes", func(t *testing.T) (int, format.WireHello) {
			fd, h := good(t)
			h.Lanes = 0
			return fd, h
		}},
		{"more lanes than have a header", "of 9 lanes", func(t *testing.T) (int, format.WireHello) {
			fd, h := good(t)
			h.Lanes = format.MaxLanesAFile + 1
			return fd, h
		}},
		{"more bytes than a process may have", "together", func(t *testing.T) (int, format.WireHello) {
			fd, h := good(t)
			h.Capacity, h.Lanes = format.MaxLaneBytes, 2
			return fd, h
		}},
		{"more lanes than it has", "was announced", func(t *testing.T) (int, format.WireHello) {
			fd, h := good(t)
			h.Lanes = 2
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
			all, err := Map(fd, &hello)
			if row.name == "a good one" {
				if err != nil {
					t.Fatal(err)
				}
				all[0].Close()
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
