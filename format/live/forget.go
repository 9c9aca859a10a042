package live

import "github.com/gpurec/gpurec/format"

// Forget takes from a checkpoint's row what was counted before it, for a trace
// that is to begin there: bytes ever taken, allocations, frees that were unknown
// or lost, failures, losses. Peaks are ResetPeaks' to begin anew.
func Forget(row *format.Event) {
	if row.Kind != format.LiveTotal {
		return
	}
	switch row.Object {
	case totalAccount, totalProcess:
		row.Size, row.Requested = 0, 0
	case totalDevice:
		if row.Layer != format.LayerNone { // else NVML's readings
			row.Size, row.Requested = 0, 0
		}
	case totalCounts:
		row.Size, row.Requested, row.Reserved, row.Allocated = 0, 0, 0, 0
	}
}

// HasPool is a checkpoint's row that says of a process only that it has a pool:
// for a trace that ends before the events that show it.
func HasPool(p format.ProcessID) format.Event {
	return totalRow(totalProcess, p, format.NoDevice, format.LayerPool, Curve{})
}
