package cuda

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
)

// A nativeStack is what the lanes say of one allocation, innermost frame first,
// each native one as PATH:ADDRESS in its file.
type nativeStack struct {
	frames  []string
	at      []uint64 // in memory, of a caller its call's last byte
	dropped uint32
}

// nativeStacks joins the lanes' Allocs with their stacks by address. Each lane
// must have brought the definitions its events need before them.
func nativeStacks(t *testing.T, lanes []*lane) (stacks map[string][]nativeStack, builds map[string]string) {
	t.Helper()
	stacks, builds = map[string][]nativeStack{}, map[string]string{}
	for _, l := range lanes {
		biases := map[uint32]uint64{}
		modules, codes, known := map[uint32]string{}, map[uint64]string{}, map[uint64]nativeStack{}
		for _, r := range l.records {
			switch r.Kind() {
			case format.WireModule:
				d, id, path := r.Module()
				if name, ok := modules[d.Number]; ok && name != string(path) {
					t.Errorf("module %d is %s and %s", d.Number, name, path)
				}
				modules[d.Number], biases[d.Number] = string(path), d.Bias
				builds[string(path)] = hex.EncodeToString(id)
			case format.WireCode:
				d, file, name, _ := r.Code()
				codes[d.Key] = filepath.Base(string(file)) + ":" + string(name)
			case format.WireStack:
				d, frames := r.Stack()
				s := nativeStack{dropped: d.Dropped}
				for _, f := range frames {
					of, ok := modules[uint32(f.Instruction)]
					ok = ok || f.Instruction == 0 // where native frames are cut
					text := fmt.Sprintf("%s:%x", of, f.Code)
					if format.FrameKind(f.Kind) == format.FramePython {
						of, ok = codes[f.Code]
						text = of
					}
					if !ok {
						t.Errorf("a stack came before what its frame %#x is of", f.Code)
					}
					s.frames = append(s.frames, text)
					s.at = append(s.at, f.Code+biases[uint32(f.Instruction)])
				}
				known[d.Hash] = s
			case format.Alloc:
				s, ok := known[r.Event().Stack]
				if !ok {
					t.Errorf("an event came before its stack, or without one")
				}
				address := strconv.FormatUint(r.Event().Address, 10)
				stacks[address] = append(stacks[address], s)
			}
		}
	}
	return stacks, builds
}

// compilePlus compiles a C++ program, and a library in C.
func compilePlus(t *testing.T, out string, args ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), out)
	with := "c++"
	if cxx := os.Getenv("CXX"); cxx != "" {
		with = cxx
	}
	if strings.HasSuffix(out, ".so") {
		with, args = compiler(), append([]string{"-shared", "-fPIC"}, args...)
	} else {
		args = append([]string{"-std=gnu++20", "-Wall", "-Wextra", "-Werror"}, append(args, "-ldl", "-lpthread")...)
	}
	if b, err := exec.Command(with, append([]string{"-o", path}, args...)...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", with, strings.Join(args, " "), err, b)
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		t.Fatal(err)
	}
	return real
}

// TestNativeStacks compares each recorded stack, frame by frame, with what the
// compiler's own unwinder saw at the same moment.
func TestNativeStacks(t *testing.T) {
	const source = "testdata/unwind.cpp"
	o2 := []string{source, "-O2", "-fomit-frame-pointer"}
	optimised := compilePlus(t, "optimised", o2...)
	native := "-march=native"
	if arch() == "arm64" {
		native = "-mbranch-protection=standard" // return addresses are signed
	}
	one := compilePlus(t, "one.so", "-O2", "testdata/through.c")
	two := compilePlus(t, "two.so", "-O2", "-DN=9", "testdata/through.c")
	for _, row := range []struct {
		name  string
		flags []string
		args  []string
		want  int
	}{
		{"optimised", nil, []string{"random", "1000"}, 1000},
		{"stripped", []string{source, "-O3", native, "-s", "-no-pie"}, []string{"random", "300"}, 300},
		{"frame pointers", []string{source, "-O1", "-fno-omit-frame-pointer"}, []string{"random", "300"}, 300},
		{"no build id", append(o2, "-Wl,--build-id=none"), []string{"random", "100"}, 100},
		{"threads", nil, []string{"threads"}, 800},
		{"signals", nil, []string{"signals"}, 8},
		{"exceptions", nil, []string{"exceptions"}, 7},
		{"coroutine", nil, []string{"coroutine"}, 5},
		{"dlclose", nil, []string{"closing", one}, 1100},
		{"twins", nil, []string{"twins", one, two}, 10},
		{"copies forbidden", nil, []string{"forbid", "random", "100", "signals", "coroutine", "closing", one}, 100 + 8 + 5 + 1100},
		{"copies kill", nil, []string{"kill", "random", "100", "signals", "coroutine", "closing", one}, 100 + 8 + 5 + 1100},
		{"forks", nil, []string{"random", "20", "forks", "random", "20"}, 60},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			if len(emulator) > 0 && strings.HasPrefix(row.name, "copies") {
				t.Skip("the emulator makes no sandbox")
			}
			exe := optimised
			if row.flags != nil {
				exe = compilePlus(t, "program", row.flags...)
			}
			r := newReceiver(t)
			r.wait.Store(true)
			lanes, printed := program{e: Environment{Stacks: "auto", MaxFrames: 512, LaneSize: 16 << 20}, args: append([]string{exe}, row.args...)}.run(t, r)
			recorded, builds := nativeStacks(t, lanes)
			compared := 0
			for line := range strings.Lines(printed) {
				words := strings.Split(strings.TrimSpace(line), "\t")
				of := recorded[words[1]]
				if len(of) == 0 {
					t.Fatalf("the allocation at %s was not recorded", words[1])
				}
				// Of the function that asked both, and in a child of what it asked through, the calls differ.
				same := func(s nativeStack) bool {
					inner := len(s.frames) - (len(words) - 2)
					return s.dropped == 0 && (inner == 1 || inner == 2 && words[0] == "forks") && strings.HasPrefix(s.frames[0], exe+":") && slices.Equal(s.frames[inner:], words[2:])
				}
				if !slices.ContainsFunc(of, same) {
					t.Fatalf("%s: recorded, %d left out\n%s\nthe compiler's unwinder saw\n%s", words[0], of[0].dropped,
						strings.Join(of[0].frames, "\n"), strings.Join(words[2:], "\n"))
				}
				compared++
			}
			if compared != row.want {
				t.Errorf("%d stacks compared, %d wanted", compared, row.want)
			}
			if id := builds[exe]; (id == "") != (row.name == "no build id") {
				t.Errorf("its build id is %q", id)
			}
		})
	}
}

// What cannot be walked is cut, and says so.
func TestNativeStacksCut(t *testing.T) {
	program1 := compilePlus(t, "unwind", "testdata/unwind.cpp", "-O2")
	without := []string{"-O2", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"}
	bare := compilePlus(t, "bare.so", append(without, "-fomit-frame-pointer", "testdata/through.c")...)
	run := func(frames int, args ...string) []nativeStack {
		r := newReceiver(t)
		lanes, printed := program{e: Environment{Stacks: "auto", MaxFrames: frames}, args: append([]string{program1}, args...)}.run(t, r)
		recorded, _ := nativeStacks(t, lanes)
		return recorded[strings.Fields(printed)[1]]
	}
	t.Run("deep", func(t *testing.T) {
		s := run(100, "deep")[0]
		// point, 901 of recurse, main, two of the start, _start
		if len(s.frames) != 100 || s.dropped != 906-100 {
			t.Errorf("%d frames, %d left out", len(s.frames), s.dropped)
		}
	})
	for _, how := range []string{"pointer", "file", "blind"} {
		t.Run("made code, "+how, func(t *testing.T) {
			s := run(0, "made", how)[0]
			from := slices.IndexFunc(s.frames, func(f string) bool { return strings.HasPrefix(f, "[anon]:") })
			if from != 2 || !strings.HasPrefix(s.frames[1], program1+":") {
				t.Fatalf("%q", s.frames)
			}
			whole := s.dropped == 0 && len(s.frames) >= 7 && strings.HasPrefix(s.frames[3], program1+":") && strings.HasPrefix(s.frames[len(s.frames)-1], program1+":")
			cut := s.dropped > 0 && len(s.frames) == 3
			if how == "blind" && !cut || how != "blind" && !whole {
				t.Errorf("%d left out of %q", s.dropped, s.frames)
			}
		})
	}
	for _, row := range []struct {
		odd, name string
		whole     bool
	}{
		{"1", "a length that leads back", false},
		{"2", "a signal's frame that is no kernel's", true},
		{"3", "an expression", true},
	} {
		t.Run("tables with "+row.name, func(t *testing.T) {
			odd := compilePlus(t, "odd.so", "-DODD="+row.odd, "testdata/oddtables.c")
			if row.odd == "1" {
				b, err := os.ReadFile(odd)
				was, is := []byte("\x0f\x09\x77\x10\x96\x96\x96\x96\x96\x96\x96"), []byte("\x0f\xf5\xff\xff\xff\xff\xff\xff\xff\xff\x01")
				if err != nil || bytes.Count(b, was) != 1 {
					t.Fatalf("%v, %d tables to be damaged", err, bytes.Count(b, was))
				}
				if err := os.WriteFile(odd, bytes.Replace(b, was, is, 1), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			s := run(0, "odd", odd)[0]
			if len(s.frames) < 2 || !strings.HasPrefix(s.frames[1], odd+":") {
				t.Fatalf("%q", s.frames)
			}
			whole := s.dropped == 0 && len(s.frames) >= 7 && strings.HasPrefix(s.frames[2], program1+":") && strings.HasPrefix(s.frames[len(s.frames)-1], program1+":")
			cut := s.dropped > 0 && len(s.frames) == 2
			if row.whole && !whole && !cut || !row.whole && !cut {
				t.Errorf("%d left out of %q", s.dropped, s.frames)
			}
		})
	}
	t.Run("no tables, a frame's record", func(t *testing.T) {
		if arch() != "arm64" {
			t.Skip("only aarch64's compilers make one unasked")
		}
		s := run(0, "bare", compilePlus(t, "records.so", append(without, "-fno-omit-frame-pointer", "testdata/through.c")...))[0]
		if len(s.frames) < 7 || s.dropped != 0 || !strings.Contains(s.frames[2], "records.so:") || !strings.HasPrefix(s.frames[3], program1+":") || !strings.HasPrefix(s.frames[len(s.frames)-1], program1+":") {
			t.Errorf("%d left out of %q", s.dropped, s.frames)
		}
	})
	t.Run("no tables", func(t *testing.T) {
		s := run(0, "bare", bare)[0]
		if len(s.frames) != 2 || s.dropped == 0 || !strings.HasPrefix(s.frames[1], bare+":") {
			t.Errorf("%d left out of %q", s.dropped, s.frames)
		}
	})
}

// TestMergedStacks compares the order of Python's frames and a C library's
// between them with the order of the calls, on each CPython there is.
func TestMergedStacks(t *testing.T) {
	all := interpreters(t)
	if len(all) == 0 {
		t.Skip("there is no CPython 3.9 to 3.15")
	}
	library := compilePlus(t, "through.so", "-O2", "testdata/through.c")
	for version, python := range all {
		for _, words := range []string{"auto", "both"} {
			t.Run(version+"/"+words, func(t *testing.T) {
				t.Parallel()
				r := newReceiver(t)
				r.wait.Store(true)
				e := Environment{Stacks: words, MaxFrames: 512, LaneSize: 16 << 20}
				lanes, printed := program{e: e, args: []string{python, "testdata/merged.py", library}}.run(t, r)
				recorded, _ := nativeStacks(t, lanes)
				compared := 0
				for line := range strings.Lines(printed) {
					want := strings.Split(strings.TrimSpace(line), "\t")
					s := recorded[want[0]][0]
					var got []string
					for _, frame := range s.frames {
						if strings.HasPrefix(frame, library+":") {
							frame = "through"
						} else if frame == ":0" {
							t.Fatalf("cut: %s", strings.Join(s.frames, "\n"))
						} else if strings.HasPrefix(frame, "/") || strings.HasPrefix(frame, "[") {
							continue
						}
						if len(got) == 0 || frame != "through" || got[len(got)-1] != "through" {
							got = append(got, frame)
						}
					}
					if !slices.Equal(got, want[1:]) {
						t.Fatalf("%d left out of\n%s\nas is\n%s\nwanted\n%s", s.dropped, strings.Join(s.frames, "\n"), strings.Join(got, "\n"), strings.Join(want[1:], "\n"))
					}
					if s.dropped != 0 {
						t.Fatalf("%d left out of\n%s", s.dropped, strings.Join(s.frames, "\n"))
					}
					compared++
				}
				if compared < 200 {
					t.Errorf("%d stacks compared", compared)
				}
			})
		}
	}
}

// TestNativeStacksGDB compares with what a debugger sees at the same moments.
func TestNativeStacksGDB(t *testing.T) {
	gdb, err := exec.LookPath("gdb")
	if err != nil || arch() != "amd64" {
		t.Skip("there is no gdb, or this is no x86-64")
	}
	exe := compilePlus(t, "unwind", "testdata/unwind.cpp", "-O2", "-fomit-frame-pointer")
	// print, which prints the address in rsi, is called where the allocation is made.
	script := `set pagination off
set startup-with-shell off
set breakpoint pending on
set backtrace past-main on
break print
commands
silent
printf "ADDRESS %lu\n", $rsi
bt
continue
end
run random 30 exceptions
`
	path := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(path, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	r := newReceiver(t)
	r.wait.Store(true)
	p := program{e: Environment{Stacks: "auto", MaxFrames: 512}, args: []string{gdb, "-nx", "-batch", "-x", path, exe}}
	lanes, printed := p.run(t, r)
	recorded, _ := nativeStacks(t, lanes)
	compared := 0
	for _, stop := range strings.Split(printed, "ADDRESS ")[1:] {
		address, rest, _ := strings.Cut(stop, "\n")
		var want []uint64
		for line := range strings.Lines(rest) {
			var n int
			var at uint64
			if _, err := fmt.Sscanf(line, "#%d 0x%x in ", &n, &at); err == nil && n >= 2 {
				want = append(want, at-1)
			}
		}
		if len(recorded[address]) == 0 || len(want) < 4 {
			t.Fatalf("of %s there is nothing to compare\n%s", address, rest)
		}
		if s := recorded[address][0]; !slices.Equal(s.at[1:], want) {
			t.Errorf("%x\n%q\ngdb says\n%s", s.at, s.frames, rest)
		}
		compared++
	}
	if compared != 37 {
		t.Errorf("%d stacks compared\n%s", compared, printed)
	}
}
