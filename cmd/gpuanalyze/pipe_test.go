//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A pipe in place of any file is refused by every command, and not waited for.
func TestPipes(t *testing.T) {
	files := 0
	for _, file := range []string{"trace.json", "00000/events.arrow", "00000/stacks.arrow", "00000/frames.arrow", "00000/names.arrow",
		"00000/samples.arrow", "00000/processes.arrow", "00000/devices.arrow"} {
		inSmall(t)
		path := filepath.Join("small.gpurec", file)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, args := range []string{"summary", "lines --at peak", "contexts --curve nvml", "devices", "events", "verify", "export -o x.arrow"} {
			got := gpuanalyze(append(strings.Fields(args), "small.gpurec")...)
			if got.code == 0 && file == "00000/samples.arrow" && strings.HasPrefix(args, "lines") {
				continue // needs no samples
			}
			if got.code != exitFailed && got.code != exitPartial || !strings.Contains(got.stdout+got.stderr, path+": it is no regular file") {
				t.Errorf("%s with a pipe for %s: %+v", args, file, got)
			}
			os.Remove("x.arrow")
		}
		files++
	}
	if err := syscall.Mkfifo("pipe", 0o600); err != nil || files != 8 {
		t.Fatal(err, files)
	}
	if got := gpuanalyze("import", "text", "pipe", "-o", "p.gpurec"); got.code != exitFailed || !strings.Contains(got.stderr, `begins with the line "gpurec 1"`) {
		t.Errorf("import of a pipe without a writer: %+v", got)
	}
	if got := gpuanalyze("import", "text", "/dev/null", "-o", "p.gpurec"); got.code != exitFailed || !strings.Contains(got.stderr, "it is neither a file nor a pipe") {
		t.Errorf("import of a device: %+v", got)
	}
	// A pipe with a writer, as a shell's <(...) is.
	w, err := os.OpenFile("pipe", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.WriteString(smallTwin); err != nil {
		t.Fatal(err)
	}
	done := make(chan try)
	go func() { done <- gpuanalyze("import", "text", "pipe", "-o", "p.gpurec") }()
	for {
		if _, err := os.Lstat("p.gpurec"); err == nil {
			break // it has opened the pipe and reads
		}
	}
	w.Close()
	if got := <-done; got != (try{}) {
		t.Errorf("import of a pipe: %+v", got)
	}
}
