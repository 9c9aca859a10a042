package lines

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/formattest"
)

func ask(t *testing.T, traces []*format.Trace, at At, depth int, q *analyze.Query) *Report {
	t.Helper()
	var paths []string
	for _, tr := range traces {
		paths = append(paths, tr.Path())
	}
	a := New(at, depth, len(paths))
	c, err := analyze.Run(context.Background(), paths, q, a, nil)
	if err != nil {
		t.Fatal(err)
	}
	return a.Report(c)
}

func text(t *testing.T, r *Report) string {
	t.Helper()
	var b bytes.Buffer
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func file(t *testing.T, name string) *format.Trace {
	return formattest.File(t, "testdata/"+name+".txt")
}

const (
	fullA = `_root (4.50KB, 3.00KB)
  /app/main.py:42:<module> (4.50KB, 3.00KB)
    /app/train.py:10:train (4.00KB, 3.00KB)
      /app/net.py:7:forward (2.00KB, 1.00KB)
      /app/net.py:9:forward (2.00KB, 2.00KB)
    /app/train.py:12:train (512.00B, 0.00B)
`
	depth3A = `_root (4.50KB, 3.00KB)
  /app/main.py:42:<module> (4.50KB, 3.00KB)
    /app/train.py:10:train (4.00KB, 3.00KB)
    /app/train.py:12:train (512.00B, 0.00B)
`
	fullB = `_root (3.00GB, 9.00GB)
  /app/main.py:42:<module> (3.00GB, 9.00GB)
    /app/train.py:10:train (3.00GB, 9.00GB)
      /app/train.py:10:train (1.00MB, 1.00MB)
    /app/train.py:12:train (1.00MB, 0.00B)
  /usr/lib/python3.11/threading.py:1002:_bootstrap (512.00KB, 0.00B)
    /app/net.py:9:forward (512.00KB, 0.00B)
`
	fullC = `_root (2.50KB, 0.00B)
  a.py:1:<module> (1.50KB, 0.00B)
    a.py:3:y (1.00KB, 0.00B)
    a.py:2:x (512.00B, 0.00B)
  a.py:2:x (512.00B, 0.00B)
`
)

// head is the first n lines.
func head(s string, n int) string {
	l := strings.SplitAfter(s, "\n")
	return strings.Join(l[:n], "")
}

// The texts of spec/semantics.md §2.4 to §2.6, from the driver's events and
// from CuPy's own reports inside its scope.
func TestSequences(t *testing.T) {
	cupyScope := &analyze.Query{Scopes: []analyze.ScopeRef{{Name: "LineProfileHook"}}}
	for _, row := range []struct {
		trace string
		depth int
		q     *analyze.Query
		want  string
	}{
		{"a", 0, nil, fullA},
		{"a", -1, nil, fullA},
		{"a", 4, nil, fullA},
		{"a", 5, nil, fullA},
		{"a", 1, nil, head(fullA, 1)},
		{"a", 2, nil, head(fullA, 2)},
		{"a", 3, nil, depth3A},
		{"a", 0, cupyScope, fullA},
		{"a", 3, cupyScope, depth3A},
		{"b", 0, nil, fullB},
		{"b", 0, cupyScope, fullB},
		{"b", 0, &analyze.Query{Scopes: []analyze.ScopeRef{{ID: 2}}}, `_root (512.00KB, 0.00B)
  /usr/lib/python3.11/threading.py:1002:_bootstrap (512.00KB, 0.00B)
    /app/net.py:9:forward (512.00KB, 0.00B)
`},
		{"b", 1, nil, head(fullB, 1)},
		{"b", 2, nil, head(fullB, 2) + "  /usr/lib/python3.11/threading.py:1002:_bootstrap (512.00KB, 0.00B)\n"},
		{"c", 0, nil, fullC},
		{"c", 1, nil, head(fullC, 1)},
		{"c", 2, nil, head(fullC, 2) + "  a.py:2:x (512.00B, 0.00B)\n"},
	} {
		q := row.q
		if q == nil {
			q = &analyze.Query{}
		}
		t.Run(fmt.Sprintf("%s/depth=%d/scope=%v", row.trace, row.depth, row.q != nil), func(t *testing.T) {
			for _, stacks := range []analyze.Stacks{analyze.Recorded, analyze.Auto} {
				q.View.Stacks = stacks
				r := ask(t, []*format.Trace{file(t, row.trace)}, Total, row.depth, q)
				if got := text(t, r); got != row.want {
					t.Errorf("%v: got\n%swant\n%s", stacks, got, row.want)
				}
				if !r.Completeness.Complete {
					t.Errorf("%v", r.Completeness)
				}
			}
		})
	}
}

// Python's launchers are CuPy's to show: in the total of a trace in which its pool is.
func TestLaunchersOfCuPy(t *testing.T) {
	b, err := os.ReadFile("testdata/b.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name  string
		text  string
		at    At
		shown bool
	}{
		{"CuPy's", string(b), Total, true},
		{"live", string(b), End, false},
		{"PyTorch's", strings.NewReplacer("api=cupy.alloc", "api=cuMemAlloc_v2", "api=cupy", "api=torch").Replace(string(b)), Total, false},
	} {
		got := text(t, ask(t, []*format.Trace{formattest.Text(t, row.text)}, row.at, 0, &analyze.Query{View: analyze.View{Stacks: analyze.Auto}}))
		if strings.Contains(got, "_bootstrap (") != row.shown || !strings.Contains(got, "/app/net.py:9:forward (512.00KB") {
			t.Errorf("%s:\n%s", row.name, got)
		}
	}
}

func TestNoEvents(t *testing.T) { // B3
	for _, at := range []At{Total, Peak, End, Moment} {
		if got, want := text(t, ask(t, []*format.Trace{formattest.Text(t, "part\n")}, at, 0, &analyze.Query{})), "_root (0.00B, 0.00B)\n"; got != want {
			t.Errorf("--at %v: %q, want %q", at, got, want)
		}
	}
}

func TestUsedIsChosenPerProcess(t *testing.T) {
	tr := formattest.Text(t, `
process 1 pid=1 command=pool
process 2 pid=2 command=plain
frame 1 python a.py 1 main
stack 10 0 1
part
1000 Alloc process=1 thread=1 api=cuMemAlloc_v2 device=0 address=0x10 size=2048 stack=10
1010 Alloc process=2 thread=2 api=cuMemAlloc_v2 device=0 address=0x10 size=1024 stack=10
1020 Alloc process=1 thread=1 api=torch device=0 address=0x10 size=512 stack=10
1030 Free process=2 thread=2 api=cuMemFreeAsync address=0x10
`)
	for at, want := range map[At]string{
		Total: "_root (1.50KB, 3.00KB)\n  a.py:1:main (1.50KB, 3.00KB)\n",
		// At the highest moment of used both are there: the driver layer of 1 never counted.
		Peak: "_root (1.50KB, 3.00KB)\n  a.py:1:main (1.50KB, 3.00KB)\n",
		End:  "_root (512.00B, 2.00KB)\n  a.py:1:main (512.00B, 2.00KB)\n",
	} {
		if got := text(t, ask(t, []*format.Trace{tr}, at, 0, &analyze.Query{})); got != want {
			t.Errorf("--at %v: got\n%swant\n%s", at, got, want)
		}
	}
}

// E1, and what else has no line: no stack, a stack without a definition, a
// thread without frames, memory from before the recording.
func TestWithoutLine(t *testing.T) {
	tr := formattest.Text(t, `
process 1 pid=1 command=x
frame 1 label "" 0 "before recording"
frame 2 thread "" 0 "[thread loader]"
frame 3 python a.py 1 main
frame 4 native "" 0 ""
stack 1 0 1
stack 10 0 2
stack 11 0 3
part
1000 Alloc thread=1 api=torch device=0 address=0x10 size=100
1001 Alloc thread=1 api=torch device=0 address=0x20 size=100 stack=99
1002 Alloc thread=1 api=torch device=0 address=0x30 size=100 stack=10
1003 Alloc thread=1 api=torch device=0 address=0x40 size=100 stack=1
1004 Alloc thread=1 api=torch device=0 address=0x50 size=600 stack=11
`)
	r := ask(t, []*format.Trace{tr}, Total, 0, &analyze.Query{})
	want := "_root (1000.00B, 0.00B)\n  [thread loader] (100.00B, 0.00B)\n  before recording (100.00B, 0.00B)\n  a.py:1:main (600.00B, 0.00B)\n"
	if got := text(t, r); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if r.NoLine.Used != 400 || r.NoLine.UsedShare != 0.4 || r.NoLine.Unresolved != 1 || r.NoLine.Words() == "" {
		t.Errorf("without a line: %+v", r.NoLine)
	}
}

// B5: however deep a recursion, no node has more than the whole.
func TestRecursion(t *testing.T) {
	tr := formattest.Text(t, `
process 1 pid=1 command=x
frame 1 python a.py 1 f
stack 10 0 1
stack 11 10 1
stack 12 11 1
part
1000 Alloc thread=1 api=torch device=0 address=0x10 size=512 stack=12
1001 Alloc thread=1 api=torch device=0 address=0x20 size=512 stack=10
`)
	r := ask(t, []*format.Trace{tr}, Total, 0, &analyze.Query{})
	want := "_root (1.00KB, 0.00B)\n  a.py:1:f (1.00KB, 0.00B)\n    a.py:1:f (512.00B, 0.00B)\n      a.py:1:f (512.00B, 0.00B)\n"
	if got := text(t, r); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if r.NoLine.Used != 0 {
		t.Errorf("%+v", r.NoLine)
	}
}

func TestOtherClassesAreSaid(t *testing.T) {
	tr := formattest.Text(t, `
process 1 pid=1 command=x
part
1000 Alloc thread=1 api=cuMemAllocManaged device=0 address=0x10 size=4096
1001 Alloc thread=1 api=cuMemHostAlloc address=0x20 size=100
1002 Alloc thread=1 api=cuMemAllocAsync device=0 address=0x20 size=100 flags=captured
`)
	r := ask(t, []*format.Trace{tr}, Total, 0, &analyze.Query{})
	if got := text(t, r); got != "_root (0.00B, 0.00B)\n" {
		t.Errorf("got %s", got)
	}
	notes := strings.Join(r.Completeness.Notes, "\n")
	for _, want := range []string{"4096 bytes of class managed", "100 bytes of class pinned"} {
		if !strings.Contains(notes, want) {
			t.Errorf("%q is not in %q", want, notes)
		}
	}
}

// Two traces are one tree in total.
func TestSeveralTraces(t *testing.T) {
	r := ask(t, []*format.Trace{file(t, "c"), file(t, "c")}, Total, 2, &analyze.Query{})
	want := "_root (5.00KB, 0.00B)\n  a.py:1:<module> (3.00KB, 0.00B)\n  a.py:2:x (1.00KB, 0.00B)\n"
	if got := text(t, r); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestJSON(t *testing.T) {
	b, err := json.Marshal(ask(t, []*format.Trace{file(t, "a")}, Total, 0, &analyze.Query{}))
	if err != nil {
		t.Fatal(err)
	}
	var r struct {
		Completeness struct{ Complete bool }
		At           string
		Trees        []struct {
			Used, Acquired int64
			Tree           struct {
				Children []struct {
					File     string
					Line     int
					Function string
					Used     int64
				}
			}
		}
	}
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	c := r.Trees[0].Tree.Children[0]
	if !r.Completeness.Complete || r.At != "total" || r.Trees[0].Used != 4608 || r.Trees[0].Acquired != 3072 || c.File != "/app/main.py" || c.Line != 42 || c.Function != "<module>" || c.Used != 4608 {
		t.Errorf("%s", b)
	}
}

// A file name must not steer a terminal.
func TestControlCharacters(t *testing.T) {
	tr := formattest.Text(t, `
process 1 pid=1 command=x
frame 1 python "a\x1b[2J.py" 1 "f\n  g"
stack 10 0 1
part
1000 Alloc thread=1 api=torch device=0 address=0x10 size=512 stack=10
`)
	if got := text(t, ask(t, []*format.Trace{tr}, Total, 0, &analyze.Query{})); strings.ContainsAny(got, "\x1b") || strings.Count(got, "\n") != 2 {
		t.Errorf("%q", got)
	}
}

// Own lines by scopes at each moment: two lines of one scope and one line in two,
// a library's line under the program's, a thread whose scope is inferred, one in
// none; a checkpoint between.
func TestByScope(t *testing.T) {
	const defs = `
process 1 pid=5 command=x
frame 1 python "/app/main.py" 9 "main"
frame 2 python "/app/main.py" 5 "forward"
frame 3 python "/venv/lib/python3.12/site-packages/torch/nn/linear.py" 134 "forward"
frame 4 thread "" 0 "[thread pt_autograd_0]"
stack 2 0 1
stack 3 2 2
stack 4 3 3
stack 5 0 4
`
	const before = `part
1000 Alloc thread=5 api=cuMemAlloc_v2 device=0 address=0x10000 size=8000 stack=2
1000 Alloc thread=5 api=torch device=0 address=0x10000 size=1 stack=2
1001 ScopeBegin thread=5 api=nvtx scope=1 name="step"
1002 Alloc thread=5 api=torch device=0 address=0x20000 size=300 stack=4 scope=1
1003 ScopeBegin thread=5 api=nvtx scope=2 parent=1 name="backward"
1004 Alloc thread=6 api=torch device=0 address=0x30000 size=200 stack=5
1005 Alloc thread=5 api=torch device=0 address=0x40000 size=40 stack=4 scope=2
`
	const checkpoint = `part
1000 Live thread=5 api=cuMemAlloc_v2 device=0 address=0x10000 size=8000 stack=2
1000 Live thread=5 api=torch device=0 address=0x10000 size=1 stack=2
1002 Live thread=5 api=torch device=0 address=0x20000 size=300 stack=4 scope=1
1004 Live thread=6 api=torch device=0 address=0x30000 size=200 stack=5
1005 Live thread=5 api=torch device=0 address=0x40000 size=40 stack=4 scope=2
1001 LiveScope thread=5 api=nvtx scope=1 name="step" flags=open
1003 LiveScope thread=5 api=nvtx scope=2 parent=1 name="backward" flags=open
1005 CheckpointEnd process=0 size=7
`
	const after = `1006 Free thread=6 api=torch address=0x20000
1007 ScopeEnd thread=5 api=nvtx scope=2
1008 Alloc thread=6 api=torch device=0 address=0x50000 size=30 stack=5
1009 ScopeEnd thread=5 api=nvtx scope=1
1010 Free thread=5 api=torch address=0x40000
`
	const head = "  share         used      used bytes  acquired bytes  line, and scopes in which it took them\n"
	total := head + ` 59.5 %        340 B             340               0  /app/main.py:5:forward
               300 B             300               0    step
                40 B              40               0    step > backward
 40.3 %        230 B             230               0  [thread pt_autograd_0]
               200 B             200               0    step > backward (inferred)
                30 B              30               0    step (inferred)
  0.2 %          1 B               1            8000  /app/main.py:9:main
                 1 B               1            8000    [no scope]
`
	peak := head + ` 62.8 %        340 B             340               0  /app/main.py:5:forward
               300 B             300               0    step
                40 B              40               0    step > backward
 37.0 %        200 B             200               0  [thread pt_autograd_0]
               200 B             200               0    step > backward (inferred)
  0.2 %          1 B               1            8000  /app/main.py:9:main
                 1 B               1            8000    [no scope]
`
	end := head + ` 99.6 %        230 B             230               0  [thread pt_autograd_0]
               200 B             200               0    step > backward (inferred)
                30 B              30               0    step (inferred)
  0.4 %          1 B               1            8000  /app/main.py:9:main
                 1 B               1            8000    [no scope]
`
	then := head + ` 83.0 %        200 B             200               0  [thread pt_autograd_0]
               200 B             200               0    step > backward (inferred)
 16.6 %         40 B              40               0  /app/main.py:5:forward
                40 B              40               0    step > backward
  0.4 %          1 B               1            8000  /app/main.py:9:main
                 1 B               1            8000    [no scope]
`
	off := strings.NewReplacer("step > backward (inferred)", "[no scope]").Replace(peak)
	for name, tr := range map[string]*format.Trace{"one part": formattest.Text(t, defs+before+after), "two parts": formattest.Text(t, defs+before+checkpoint+after)} {
		for _, row := range []struct {
			name string
			at   At
			q    analyze.Query
			want string
		}{
			{"total", Total, analyze.Query{}, total},
			{"peak", Peak, analyze.Query{}, peak},
			{"peak, nothing inferred", Peak, analyze.Query{Infer: analyze.InferOff}, off},
			{"end", End, analyze.Query{}, end},
			{"a moment", Moment, analyze.Query{To: moment(t, "1006ns")}, then},
		} {
			t.Run(name+", "+row.name, func(t *testing.T) {
				a := New(row.at, 0, 1).ByScope()
				c, err := analyze.Run(context.Background(), []string{tr.Path()}, &row.q, a, nil)
				if err != nil {
					t.Fatal(err)
				}
				r := a.Report(c)
				if got := text(t, r); got != row.want {
					t.Errorf("got\n%swant\n%s", got, row.want)
				}
				var used, acquired int64
				for _, l := range r.Trees[0].ByScope {
					used, acquired = used+l.Used, acquired+l.Acquired
				}
				if used != r.Trees[0].Used || acquired != r.Trees[0].Acquired {
					t.Errorf("rows have %d and %d, all is %d and %d", used, acquired, r.Trees[0].Used, r.Trees[0].Acquired)
				}
				b, err := json.Marshal(r)
				if err != nil || strings.Contains(string(b), `"tree"`) || strings.Contains(string(b), `"inferred":true`) != (row.want != off) {
					t.Errorf("%s, %v", b, err)
				}
			})
		}
	}
}
