package cuda

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// TestReachable puts the hook where only its owner gets and looks where a program
// is told to load it from.
func TestReachable(t *testing.T) {
	const key = "0123456789abcdef"
	own := "gpurec-hook-" + strconv.Itoa(os.Getuid())
	for _, row := range []struct {
		name   string
		home   os.FileMode
		place  func(t *testing.T, place string)
		copied bool
	}{
		{"open already", 0o755, nil, false},
		{"a home of its owner's alone", 0o700, nil, true},
		{"a copy from before", 0o700, func(t *testing.T, place string) {
			fill(t, filepath.Join(place, own, key, HookName), "library")
		}, true},
		{"a copy of something else", 0o700, func(t *testing.T, place string) {
			fill(t, filepath.Join(place, own, key, HookName), "not it")
		}, true},
		{"a link in its place", 0o700, func(t *testing.T, place string) {
			if err := os.Symlink(t.TempDir(), filepath.Join(place, own)); err != nil {
				t.Fatal(err)
			}
		}, false},
		{"a directory in which others write", 0o700, func(t *testing.T, place string) {
			os.Mkdir(filepath.Join(place, own), 0o777)
			os.Chmod(filepath.Join(place, own), 0o777)
		}, false},
		{"a place that is closed too", 0o700, func(t *testing.T, place string) { os.Chmod(place, 0o700) }, false},
		{"no place", 0o700, func(t *testing.T, place string) { os.Remove(place) }, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			top := t.TempDir()
			for p := top; p != os.TempDir() && p != "/"; p = filepath.Dir(p) {
				os.Chmod(p, 0o755)
			}
			old := syscall.Umask(0o077) // as careful people have it
			defer syscall.Umask(old)
			home, place := filepath.Join(top, "home"), filepath.Join(top, "place")
			os.Mkdir(place, 0o755)
			os.Chmod(place, 0o755)
			path := filepath.Join(home, key, HookName)
			fill(t, path, "library")
			os.Chmod(path, 0o755)
			os.Chmod(filepath.Dir(path), row.home)
			os.Chmod(home, row.home)
			if row.place != nil {
				row.place(t, place)
			}
			if !open(place) && row.copied {
				t.Skipf("the tests' own directory %s is closed to others", top)
			}
			got := reachable(path, key, []string{place})
			if !row.copied {
				if got != path {
					t.Errorf("it is %s, want its own place", got)
				}
				return
			}
			b, err := os.ReadFile(got)
			if got != filepath.Join(place, own, key, HookName) || err != nil || string(b) != "library" || !open(got) {
				t.Errorf("it is %s with %q, %v; open to all: %v", got, b, err, open(got))
			}
		})
	}
}

func fill(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestAnotherUser runs another user's program under the hook: its loader finds it.
func TestAnotherUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can become another user")
	}
	cache := filepath.Join(t.TempDir(), "cache")
	if err := os.Mkdir(cache, 0o700); err != nil {
		t.Fatal(err)
	}
	hook, err := Hook(cache, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command("/bin/true")
	c.Env = []string{"LD_PRELOAD=" + hook}
	c.Dir = "/"
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	var stderr bytes.Buffer
	c.Stderr = &stderr
	if err := c.Run(); err != nil || stderr.Len() > 0 {
		t.Errorf("%v, stderr %q", err, stderr.String())
	}
}

// TestSweep makes a new hook where old ones lie.
func TestSweep(t *testing.T) {
	cache := t.TempDir()
	os.Chmod(cache, 0o700)
	old := time.Now().Add(-unused - time.Hour)
	for _, d := range []struct {
		name       string
		young, own bool
		stays      bool
	}{
		{"00000000000000aa", false, true, false},
		{"00000000000000bb", true, true, true},
		{"something-of-mine", false, true, true},
		{"00000000000000AA", false, true, true},
	} {
		fill(t, filepath.Join(cache, d.name, HookName), "x")
		fill(t, filepath.Join(cache, d.name, "python", "gpurec", "x.py"), "x")
		os.Chtimes(filepath.Join(cache, d.name, HookName), old, old)
		if !d.young {
			os.Chtimes(filepath.Join(cache, d.name), old, old)
		}
		defer func() {
			if _, err := os.Stat(filepath.Join(cache, d.name)); (err == nil) != d.stays {
				t.Errorf("%s: %v", d.name, err)
			}
		}()
	}
	if _, err := libraryDir(cache, nil); err != nil {
		t.Fatal(err)
	}
	// It is in use now, however old its files are.
	k, _ := key()
	for _, name := range []string{"", HookName, keyFile} {
		os.Chtimes(filepath.Join(cache, k, name), old, old)
	}
	if _, err := libraryDir(cache, nil); err != nil {
		t.Fatal(err)
	}
	sweep(cache, "another")
	if _, err := os.Stat(filepath.Join(cache, k, HookName)); err != nil {
		t.Errorf("one that was used just now: %v", err)
	}
}
