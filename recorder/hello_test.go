package recorder

import (
	"os"
	"syscall"
	"testing"
	"unsafe"

	"github.com/gpurec/gpurec/format"
)

// lowest is the number that the next descriptor gets: the same before and after
// where none stays open.
func lowest(t *testing.T) int {
	fd, err := syscall.Dup(0)
	if err != nil {
		t.Fatal(err)
	}
	syscall.Close(fd)
	return fd
}

// FuzzHello sends any message with any descriptors to the recorder's socket: it
// is refused with a reason, or its lanes are as its hello says. No descriptor
// that came with it stays open.
func FuzzHello(f *testing.F) {
	good := newRawLane(f)
	hello := append([]byte{}, unsafe.Slice((*byte)(unsafe.Pointer(&good.hello)), unsafe.Sizeof(good.hello))...)
	header := append([]byte{}, good.mem[:format.LaneHeaderSize]...)
	size := uint32(len(good.mem))
	const shrinkGrow = 6
	f.Add(hello, header, size, uint8(shrinkGrow), uint8(1), uint8(0))
	f.Add(hello, header, size-1, uint8(shrinkGrow), uint8(1), uint8(0))
	f.Add(hello, header, size, uint8(0), uint8(1), uint8(0))
	f.Add(hello, header, size, uint8(15), uint8(3), uint8(0))
	f.Add(hello[:40], header, size, uint8(shrinkGrow), uint8(1), uint8(1))
	f.Add(hello, header[:64], size, uint8(shrinkGrow), uint8(1), uint8(2))
	f.Add([]byte{}, []byte{}, uint32(0), uint8(0), uint8(0), uint8(3))
	f.Fuzz(func(t *testing.T, message, header []byte, size uint32, seals, count, sort uint8) {
		before := lowest(t)
		ends, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_SEQPACKET, 0)
		if err != nil {
			t.Fatal(err)
		}
		fd := -1
		switch sort % 4 {
		case 0:
			name := []byte("fuzz\x00")
			n, _, errno := syscall.Syscall(sysMemfd, uintptr(unsafe.Pointer(&name[0])), 3, 0)
			if errno != 0 {
				t.Fatal(errno)
			}
			fd = int(n)
			syscall.Ftruncate(fd, int64(size%(4<<20)))
			syscall.Pwrite(fd, header[:min(len(header), int(size%(4<<20)))], 0)
			const addSeals = 1033
			syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), addSeals, uintptr(seals))
		case 1:
			fd, _ = syscall.Open(os.DevNull, syscall.O_RDWR, 0)
		case 2:
			fd, _ = syscall.Open("/proc/self/exe", syscall.O_RDONLY, 0)
		case 3:
			fd, _ = syscall.Dup(ends[0])
		}
		var fds []int
		for range count % 12 {
			fds = append(fds, fd)
		}
		var rights []byte
		if len(fds) > 0 {
			rights = syscall.UnixRights(fds...)
		}
		sent := syscall.Sendmsg(ends[1], message, rights, nil, 0)
		syscall.Close(fd)
		syscall.Close(ends[1])
		if sent == nil {
			n, err := receive(ends[0])
			if err == nil {
				if len(n.rings) != int(n.hello.Lanes) || len(fds) != 1 {
					t.Fatalf("%d lanes of %d, %d descriptors", len(n.rings), n.hello.Lanes, len(fds))
				}
				b := make([]byte, 1<<16)
				for _, c := range n.rings {
					if uint64(c.Capacity()) != n.hello.Capacity {
						t.Fatalf("a lane of %d bytes, not %d", c.Capacity(), n.hello.Capacity)
					}
					c.Read(b)
					c.Close()
				}
				if n.pidfd >= 0 {
					syscall.Close(n.pidfd)
				}
			} else if err.Error() == "" {
				t.Fatal("refused without a reason")
			}
		}
		syscall.Close(ends[0])
		if after := lowest(t); after != before {
			t.Fatalf("the next descriptor was %d and is %d", before, after)
		}
	})
}
