package recorder

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpurec/gpurec/format"
)

// TestSilentChild waits for a process that has not had an event yet: its first
// one comes while it is waited for, and is recorded.
func TestSilentChild(t *testing.T) {
	s := record(t, Options{})
	c, out := child(t, s, "late")
	out.Scan()
	quiet := make(chan Left)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		quiet <- s.WaitQuiet(ctx)
	}()
	c.Wait()
	if l := <-quiet; l != (Left{}) {
		t.Errorf("left: %+v", l)
	}
	if r := finish(t, s); r.count(format.Alloc) != 1 || r.count(format.ProcessEnd) != 1 {
		t.Errorf("%d allocs and %d ends, want one each", r.count(format.Alloc), r.count(format.ProcessEnd))
	}
}

// TestLeft tells those that had an event from those that had none, and from
// those of another recording and the dead.
func TestLeft(t *testing.T) {
	s, other := record(t, Options{}), record(t, Options{})
	for _, row := range []struct {
		role string
		s    *Session
	}{{"silently", s}, {"silent", s}, {"silent", s}, {"silent", other}} {
		_, out := child(t, row.s, row.role)
		out.Scan()
	}
	dead, out := child(t, s, "silent")
	out.Scan()
	dead.Process.Kill()
	if _, err := waitid(dead.Process.Pid, syscall.WEXITED|syscall.WNOWAIT); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if l := s.WaitQuiet(ctx); l != (Left{Traced: 1, Silent: 2}) {
		t.Errorf("left: %+v, want 1 traced and 2 silent", l)
	}
}

func TestContains(t *testing.T) {
	path := filepath.Join(t.TempDir(), "environ")
	for _, row := range []struct {
		name, text string
		want       bool
	}{
		{"first", "A=1\x00B=2\x00", true},
		{"later", "B=2\x00A=1\x00", true},
		{"far behind, over the room's end", strings.Repeat("x", 61) + "\x00A=1\x00", true},
		{"another's end", "BA=1\x00", false},
		{"longer", "A=12\x00", false},
		{"nothing", "", false},
	} {
		if err := os.WriteFile(path, []byte(row.text), 0o600); err != nil {
			t.Fatal(err)
		}
		for size := 6; size < 80; size++ {
			if got := contains(path, []byte("\x00A=1\x00"), bytes.Repeat([]byte{'A'}, size)); got != row.want {
				t.Errorf("%s, with room for %d: %v", row.name, size, got)
			}
		}
	}
	if contains(path+"-not", []byte("\x00A=1\x00"), make([]byte, 64)) {
		t.Error("a file that is not there has it")
	}
}
