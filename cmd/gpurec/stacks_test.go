package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
)

// pythons are the interpreters to try: the one in PATH, what pyenv has and what
// .ci/pythons unpacked.
func pythons() (found []string) {
	if p, err := exec.LookPath("python3"); err == nil {
		found = append(found, p)
	}
	home, _ := os.UserHomeDir()
	for _, pattern := range []string{home + "/.pyenv/versions/3.*/bin/python3", "../../.build/pythons/usr/bin/python3.??"} {
		more, _ := filepath.Glob(pattern)
		for _, p := range more {
			if p, err := filepath.Abs(p); err == nil {
				found = append(found, p)
			}
		}
	}
	return found
}

// asRecorded is a text of Python's as a trace has it: cut to so many bytes of its
// widest character, and U+FFFD where a byte of a file's name was none.
func asRecorded(s string) string {
	r, unit := []rune(s), 1
	for _, c := range r {
		if c > 0xffff {
			unit = 4
		} else if c > 0xff {
			unit = max(unit, 2)
		}
	}
	return string(r[:min(len(r), format.MaxNameBytes/unit)])
}

// TestPythonStacks records programs of all shapes of frames, and compares every
// stack of the trace with what Python itself saw at the same allocation: files,
// lines, functions. cuda's test of that name compares what the hook sends.
func TestPythonStacks(t *testing.T) {
	script, err := filepath.Abs("../../cuda/testdata/stacks.py")
	if err != nil {
		t.Fatal(err)
	}
	compared, versions := 0, map[string]bool{}
	for _, python := range pythons() {
		out, err := exec.Command(python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])").Output()
		version := strings.TrimSpace(string(out))
		if err != nil || versions[version] || len(version) < 4 && version != "3.9" { // of 3.8 and before the hook reads no frames
			continue
		}
		versions[version] = true
		t.Run(version, func(t *testing.T) {
			dir := t.TempDir()
			c := gpurec(t, dir, "run", "--simulate-gpu=1", "--on-full", "wait", "--sample-interval", "0", "-o", "t.gpurec", "--", python, script, "shapes", "11", "0")
			var said bytes.Buffer
			c.Stdout, c.Stderr = &said, os.Stderr
			if status := does(t, c); status != 0 {
				t.Fatalf("status %d", status)
			}
			var python struct {
				Frames [][4]any
				Stacks map[string][]int
			}
			if err := json.Unmarshal(said.Bytes(), &python); err != nil {
				t.Fatal(err)
			}
			tr := read(t, dir+"/t.gpurec")
			stacks := map[string]format.StackID{}
			for i := range tr.events {
				if e := &tr.events[i]; e.Kind == format.Alloc && e.Layer == format.LayerDriver {
					stacks[strconv.FormatInt(int64(e.Size), 10)] = e.Stack
				}
			}
			for size, numbers := range python.Stacks {
				want := make([]string, len(numbers))
				for i, n := range numbers {
					f, line := python.Frames[n], "None"
					if f[1] != nil {
						line = strconv.Itoa(int(f[1].(float64)))
					}
					want[i] = asRecorded(f[0].(string)) + ":" + line + ":" + asRecorded(f[2].(string))
				}
				var got []string
				cut := ""
				frames, _ := tr.defs.Walk(stacks[size], nil)
				for i := len(frames) - 1; i >= 0; i-- {
					f, _ := tr.defs.Frame(frames[i])
					if f.Kind == format.FrameLabel {
						cut = f.Function
					}
					if f.Kind != format.FrameNative && f.Kind != format.FrameLabel {
						got = append(got, f.String())
					}
				}
				slices.Reverse(want) // innermost first: what is left out is at the other end
				if out := len(want) - len(got); out > 0 && len(got) > 60 && cut == format.CutLabel(uint32(out)) {
					want, cut = want[:len(got)], ""
				}
				if cut != "" {
					t.Fatalf("%s has %q: %d frames recorded, Python saw %d", size, cut, len(got), len(want))
				}
				if !slices.Equal(got, want) {
					t.Fatalf("%s recorded as\n%.3000s\nPython saw\n%.3000s", size, strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
				compared++
			}
			if tr.meta.Stats.Unresolved != 0 {
				t.Errorf("%d unresolved", tr.meta.Stats.Unresolved)
			}
		})
	}
	if len(versions) == 0 {
		t.Skip("there is no python3 that the hook reads frames of")
	}
	t.Logf("%d stacks compared, Pythons %v", compared, versions)
}

// TestStacksChoice records a program without Python as each choice says: its
// native frames stand under its thread's name, and are named when the recording
// ends.
func TestStacksChoice(t *testing.T) {
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
