package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
)

// alone runs a command of the simulated GPU without gpurec, in dir, and returns
// its status and what it says.
func alone(t *testing.T, dir string, c *exec.Cmd) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	c.Dir, c.Stdout, c.Stderr = dir, &out, &errs
	status = does(t, c)
	return status, out.String(), errs.String()
}

// ours takes gpurec's own words out of what a command said on stderr.
func ours(stderr string) (its, words string) {
	var a, b strings.Builder
	for line := range strings.Lines(stderr) {
		if strings.HasPrefix(line, "gpurec: ") {
			b.WriteString(line)
		} else {
			a.WriteString(line)
		}
	}
	return a.String(), b.String()
}

// TestLimits runs programs/limits.c where something that a recording needs is not
// to be had. The program's output and status are always its own; what was done is
// recorded, or it is counted or said that it is not.
func TestLimits(t *testing.T) {
	path := program(t, "limits")
	for _, row := range []struct {
		mode    string
		status  int
		allocs  int    // recorded, at least; and with what was lost exactly
		reason  string // in trace.json: the process is not recorded at all
		wrapper func(t *testing.T) []string
	}{
		{"none", 7, 200, "", nil},
		{"nofile", 7, 0, "too many open files", nil},
		{"memlock", 7, 0, "cannot allocate memory|resource temporarily unavailable", nil},
		{"as", 7, 0, "cannot allocate memory", nil},
		{"fsize", 7, 0, "file too large", nil},
		{"memfd", 7, 0, "operation not permitted", nil},
		{"connect", 7, 0, "operation not permitted", nil},
		{"both", 7, 0, "operation not permitted", nil},
		{"threads", 7, 4000, "", nil},
		{"closefrom", 7, 400, "", nil},
		{"closed", 7, 200, "", nil},
		{"cancel", 7, 200, "", nil},
		{"hog", 7, 4200, "", smallGroup},
		{"nonsense", 2, 0, "", nil},
	} {
		t.Run(row.mode, func(t *testing.T) {
			command := []string{path, row.mode}
			if row.wrapper != nil {
				command = append(row.wrapper(t), command...)
			}
			bare, dir := t.TempDir(), t.TempDir()
			c := exec.Command(command[0], command[1:]...)
			c.Env = simulated(t)
			wantStatus, wantOut, wantErr := alone(t, bare, c)
			if wantStatus == 3 {
				t.Skipf("the limit cannot be had here: %s", wantErr)
			}
			c = gpurec(t, dir, append([]string{"run", "-v", "--simulate-gpu=1", "--on-full=wait", "--sample-interval=0", "-o", "t.gpurec", "--"}, command...)...)
			status, out, errs := alone(t, dir, c)
			its, words := ours(errs)
			if status != wantStatus || status != row.status || out != wantOut || its != wantErr {
				t.Errorf("status %d, %q, %q; alone %d, %q, %q", status, out, its, wantStatus, wantOut, wantErr)
			}
			if row.mode == "closed" {
				a, _ := os.ReadFile(bare + "/closed.txt")
				if b, _ := os.ReadFile(dir + "/closed.txt"); !bytes.Equal(a, b) || len(b) == 0 {
					t.Errorf("it wrote %q, alone %q", b, a)
				}
			}
			tr := read(t, dir+"/t.gpurec")
			m := tr.meta
			if m.Ending != format.EndClosed || *m.Status != status {
				t.Errorf("ending %q, status %d", m.Ending, *m.Status)
			}
			if row.reason != "" {
				why, ok := strings.CutPrefix(m.Reason, "a process could make no buffer and is not recorded: ")
				if m.Stats.Absent != 1 || !ok || !slices.Contains(strings.Split(row.reason, "|"), why) || strings.Count(words, m.Reason) != 1 {
					t.Errorf("absent %d, reason %q, said %q; want %q", m.Stats.Absent, m.Reason, words, row.reason)
				}
				return
			}
			if m.Stats.Absent != 0 || m.Reason != "" || m.Stats.Lost != 0 || tr.kinds[format.Alloc] < row.allocs || row.mode != "cancel" && tr.kinds[format.Alloc] != row.allocs {
				t.Errorf("%d allocs are recorded, want %d; %d lost, %d absent, reason %q", tr.kinds[format.Alloc], row.allocs, m.Stats.Lost, m.Stats.Absent, m.Reason)
			}
		})
	}
}

// simulated is an environment in which a command finds the simulated GPU, and no
// recorder.
func simulated(t *testing.T) []string {
	t.Helper()
	sim, err := simulate(1, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.close)
	return append(os.Environ(), "LD_LIBRARY_PATH="+sim.dir, "GPUREC_SIM_STATE="+sim.state)
}

// smallGroup is a command in front of another that puts it into a cgroup of its
// own with 48 MiB of memory; the recorder stays outside.
func smallGroup(t *testing.T) []string {
	for _, row := range []struct{ dir, limit string }{
		{"/sys/fs/cgroup", "memory.max"},
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"},
	} {
		group := filepath.Join(row.dir, fmt.Sprintf("gpurec-test-%d", os.Getpid()))
		if err := os.Mkdir(group, 0o755); err != nil {
			continue
		}
		t.Cleanup(func() { os.Remove(group) })
		if os.WriteFile(filepath.Join(group, row.limit), []byte("50331648"), 0) != nil {
			continue
		}
		return []string{"sh", "-c", `echo $$ >` + group + `/cgroup.procs && exec "$@"`, "sh"}
	}
	t.Skip("no cgroup with a limit of memory can be made here")
	return nil
}
