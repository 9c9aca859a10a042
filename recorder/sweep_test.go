package recorder

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/gpurec/gpurec/format"
)

// TestSweepSockets starts a recorder where another was killed, one runs, and
// others have things of that name.
func TestSweepSockets(t *testing.T) {
	base := t.TempDir()
	live := record(t, Options{SocketDir: base})
	c, out := child(t, nil, "recorder", "GPUREC_TEST_OUTPUT="+filepath.Join(t.TempDir(), "t.gpurec"), "XDG_RUNTIME_DIR=", "TMPDIR="+base)
	out.Scan()
	before, _ := filepath.Glob(base + "/gpurec-*/s")
	c.Process.Kill()
	c.Wait()
	if len(before) != 2 {
		t.Fatalf("two recorders have %q", before)
	}
	must := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	bind := func(dir string, mode os.FileMode) {
		must(os.Mkdir(dir, 0o700))
		s, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_SEQPACKET, 0)
		must(err)
		must(syscall.Bind(s, &syscall.SockaddrUnix{Name: dir + "/s"}))
		must(syscall.Close(s))
		must(os.Chmod(dir, mode))
	}
	kept := []string{filepath.Dir(live.Socket())}
	keep := func(name string) string {
		kept = append(kept, filepath.Join(base, name))
		return kept[len(kept)-1]
	}
	must(os.MkdirAll(filepath.Join(keep("gpurec-1000"), "0123456789abcdef"), 0o700))
	must(os.Mkdir(keep("gpurec-1001"), 0o700))
	bind(keep("gpurec-1002"), 0o755)
	bind(keep("gpurec-x3"), 0o700)
	bind(keep("gpurec-1004"), 0o700)
	must(os.WriteFile(base+"/gpurec-1004/notes", nil, 0o600))
	must(os.Symlink(filepath.Dir(live.Socket()), keep("gpurec-1005")))
	must(os.Mkdir(keep("gpurec-1006"), 0o700))
	must(os.WriteFile(base+"/gpurec-1006/s", nil, 0o600))
	bind(filepath.Join(base, "gpurec-1007"), 0o700)

	next := record(t, Options{SocketDir: base})
	kept = append(kept, filepath.Dir(next.Socket()))
	left, _ := filepath.Glob(base + "/*")
	for _, path := range kept {
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("%s is gone", path)
		}
	}
	if len(left) != len(kept) {
		t.Errorf("left are %q, want %q", left, kept)
	}
	for _, s := range []*Session{live, next} {
		p := join(t, s, 1, format.MinLaneSize)
		p.Event(wireEvent(format.Alloc, format.APIMemAlloc, 1, 1), nil)
		if r := finish(t, s); r.count(format.Alloc) != 1 {
			t.Errorf("%d events", r.count(format.Alloc))
		}
	}
	if left, _ := filepath.Glob(filepath.Dir(live.Socket())); len(left) > 0 {
		t.Errorf("%q stay after their recorder", left)
	}
}

// TestSweepFiles: of the files of one name only those go that nobody uses.
func TestSweepFiles(t *testing.T) {
	dir := t.TempDir()
	const env = "GPUREC_TEST_BOOKS"
	for _, row := range []struct {
		name, text  string
		locked, has bool
		stays       bool
	}{
		{"books-1", "x", false, false, false},
		{"books-2", "x", true, false, true},
		{"books-3", "x", false, true, true},
		{"books-4", "", false, false, true},
		{"books-five", "x", false, false, true},
		{"other-6", "x", false, false, true},
	} {
		path := filepath.Join(dir, row.name)
		if err := os.WriteFile(path, []byte(row.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if row.locked {
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
				t.Fatal(err)
			}
		}
		if row.has {
			_, out := child(t, nil, "sleep", env+"="+path)
			out.Scan()
		}
		defer func() {
			if _, err := os.Stat(path); (err == nil) != row.stays {
				t.Errorf("%s: %v", row.name, err)
			}
		}()
	}
	SweepFiles(dir, "books-", env)
}
