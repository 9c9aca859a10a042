package nvml

import (
	"errors"
	"fmt"
)

// ErrNoLibrary is what errors.Is finds in a *LibraryError of a machine that has
// no NVML, rather than one that does not work.
var ErrNoLibrary = errors.New("no NVML library")

// A LibraryError says why NVML cannot be used at all.
type LibraryError struct {
	Path string // as it was looked for
	Op   string // load, look up, initialise, count devices
	Err  error  // ErrNoLibrary, a Status, or the linker's words
	Hint string // what the user can do; may be empty
}

func (e *LibraryError) Error() string {
	s := fmt.Sprintf("nvml: %s %s: %v", e.Op, e.Path, e.Err)
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

func (e *LibraryError) Unwrap() error { return e.Err }

// A DeviceError is a reading that a device refused.
type DeviceError struct {
	Index int
	UUID  string
	Op    string
	Err   error // a Status
}

func (e *DeviceError) Error() string {
	return fmt.Sprintf("nvml: %s of device %d (%s): %v", e.Op, e.Index, e.UUID, e.Err)
}

func (e *DeviceError) Unwrap() error { return e.Err }

// Final reports whether err says that a device, or all of NVML, will not answer
// again in this process, so that asking on is no use.
func Final(err error) bool {
	var s *Status
	if !errors.As(err, &s) {
		return false
	}
	switch s.Code {
	case 1, // uninitialised
		3,  // not supported
		4,  // no permission
		6,  // not found
		9,  // driver not loaded
		13, // function not found
		15, // GPU is lost
		16, // reset required
		18, // driver and library differ
		28: // GPU not found
		return true
	}
	return false
}

// A Status is a nvmlReturn_t other than success.
type Status struct {
	Code int
	Text string // the library's own words
}

func (s *Status) Error() string { return fmt.Sprintf("%s (NVML error %d)", s.Text, s.Code) }

// hint is what a user can do about a status of nvmlInit.
func hint(code int) string {
	switch code {
	case 4:
		return "may this user open /dev/nvidiactl? in a container, pass the devices in"
	case 6, 9:
		return "the NVIDIA driver is not loaded here; in a container, start it with its GPUs"
	case 18:
		return "the library and the kernel module are of different driver versions: reboot, or reload the module"
	}
	return ""
}
