//go:build cgo

package nvml

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/gpurec/gpurec/format"
)

// The tests here go through go-nvml into the project's simulated library,
// compiled as gpurec compiles it. A process can be bound to one library only,
// so all of them share it; nvmlInit reads its environment anew each time.
const fakeDir = "../hook/fake"

var simulated = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "gpurec-nvml-test-")
	if err != nil {
		return "", err
	}
	simulatedDir = dir
	cc := func(out, script string, sources ...string) error {
		args := []string{"-O1", "-o", filepath.Join(dir, out)}
		if script != "" {
			args = append(args, "-shared", "-fPIC", "-Wl,--version-script="+filepath.Join(fakeDir, script), "-Wl,-soname="+out)
		}
		for _, s := range sources {
			if script != "" {
				s = filepath.Join(fakeDir, s)
			}
			args = append(args, s)
		}
		args = append(args, "-lpthread", "-ldl")
		if text, err := exec.Command("cc", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("cc %s: %v\n%s", strings.Join(args, " "), err, text)
		}
		return nil
	}
	all, err := filepath.Glob(filepath.Join(fakeDir, "*.c"))
	if err != nil {
		return "", err
	}
	var driver []string
	for _, f := range all {
		if f = filepath.Base(f); f != "nvml.c" {
			driver = append(driver, f)
		}
	}
	return dir, errors.Join(
		cc("libnvidia-ml.so.1", "nvml.map", "nvml.c", "sim.c"),
		cc("libcuda.so.1", "cuda.map", driver...),
		cc("hold", "", "testdata/hold.c"),
		cc("visible", "", "testdata/visible.c"))
})

var simulatedDir string // set where the library was built

func TestMain(m *testing.M) {
	code := m.Run()
	if simulatedDir != "" {
		os.RemoveAll(simulatedDir)
	}
	os.Exit(code)
}

// openSim opens the simulated library with these variables.
func openSim(t *testing.T, env map[string]string) (*NVML, string) {
	t.Helper()
	dir, err := simulated()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GPUREC_SIM_STATE", filepath.Join(t.TempDir(), "state"))
	for k, v := range env {
		t.Setenv(k, v)
	}
	n, err := Open(filepath.Join(dir, "libnvidia-ml.so.1"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n, dir
}

// holder is hold.c under the simulated driver.
type holder struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startHolder(t *testing.T, dir string) *holder {
	t.Helper()
	h := &holder{t: t, cmd: exec.Command(filepath.Join(dir, "hold"))}
	h.cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+dir)
	h.cmd.Stderr = os.Stderr
	h.in, _ = h.cmd.StdinPipe()
	out, _ := h.cmd.StdoutPipe()
	h.out = bufio.NewReader(out)
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.in.Close(); h.cmd.Wait() })
	return h
}

func (h *holder) do(line string) {
	h.t.Helper()
	fmt.Fprintln(h.in, line)
	if s, err := h.out.ReadString('\n'); s != "ok\n" {
		h.t.Fatalf("%q answered %q, %v", line, s, err)
	}
}

func TestSimulatedReaders(t *testing.T) {
	n, dir := openSim(t, map[string]string{"GPUREC_SIM_DEVICES": "3", "GPUREC_SIM_MEMORY": "16GiB,8GiB", "GPUREC_SIM_CONTEXT_BYTES": "512MiB"})
	devices := n.Devices()
	if len(devices) != 3 || devices[0].Total != 16*gib || devices[1].Total != 8*gib || devices[2].Total != 8*gib {
		t.Fatalf("devices are %+v", devices)
	}
	for i, d := range devices {
		if d.NVML != i || !strings.HasPrefix(d.UUID, "GPU-") || d.Name == "" || d.MIG {
			t.Errorf("device %d is %+v", i, d)
		}
		if got, ok := n.Index(d.UUID); got != i || !ok {
			t.Errorf("%s is device %d, %v", d.UUID, got, ok)
		}
	}
	if n.Version() == "" || n.Driver() == "" {
		t.Errorf("versions are %q and %q", n.Version(), n.Driver())
	}
	idle, errs := n.MemoryAll()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if idle[0].API != 2 || idle[0].Reserved <= 0 || idle[0].Used != 0 || idle[0].Free+idle[0].Reserved != idle[0].Total {
		t.Errorf("idle device 0 says %+v", idle[0])
	}
	if i, _, ok := n.Freest(); i != 0 || !ok {
		t.Errorf("freest idle device is %d, %v", i, ok)
	}
	if p, err := n.Processes(0); err != nil || p == nil || len(p) != 0 {
		t.Errorf("processes on the idle device: %v, %v", p, err)
	}

	h := startHolder(t, dir)
	h.do("+ 0 3221225472") // 3 GiB, which is whole chunks
	m, err := n.Memory(0)
	if err != nil || m.Used-idle[0].Used != 3*gib+512<<20 || idle[0].Free-m.Free != m.Used-idle[0].Used || m.Total != idle[0].Total {
		t.Errorf("with 3 GiB and a context held: %+v, %v", m, err)
	}
	p, err := n.Processes(0)
	if err != nil || len(p) != 1 || int(p[0].PID) != h.cmd.Process.Pid || p[0].Used != 3*gib+512<<20 {
		t.Errorf("processes of device 0: %v, %v", p, err)
	}
	h.do("- 0")
	if m, err := n.Memory(0); err != nil || m.Used-idle[0].Used != 512<<20 {
		t.Errorf("with the context held: %+v, %v", m, err)
	}
	h.in.Close()
	h.cmd.Wait()
	if m, err := n.Memory(0); err != nil || m != idle[0] {
		t.Errorf("after the process ended: %+v, %v", m, err)
	}
}

// The freest device changes as memory is taken; a tie goes to the lowest index.
func TestSimulatedFreest(t *testing.T) {
	n, dir := openSim(t, map[string]string{"GPUREC_SIM_DEVICES": "3", "GPUREC_SIM_MEMORY": "8GiB", "GPUREC_SIM_CONTEXT_BYTES": "0"})
	h := startHolder(t, dir)
	for _, step := range []struct {
		do   string
		want int
	}{
		{"+ 0 1073741824", 1}, // 1 and 2 are equal
		{"+ 1 2147483648", 2},
		{"+ 2 1073741824", 0}, // 0 and 2 are equal
		{"+ 2 1073741824", 0},
		{"- 1", 1},
		{"- 0", 0}, // 0 and 1 are equal
	} {
		h.do(step.do)
		if i, m, ok := n.Freest(); i != step.want || !ok {
			t.Errorf("after %q the freest is %d (%+v), want %d", step.do, i, m, step.want)
		}
	}
}

// The sampler over the simulated library: what it passes on ends with what the
// device says, and the peak is the largest.
func TestSimulatedSampler(t *testing.T) {
	n, dir := openSim(t, map[string]string{"GPUREC_SIM_DEVICES": "2", "GPUREC_SIM_MEMORY": "8GiB", "GPUREC_SIM_CONTEXT_BYTES": "0"})
	h := startHolder(t, dir)
	if rows := (&Sampler{NVML: n}).Devices(); len(rows) != 2 || rows[1].UUID != n.Devices()[1].UUID {
		t.Errorf("devices are %+v", rows)
	}
	steps := []string{"+ 0 1073741824", "+ 0 1073741824", "- 0", "+ 1 2147483648"}
	want := []int64{1 * gib, 2 * gib, 1 * gib, 2 * gib} // of the device that the step touches
	next := 0
	var largest int64
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	named := false
	err := (&Sampler{NVML: n, Interval: MinInterval, Processes: true}).Run(ctx, func(r *format.Reading) {
		largest = max(largest, r.PeakUsed)
		for _, p := range r.Processes {
			named = named || int(p.PID) == h.cmd.Process.Pid
		}
		if next > 0 {
			if i, _ := n.Index(r.UUID); i != int(steps[next-1][2]-'0') || r.Used != want[next-1] {
				return
			}
		}
		if next == len(steps) {
			if named {
				cancel()
			}
			return
		}
		h.do(steps[next])
		next++
	})
	if err != nil || next != len(steps) || largest != 2*gib {
		t.Errorf("%d of %d steps seen, largest %d, %v", next, len(steps), largest, err)
	}
}

// Case C3: every GPU is lost during a run. What was read stands, the reason is
// said once for each device, and Run comes back by itself.
func TestSimulatedLoss(t *testing.T) {
	n, _ := openSim(t, map[string]string{"GPUREC_SIM_DEVICES": "2", "GPUREC_SIM_NVML_FAIL": "6"}) // Open asks twice
	var said []string
	readings := 0
	s := &Sampler{NVML: n, Interval: MinInterval, OnError: func(err error) { said = append(said, err.Error()) }}
	err := s.Run(context.Background(), func(*format.Reading) { readings++ })
	if err == nil || !Final(err) || readings != 2 || len(said) != 2 {
		t.Fatalf("%d readings, said %q, %v", readings, said, err)
	}
	for i, text := range said {
		if !strings.Contains(text, "GPU-") || !strings.Contains(text, "(NVML error 15)") {
			t.Errorf("reason %d is %q", i, text)
		}
	}
}

func TestOneLibraryAProcess(t *testing.T) {
	n, dir := openSim(t, nil)
	again, err := Open(filepath.Join(dir, "libnvidia-ml.so.1"))
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	if _, err := n.Memory(0); err != nil { // the other user's Close took nothing away
		t.Error(err)
	}
	// The same file by another name: the linker would bind nothing anew.
	if err := os.Symlink(filepath.Join(dir, "libnvidia-ml.so.1"), filepath.Join(dir, "second.so")); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(filepath.Join(dir, "second.so"))
	if _, err := Open(filepath.Join(dir, "second.so")); err == nil || !strings.Contains(err.Error(), "already bound to "+dir) {
		t.Errorf("a second library: %v", err)
	}
}

func BenchmarkMemory(b *testing.B) {
	dir, err := simulated()
	if err != nil {
		b.Fatal(err)
	}
	n, err := Open(filepath.Join(dir, "libnvidia-ml.so.1"))
	if err != nil {
		b.Fatal(err)
	}
	defer n.Close()
	for b.Loop() {
		if _, err := n.Memory(0); err != nil {
			b.Fatal(err)
		}
	}
}
