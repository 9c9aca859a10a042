package cuda

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The same programs with the hook compiled for the address and undefined
// behaviour sanitizers: a report ends the program and fails the test.
func TestSanitizers(t *testing.T) {
	dir := t.TempDir()
	out, err := exec.Command("cc", "-print-file-name=libasan.so").Output()
	asan, err2 := filepath.EvalSymlinks(strings.TrimSpace(string(out)))
	if err != nil || err2 != nil {
		t.Skipf("the compiler has no address sanitizer: %v, %v", err, err2)
	}
	if err := compile(libraries[0], dir, []string{"-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"}); err != nil {
		t.Fatal(err)
	}
	env := []string{"LD_PRELOAD=" + asan + ":" + filepath.Join(dir, HookName), "NVTX_INJECTION64_PATH=" + filepath.Join(dir, HookName),
		"ASAN_OPTIONS=detect_leaks=0"}

	guest := cc(t, "guest", "testdata/guest.c", "-ldl", "-lpthread")
	client := cc(t, "liba.so", "-shared", "-fPIC", "testdata/nvtxclient.c", "-ldl")
	rows := []struct {
		name string
		args []string
	}{
		{"storm", []string{cc(t, "storm", programs+"storm.c", "-lpthread", "-ldl"), "--threads", "4", "--events", "5000"}},
		{"flavours", []string{cc(t, "flavours", programs+"flavours.c", "-ldl"), "--door", "procaddress"}},
		{"faults", []string{cc(t, "faults", programs+"faults.c", "-lpthread", "-ldl")}},
		{"fork", []string{cc(t, "fork", programs+"fork.c", "-ldl")}},
		{"guest", []string{guest, "start", "errno", "descriptors", "dlsym", "threads", "forks", "api", "unhooked", "full"}},
		{"crowd", []string{guest, "start", "crowd"}},
		{"handler", []string{cc(t, "interrupted", "testdata/interrupted.c", "-ldl", "-lpthread"), "handler"}},
		{"nvtx", []string{cc(t, "nvtx", "testdata/nvtx.c", "-ldl"), client}},
	}
	for version, python := range interpreters(t) {
		rows = append(rows, struct {
			name string
			args []string
		}{"Python " + version, []string{python, "testdata/stacks.py", "kinds"}})
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			r := newReceiver(t)
			r.wait.Store(true)
			lanes, _ := program{args: row.args, env: env}.run(t, r)
			if len(all(lanes)) < 10 {
				t.Errorf("%d events", len(all(lanes)))
			}
		})
	}
}
