package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
)

// mounted is a command in front of another that runs it in a mount namespace of
// its own, with 8 MiB of tmpfs at dir/m, and copies what is there to dir/copy.
func mounted(t *testing.T, dir, options string) []string {
	t.Helper()
	if err := os.Mkdir(filepath.Join(dir, "m"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, how := range []string{"-rm", "-m"} {
		if exec.Command("unshare", how, "sh", "-c", "mount -t tmpfs x "+dir+"/m").Run() == nil {
			return []string{"unshare", how, "sh", "-c", `mount -t tmpfs -o size=8m,` + options + ` x m && { "$@"; s=$?; cp -r m copy; exit $s; }`, "sh"}
		}
	}
	t.Skip("no tmpfs can be mounted here: unshare -rm and unshare -m fail")
	return nil
}

// TestPlaces records into places that fill up, that go, and that cannot be
// written: the command's output and status are those it has alone; the trace can
// be read and says why it ends, or the recorder says it; and what can be kept of
// the newest is.
func TestPlaces(t *testing.T) {
	storm := program(t, "storm")
	const some = `"$0" --threads 4 --events 40000 | cut -d" " -f1-3; `
	// Where it is recorded, until the first events have reached the disk.
	const written = `while [ -d m/t.gpurec ] && [ "$(stat -c %s m/t.gpurec/00000/events.arrow)" -lt 16000 ]; do sleep 0.05; done; `
	for _, row := range []struct {
		name    string
		options string // of the mount
		flags   []string
		script  string
		status  int
		ending  format.Ending
		reason  string // in trace.json
		says    string // where there is no trace to read
		least   int    // events in the trace
	}{
		{name: "it fills up", flags: []string{"--on-full=wait"}, script: `head -c 7400K /dev/zero >m/fill; ` + some + some + some + `exit 7`,
			status: 7, ending: format.EndFailed, reason: "no space left on device", least: 1000},
		{name: "another fills it", flags: []string{"--on-full=wait", "--rotate-size=64KiB"}, script: some + written + `cat /dev/zero >m/fill 2>/dev/null; ` + some + `exit 7`,
			status: 7, ending: format.EndFailed, reason: "no space left on device", least: 1000},
		{name: "another fills it, the newest are kept", flags: []string{"--on-full=wait", "--retain=16MiB"},
			script: `head -c 5M /dev/zero >m/fill; ` + some + some + some + some + some + `exit 7`,
			status: 7, ending: format.EndClosed, reason: "the disk is full: the trace's oldest parts went before their time", least: 1000},
		{name: "it was nearly full, the newest are kept", flags: []string{"--on-full=wait", "--retain=16MiB"}, script: some + some + `exit 7`,
			status: 7, ending: format.EndClosed, reason: "are free where the trace goes", least: 1000},
		{name: "it goes, and nothing is to be created any more", script: some + `rm -rf m/t.gpurec; ` + some + `exit 7`,
			status: 7, says: "no such file or directory"},
		{name: "it goes, and a part is to be created", flags: []string{"--rotate-size=64KiB"}, script: some + `rm -rf m/t.gpurec; ` + some + `exit 7`,
			status: 7, says: "no such file or directory"},
		{name: "read-only", options: "ro", script: `echo started`, status: 125, says: "read-only file system; name a place that can be written, with -o or GPUREC_OUTPUT; the command was not started"},
		{name: "read-only, and the command matters more", options: "ro", flags: []string{"--best-effort"}, script: `echo started; echo err >&2; exit 7`, status: 7,
			says: "read-only file system; name a place that can be written, with -o or GPUREC_OUTPUT; the command runs unrecorded"},
	} {
		t.Run(row.name, func(t *testing.T) {
			alwaysHere, dir := t.TempDir(), t.TempDir()
			options := row.options
			if options == "" {
				options = "rw"
			}
			script := []string{"sh", "-c", row.script, storm}
			prefix := mounted(t, alwaysHere, options)
			c := exec.Command(prefix[0], append(prefix[1:], script...)...)
			c.Env = simulated(t)
			wantStatus, wantOut, wantErr := alone(t, alwaysHere, c)

			prefix = mounted(t, dir, options)
			c = gpurec(t, dir)
			args := append([]string{c.Path, "run", "--simulate-gpu=1", "--sample-interval=0", "-o", "m/t.gpurec"}, row.flags...)
			args = append(append(prefix, args...), append([]string{"--"}, script...)...)
			recorded := exec.Command(args[0], args[1:]...)
			recorded.Env = c.Env
			status, out, errs := alone(t, dir, recorded)
			its, words := ours(errs)
			if row.status == 125 {
				wantStatus, wantOut, wantErr = 125, "", ""
			}
			if status != wantStatus || status != row.status || out != wantOut || its != wantErr {
				t.Fatalf("status %d, %q, %q; alone %d, %q, %q\n%s", status, out, its, wantStatus, wantOut, wantErr, words)
			}
			if n := strings.Count(words, "\n"); n > 1 {
				t.Errorf("it is said %d times:\n%s", n, words)
			}
			if row.says != "" {
				if !strings.Contains(words, row.says) {
					t.Errorf("said %q", words)
				}
				return
			}
			tr := readCut(t, dir+"/copy/t.gpurec")
			if tr.meta.Ending != row.ending || !strings.Contains(tr.meta.Reason, row.reason) || len(tr.events) < row.least {
				t.Errorf("%d events, ending %q, reason %q", len(tr.events), tr.meta.Ending, tr.meta.Reason)
			}
			if row.ending == format.EndFailed && !strings.Contains(words, row.reason) {
				t.Errorf("said %q", words)
			}
		})
	}
}
