package cuda

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A guestRow is a program that has at least ten events.
type guestRow struct {
	name string
	args []string
}

// guests are all programs that the hook's tests run and that end by themselves,
// but for those that are given limits: a checker has a need of its own for them.
func guests(t *testing.T) []guestRow {
	guest := cc(t, "guest", "testdata/guest.c", "-ldl", "-lpthread")
	interrupted := cc(t, "interrupted", "testdata/interrupted.c", "-ldl", "-lpthread")
	client := cc(t, "liba.so", "-shared", "-fPIC", "testdata/nvtxclient.c", "-ldl")
	flavours := cc(t, "flavours", programs+"flavours.c", "-ldl")
	unwound, through := compilePlus(t, "unwind", "testdata/unwind.cpp", "-O2"), compilePlus(t, "through.so", "-O2", "testdata/through.c")
	return []guestRow{
		{"storm", []string{cc(t, "storm", programs+"storm.c", "-lpthread", "-ldl"), "--threads", "4", "--events", "5000"}},
		{"ledger", []string{cc(t, "ledger", programs+"ledger.c", "-lpthread", "-ldl"), "--log", t.TempDir() + "/log", "--ms", "100000", "--calls", "300", "--pause", "50", "--forks", "4"}},
		{"oom", []string{cc(t, "oom", programs+"oom.c", "-ldl"), "100"}},
		{"flavours", []string{flavours, "--door", "procaddress"}},
		{"flavours by name", []string{flavours, "--door", "dlsym"}},
		{"flavours of each thread's stream", []string{flavours, "--per-thread"}},
		{"faults", []string{cc(t, "faults", programs+"faults.c", "-lpthread", "-ldl")}},
		{"fork", []string{cc(t, "fork", programs+"fork.c", "-ldl")}},
		{"guest", []string{guest, "start", "errno", "descriptors", "dlsym", "threads", "forks", "api", "unhooked", "by-proc", "full"}},
		{"guest's calls", []string{guest, "start", "capture", "contexts", "locations"}},
		{"laps", []string{guest, "laps"}},
		{"dawn", []string{guest, "start", "dawn"}},
		{"crowd", []string{guest, "start", "crowd", "forks-of-a-crowd"}},
		{"handler", []string{interrupted, "handler"}},
		{"cancel", []string{interrupted, "cancel"}},
		{"native stacks", []string{unwound, "random", "100", "deep", "threads", "signals", "exceptions", "coroutine", "forks", "closing", through}},
		{"nvtx", []string{cc(t, "nvtx", "testdata/nvtx.c", "-ldl"), client}},
	}
}

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

	rows := guests(t)
	for version, python := range interpreters(t) {
		rows = append(rows, guestRow{"Python " + version, []string{python, "testdata/stacks.py", "shapes", "1", "0"}})
	}
	for _, row := range rows {
		if row.name == "cancel" {
			continue // the sanitizer's own end of a thread trips over frames that an asynchronous cancellation left poisoned
		}
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

// Under valgrind the programs read and write nothing that they may not, and the
// hook loses no memory: it takes none of malloc's. Blocks that a forked child
// still has of its parent's threads are glibc's.
func TestValgrind(t *testing.T) {
	valgrind, err := exec.LookPath("valgrind")
	if err != nil {
		t.Skip("there is no valgrind")
	}
	// Valgrind lets one thread run at a time, and each fifty times slower. Unless it
	// is told to be fair, one that takes and leaves a mutex all the time keeps the
	// others from theirs for minutes.
	slow := []string{"crowd", "dawn", "handler", "cancel", "laps"}
	for _, row := range guests(t) {
		if slices.Contains(slow, row.name) {
			continue
		}
		t.Run(row.name, func(t *testing.T) {
			r := newReceiver(t)
			r.wait.Store(true)
			args := append([]string{valgrind, "--quiet", "--fair-sched=try", "--error-exitcode=99", "--leak-check=full", "--show-leak-kinds=definite", "--errors-for-leak-kinds=definite"}, row.args...)
			// Devices as large as the address space that valgrind leaves.
			env := []string{"GPUREC_SIM_MEMORY=1GiB", "GPUREC_SIM_CONTEXT_BYTES=16MiB"}
			lanes, _ := program{args: args, env: env}.run(t, r)
			if len(all(lanes)) < 10 {
				t.Errorf("%d events", len(all(lanes)))
			}
		})
	}
}
