package cuda

import (
	"bytes"
	"encoding/hex"
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

// known are the versions whose frames the hook reads; t is a free-threaded build.
var known = []string{"3.9", "3.10", "3.11", "3.12", "3.13", "3.13t", "3.14", "3.15"}

// interpreters are the CPythons found here whose frames the hook can read, by
// version: those of pyenv, those on PATH, those that .ci/pythons unpacked, and
// those that GPUREC_PYTHONS names.
func interpreters(t *testing.T) map[string]string {
	t.Helper()
	paths := filepath.SplitList(os.Getenv("GPUREC_PYTHONS"))
	home, _ := os.UserHomeDir()
	for _, pattern := range []string{filepath.Join(home, ".pyenv/versions/3.*/bin/python3"), "../.build/pythons/usr/bin/python3.??"} {
		more, _ := filepath.Glob(pattern)
		paths = append(paths, more...)
	}
	for _, name := range append([]string{"python3"}, known...) {
		if p, err := exec.LookPath(strings.Replace(name, "3.", "python3.", 1)); err == nil {
			paths = append(paths, p)
		}
	}
	found := map[string]string{}
	for _, p := range paths {
		out, err := exec.Command(p, "-c", "import sys, sysconfig; print(sys.executable); print('%d.%d' % sys.version_info[:2] + 't' * int(sysconfig.get_config_var('Py_GIL_DISABLED') or 0))").Output()
		lines := strings.Fields(string(out))
		if err == nil && len(lines) == 2 && slices.Contains(known, lines[1]) && found[lines[1]] == "" {
			found[lines[1]] = lines[0]
		}
	}
	return found
}

type pyFrame struct {
	File        string `json:"file"`
	FileUnit    uint8  `json:"file_unit"`
	Name        string `json:"name"`
	NameUnit    uint8  `json:"name_unit"`
	First       int32  `json:"first"`
	Table       string `json:"table"`
	Instruction int32  `json:"instruction"`
}

type pyStack struct {
	Dropped uint32    `json:"dropped"`
	Frames  []pyFrame `json:"frames"`
}

// stacks joins the lanes' Allocs with the Python frames of their stacks, outermost frame first. Each
// lane must have brought the definitions its events need before them.
func stacks(t *testing.T, lanes []*lane) map[string]pyStack {
	t.Helper()
	out := map[string]pyStack{}
	for _, l := range lanes {
		codes, known := map[uint64]pyFrame{}, map[uint64]pyStack{}
		for _, r := range l.records {
			switch r.Kind() {
			case format.WireCode:
				d, file, name, table := r.Code()
				codes[d.Key] = pyFrame{File: hex.EncodeToString(file), FileUnit: d.FileUnit, Name: hex.EncodeToString(name), NameUnit: d.NameUnit,
					First: d.FirstLine, Table: hex.EncodeToString(table)}
				if d.TableBytes != d.TableTotal {
					t.Errorf("a table of %d bytes was cut to %d", d.TableTotal, d.TableBytes)
				}
			case format.WireStack:
				d, frames := r.Stack()
				s := pyStack{Dropped: d.Dropped}
				for _, f := range frames {
					if format.FrameKind(f.Kind) == format.FrameNative {
						continue
					}
					c, ok := codes[f.Code]
					if !ok {
						t.Errorf("a stack came before one of its code objects")
					}
					c.Instruction = f.Instruction
					s.Frames = append(s.Frames, c)
				}
				slices.Reverse(s.Frames)
				known[d.Hash] = s
			case format.Alloc:
				s, ok := known[r.Event().Stack]
				if !ok && r.Event().Stack != 0 {
					t.Errorf("an event came before its stack")
				}
				out[strconv.FormatUint(r.Event().Address, 10)] = s
			}
		}
	}
	return out
}

func TestPythonStacks(t *testing.T) {
	all := interpreters(t)
	if len(all) == 0 {
		t.Skip("no CPython 3.9 to 3.15 found: Python stacks are not tested")
	}
	for version, python := range all {
		// reuse: faults of other recorders that knew code objects by their addresses (E3).
		for _, mode := range []string{"kinds", "reuse"} {
			t.Run(version+"/"+mode, func(t *testing.T) {
				t.Parallel()
				r := newReceiver(t)
				lanes, printed := program{e: Environment{LaneSize: 16 << 20}, args: []string{python, "testdata/stacks.py", mode}}.run(t, r)
				recorded := stacks(t, lanes)
				if len(recorded) < 30 {
					t.Errorf("only %d allocations recorded", len(recorded))
				}
				in, err := json.Marshal(map[string]any{"expected": json.RawMessage(printed), "recorded": recorded})
				if err != nil {
					t.Fatal(err)
				}
				check := exec.Command(python, "testdata/check_stacks.py")
				check.Stdin = bytes.NewReader(in)
				out, err := check.CombinedOutput()
				if err != nil {
					t.Errorf("%v\n%s", err, out)
				}
				t.Logf("%s", out)
			})
		}
	}
}
