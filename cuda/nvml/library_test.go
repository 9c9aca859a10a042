//go:build cgo

package nvml

import (
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"

	"github.com/gpurec/gpurec/format"
)

func TestOpenFails(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text.so")
	if err := os.WriteFile(text, []byte("no library"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, path string
		none       bool // it is ErrNoLibrary
		words      []string
	}{
		{"no file", "/nonexistent/libnvidia-ml.so.1", true, []string{"nvml: load /nonexistent/libnvidia-ml.so.1: no NVML library: ", "(it comes with the NVIDIA driver"}},
		{"no name", "libgpurec-none.so.1", true, []string{"nvml: load libgpurec-none.so.1: no NVML library"}},
		{"no library", text, false, []string{"nvml: load " + text + ": ", "file too short"}},
		// A function that is missing would end the process when called.
		{"another library", "libc.so.6", false, []string{"nvml: look up nvmlInit_v2 in libc.so.6: not there (is this NVIDIA's"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Open(tc.path)
			var le *LibraryError
			if !errors.As(err, &le) || errors.Is(err, ErrNoLibrary) != tc.none {
				t.Fatalf("Open says %v", err)
			}
			for _, w := range tc.words {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q is not in %q", w, err)
				}
			}
		})
	}
}

// gpu is go-nvml's own mock of a device; mig makes it a split one.
func gpu(uuid string, mig ...*mock.Device) *mock.Device {
	return &mock.Device{
		GetUUIDFunc: func() (string, nvml.Return) { return uuid, nvml.SUCCESS },
		GetNameFunc: func() (string, nvml.Return) { return "H200", nvml.SUCCESS },
		GetMemoryInfo_v2Func: func() (nvml.Memory_v2, nvml.Return) {
			return nvml.Memory_v2{Total: 1000, Used: 10, Free: 900, Reserved: 90}, nvml.SUCCESS
		},
		GetMigModeFunc: func() (int, int, nvml.Return) {
			if mig == nil {
				return 0, 0, nvml.ERROR_NOT_SUPPORTED
			}
			return nvml.DEVICE_MIG_ENABLE, nvml.DEVICE_MIG_ENABLE, nvml.SUCCESS
		},
		GetMaxMigDeviceCountFunc: func() (int, nvml.Return) { return 7, nvml.SUCCESS },
		GetMigDeviceHandleByIndexFunc: func(i int) (nvml.Device, nvml.Return) {
			if i%2 == 0 || i/2 >= len(mig) { // the indices are not dense
				return nil, nvml.ERROR_NOT_FOUND
			}
			return mig[i/2], nvml.SUCCESS
		},
		GetGpuInstanceIdFunc:     func() (int, nvml.Return) { return 5, nvml.SUCCESS },
		GetComputeInstanceIdFunc: func() (int, nvml.Return) { return 0, nvml.SUCCESS },
	}
}

func all(string) bool { return true }

func none(names ...string) func(string) bool {
	return func(n string) bool { return !slices.Contains(names, n) }
}

func TestDevices(t *testing.T) {
	lostGPU := (*mock.Device)(nil)
	for _, tc := range []struct {
		name string
		has  func(string) bool
		gpus []*mock.Device
		want string // NVML index, UUID, GPU
	}{
		{"none", all, nil, ""},
		{"whole", all, []*mock.Device{gpu("GPU-a"), gpu("GPU-b")}, "0 GPU-a GPU-a, 1 GPU-b GPU-b"},
		{"a lost one keeps its index", all, []*mock.Device{lostGPU, gpu("GPU-b")}, "1 GPU-b GPU-b"},
		{"split", all, []*mock.Device{gpu("GPU-a", gpu("MIG-x"), gpu("MIG-y")), gpu("GPU-b")}, "0 MIG-x GPU-a, 0 MIG-y GPU-a, 1 GPU-b GPU-b"},
		{"MIG on, no instance made", all, []*mock.Device{gpu("GPU-a", []*mock.Device{}...)}, "0 GPU-a GPU-a"},
		{"library without MIG", none("nvmlDeviceGetMigMode"), []*mock.Device{gpu("GPU-a", gpu("MIG-x"))}, "0 GPU-a GPU-a"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			lib := &library{has: tc.has, lib: &mock.Interface{
				DeviceGetCountFunc: func() (int, nvml.Return) { return len(tc.gpus), nvml.SUCCESS },
				DeviceGetHandleByIndexFunc: func(i int) (nvml.Device, nvml.Return) {
					if tc.gpus[i] == lostGPU {
						return nil, nvml.ERROR_GPU_IS_LOST
					}
					return tc.gpus[i], nvml.SUCCESS
				},
			}}
			n, err := newNVML(lib)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, d := range n.Devices() {
				got = append(got, strings.Join([]string{string(rune('0' + d.NVML)), d.UUID, d.GPU}, " "))
				if d.MIG != strings.HasPrefix(d.UUID, "MIG-") || d.MIG && d.GI != 5 || d.Total != 1000 {
					t.Errorf("device %+v", d)
				}
			}
			if s := strings.Join(got, ", "); s != tc.want {
				t.Errorf("devices are %q, want %q", s, tc.want)
			}
		})
	}
}

// Case C1: used + free is not total; which version answered is kept, and stays.
func TestMemoryVersions(t *testing.T) {
	v2 := func(r nvml.Return) func() (nvml.Memory_v2, nvml.Return) {
		return func() (nvml.Memory_v2, nvml.Return) {
			return nvml.Memory_v2{Total: 1000, Used: 10, Free: 900, Reserved: 90}, r
		}
	}
	v1 := func(r nvml.Return) func() (nvml.Memory, nvml.Return) {
		return func() (nvml.Memory, nvml.Return) { return nvml.Memory{Total: 1000, Used: 100, Free: 900}, r }
	}
	second := Memory{Total: 1000, Used: 10, Free: 900, Reserved: 90, API: 2}
	first := Memory{Total: 1000, Used: 100, Free: 900, Reserved: format.Unknown, API: 1}
	for _, tc := range []struct {
		name   string
		has    func(string) bool
		v2, v1 nvml.Return
		want   Memory
		code   int // of the error, 0 none
	}{
		{"2 answers", all, nvml.SUCCESS, nvml.SUCCESS, second, 0},
		{"library without 2", none("nvmlDeviceGetMemoryInfo_v2"), nvml.SUCCESS, nvml.SUCCESS, first, 0},
		{"driver without 2", all, nvml.ERROR_FUNCTION_NOT_FOUND, nvml.SUCCESS, first, 0},
		{"device without 2", all, nvml.ERROR_NOT_SUPPORTED, nvml.SUCCESS, first, 0},
		{"2 of another layout", all, nvml.ERROR_ARGUMENT_VERSION_MISMATCH, nvml.SUCCESS, first, 0},
		{"lost", all, nvml.ERROR_GPU_IS_LOST, nvml.SUCCESS, Memory{}, 15},
		{"neither", all, nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_NOT_SUPPORTED, Memory{}, 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dev := &mock.Device{GetMemoryInfo_v2Func: v2(tc.v2), GetMemoryInfoFunc: v1(tc.v1)}
			d := &device{lib: &library{has: tc.has}, dev: dev}
			check := func(want Memory, code int) {
				t.Helper()
				m, err := d.memory()
				var s *Status
				if errors.As(err, &s) != (code != 0) || s != nil && s.Code != code || m != want {
					t.Fatalf("memory says %+v, %v", m, err)
				}
			}
			check(tc.want, tc.code)
			if tc.code != 0 {
				return
			}
			// The other version answering later must not change what the numbers mean.
			if tc.want.API == 2 {
				dev.GetMemoryInfo_v2Func = v2(nvml.ERROR_UNKNOWN)
				check(Memory{}, int(nvml.ERROR_UNKNOWN))
			} else {
				dev.GetMemoryInfo_v2Func = v2(nvml.SUCCESS)
				check(first, 0)
			}
		})
	}
}

func TestProcesses(t *testing.T) {
	list := func(r nvml.Return, p ...nvml.ProcessInfo) func() ([]nvml.ProcessInfo, nvml.Return) {
		return func() ([]nvml.ProcessInfo, nvml.Return) { return p, r }
	}
	info := func(pid uint32, used uint64) nvml.ProcessInfo {
		return nvml.ProcessInfo{Pid: pid, UsedGpuMemory: used}
	}
	const silent = math.MaxUint64
	for _, tc := range []struct {
		name              string
		compute, graphics func() ([]nvml.ProcessInfo, nvml.Return)
		want              []format.ProcessReading
		fails             bool
	}{
		{"none", list(nvml.SUCCESS), list(nvml.SUCCESS), []format.ProcessReading{}, false},
		{"in pid order", list(nvml.SUCCESS, info(9, 1), info(7, 2)), list(nvml.SUCCESS), []format.ProcessReading{{PID: 7, Used: 2}, {PID: 9, Used: 1}}, false},
		{"in both lists", list(nvml.SUCCESS, info(7, 2)), list(nvml.SUCCESS, info(7, 2), info(8, 3)), []format.ProcessReading{{PID: 7, Used: 2}, {PID: 8, Used: 3}}, false},
		{"not said", list(nvml.SUCCESS, info(7, silent)), list(nvml.SUCCESS), []format.ProcessReading{{PID: 7, Used: format.Unknown}}, false},
		{"said in one", list(nvml.SUCCESS, info(7, silent)), list(nvml.SUCCESS, info(7, 0)), []format.ProcessReading{{PID: 7, Used: 0}}, false},
		{"no graphics", list(nvml.SUCCESS, info(7, 2)), list(nvml.ERROR_NOT_SUPPORTED), []format.ProcessReading{{PID: 7, Used: 2}}, false},
		{"no compute", list(nvml.ERROR_NO_PERMISSION), list(nvml.SUCCESS, info(7, 2)), nil, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := &device{lib: &library{has: all}, dev: &mock.Device{
				GetComputeRunningProcessesFunc: tc.compute, GetGraphicsRunningProcessesFunc: tc.graphics}}
			got, err := d.processes()
			if (err != nil) != tc.fails || !slices.Equal(got, tc.want) || (got == nil) != (tc.want == nil) {
				t.Errorf("processes are %v, %v", got, err)
			}
		})
	}
}

// The program starts, and says why there is no history, on a machine without
// NVML: nothing of it is needed at load time.
func TestStartsWithoutNVML(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.run", "^TestOpenFails$")
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := exec.Command("ldd", exe).CombinedOutput(); err != nil || strings.Contains(string(out), "nvidia") {
		t.Errorf("ldd: %v\n%s", err, out)
	}
}
