package main

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
)

const redactProgram = `
import ctypes, sys, gpurec
cu = ctypes.CDLL("libcuda.so.1")
ctx, p = ctypes.c_void_p(), ctypes.c_uint64()
cu.cuInit(0)
cu.cuDevicePrimaryCtxRetain(ctypes.byref(ctx), 0)
cu.cuCtxSetCurrent(ctx)
with gpurec.scope("load " + __file__):
    cu.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(4096))
`

// TestRedact: neither in the bytes of a redacted trace's files nor in what they
// hold when they are read is anything left of where and by whom the program was
// run; its lines, functions and scopes are there.
func TestRedact(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3 to record")
	}
	home := filepath.Join(t.TempDir(), "kimberley")
	work := filepath.Join(home, "topsecret", "src")
	if err := os.MkdirAll(work, 0o700); err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(work, "train.py")
	if err := os.WriteFile(script, []byte(redactProgram), 0o600); err != nil {
		t.Fatal(err)
	}
	host, _ := os.Hostname()
	secrets := []string{"kimberley", "topsecret", "hunter2"}
	if len(host) > 2 {
		secrets = append(secrets, host)
	}
	record := func(name string, flags ...string) string {
		out := filepath.Join(home, name)
		args := append([]string{"run", "--simulate-gpu=1", "-o", out}, flags...)
		c := gpurec(t, work, append(args, "--", python, script, "--token=hunter2")...)
		c.Stderr = os.Stderr
		if status := does(t, c); status != 0 {
			t.Fatalf("status %d", status)
		}
		return out
	}
	whole := record("whole.gpurec", "--symbolize=0")
	if found := revealed(t, whole, secrets); len(found) != len(secrets) {
		t.Errorf("of %q only %q are in the whole trace: the test looks in the wrong places", secrets, found)
	}
	redacted := record("t.gpurec", "--redact")
	if found := revealed(t, redacted, secrets); len(found) > 0 {
		t.Errorf("%q are left", found)
	}
	text := twin(t, redacted)
	for _, want := range []string{`"src/train.py"`, `"load src/train.py"`, filepath.Base(python)} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %s in\n%.2000s", want, text)
		}
	}
}

// The name that a redacted trace has of its own does not tell the host's.
func TestRedactName(t *testing.T) {
	host, _ := os.Hostname()
	for _, row := range []struct {
		flags []string
		hosts int
	}{{nil, 1}, {[]string{"--redact"}, 0}} {
		dir := t.TempDir()
		if status := does(t, gpurec(t, dir, append(append([]string{"run"}, row.flags...), "--", "true")...)); status != 0 {
			t.Fatalf("status %d", status)
		}
		all, _ := filepath.Glob(filepath.Join(dir, "true-*.gpurec"))
		named, _ := filepath.Glob(filepath.Join(dir, "true-"+fileName(host)+"-*.gpurec"))
		if len(all) != 1 || len(named) != row.hosts {
			t.Errorf("%q makes %q", row.flags, all)
		}
	}
}

func twin(t *testing.T, path string) string {
	t.Helper()
	tr, err := format.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := format.WriteText(&text, tr); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// revealed are those of some words that are in a trace: in the bytes of its files
// and their names, or in its text.
func revealed(t *testing.T, path string, words []string) (found []string) {
	t.Helper()
	all := []byte(twin(t, path))
	err := filepath.WalkDir(path, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(file)
		all = append(append(all, strings.TrimPrefix(file, path)...), b...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range words {
		if bytes.Contains(all, []byte(w)) {
			found = append(found, w)
		}
	}
	return found
}
