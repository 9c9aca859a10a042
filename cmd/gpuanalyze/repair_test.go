package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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

// A recorder that is killed as it begins a part leaves half of its checkpoint: the
// answers are those of the parts before, repaired or not.
func TestHalfCheckpoint(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "begun.gpurec")
	w, err := format.Create(dir, format.Meta{Command: []string{"x"}, Monotonic: 1}, format.WriterOptions{BatchRows: 100})
	if err != nil {
		t.Fatal(err)
	}
	w.Defs().PutProcess(format.Process{ID: 1, PID: 1, Rank: -1, Command: "x"})
	var rows []format.Event
	for i := range 500 {
		e := format.Event{Time: format.Time(i + 1), Kind: format.Alloc, API: format.APITorch, Layer: format.LayerPool, Class: format.ClassDevice,
			Process: 1, Thread: 1, Device: -1, Address: uint64(i + 1), Size: 1024, Duration: -1, Requested: -1, Allocated: -1, Reserved: -1}
		if err := w.Event(&e); err != nil {
			t.Fatal(err)
		}
		e.Kind = format.Live
		rows = append(rows, e)
	}
	end := format.Event{Time: 500, Kind: format.CheckpointEnd, Device: -1, Size: int64(len(rows)), Duration: -1, Requested: -1, Allocated: -1, Reserved: -1}
	if err := w.Rotate(append(rows, end)); err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "00001", "events.arrow")
	fi, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, fi.Size()/2); err != nil {
		t.Fatal(err)
	}
	long := time.Now().Add(-time.Hour) // it is not being recorded
	files, _ := filepath.Glob(filepath.Join(dir, "*", "*"))
	for _, f := range files {
		if err := os.Chtimes(f, long, long); err != nil {
			t.Fatal(err)
		}
	}
	var want []string
	answers := [][]string{{"lines", "--at", "end"}, {"lines", "--at", "peak"}, {"lines"}, {"leaks"}, {"stats"}}
	for i, at := range []string{dir, strings.TrimSuffix(dir, ".gpurec") + "-repaired.gpurec"} {
		for n, args := range answers {
			code, stdout, stderr := command1(t, append(args, at)...)
			if i == 0 {
				want = append(want, stdout)
			}
			if code != exitPartial || stdout != want[n] || n == 0 && !strings.HasPrefix(stdout, "_root (500.00KB, 0.00B)\n") {
				t.Errorf("%s %q: exit %d\n%s%s", at, args, code, firstDifference(want[n], stdout), stderr)
			}
		}
		if code, stdout, _ := command1(t, "verify", at); code != exitPartial || strings.Contains(stdout, "fault") {
			t.Errorf("verify %s: exit %d\n%s", at, code, stdout)
		}
		if i == 0 {
			if code, _, stderr := command1(t, "repair", dir); code != 0 || !strings.Contains(stderr, "part 1 had just begun") {
				t.Fatalf("repair: exit %d, %s", code, stderr)
			}
		}
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
