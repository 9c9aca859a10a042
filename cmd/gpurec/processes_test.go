package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
)

// TestForkStorm records 200 processes, made in every way there is, of which a
// third is killed: each one's events are those that its own log has, and nothing
// of it all is left behind.
func TestForkStorm(t *testing.T) {
	const children, mark = 200, "GPUREC_TEST_STORM"
	dir, path := t.TempDir(), program(t, "forkstorm")
	shm := names(t, "/dev/shm")
	c := gpurec(t, dir, "run", "--simulate-gpu=2", "--on-full", "wait", "-o", "t.gpurec", "--", path, dir+"/log", fmt.Sprint(children))
	tmp := t.TempDir()
	c.Env = append(c.Env, mark+"="+dir, "GPUREC_SIM_CONTEXT_BYTES=2MiB", "TMPDIR="+tmp, "XDG_RUNTIME_DIR="+tmp)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, os.Stderr
	if status := does(t, c); status != 0 {
		t.Fatalf("status %d", status)
	}
	type calls struct{ allocs, frees, failed int }
	tr := read(t, dir+"/t.gpurec")
	got, status := map[int32]calls{}, map[int32]int32{}
	images := map[int32]int{}
	for _, e := range tr.events {
		p, ok := tr.defs.Process(e.Process)
		n := got[p.PID]
		switch e.Kind {
		case format.Alloc:
			n.allocs++
		case format.Free:
			n.frees++
		case format.AllocFailed:
			n.failed++
		case format.ProcessBegin:
			images[p.PID]++
			continue
		case format.ProcessEnd:
			status[p.PID] = e.Status
			continue
		default:
			continue
		}
		if !ok {
			t.Fatalf("%s of a process that has no row", e.Kind)
		}
		got[p.PID] = n
	}
	kinds, killed := map[string]int{}, 0
	for _, line := range strings.Split(strings.TrimSpace(out.String()), "\n") {
		var kind string
		var pid int32
		var want calls
		var victim int
		if _, err := fmt.Sscanf(line, "%s pid=%d allocs=%d frees=%d failed=%d killed=%d", &kind, &pid, &want.allocs, &want.frees, &want.failed, &victim); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		kinds[kind]++
		killed += victim
		have := got[pid]
		delete(got, pid)
		want.failed = 0 // it was a child's
		// One that was killed may have been between the event and its row in the log.
		more := have.allocs - want.allocs + have.frees - want.frees
		if more < 0 || more > victim || have.allocs < want.allocs || have.frees < want.frees || have.failed != want.failed {
			t.Errorf("%s: recorded %+v", line, have)
		}
		// Only a parent is told a status, and gpurec is nobody's here.
		if end, ok := status[pid]; !ok || end != format.Unknown {
			t.Errorf("%s: ended %v with %d, want unknown", line, ok, end)
		}
		if want := map[bool]int{false: 1, true: 2}[kind == "exec"]; images[pid] != want {
			t.Errorf("%s: %d images, want %d", line, images[pid], want)
		}
	}
	if len(kinds) != 8 || killed < children/5 {
		t.Errorf("kinds %v, %d killed", kinds, killed)
	}
	for pid, n := range got { // the children of those that had used the device
		if n != (calls{failed: 1}) {
			t.Errorf("process %d, of which no log tells: %+v", pid, n)
		}
	}
	if len(got) != kinds["late-fork"] {
		t.Errorf("%d processes were refused the device, want %d", len(got), kinds["late-fork"])
	}
	if s := tr.meta.Stats; s.Lost != 0 || tr.meta.Ending != format.EndClosed {
		t.Errorf("%d lost, ending %q", s.Lost, tr.meta.Ending)
	}
	for _, p := range tr.state.Processes() {
		if p.Acquired().Now != 0 || p.UnknownFrees+p.LostFrees != 0 {
			t.Errorf("process %d: %d bytes live after its end, %d unknown and %d lost frees", p.ID, p.Acquired().Now, p.UnknownFrees, p.LostFrees)
		}
	}
	if left := names(t, tmp); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	for name := range names(t, "/dev/shm") {
		if !shm[name] && strings.Contains(name, "gpurec") && !strings.HasPrefix(name, "gpurec-hook-") {
			t.Errorf("left in /dev/shm: %s", name)
		}
	}
	if left := with(mark + "=" + dir); len(left) > 0 {
		t.Errorf("processes still run: %v", left)
	}
}

func names(t *testing.T, dir string) map[string]bool {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for _, e := range entries {
		out[e.Name()] = true
	}
	return out
}

// with lists the processes that have a setting in their environment; those that
// have ended and wait to be reaped have none.
func with(setting string) (pids []int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		b, err := os.ReadFile(d + "/environ")
		if err == nil && bytes.Contains(append([]byte{0}, b...), []byte("\x00"+setting+"\x00")) {
			pid, _ := strconv.Atoi(filepath.Base(d))
			pids = append(pids, pid)
		}
	}
	return pids
}

// TestVisibleDevices runs on devices that CUDA_VISIBLE_DEVICES renumbers (C2): in
// the trace each has the UUID by which NVML knows it.
func TestVisibleDevices(t *testing.T) {
	storm := program(t, "storm")
	used := func(t *testing.T, value string, devices int) (uuids []string, all map[int32]string) {
		dir := t.TempDir()
		c := gpurec(t, dir, "run", "--simulate-gpu=3", "-o", "t.gpurec", "--", storm, "--threads", fmt.Sprint(max(devices, 1)), "--events", "50", "--devices", fmt.Sprint(max(devices, 1)))
		if value != "unset" {
			c.Env = append(c.Env, "CUDA_VISIBLE_DEVICES="+value)
		}
		if status := does(t, c); (status == 0) != (devices > 0) {
			t.Fatalf("status %d", status)
		}
		tr := read(t, dir+"/t.gpurec")
		all = map[int32]string{}
		rows := map[format.Device]string{}
		for _, d := range tr.defs.Devices() {
			all[d.NVML], rows[d.ID] = d.UUID, d.UUID
		}
		seen := map[string]bool{}
		for _, e := range tr.events {
			if e.Kind == format.Alloc && !seen[rows[e.Device]] {
				seen[rows[e.Device]] = true
				uuids = append(uuids, rows[e.Device])
			}
		}
		return uuids, all
	}
	_, uuid := used(t, "unset", 3)
	if len(uuid) != 3 || uuid[0] == uuid[1] {
		t.Fatalf("devices %v", uuid)
	}
	for _, row := range []struct {
		value string
		want  []int32 // by NVML's indices
	}{
		{"2,0", []int32{2, 0}},
		{"1", []int32{1}},
		{uuid[1], []int32{1}},
		{uuid[2] + "," + uuid[0], []int32{2, 0}},
		{uuid[2][:12], []int32{2}},
		{"GPU-", nil},
		{"MIG-" + uuid[0], nil},
		{"MIG-" + uuid[0] + "/1/0", nil},
		{"", nil},
		{"0,-1,1", []int32{0}},
		{"1,9,0", []int32{1}},
		{"0,0", nil},
		{"0," + uuid[1], []int32{0}},
		{" 2 ,1x", []int32{2, 1}},
	} {
		t.Run(row.value, func(t *testing.T) {
			got, _ := used(t, row.value, len(row.want))
			var want []string
			for _, i := range row.want {
				want = append(want, uuid[i])
			}
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("used %q, want %q", got, want)
			}
		})
	}
}

// TestWorkers records Python's workers of every kind, each as a process of its own.
func TestWorkers(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3 on PATH")
	}
	script, err := filepath.Abs("../../testdata/programs/workers.py")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		way            string
		processes, bad int
	}{{"fork", 6, 0}, {"spawn", 7, 0}, {"forkserver", 7, 0}, {"loader", 3, 0}, {"subprocess", 3, 0}, {"late", 3, 2}} {
		t.Run(row.way, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			c := gpurec(t, dir, "run", "--simulate-gpu=1", "-o", "t.gpurec", "--", python, script, row.way)
			var out bytes.Buffer
			c.Stdout, c.Stderr = &out, os.Stderr
			if status := does(t, c); status != 0 {
				t.Fatalf("status %d", status)
			}
			tr := read(t, dir+"/t.gpurec")
			got := map[int32][3]int{}
			for _, e := range tr.events {
				if i := slices.Index([]format.Kind{format.Alloc, format.Free, format.AllocFailed}, e.Kind); i >= 0 {
					p, _ := tr.defs.Process(e.Process)
					n := got[p.PID]
					n[i]++
					got[p.PID] = n
				}
			}
			want := map[int32][3]int{}
			bad := 0
			for _, line := range strings.Split(strings.TrimSpace(out.String()), "\n") {
				var pid int32
				var n [3]int
				if _, err := fmt.Sscanf(line, "pid=%d allocs=%d frees=%d failed=%d", &pid, &n[0], &n[1], &n[2]); err != nil {
					t.Fatalf("%q: %v", line, err)
				}
				for i, k := range want[pid] { // a worker that was given two tasks
					n[i] += k
				}
				want[pid] = n
				if n[2] > 0 {
					bad++
				}
			}
			if !maps.Equal(got, want) || len(want) > row.processes || len(want) < 2 || (bad > 0) != (row.bad > 0) {
				t.Errorf("recorded %v, want %v", got, want)
			}
		})
	}
}

// TestInnerNamespace records programs in a namespace of processes, where their
// pids are others: each is known by the pid that it has out here.
func TestInnerNamespace(t *testing.T) {
	if out, err := exec.Command("unshare", "--pid", "--fork", "true").CombinedOutput(); err != nil {
		t.Skipf("no namespace of processes can be made here: %v %s", err, bytes.TrimSpace(out))
	}
	for _, row := range []struct {
		name  string
		flags []string
	}{{"this /proc", nil}, {"a /proc of its own", []string{"--mount-proc"}}} {
		t.Run(row.name, func(t *testing.T) {
			dir, storm := t.TempDir(), program(t, "storm")
			args := append([]string{"run", "--simulate-gpu=1", "-o", "t.gpurec", "--", "unshare", "--pid", "--fork"}, row.flags...)
			script := `"$0" --threads 1 --events 50 & first=$!; "$0" --threads 1 --events 70 || exit 70; wait $first || exit 50`
			if status := does(t, gpurec(t, dir, append(args, "sh", "-c", script, storm)...)); status != 0 {
				t.Fatalf("status %d", status)
			}
			tr := read(t, dir+"/t.gpurec")
			calls := map[format.ProcessID]int{}
			for _, e := range tr.events {
				if e.Kind == format.Alloc || e.Kind == format.Free {
					calls[e.Process]++
				}
			}
			var got []int
			for id, n := range calls {
				got = append(got, n)
				p, ok := tr.defs.Process(id)
				// In there they are processes 2 and 3.
				if !ok || p.PID < 10 || p.StartTime == 0 {
					t.Errorf("process %+v", p)
				}
				if p.Command != "" && !strings.Contains(p.Command, "storm") { // of one that has ended by then, its name
					t.Errorf("another process's command: %q", p.Command)
				}
			}
			slices.Sort(got)
			if !slices.Equal(got, []int{50, 70}) {
				t.Errorf("calls of processes %v, want 50 and 70; %d lost, notes %q", got, tr.meta.Stats.Lost, tr.meta.Notes)
			}
		})
	}
}
