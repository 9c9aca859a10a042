package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
)

// writeBatches writes a trace of so many batches of ten allocations of 1024 bytes.
func writeBatches(t *testing.T, batches int, close bool) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "batches.gpurec")
	w, err := format.Create(dir, format.Meta{Command: []string{"x"}, Monotonic: 1}, format.WriterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.Defs().PutProcess(format.Process{ID: 1, PID: 1, Rank: -1, Command: "x"})
	w.Defs().PutFrame(format.Frame{ID: 1, Kind: format.FramePython, File: "a.py", Line: 1, Function: "f"})
	w.Defs().PutStack(format.Stack{ID: 10, Frame: 1})
	for b := range batches {
		for i := range 10 {
			n := b*10 + i + 1
			e := format.Event{Time: format.Time(n), Kind: format.Alloc, API: format.APITorch, Layer: format.LayerPool, Class: format.ClassDevice,
				Process: 1, Thread: 1, Address: uint64(n), Size: 1024, Stack: 10, Duration: -1, Requested: -1, Allocated: -1, Reserved: -1}
			if err := w.Event(&e); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if close {
		if err := w.Close(nil); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// A trace that is still being recorded answers from what is on disk, and says
// that it is not all.
func TestGrowing(t *testing.T) {
	dir := writeBatches(t, 3, false)
	code, stdout, stderr := command1(t, "lines", dir)
	if want := "_root (30.00KB, 0.00B)\n  a.py:1:f (30.00KB, 0.00B)\n"; code != exitPartial || stdout != want || !strings.Contains(stderr, "partial: not closed") {
		t.Errorf("exit %d\n%s%s", code, stdout, stderr)
	}
}

// D2: a part cut anywhere in its last batch answers from the whole ones.
func TestCutAnywhere(t *testing.T) {
	path := filepath.Join(writeBatches(t, 3, false), "00000", "events.arrow")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	two, err := os.ReadFile(filepath.Join(writeBatches(t, 2, false), "00000", "events.arrow"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(whole, two) {
		t.Fatal("a batch more is not an append")
	}
	dir := filepath.Dir(filepath.Dir(path))
	cuts := 0
	for n := len(whole) - 1; n >= len(two); n-- {
		if n%7 != 0 && n > len(two)+16 && n < len(whole)-16 {
			continue // format's own tests cut at every byte
		}
		if err := os.Truncate(path, int64(n)); err != nil {
			t.Fatal(err)
		}
		code, stdout, stderr := command1(t, "lines", dir)
		if code != exitPartial || !strings.HasPrefix(stdout, "_root (20.00KB, 0.00B)\n") || n > len(two) && !strings.Contains(stderr, path) {
			t.Fatalf("cut at byte %d of %d: exit %d\n%s%s", n, len(whole), code, stdout, stderr)
		}
		cuts++
	}
	if cuts < 50 {
		t.Errorf("only %d cuts", cuts)
	}
}

// Whatever byte of a trace flips, the answer is a sentence or what it was, and
// no command comes down.
func TestFlippedBytes(t *testing.T) {
	dir := writeBatches(t, 3, true)
	var files []string
	err := filepath.Walk(dir, func(path string, fi os.FileInfo, err error) error {
		if err == nil && fi.Mode().IsRegular() {
			files = append(files, path)
		}
		return err
	})
	if err != nil || len(files) < 5 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	_, want, _ := command1(t, "lines", dir)
	r := rand.New(rand.NewSource(5))
	outcomes := map[string]int{}
	for range 150 {
		path := files[r.Intn(len(files))]
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		at := r.Intn(len(b))
		flipped := bytes.Clone(b)
		flipped[at] ^= 1 << r.Intn(8)
		if err := os.WriteFile(path, flipped, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, c := range []string{"lines", "summary", "contexts", "leaks", "stats", "ranks"} {
			var stdout, stderr bytes.Buffer
			code := run(context.Background(), &stdout, &stderr, []string{c, dir})
			outcomes[fmt.Sprint(code)]++
			switch {
			case code == exitFailed && stderr.Len() > 0, code == exitPartial && strings.Contains(stderr.String(), "partial"):
			case code == 0 && (c != "lines" || stdout.String() == want || filepath.Base(path) == format.MetaFile):
			default:
				t.Errorf("%s byte %d, %s: exit %d\n%s%s", path, at, c, code, stdout.String(), stderr.String())
			}
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if outcomes["3"] == 0 {
		t.Errorf("no flip was seen: %v", outcomes)
	}
	t.Log(outcomes)
}
