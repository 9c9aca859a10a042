package recorder

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestLaunch runs commands as env(1) would.
func TestLaunch(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, row := range []struct {
		name   string
		args   []string
		status int
		fails  bool
	}{
		{"true", []string{"true"}, 0, false},
		{"a status", []string{"sh", "-c", "exit 7"}, 7, false},
		{"status 126 of its own", []string{"sh", "-c", "exit 126"}, 126, false},
		{"a signal", []string{"sh", "-c", "kill -TERM $$"}, 143, false},
		{"a kill", []string{"sh", "-c", "kill -KILL $$"}, 137, false},
		{"not there", []string{"/nonexistent"}, 127, true},
		{"not in PATH", []string{"gpurec-no-such-command"}, 127, true},
		{"a directory", []string{dir}, 126, true},
		{"not executable", []string{write("plain", "x", 0o600)}, 126, true},
		{"a script without a first line", []string{write("script", "exit $1\n", 0o700), "9"}, 9, false},
		{"a script whose interpreter is not there", []string{write("lost", "#!/nonexistent\n", 0o700)}, 127, true},
		{"no program", []string{write("noise", "\x7fELF noise", 0o700)}, 126, false},
		{"arguments stay as they are", []string{"sh", "-c", `test "$1" = " a  b " && test "$2" = ""`, "x", " a  b ", ""}, 0, false},
		{"the environment is the given one", []string{"sh", "-c", `test "$ONLY" = this && test -z "$HOME"`}, 0, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			told := -1
			status, err := Launch(row.args, []string{"ONLY=this", "PATH=" + os.Getenv("PATH")}, func(_, s int) { told = s })
			var launch *LaunchError
			if errors.As(err, &launch) {
				status = launch.Status
			}
			if row.name == "no program" { // sh may read it as a script, with a status of its own
				if status == 0 {
					t.Error("noise ran")
				}
				return
			}
			if status != row.status || (err != nil) != row.fails {
				t.Errorf("status %d, error %v; want %d", status, err, row.status)
			}
			if err == nil && told != status {
				t.Errorf("told %d before it was reaped, returned %d", told, status)
			}
		})
	}
}

// TestLaunchForwards sends this process a signal while a command runs.
func TestLaunchForwards(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1} {
		ready := filepath.Join(t.TempDir(), "ready")
		go func() {
			within(10*time.Second, func() bool { _, err := os.Stat(ready); return err == nil })
			syscall.Kill(os.Getpid(), sig)
		}()
		status, err := Launch([]string{"sh", "-c", `trap 'exit 11' TERM HUP USR1; : >"$0"; while :; do sleep 0.02; done`, ready}, os.Environ(), nil)
		if err != nil || status != 11 {
			t.Errorf("%v: status %d, error %v; want the handler's 11", sig, status, err)
		}
	}
}
