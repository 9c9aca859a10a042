package recorder

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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

func init() {
	roles["late launch"] = func() error {
		// It goes on when it is told to, as where it has to wait for a core.
		pause := func() { syscall.Read(0, make([]byte, 1)) }
		status, err := launch([]string{"sh", "-c", `trap 'echo got' TERM; trap 'exit 5' USR1; echo ready; while :; do sleep 0.01; done`},
			os.Environ(), stages{listening: func() { fmt.Println("listening"); pause() }, started: pause})
		if err == nil && status != 5 {
			err = fmt.Errorf("status %d, want 5", status)
		}
		return err
	}
	roles["launch"] = func() error {
		_, err := Launch([]string{"sh", "-c", os.Getenv("ROLE_SCRIPT")}, os.Environ(), nil)
		return err
	}
}

// TestSignalsWhileStarting sends a signal before there is a command, and when it
// is there already and the launch has not been told so. The command gets it once
// both times, whether or not it was sent to the group.
func TestSignalsWhileStarting(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name         string
		early, group bool
	}{
		{"before the command, to the group", true, true},
		{"before the command, to the launcher", true, false},
		{"after it, to the group", false, true},
		{"after it, to the launcher", false, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := exec.Command(exe)
			c.Env = append(os.Environ(), roleEnv+"=late launch")
			c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			c.Stderr = os.Stderr
			in, err1 := c.StdinPipe()
			pipe, err2 := c.StdoutPipe()
			if err := errors.Join(err1, err2, c.Start()); err != nil {
				t.Fatal(err)
			}
			defer syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
			stuck := time.AfterFunc(60*time.Second, func() { syscall.Kill(-c.Process.Pid, syscall.SIGKILL) })
			defer stuck.Stop()
			out := bufio.NewScanner(pipe)
			said := func(want string) {
				if !out.Scan() || out.Text() != want {
					t.Fatalf("it says %q, want %q", out.Text(), want)
				}
			}
			goOn := func() { io.WriteString(in, "\n") }
			send := func() {
				to := c.Process.Pid
				if row.group {
					to = -to
				}
				if err := syscall.Kill(to, syscall.SIGTERM); err != nil {
					t.Fatal(err)
				}
			}
			said("listening")
			if row.early {
				send()
			}
			goOn()
			said("ready")
			if !row.early {
				send()
			}
			if !row.early && row.group {
				said("got")
				goOn()
			} else {
				goOn()
				said("got")
			}
			time.Sleep(50 * time.Millisecond) // for one too many
			syscall.Kill(c.Process.Pid, syscall.SIGUSR1)
			for out.Scan() {
				t.Errorf("%q once more than sent", out.Text())
			}
			if err := c.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestLaunchInherits: the command finds what this process was started with.
func TestLaunchInherits(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	look := `grep -E "^Sig(Blk|Ign|Cgt)" /proc/self/status; ulimit -Sn; ulimit -Hn; ls -l /proc/self/fd | wc -l`
	want, err := exec.Command("sh", "-c", "ulimit -Sn 77; trap '' HUP; "+look).Output()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command("sh", "-c", `ulimit -Sn 77; trap '' HUP; exec "$0"`, exe)
	c.Env = append(os.Environ(), roleEnv+"=launch", "ROLE_SCRIPT="+look)
	got, err := c.Output()
	if err != nil || string(got) != string(want) || strings.Count(string(got), "\n") != 6 {
		t.Errorf("%v\n%s\nwithout a launch\n%s", err, got, want)
	}
}
