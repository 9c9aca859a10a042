package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
)

// TestOutOfMemory: a program that runs out and copes is not disturbed (F5).
func TestOutOfMemory(t *testing.T) {
	dir := t.TempDir()
	c := gpurec(t, dir, "run", "--simulate-gpu=1", "-v", "-o", "t.gpurec", "--", program(t, "oom"))
	c.Env = append(c.Env, "GPUREC_SIM_MEMORY=2GiB")
	var words bytes.Buffer
	c.Stderr = &words
	if status := does(t, c); status != 0 {
		t.Fatalf("status %d\n%s", status, words.String())
	}
	tr := read(t, dir+"/t.gpurec")
	if tr.kinds[format.AllocFailed] == 0 || tr.state.Processes()[0].Acquired().Now != 0 {
		t.Errorf("%d failures, %d bytes live at the end", tr.kinds[format.AllocFailed], tr.state.Processes()[0].Acquired().Now)
	}
	said := strings.Split(strings.TrimSpace(words.String()), "\n")
	var own []string
	for _, l := range said {
		if !strings.Contains(l, "compiling") {
			own = append(own, l)
		}
	}
	if len(own) != 5 || !strings.Contains(words.String(), fmt.Sprintf("out of memory: yes, %d times; gpuanalyze oom says why", tr.kinds[format.AllocFailed])) ||
		!strings.Contains(words.String(), "device 0 ") || !strings.Contains(words.String(), "largest stack near the peak: oom:main, ") {
		t.Errorf("said\n%s", words.String())
	}
}

// TestRefusedOtherwise: what is refused for another reason is not out of memory, in
// the words at the end as in gpuanalyze oom.
func TestRefusedOtherwise(t *testing.T) {
	dir := t.TempDir()
	c := gpurec(t, dir, "run", "--simulate-gpu=1", "-v", "-o", "t.gpurec", "--", program(t, "oom"))
	c.Env = append(c.Env, "GPUREC_SIM_FAIL=cuMemAlloc_v2:800@1")
	var words bytes.Buffer
	c.Stderr = &words
	if status := does(t, c); status != 1 || !strings.Contains(words.String(), "out of memory: no, but 1 time an allocation failed for another reason") {
		t.Errorf("status %d, said\n%s", status, words.String())
	}
}

func TestWithin(t *testing.T) {
	for frame, want := range map[string]string{
		"/home/me/.cache/x/demo.py:149:step":      "demo.py:149:step",
		"/src/pool.go:7:example.com/pool.(*P).At": "pool.go:7:example.com/pool.(*P).At",
		"../src/sim.cc:5:take":                    "../src/sim.cc:5:take",
		"libc10.so:at::empty":                     "libc10.so:at::empty",
		"libc10.so+0x1234":                        "libc10.so+0x1234",
		"[thread pt_autograd_0]":                  "[thread pt_autograd_0]",
	} {
		if got := within(frame); got != want {
			t.Errorf("%s: %s", frame, got)
		}
	}
}

// TestNoDriver: a program that the loader does not start, for there is no driver, is
// told from one that there is no such.
func TestNoDriver(t *testing.T) {
	if path := library("libcuda.so.1"); path != "" {
		t.Skipf("there is a driver here: %s", path)
	}
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("there is no C compiler here")
	}
	dir := t.TempDir()
	driver, app := filepath.Join(dir, "lib", "libcuda.so.1"), filepath.Join(dir, "app")
	if err := errors.Join(os.Mkdir(filepath.Dir(driver), 0o755), os.WriteFile(app+".c", []byte("int cuInit(unsigned);\n#ifdef LIBRARY\nint cuInit(unsigned n) { return n; }\n#else\nint main(void) { return cuInit(0); }\n#endif\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"-shared", "-fPIC", "-DLIBRARY", "-Wl,-soname=libcuda.so.1", "-o", driver, app + ".c"}, {"-o", app, app + ".c", driver}} {
		if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	for _, row := range []struct {
		name    string
		flags   []string
		env     string
		command []string
		status  int
		says    bool
	}{
		{"it needs the driver", []string{"-v"}, "LD_LIBRARY_PATH=", []string{app}, 127, true},
		{"nobody looks", nil, "LD_LIBRARY_PATH=", []string{app}, 127, false},
		{"with a simulated one", []string{"-v", "--simulate-gpu"}, "LD_LIBRARY_PATH=", []string{app}, 0, false},
		{"with one on a path of its own", []string{"-v"}, "LD_LIBRARY_PATH=" + filepath.Dir(driver), []string{app}, 0, false},
		{"another library is missing", []string{"-v"}, "LD_LIBRARY_PATH=" + filepath.Dir(driver), []string{"sh", "-c", "exit 127"}, 127, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := gpurec(t, t.TempDir(), append(append(append([]string{"run"}, row.flags...), "--"), row.command...)...)
			c.Env = append(c.Env, row.env)
			var words bytes.Buffer
			c.Stderr = &words
			status := does(t, c)
			if says := strings.Contains(words.String(), "libcuda.so.1 is not on this machine") && strings.Contains(words.String(), "gpurec info "+app+" says more; gpurec run --simulate-gpu"); status != row.status || says != row.says {
				t.Errorf("status %d, said\n%s", status, words.String())
			}
		})
	}
}
