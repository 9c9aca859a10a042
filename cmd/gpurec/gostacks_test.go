package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
)

// TestGoStacks compares the stacks of a Go program that takes memory through cgo
// with what Go's runtime saw at the same moments, every frame of them: functions,
// files, lines, inlined calls, and C's frames in between.
func TestGoStacks(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil || runtime.GOARCH != "amd64" {
		t.Skip("there is no python3 to compare stacks with, or this is no x86-64")
	}
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("there is no C compiler, which cgo needs")
	}
	built := func(t *testing.T, args ...string) string {
		exe := filepath.Join(t.TempDir(), "gs")
		c := exec.Command("go", append(append([]string{"build", "-o", exe}, args...), "../../cuda/testdata/gostacks")...)
		c.Env = append(os.Environ(), "CGO_ENABLED=1")
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return exe
	}
	host := func(t *testing.T) []string {
		lib, exe := built(t, "-buildmode=c-shared"), filepath.Join(t.TempDir(), "host")
		if out, err := exec.Command("cc", "-O2", "-o", exe, "../../cuda/testdata/gohost.c", "-ldl", "-lpthread").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return []string{exe, lib}
	}
	for _, row := range []struct {
		name  string
		build []string
		env   string
		kinds string
		only  string // whose frames are compared
	}{
		{"a collection at each allocation", nil, "GOGC=1", "random 1000 panics locked threads deep 300", ""},
		{"the world stopped for it", nil, "GODEBUG=gcstoptheworld=1", "random 100 threads", ""},
		{"not optimised, no build id", []string{"-gcflags=-N -l", "-ldflags=-buildid= -B none"}, "", "random 100 panics threads", ""},
		{"Go's own linker", []string{"-ldflags=-linkmode=internal"}, "", "locked deep 300", "go"}, // it leaves out C's tables
		{"stripped", []string{"-ldflags=-s -w"}, "", "random 100 panics locked threads deep 300", "go"},
		{"in a C program", []string{"-buildmode=c-shared"}, "GOGC=5", "random 100 panics locked threads deep 300", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			var command []string
			if row.name == "in a C program" {
				command = host(t)
			} else {
				command = []string{built(t, row.build...)}
			}
			dir := t.TempDir()
			args := []string{"run", "-q", "--simulate-gpu", "--stacks", "native", "--max-frames", "512", "--on-full", "wait", "--symbolize", "60s", "-o", "t.gpurec", "--"}
			c := gpurec(t, dir, append(append(args, command...), strings.Fields(row.kinds)...)...)
			c.Env = append(c.Env, row.env)
			var said bytes.Buffer
			c.Stdout, c.Stderr = &said, os.Stderr
			if status := does(t, c); status != 0 {
				t.Fatalf("status %d", status)
			}
			tr, err := format.Open(dir + "/t.gpurec")
			if err != nil {
				t.Fatal(err)
			}
			var events bytes.Buffer
			if err := format.WriteText(&events, tr); err != nil {
				t.Fatal(err)
			}
			os.WriteFile(dir+"/events.txt", events.Bytes(), 0o600)
			os.WriteFile(dir+"/said.txt", said.Bytes(), 0o600)
			out, err := exec.Command(python, "../../testdata/h200/gocgo.py", dir+"/events.txt", dir+"/said.txt", row.only).CombinedOutput()
			if err != nil {
				t.Fatalf("%s", out)
			}
			t.Logf("%s", out)
			for i, word := range strings.Fields(row.kinds) {
				if word[0] > '9' && !strings.Contains("\n"+string(out), "\n"+word+" ") {
					t.Errorf("kind %d, %s, was not compared", i, word)
				}
			}
		})
	}
}
