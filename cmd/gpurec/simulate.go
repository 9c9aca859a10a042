package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/gpurec/gpurec/cuda"
	"github.com/gpurec/gpurec/recorder"
)

// A simulation is the project's own GPU in place of the real one.
type simulation struct {
	dir   string   // of libcuda.so.1 and libnvidia-ml.so.1
	state string   // file in which its processes keep common books
	file  *os.File // state, locked while this process lives
}

const booksName = "gpurec-simulated-"

// booksSize is struct sim_state's, cuda/hook/fake/sim.h.
const booksSize = 64 + 192*1024

// simulate prepares a simulated GPU with so many devices. This process's own
// environment gets the books too: its NVML reads them.
func simulate(devices int, say func(string)) (*simulation, error) {
	dir, err := cuda.Simulator("", say)
	if err != nil {
		return nil, err
	}
	recorder.SweepFiles(os.TempDir(), booksName, "GPUREC_SIM_STATE")
	f, err := os.CreateTemp("", booksName+"*")
	if err != nil {
		return nil, fmt.Errorf("the simulated GPU's books: %w", err)
	}
	syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	// All its blocks now: a page that finds none later is a SIGBUS.
	if err := syscall.Fallocate(int(f.Fd()), 0, 0, booksSize); err != nil && err != syscall.EOPNOTSUPP && err != syscall.EINTR {
		f.Close()
		os.Remove(f.Name())
		return nil, fmt.Errorf("the simulated GPU's books: %s: %w; TMPDIR names another place", f.Name(), err)
	}
	os.Setenv("GPUREC_SIM_STATE", f.Name())
	if devices > 0 {
		os.Setenv("GPUREC_SIM_DEVICES", strconv.Itoa(devices))
	}
	return &simulation{dir: dir, state: f.Name(), file: f}, nil
}

func (s *simulation) close() {
	if s != nil {
		os.Remove(s.state)
		s.file.Close()
	}
}

// nvmlPath is the library to load: empty for the system's.
func (s *simulation) nvmlPath() string {
	if s == nil {
		return ""
	}
	return filepath.Join(s.dir, "libnvidia-ml.so.1")
}

// What the simulated GPU can do: cuda/hook/fake/sim.h.
const (
	maxSimulated     = 16
	leastSimulated   = 8 << 20
	contextVariable  = "GPUREC_SIM_CONTEXT_BYTES"
	capacityVariable = "GPUREC_SIM_MEMORY"
)

// checkSimulated refuses what the simulated GPU would refuse in the program, as
// a driver that cannot start.
func checkSimulated(devices int, getenv func(string) string) error {
	if devices == 0 {
		return nil
	}
	if devices < 0 || devices > maxSimulated {
		return fmt.Errorf("--simulate-gpu %d: want 1 to %d devices, or 0 for none", devices, maxSimulated)
	}
	if text := getenv(contextVariable); text != "" {
		if _, ok := simulatedSize(text); !ok {
			return fmt.Errorf("%s=%q: want a number of bytes, KiB, MiB or GiB, such as 512MiB", contextVariable, text)
		}
	}
	text := getenv(capacityVariable)
	if text == "" {
		return nil
	}
	sizes := strings.Split(text, ",")
	if len(sizes) > devices {
		return fmt.Errorf("%s=%q: %d sizes for %d devices", capacityVariable, text, len(sizes), devices)
	}
	for _, s := range sizes {
		if n, ok := simulatedSize(s); !ok || n < leastSimulated {
			return fmt.Errorf("%s=%q: want one size, or one a device with commas between, of 8MiB or more, such as 16GiB", capacityVariable, text)
		}
	}
	return nil
}

// simulatedSize reads a size as the simulated GPU does.
func simulatedSize(text string) (uint64, bool) {
	shift := 0
	for i, unit := range []string{"KiB", "MiB", "GiB"} {
		if digits, ok := strings.CutSuffix(text, unit); ok {
			text, shift = digits, 10*(i+1)
		}
	}
	n, err := strconv.ParseUint(text, 10, 64)
	return n << shift, err == nil && n <= (1<<64-1)>>shift>>8
}
