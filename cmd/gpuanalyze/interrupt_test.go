package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Standard input that says no more must not hold up an interrupt, and what was
// made by then is gone.
func TestImportInterrupted(t *testing.T) {
	for _, before := range []string{"", "gpurec 1\npart\n1000 Mark process=1\n"} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		defer r.Close()
		stdin := os.Stdin
		os.Stdin = r
		defer func() { os.Stdin = stdin }()
		if _, err := w.WriteString(before); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		out := filepath.Join(t.TempDir(), "out.gpurec")
		go func() {
			for before != "" { // until it waits for more
				if _, err := os.Lstat(out); err == nil {
					break
				}
				time.Sleep(time.Millisecond)
			}
			cancel()
		}()
		var stdout, stderr bytes.Buffer
		if code := run(ctx, &stdout, &stderr, []string{"import", "text", "-", "-o", out}); code != exitInterrupted || stderr.String() != "gpuanalyze: interrupted\n" {
			t.Errorf("after %q: exit %d, %q", before, code, stderr.String())
		}
		if _, err := os.Lstat(out); err == nil || !os.IsNotExist(err) {
			t.Errorf("after %q: %v is left, %v", before, out, err)
		}
	}
}

func TestWithin(t *testing.T) {
	ended, end := context.WithCancel(context.Background())
	end()
	hang := make(chan int)
	for _, row := range []struct {
		name   string
		ctx    context.Context
		moment time.Duration
		f      func() int
		code   int
		words  string
	}{
		{"done", context.Background(), 0, func() int { return 7 }, 7, ""},
		{"tidies up", ended, time.Hour, func() int { return exitInterrupted }, exitInterrupted, ""},
		{"does not notice", ended, time.Millisecond, func() int { return <-hang }, exitInterrupted, "gpuanalyze: interrupted\n"},
	} {
		var stderr bytes.Buffer
		if code := within(row.ctx, &stderr, row.moment, row.f); code != row.code || stderr.String() != row.words {
			t.Errorf("%s: %d, %q", row.name, code, stderr.String())
		}
	}
}
