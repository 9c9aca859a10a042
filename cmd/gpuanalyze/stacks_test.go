package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"math/rand"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/tree"
	"github.com/gpurec/gpurec/format/formattest"
)

// stacksText is of a Python program with native frames under and between its own,
// of its thread without Python, and of a C++ program.
const stacksText = `
meta command=python command=train.py start=2026-11-30T10:00:00Z start_monotonic=1000
device 0 uuid=GPU-0 name=H200 total=100000
process 1 pid=4711 command="python train.py"
process 2 pid=4712 command="./solver"
frame 1 native "" 0 "Py_RunMain" module="/usr/bin/python3.12" address=1
frame 2 python "/home/me/train.py" 3 "<module>"
frame 3 native "" 0 "_PyEval_EvalFrameDefault" module="/usr/bin/python3.12" address=2
frame 4 python "/home/me/model.py" 8 "forward"
frame 5 native "" 0 "at::empty_cuda" module="/v/lib/python3.12/site-packages/torch/lib/libtorch_cuda.so" address=3
frame 6 native "" 0 "" module="/v/lib/python3.12/site-packages/torch/lib/libc10_cuda.so" build_id=ab address=4660
frame 7 thread "" 0 "[thread pt_autograd_0]"
frame 8 native "" 0 "start_thread" module="/lib/x86_64-linux-gnu/libc.so.6" address=5
frame 9 native "" 0 "__libc_start_call_main" module="/lib/x86_64-linux-gnu/libc.so.6" address=6
frame 10 native "/home/me/solver.cu" 40 "main" module="/home/me/solver" address=7
frame 11 native "/home/me/grid.h" 12 "Grid::Grid" module="/home/me/solver" address=8
frame 12 native "" 0 "" module="/usr/lib/libcuda.so.1" address=9
stack 11 0 1
stack 12 11 2
stack 13 12 3
stack 14 13 4
stack 15 14 5
stack 16 15 6
stack 21 0 7
stack 22 21 8
stack 23 22 5
stack 24 23 6
stack 31 0 9
stack 32 31 10
stack 33 32 11
stack 34 33 12
part
1000000 Alloc process=1 thread=7 api=torch device=0 address=0x1000 size=4096 stack=16
1100000 Alloc process=1 thread=8 api=torch device=0 address=0x3000 size=1024 stack=24
1200000 Alloc process=2 thread=9 api=cuMemAlloc_v2 device=0 address=0x9000 size=512 stack=34
1300000 Alloc process=1 thread=8 api=torch device=0 address=0x5000 size=64 stack=22
1400000 AllocFailed process=1 thread=7 api=torch device=0 requested=90000 status=2 stack=16
9000000 ProcessEnd process=1 status=1
9100000 ProcessEnd process=2 status=0
`

func TestStackViews(t *testing.T) {
	dir := formattest.Text(t, stacksText).Path()
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"auto", nil, `
_root (5.56KB, 512.00B)
  train.py:3:<module> (4.00KB, 0.00B)
    model.py:8:forward (4.00KB, 0.00B)
  [thread pt_autograd_0] (1.06KB, 0.00B)
    libtorch_cuda.so:at::empty_cuda (1.00KB, 0.00B)
      libc10_cuda.so+0x1234 (1.00KB, 0.00B)
    libc.so.6:start_thread (64.00B, 0.00B)
  solver.cu:40:main (512.00B, 512.00B)
    grid.h:12:Grid::Grid (512.00B, 512.00B)
`},
		{"both", []string{"--stacks", "both", "--process", "4711"}, `
_root (5.06KB, 0.00B)
  train.py:3:<module> (4.00KB, 0.00B)
    model.py:8:forward (4.00KB, 0.00B)
      libtorch_cuda.so:at::empty_cuda (4.00KB, 0.00B)
        libc10_cuda.so+0x1234 (4.00KB, 0.00B)
  [thread pt_autograd_0] (1.06KB, 0.00B)
    libtorch_cuda.so:at::empty_cuda (1.00KB, 0.00B)
      libc10_cuda.so+0x1234 (1.00KB, 0.00B)
    libc.so.6:start_thread (64.00B, 0.00B)
`},
		{"all frames", []string{"--stacks", "both", "--all-frames", "--process", "4712"}, `
_root (512.00B, 512.00B)
  libc.so.6:__libc_start_call_main (512.00B, 512.00B)
    solver.cu:40:main (512.00B, 512.00B)
      grid.h:12:Grid::Grid (512.00B, 512.00B)
        libcuda.so.1+0x9 (512.00B, 512.00B)
`},
		{"python", []string{"--stacks", "python"}, `
_root (5.56KB, 512.00B)
  train.py:3:<module> (4.00KB, 0.00B)
    model.py:8:forward (4.00KB, 0.00B)
  [thread pt_autograd_0] (1.06KB, 0.00B)
    [no python frame] (1.06KB, 0.00B)
  [no python frame] (512.00B, 512.00B)
`},
		{"native", []string{"--stacks", "native", "--hide", "libc10*", "--hide", "main"}, `
_root (5.56KB, 512.00B)
  libtorch_cuda.so:at::empty_cuda (4.00KB, 0.00B)
  [thread pt_autograd_0] (1.06KB, 0.00B)
    libtorch_cuda.so:at::empty_cuda (1.00KB, 0.00B)
    libc.so.6:start_thread (64.00B, 0.00B)
  grid.h:12:Grid::Grid (512.00B, 512.00B)
`},
		{"focus", []string{"--stacks", "both", "--focus", "*.py", "--focus", "at::*"}, `
_root (5.56KB, 512.00B)
  train.py:3:<module> (4.00KB, 0.00B)
    model.py:8:forward (4.00KB, 0.00B)
      libtorch_cuda.so:at::empty_cuda (4.00KB, 0.00B)
  [thread pt_autograd_0] (1.06KB, 0.00B)
    libtorch_cuda.so:at::empty_cuda (1.00KB, 0.00B)
    [out of focus] (64.00B, 0.00B)
  [out of focus] (512.00B, 512.00B)
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, out, stderr := command1(t, append([]string{"lines", "--at", "end", dir}, c.args...)...)
			if code != 0 {
				t.Fatalf("exit %d\n%s", code, stderr)
			}
			if out != c.want[1:] {
				t.Errorf("it is\n%s", out)
			}
			// What a view hides is known all the same. 64 bytes have no more than their thread's start.
			if want := "no line is known for 1088 bytes used"; !strings.Contains(stderr, want) && c.name != "all frames" {
				t.Errorf("stderr lacks %q: %s", want, stderr)
			}
			if want := "; the function is, for 1024 and 0 of them"; !strings.Contains(stderr, want) && c.name != "all frames" {
				t.Errorf("stderr lacks %q: %s", want, stderr)
			}
		})
	}
}

// TestEveryAnswerHasViews asks every answer that prints lines for Python's frames
// and for native ones.
func TestEveryAnswerHasViews(t *testing.T) {
	dir := formattest.Text(t, stacksText).Path()
	out := t.TempDir()
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(out, name))
		if err != nil {
			t.Fatal(err)
		}
		if z, err := gzip.NewReader(bytes.NewReader(b)); err == nil {
			b, err = io.ReadAll(z)
			if err != nil {
				t.Fatal(err)
			}
		}
		return string(b)
	}
	for _, c := range []struct {
		args []string
		file string // that the answer is in
	}{
		{args: []string{"lines"}},
		{args: []string{"lines", "--at", "peak", "--json"}},
		{args: []string{"peak"}},
		{args: []string{"peak", "--by", "function"}},
		{args: []string{"leaks"}},
		{args: []string{"oom"}},
		{args: []string{"diff", "--a", "process:4711", "--b", "process:4712"}},
		{args: []string{"stats"}},
		{args: []string{"timeline", "--by", "line"}},
		{args: []string{"summary"}},
		{args: []string{"export", "--to", "folded", "-o", "-"}},
		{args: []string{"export", "--to", "pprof", "-o", out + "/PROFILE"}, file: "PROFILE"},
		{args: []string{"export", "--to", "speedscope", "-o", out + "/SPEEDSCOPE"}, file: "SPEEDSCOPE"},
		{args: []string{"export", "--to", "csv", "-o", out + "/CSV"}, file: "CSV/events.csv"},
		{args: []string{"report", "-o", out + "/REPORT"}, file: "REPORT"},
	} {
		t.Run(strings.Join(c.args[:min(3, len(c.args))], " "), func(t *testing.T) {
			for _, v := range []struct{ stacks, with, without string }{{"python", "model.py", "at::empty_cuda"}, {"native", "at::empty_cuda", "model.py"}} {
				args := append(append([]string(nil), c.args...), "--stacks", v.stacks, "--hide", "libc10*", dir)
				for i := range args {
					for _, name := range []string{"PROFILE", "SPEEDSCOPE", "CSV", "REPORT"} {
						args[i] = strings.Replace(args[i], "/"+name, "/"+v.stacks+name, 1)
					}
				}
				code, text, stderr := command1(t, args...)
				if code != 0 && code != exitGate {
					t.Fatalf("exit %d\n%s", code, stderr)
				}
				if c.file != "" {
					text = read(v.stacks + c.file)
				}
				if !strings.Contains(text, v.with) || strings.Contains(text, v.without) {
					t.Errorf("--stacks %s: want %s and not %s in\n%.3000s", v.stacks, v.with, v.without, text)
				}
			}
		})
	}
	for _, c := range [][]string{{"--stacks", "all"}, {"--stacks", "recorded"}, {"--hide", ""}, {"--focus", ""}} {
		if code, _, stderr := command1(t, append([]string{"lines", dir}, c...)...); code != exitUsage {
			t.Errorf("%q: exit %d, %s", c, code, stderr)
		}
	}
}

// Folded stacks name native frames as lines does.
func TestFoldedNative(t *testing.T) {
	code, out, stderr := command1(t, "export", "--to", "folded", "-o", "-", "--stacks", "both", "--process", "4711", formattest.Text(t, stacksText).Path())
	if want := "/home/me/model.py:8:forward;libtorch_cuda.so:at::empty_cuda;libc10_cuda.so+0x1234 4096\n"; code != 0 || !strings.Contains(out, want) {
		t.Errorf("exit %d, no %q in\n%s%s", code, want, out, stderr)
	}
}

// randomStacks is a trace of random stacks of all kinds of frames, their middles
// and ends as a cut stack may have them too.
func randomStacks(seed int64) string {
	r := rand.New(rand.NewSource(seed))
	var b strings.Builder
	b.WriteString("process 1 pid=1 command=./app executable=/home/me/app\nprocess 2 pid=2 command=\"python train.py\" executable=/usr/bin/python3.12 python=3.12.1\n")
	frames := []string{
		`thread "" 0 "[thread app]"`, `thread "" 0 "[thread loader]"`, `label "" 0 "[7 outer frames left out]"`,
		`native "" 0 "_start" module="/home/me/app"`, `native "" 0 "start_thread" module="/lib/libc.so.6"`, `native "" 0 "" module="/lib/libc.so.6" address=7`,
		`native "/home/me/app.cc" 5 "main" module="/home/me/app"`, `native "" 0 "Model::forward" module="/home/me/app"`, `native "" 0 "" module="/home/me/app" address=77`,
		`native "/usr/include/c++/12/future" 9 "std::async" module="/home/me/app"`, `native "" 0 "std::function<void()>::operator()" module="/home/me/app"`,
		`native "" 0 "cudaMalloc" module="/usr/lib/libcudart.so.12"`, `native "" 0 "" module="/usr/lib/libcuda.so.1" address=9`,
		`native "" 0 "_PyEval_EvalFrameDefault" module="/usr/bin/python3.12"`,
		`python "<frozen runpy>" 88 "_run_code"`, `python "/usr/lib/python3.12/threading.py" 1030 "_bootstrap"`, `python "/v/bin/pytest" 8 "<module>"`,
		`python "/v/site-packages/_pytest/python.py" 3 "call"`, `python "/home/me/train.py" 3 "<module>"`, `python "/home/me/model.py" 7 "forward"`,
		`go "/home/me/main.go" 5 "main.main"`,
	}
	for i, f := range frames {
		fmt.Fprintf(&b, "frame %d %s\n", i+1, f)
	}
	const stacks = 60
	for i := 1; i <= stacks; i++ {
		fmt.Fprintf(&b, "stack %d %d %d\n", i, r.Intn(i), 1+r.Intn(len(frames)))
	}
	b.WriteString("part\n")
	for i := 1; i <= 200; i++ {
		process, api := 1, "cuMemAlloc_v2"
		if r.Intn(2) == 0 {
			process, api = 2, []string{"torch", "cuMemAlloc_v2"}[r.Intn(2)]
		}
		fmt.Fprintf(&b, "%d Alloc process=%d thread=%d api=%s device=0 address=%#x size=%d stack=%d\n", 1000*i, process, process, api, i<<20, 1+r.Intn(9999), r.Intn(stacks+1))
		if r.Intn(3) == 0 {
			fmt.Fprintf(&b, "%d Free process=%d thread=%d api=%s address=%#x\n", 1000*i+500, process, process, strings.Replace(api, "Alloc", "Free", 1), i<<20)
		}
	}
	return b.String()
}

// TestViewsKeepTotals asks for the same of random traces in every view: the sums
// of every answer are the same, and so is of how much no line is known; a tree's
// node has what its children have at least, a flat table and folded stacks add up.
func TestViewsKeepTotals(t *testing.T) {
	views := [][]string{nil, {"--stacks", "python"}, {"--stacks", "native"}, {"--stacks", "both"}, {"--all-frames"}, {"--stacks", "both", "--all-frames"},
		{"--hide", "*.py"}, {"--hide", "*"}, {"--focus", "*.cc"}, {"--focus", "nothing"}, {"--stacks", "native", "--hide", "main", "--focus", "*app*", "--all-frames"}}
	for seed := range int64(4) {
		dir := formattest.Text(t, randomStacks(seed)).Path()
		for _, c := range []struct {
			args  []string
			total func(out string) (string, error)
		}{
			{[]string{"lines", "--json"}, linesTotal},
			{[]string{"lines", "--json", "--at", "peak"}, linesTotal},
			{[]string{"lines", "--json", "--at", "end"}, linesTotal},
			{[]string{"lines", "--json", "--at", "100us"}, linesTotal},
			{[]string{"export", "--to", "folded", "-o", "-"}, foldedTotal},
		} {
			var first string
			for i, v := range views {
				args := append(append([]string(nil), c.args...), v...)
				code, out, stderr := command1(t, append(args, dir)...)
				if code != 0 {
					t.Fatalf("%q: exit %d\n%s", args, code, stderr)
				}
				total, err := c.total(out)
				if err != nil {
					t.Fatalf("seed %d, %q: %v", seed, args, err)
				}
				if i == 0 {
					first = total
				}
				if total != first || total == "" {
					t.Errorf("seed %d, %q: the total is %s, without a view's flags %s", seed, args, total, first)
				}
			}
		}
	}
}

// linesTotal is the roots and what is said of lines, of a tree that adds up.
func linesTotal(out string) (string, error) {
	var r struct {
		Trees []struct {
			Used, Acquired int64
			Tree           *tree.Node
		}
		NoLine json.RawMessage `json:"without_line"`
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		return "", err
	}
	var total string
	for _, t := range r.Trees {
		if t.Tree.Used != t.Used || t.Tree.Acquired != t.Acquired {
			return "", fmt.Errorf("the root has %d and %d, the tree %d and %d", t.Tree.Used, t.Tree.Acquired, t.Used, t.Acquired)
		}
		if err := addsUp(t.Tree); err != nil {
			return "", err
		}
		total += fmt.Sprintln(t.Used, t.Acquired)
	}
	return total + string(r.NoLine), nil
}

func addsUp(n *tree.Node) error {
	used, acquired := int64(0), int64(0)
	for _, c := range n.Children {
		used += c.Used
		acquired += c.Acquired
		if err := addsUp(c); err != nil {
			return err
		}
	}
	if used > n.Used || acquired > n.Acquired {
		return fmt.Errorf("%s:%d:%s has less than what it calls", n.File, n.Line, n.Function)
	}
	return nil
}

func foldedTotal(out string) (string, error) {
	total := int64(0)
	for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
		n, err := strconv.ParseInt(line[strings.LastIndexByte(line, ' ')+1:], 10, 64)
		if err != nil {
			return "", err
		}
		total += n
	}
	return fmt.Sprint(total), nil
}
