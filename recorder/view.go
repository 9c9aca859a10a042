package recorder

import (
	"bytes"
	"fmt"
	"syscall"

	"github.com/gpurec/gpurec/format"
)

// Stats is the account of the recording so far; its CPUNanos is nobody's yet.
func (v *View) Stats() format.Stats { return v.f.stats }

// Refused are the requests for device memory that failed so far, each once
// however often it was tried, those that a retry got, and those of which
// either may still become true.
func (v *View) Refused() (told, retried, undecided int64) {
	return v.f.told, v.f.retried, int64(v.f.refusals.Undecided())
}

// DeviceRow describes a device of the trace.
func (v *View) DeviceRow(id format.Device) (format.DeviceRow, bool) {
	if id < 0 || int(id) >= len(v.f.in.devices) {
		return format.DeviceRow{}, false
	}
	return v.f.in.devices[id], true
}

// Running describes a process that runs, the latest of its pid.
func (v *View) Running(id format.ProcessID) (format.Process, bool) {
	p := v.f.rows[id]
	if p == nil || v.f.byPID[p.key.pid] != p {
		return format.Process{}, false
	}
	return p.tables.row, true
}

// CPUTime is the processor time that this program has used, in nanoseconds.
func CPUTime() int64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return syscall.TimevalToNsec(u.Utime) + syscall.TimevalToNsec(u.Stime)
}

// PeakMemory is the most that this program has had in memory at once, -1 where
// nobody says. The lanes are in it, which are the recorded programs' memory too.
// The kernel's other account, rusage's, has what was there before exec as well.
func PeakMemory() int64 {
	for _, line := range bytes.Split(readSome("/proc/self/status", 64<<10), []byte("\n")) {
		var kib int64
		if n, _ := fmt.Sscanf(string(line), "VmHWM: %d kB", &kib); n == 1 {
			return kib << 10
		}
	}
	return format.Unknown
}
