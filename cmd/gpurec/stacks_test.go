package main

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
)

// pythons are the interpreters to try: the one in PATH and what pyenv has.
func pythons() (found []string) {
	if p, err := exec.LookPath("python3"); err == nil {
		found = append(found, p)
	}
	home, _ := os.UserHomeDir()
	more, _ := filepath.Glob(home + "/.pyenv/versions/*/bin/python3")
	return append(found, more...)
}

// TestPythonStacks compares every recorded stack with what Python itself saw at
// the same allocation: files, lines, functions, of code that stays and of code
// whose address is used again (E3).
func TestPythonStacks(t *testing.T) {
	script, err := filepath.Abs("testdata/stacks.py")
	if err != nil {
		t.Fatal(err)
	}
	compared, versions := 0, map[string]bool{}
	for _, python := range pythons() {
		out, err := exec.Command(python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])").Output()
		version := strings.TrimSpace(string(out))
		if err != nil || versions[version] {
			continue
		}
		versions[version] = true
		t.Run(version, func(t *testing.T) {
			dir := t.TempDir()
			c := gpurec(t, dir, "run", "--simulate-gpu=1", "--on-full", "wait", "--sample-interval", "0", "-o", "t.gpurec", "--", python, script)
			c.Env = append(c.Env, "PYTHONIOENCODING=utf-8", "PYTHONUTF8=1")
			var said bytes.Buffer
			c.Stdout, c.Stderr = &said, os.Stderr
			if status := does(t, c); status != 0 {
				t.Fatalf("status %d", status)
			}
			tr := read(t, dir+"/t.gpurec")
			stacks := map[uint64]format.StackID{}
			for i := range tr.events {
				if e := &tr.events[i]; e.Kind == format.Alloc {
					stacks[e.Address] = e.Stack
				}
			}
			frameless := 0
			for in := bufio.NewScanner(&said); in.Scan(); {
				words := strings.Split(in.Text(), "\t")
				address, _ := strconv.ParseUint(words[0], 10, 64)
				var got []string
				frames, _ := tr.defs.Walk(stacks[address], nil)
				for i := len(frames) - 1; i >= 0; i-- {
					f, _ := tr.defs.Frame(frames[i])
					if f.Kind == format.FrameNative || f.Kind == format.FrameLabel {
						continue
					}
					got = append(got, f.String())
				}
				if len(got) == 1 && strings.HasPrefix(got[0], "[thread ") {
					frameless++ // a Python whose frames the hook does not read
					continue
				}
				if g, w := strings.Join(got, "\n"), strings.Join(words[1:], "\n"); g != w {
					t.Fatalf("%#x recorded as\n%s\nPython saw\n%s", address, g, w)
				}
				compared++
			}
			if frameless > 0 {
				if version == "3.11" || version == "3.12" {
					t.Errorf("%d allocations have no frames", frameless)
				}
				t.Logf("Python %s: %d allocations without frames", version, frameless)
			}
			if tr.meta.Stats.Unresolved != 0 {
				t.Errorf("%d unresolved", tr.meta.Stats.Unresolved)
			}
		})
	}
	if len(versions) == 0 {
		t.Skip("there is no python3")
	}
	t.Logf("%d stacks compared, Pythons %v", compared, versions)
}

// TestStacksChoice records a program without Python as each choice says: its
// native frames stand under its thread's name, and are named when the recording
// ends.
func TestStacksChoice(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("native frames are walked on x86-64 alone")
	}
	exe, err := filepath.EvalSymlinks(program(t, "fork"))
	if err != nil {
		t.Fatal(err)
	}
	for stacks, native := range map[string]bool{"auto": true, "native": true, "both": true, "python": false, "none": false} {
		t.Run(stacks, func(t *testing.T) {
			dir := t.TempDir()
			c := gpurec(t, dir, "run", "--simulate-gpu=1", "--stacks", stacks, "--symbolize", "1h", "-o", "t.gpurec", "--", exe)
			if status := does(t, c); status != 0 {
				t.Fatalf("status %d", status)
			}
			tr := read(t, dir+"/t.gpurec")
			allocs := 0
			for i := range tr.events {
				e := &tr.events[i]
				if e.Kind != format.Alloc || e.Layer != format.LayerDriver {
					continue
				}
				allocs++
				ids, _ := tr.defs.Walk(e.Stack, nil)
				var frames []format.Frame
				for _, id := range ids {
					f, _ := tr.defs.Frame(id)
					frames = append(frames, f)
				}
				if len(frames) == 0 || frames[0].Function != "[thread fork]" {
					t.Fatalf("its thread is not at the root of %v", frames)
				}
				main := slices.IndexFunc(frames, func(f format.Frame) bool { return f.Function == "main" })
				if native && (main < 0 || frames[main].Kind != format.FrameNative || frames[main].Module != exe || frames[main].Address == 0) {
					t.Errorf("main is not in %v", frames)
				}
				if !native && len(frames) != 1 {
					t.Errorf("there are frames: %v", frames)
				}
			}
			if allocs < 2 || tr.meta.Stats.Unresolved != 0 {
				t.Errorf("%d allocations, %d unresolved", allocs, tr.meta.Stats.Unresolved)
			}
		})
	}
}
