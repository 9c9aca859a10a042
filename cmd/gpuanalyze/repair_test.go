package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
)

// A cut trace is closed beside itself: the answers are those of before, and every
// report says why they are partial.
func TestRepairCommand(t *testing.T) {
	dir := writeBatches(t, 3, true)
	path := filepath.Join(dir, "00000", "events.arrow")
	fi, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, fi.Size()-fi.Size()/3); err != nil {
		t.Fatal(err)
	}
	_, want, _ := command1(t, "lines", dir)
	out := strings.TrimSuffix(dir, ".gpurec") + "-repaired.gpurec"
	code, stdout, stderr := command1(t, "repair", dir)
	if code != 0 || stdout != "" || !strings.HasPrefix(stderr, out+": repaired; tables without their end: 1") {
		t.Fatalf("exit %d\n%s%s", code, stdout, stderr)
	}
	for _, c := range []string{"lines", "summary", "contexts"} {
		code, stdout, stderr := command1(t, c, out)
		if code != exitPartial || c == "lines" && stdout != want || !strings.Contains(stdout+stderr, "tables without their end: 1") {
			t.Errorf("%s: exit %d\n%s%s", c, code, stdout, stderr)
		}
	}
	if code, _, stderr := command1(t, "repair", dir); code != exitFailed || !strings.Contains(stderr, "exists already") {
		t.Errorf("again: exit %d, %s", code, stderr)
	}
	if code, _, stderr := command1(t, "repair", "--in-place", dir); code != 0 || !strings.Contains(stderr, "repaired") {
		t.Errorf("in place: exit %d, %s", code, stderr)
	}
	if _, got, _ := command1(t, "lines", dir); got != want {
		t.Errorf("in place: %s", firstDifference(want, got))
	}
	if code, _, stderr := command1(t, "repair", "--in-place", dir); code != 0 || !strings.Contains(stderr, "nothing to repair") {
		t.Errorf("in place again: exit %d, %s", code, stderr)
	}
	if code, _, _ := command1(t, "repair", "--in-place", "-o", "x", dir); code != exitUsage {
		t.Errorf("in place and elsewhere: exit %d", code)
	}
}

// What is being recorded is left alone.
func TestRepairWhileRecorded(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "now.gpurec")
	w, err := format.Create(dir, format.Meta{}, format.WriterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"repair", dir}, {"repair", "--in-place", dir}} {
		if code, _, stderr := command1(t, args...); code != exitFailed || !strings.Contains(stderr, "has it open") && !strings.Contains(stderr, "may still be recorded") {
			t.Errorf("%v: exit %d, %s", args, code, stderr)
		}
	}
	if err := w.Close(nil); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(dir), "*")); len(left) != 1 {
		t.Errorf("left: %q", left)
	}
}
