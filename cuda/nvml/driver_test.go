//go:build cgo

package nvml

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The reading of CUDA_VISIBLE_DEVICES compared with a driver's own: with the
// simulated one always, and with the real one where there is one.
func TestVisibleAsTheDriver(t *testing.T) {
	t.Run("simulated", func(t *testing.T) {
		n, dir := openSim(t, map[string]string{"GPUREC_SIM_DEVICES": "3"})
		visibleAsTheDriver(t, n, dir, "LD_LIBRARY_PATH="+dir)
	})
	t.Run("real", func(t *testing.T) {
		if os.Getenv(childVariable) == "" { // this process is bound to the simulated library
			exe, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(exe, "-test.run", "^TestVisibleAsTheDriver$/^real$", "-test.v")
			cmd.Env = append(os.Environ(), childVariable+"=1")
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			t.Logf("%s", out)
			if strings.Contains(string(out), "--- SKIP") {
				t.Skip("this machine has no NVIDIA driver; see above")
			}
			return
		}
		n, err := Open("")
		if errors.Is(err, ErrNoLibrary) {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		defer n.Close()
		dir, err := simulated() // for the compiled program only
		if err != nil {
			t.Fatal(err)
		}
		visibleAsTheDriver(t, n, dir, "CUDA_DEVICE_ORDER=PCI_BUS_ID")
	})
}

const childVariable = "GPUREC_TEST_REAL_DRIVER"

// visibleAsTheDriver compares what NVIDIA documents, and what its driver makes of
// the rest.
func visibleAsTheDriver(t *testing.T, n *NVML, dir, env string) {
	devices := n.Devices()
	first, last := devices[0].UUID, devices[len(devices)-1].UUID
	values := []string{
		unset, "", "0", "0,1", "1,0", "1", "2,0", "0,-1,1", "-1", "-1,0", "0,9,1", "9", "0,-1,0", "0,,1", ",0", "0,", "x", "none", "NoDevFiles", "all",
		"99999999999999999999", first, last, last + "," + first, first[:12], "GPU-", first + ",GPU-dead," + last, strings.TrimPrefix(first, "GPU-"), "MIG-" + first,
		"0,0", "0,1,0", " 0", "0 ,1", "0, 1", "0x,1y", "+0", "00", first + "," + first, first + ",1", "0," + last,
		" " + first, first + " ", strings.ToUpper(first), "MIG-" + first + "/0/0",
	}
	for _, value := range values {
		cmd := exec.Command(filepath.Join(dir, "visible"))
		for _, v := range os.Environ() {
			if !strings.HasPrefix(v, "CUDA_VISIBLE_DEVICES=") && !strings.HasPrefix(v, "CUDA_DEVICE_ORDER=") {
				cmd.Env = append(cmd.Env, v)
			}
		}
		cmd.Env = append(cmd.Env, env)
		if value != unset {
			cmd.Env = append(cmd.Env, "CUDA_VISIBLE_DEVICES="+value)
		}
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("CUDA_VISIBLE_DEVICES=%q: %v", value, err)
		}
		want := strings.Fields(string(out))
		list, err := n.Visible(value, value != unset, "PCI_BUS_ID")
		if err != nil {
			t.Errorf("CUDA_VISIBLE_DEVICES=%q: %v", value, err)
		}
		var got []string
		for _, d := range list {
			_, hexes, _ := strings.Cut(d.UUID, "-")
			got = append(got, hexes)
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("CUDA_VISIBLE_DEVICES=%q shows %q, read here as %q", value, want, got)
		}
	}
}
