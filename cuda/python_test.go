package cuda

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/gpurec/gpurec/format"
)

// known are the versions whose frames the hook reads; t is a free-threaded build.
var known = []string{"3.9", "3.10", "3.11", "3.12", "3.13", "3.13t", "3.14", "3.15"}

// interpreters are the CPythons found here whose frames the hook can read, by
// version: those of pyenv, those on PATH, those that .ci/pythons unpacked, and
// those that GPUREC_PYTHONS names; an emulator's are these last alone.
func interpreters(t *testing.T) map[string]string {
	t.Helper()
	paths := filepath.SplitList(os.Getenv("GPUREC_PYTHONS"))
	if len(emulator) == 0 {
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
	}
	found := map[string]string{}
	for _, p := range paths {
		ask, _ := emulate([]string{p, "-c", "import sys, sysconfig; print(sys.executable); print('%d.%d' % sys.version_info[:2] + 't' * int(sysconfig.get_config_var('Py_GIL_DISABLED') or 0))"}, nil)
		out, err := exec.Command(ask[0], ask[1:]...).Output()
		lines := strings.Fields(string(out))
		if err == nil && len(lines) == 2 && slices.Contains(known, lines[1]) && found[lines[1]] == "" {
			found[lines[1]] = lines[0]
		}
	}
	return found
}

type pyCode struct {
	File     string `json:"file"`
	FileUnit uint8  `json:"file_unit"`
	Name     string `json:"name"`
	NameUnit uint8  `json:"name_unit"`
	First    int32  `json:"first"`
	Table    string `json:"table"`
}

// A pyStack's frames are numbers of codes, and places in them; outermost first.
type pyStack struct {
	Dropped uint32     `json:"dropped"`
	Frames  [][2]int32 `json:"frames"`
}

// A pyRecord is what the lanes say of the Python frames of allocations, which are
// known by their sizes.
type pyRecord struct {
	Codes    []pyCode           `json:"codes"`
	Recorded map[string]pyStack `json:"recorded"`
}

// stacks reads the lanes. Each must have brought the definitions its events need
// before them.
func stacks(t *testing.T, lanes []*lane) *pyRecord {
	t.Helper()
	out := &pyRecord{Recorded: map[string]pyStack{}}
	for _, l := range lanes {
		codes, known := map[uint64]int32{}, map[uint64]pyStack{}
		for _, r := range l.records {
			switch r.Kind() {
			case format.WireCode:
				d, file, name, table := r.Code()
				codes[d.Key] = int32(len(out.Codes))
				out.Codes = append(out.Codes, pyCode{File: hex.EncodeToString(file), FileUnit: d.FileUnit, Name: hex.EncodeToString(name), NameUnit: d.NameUnit,
					First: d.FirstLine, Table: hex.EncodeToString(table)})
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
					s.Frames = append(s.Frames, [2]int32{c, f.Instruction})
				}
				slices.Reverse(s.Frames)
				known[d.Hash] = s
			case format.Alloc:
				s, ok := known[r.Event().Stack]
				if !ok && r.Event().Stack != 0 {
					t.Errorf("an event came before its stack")
				}
				if r.Event().Size == 1 {
					if len(s.Frames) > 0 {
						t.Errorf("where no Python runs there is a stack of it")
					}
					continue
				}
				out.Recorded[strconv.FormatInt(r.Event().Size, 10)] = s
			}
		}
	}
	return out
}

// merged is what one or more stacks.py printed, as of one.
func merged(t *testing.T, printed string) (all struct {
	Frames []json.RawMessage `json:"frames"`
	Stacks map[string][]int  `json:"stacks"`
	Shapes map[string]int    `json:"shapes"`
}) {
	t.Helper()
	for d := json.NewDecoder(strings.NewReader(printed)); d.More(); {
		one, first := all, len(all.Frames)
		one.Frames, one.Stacks, one.Shapes = nil, nil, nil
		if err := d.Decode(&one); err != nil {
			t.Fatalf("%v of %.200q", err, printed)
		}
		if all.Stacks == nil {
			all = one
			continue
		}
		all.Frames = append(all.Frames, one.Frames...)
		for size, numbers := range one.Stacks {
			for i := range numbers {
				numbers[i] += first
			}
			all.Stacks[size] = numbers
		}
		for name, n := range one.Shapes {
			all.Shapes[name] += n
		}
	}
	return all
}

// comparePython runs a program that prints as stacks.py does, and compares by
// check_stacks.py, whose last line it returns.
func comparePython(t *testing.T, p program, python string) string {
	t.Helper()
	r := newReceiver(t)
	r.wait.Store(true)
	p.e.LaneSize = 16 << 20
	lanes, printed := p.run(t, r)
	in, err := json.Marshal(struct {
		Expected any `json:"expected"`
		*pyRecord
	}{merged(t, printed), stacks(t, lanes)})
	if err != nil {
		t.Fatal(err)
	}
	checker, _ := emulate([]string{python, "testdata/check_stacks.py"}, nil)
	check := exec.Command(checker[0], checker[1:]...)
	check.Stdin = bytes.NewReader(in)
	out, err := check.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}

// TestPythonStacks compares each frame's file, line, function and instruction
// with Python's own account at the same moment, on each CPython there is. In CI
// there are five at least. GPUREC_STACKS_SEED and GPUREC_STACKS_COUNT say which
// programs, and how many code objects come and go; of programs a 200th of that.
func TestPythonStacks(t *testing.T) {
	all := interpreters(t)
	versions := slices.SortedFunc(maps.Keys(all), func(a, b string) int { return cmp.Or(len(a)-len(b), strings.Compare(a, b)) })
	t.Logf("ran on CPython %s", strings.Join(versions, ", ")) // which .ci/gotest.py prints
	if len(all) < 5 && os.Getenv("CI") != "" {
		t.Errorf("five versions at least are to be tested")
	}
	if len(all) == 0 {
		t.Skip("no CPython 3.9 to 3.15 found: Python stacks are not tested")
	}
	number := func(name string, usual int) int {
		if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
			return n
		}
		return usual
	}
	seed, count := number("GPUREC_STACKS_SEED", 1), number("GPUREC_STACKS_COUNT", 10000)
	var said sync.Map
	t.Run("on", func(t *testing.T) {
		for _, version := range versions {
			for _, row := range []struct {
				name       string
				env, flags []string
				args       []any
			}{
				{"shapes", nil, nil, []any{"shapes", seed, count / 200}},
				{"flags", []string{"PYTHON_JIT=1"}, []string{"-OO", "-X", "importtime", "-X", "frozen_modules=off"}, []any{"shapes", seed + 1, count / 1000}},
				{"reuse", nil, nil, []any{"reuse", count}},
			} {
				t.Run(version+"/"+row.name, func(t *testing.T) {
					t.Parallel()
					args := append([]string{all[version]}, row.flags...)
					args = append(args, "testdata/stacks.py")
					for _, a := range row.args {
						args = append(args, fmt.Sprint(a))
					}
					said.Store(version+"/"+row.name, comparePython(t, program{env: row.env, args: args}, all[version]))
				})
			}
		}
	})
	for _, version := range versions {
		for _, name := range []string{"shapes", "flags", "reuse"} {
			if s, ok := said.Load(version + "/" + name); ok {
				t.Logf("%s %s: %s", version, name, s)
			}
		}
	}
}
