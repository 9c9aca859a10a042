package ring

import (
	"errors"
	"fmt"
	"syscall"
	"unsafe"

	"github.com/gpurec/gpurec/format"
)

// What package syscall does not name. The values are the kernel's ABI.
const (
	mfdCloexec    = 0x1
	mfdAllowSeal  = 0x2
	mfdNoexecSeal = 0x8 // since 6.3; EINVAL before
	fAddSeals     = 1033
	fGetSeals     = 1034
	sealSeal      = 0x1
	sealShrink    = 0x2
	sealGrow      = 0x4
	laneSeals     = sealSeal | sealShrink | sealGrow
	tmpfsMagic    = 0x01021994
	madvDontDump  = 16
	madvPopulate  = 23 // MADV_POPULATE_WRITE, since 5.14
	futexWake     = 1
)

// nanotime is the runtime's reading of CLOCK_MONOTONIC, through the vDSO and
// therefore the very clock that the hook reads. time.Now has it too, but hides
// its origin; a system call would cost ten times as much.
//
//go:linkname nanotime runtime.nanotime
func nanotime() int64

// Now is CLOCK_MONOTONIC, the clock of every record.
func Now() format.Time { return format.Time(nanotime()) }

// memfd makes an anonymous file of the given size that can neither shrink nor
// grow: the reader may then touch every byte of it without fear of SIGBUS.
func memfd(size int) (int, error) {
	name := []byte("gpurec-lane\x00")
	fd, errno := -1, syscall.Errno(0)
	for _, flags := range []uintptr{mfdCloexec | mfdAllowSeal | mfdNoexecSeal, mfdCloexec | mfdAllowSeal} {
		var r uintptr
		r, _, errno = syscall.Syscall(sysMemfdCreate, uintptr(unsafe.Pointer(&name[0])), flags, 0)
		if errno == 0 {
			fd = int(r)
			break
		}
		if errno != syscall.EINVAL {
			break
		}
	}
	if errno != 0 {
		return -1, fmt.Errorf("memfd_create for a lane: %w", errno)
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err == nil && limit.Cur < uint64(size) {
		syscall.Close(fd)
		return -1, errors.New("a lane is larger than RLIMIT_FSIZE allows a file to be")
	}
	if err := syscall.Ftruncate(fd, int64(size)); err != nil {
		syscall.Close(fd)
		return -1, fmt.Errorf("ftruncate of a lane: %w", err)
	}
	if _, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), fAddSeals, laneSeals); errno != 0 {
		syscall.Close(fd)
		return -1, fmt.Errorf("seal a lane: %w", errno)
	}
	return fd, nil
}

// allocate gives a file all its pages. A signal to this process interrupts that,
// and the child whose end it tells of must not cost another one its lane.
func allocate(fd int, size int64) (err error) {
	for range 1000 {
		if err = syscall.Fallocate(fd, 0, 0, size); err != syscall.EINTR {
			break
		}
	}
	return err
}

// checkSealed refuses a descriptor that is not a sealed memfd of just this size.
func checkSealed(fd int, size int64) error {
	var fs syscall.Statfs_t
	if err := syscall.Fstatfs(fd, &fs); err != nil {
		return fmt.Errorf("statfs of a lane: %w", err)
	}
	if int64(fs.Type) != tmpfsMagic {
		return fmt.Errorf("a lane's descriptor is not memory (file system %#x)", fs.Type)
	}
	seals, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), fGetSeals, 0)
	if errno != 0 {
		return fmt.Errorf("read the seals of a lane: %w", errno)
	}
	if seals&(sealShrink|sealGrow) != sealShrink|sealGrow {
		return fmt.Errorf("a lane's size is not sealed (seals %#x)", seals)
	}
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err != nil {
		return fmt.Errorf("stat of a lane: %w", err)
	}
	if st.Size != size {
		return fmt.Errorf("a lane of %d bytes was announced, its descriptor has %d", size, st.Size)
	}
	return nil
}
