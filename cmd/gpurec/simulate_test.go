package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/cuda"
)

// TestCheckSimulated compares what is refused before the start with what the
// simulated GPU itself refuses: the same, and the refusal names the variable.
func TestCheckSimulated(t *testing.T) {
	path := program(t, "oom")
	sim, err := cuda.Simulator("", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name              string
		devices           int
		capacity, context string
		ok                bool
	}{
		{"nothing said", 2, "", "", true},
		{"one size", 2, "2GiB", "", true},
		{"bytes", 1, "2147483648", "", true},
		{"a size a device", 2, "2GiB,4096MiB", "", true},
		{"fewer sizes than devices", 3, "2GiB,4GiB", "", true},
		{"more sizes than devices", 1, "2GiB,4GiB", "", false},
		{"a comma at the end", 2, "2GiB,", "", false},
		{"a comma at the begin", 2, ",2GiB", "", false},
		{"a unit of others", 1, "2GB", "", false},
		{"a word", 1, "lots", "", false},
		{"a fraction", 1, "1.5GiB", "", false},
		{"a sign", 1, "+2GiB", "", false},
		{"a blank", 1, " 2GiB", "", false},
		{"below the least", 1, "8388607", "", false},
		{"beyond 64 bits", 1, "99999999999GiB", "", false},
		{"a context's size", 1, "", "64MiB", true},
		{"no context's size", 1, "", "64 MiB", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			vars := map[string]string{capacityVariable: row.capacity, contextVariable: row.context}
			err := checkSimulated(row.devices, func(name string) string { return vars[name] })
			if (err == nil) != row.ok || err != nil && !strings.Contains(err.Error(), "GPUREC_SIM_") {
				t.Errorf("refused with %v", err)
			}
			// The library itself, in a program under no recorder.
			c := exec.Command(path)
			c.Env = append(os.Environ(), "LD_LIBRARY_PATH="+sim, "GPUREC_SIM_STATE="+filepath.Join(t.TempDir(), "state"),
				"GPUREC_SIM_DEVICES="+strconv.Itoa(row.devices), capacityVariable+"="+row.capacity, contextVariable+"="+row.context)
			starts := does(t, c) == 0
			if starts != row.ok {
				t.Errorf("the simulated GPU starts: %v, and is refused with %v", starts, err)
			}
		})
	}
	for _, n := range []int{-1, 17, 64} {
		if err := checkSimulated(n, func(string) string { return "" }); err == nil {
			t.Errorf("%d devices are allowed", n)
		}
	}
	if err := checkSimulated(0, func(string) string { return "nonsense" }); err != nil {
		t.Errorf("no simulation, refused with %v", err)
	}
}

// TestSimulateNumber: the number of devices may come after = or after a blank, and
// a command that is a number is one.
func TestSimulateNumber(t *testing.T) {
	for _, row := range []struct {
		args    string
		devices int
		command string
	}{
		{"--simulate-gpu -- true", 2, "true"},
		{"--simulate-gpu=3 -- true", 3, "true"},
		{"--simulate-gpu 3 -- true", 3, "true"},
		{"-v --simulate-gpu 3 -o x --no-python -- true --simulate-gpu 5", 3, "true --simulate-gpu 5"},
		{"--simulate-gpu 3 true", 3, "true"},
		{"--simulate-gpu true 3", 2, "true 3"},
		{"--simulate-gpu -- 3", 2, "3"},
		{"-o --simulate-gpu 3", 0, "3"},
		{"3 --simulate-gpu", 0, "3 --simulate-gpu"},
	} {
		var o settings
		var out, errs bytes.Buffer
		flags := o.flags("run")
		if status, done := parse(flags, "", &out, &errs, strings.Fields(row.args)); done || o.simulate != row.devices || strings.Join(flags.Args(), " ") != row.command {
			t.Errorf("%s: status %d, %d devices, command %q, %s", row.args, status, o.simulate, flags.Args(), errs.String())
		}
	}
	c := gpurec(t, t.TempDir(), "run", "--simulate-gpu", "3", "-o", "t.gpurec", "--", "true")
	if status := does(t, c); status != 0 {
		t.Errorf("status %d", status)
	}
}

// TestFullTemporary: where the simulated GPU's books find no room, nothing is
// started, and a program that comes to them in another way is refused the driver:
// neither ends by the SIGBUS of a page that the disk has no block for.
func TestFullTemporary(t *testing.T) {
	dir := t.TempDir()
	prefix := append(mounted(t, dir, "rw"), "sh", "-c", `cat /dev/zero >m/fill 2>/dev/null; exec "$@"`, "sh")
	run := func(env string, args ...string) (int, string) {
		t.Helper()
		c := gpurec(t, dir)
		args = append(append([]string{}, prefix...), args...)
		env1 := append(c.Env, env, "XDG_RUNTIME_DIR="+dir)
		c = exec.Command(args[0], args[1:]...)
		c.Env = env1
		status, _, errs := alone(t, dir, c)
		return status, errs
	}
	c := gpurec(t, dir)
	if status, errs := run("TMPDIR="+dir+"/m", c.Path, "run", "--simulate-gpu", "-o", "t.gpurec", "--", "touch", "started"); status != 125 || !strings.Contains(errs, "no space left on device; TMPDIR names another place; the command was not started") {
		t.Errorf("status %d, said %q", status, errs)
	}
	if _, err := os.Stat(dir + "/started"); err == nil {
		t.Error("the command was started")
	}
	for _, kv := range simulated(t) {
		if library, ok := strings.CutPrefix(kv, "LD_LIBRARY_PATH="); ok {
			if status, errs := run("GPUREC_SIM_STATE="+dir+"/m/books", "env", "LD_LIBRARY_PATH="+library, program(t, "oom")); status != 1 || !strings.Contains(errs, "cuInit") {
				t.Errorf("status %d, said %q", status, errs)
			}
		}
	}
}
