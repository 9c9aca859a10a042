package summary

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

func ask(t *testing.T, text string, q *analyze.Query) *Report {
	t.Helper()
	a := New()
	c, err := analyze.Run(context.Background(), []string{formattest.Text(t, text).Path()}, q, a, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := a.Report(c)
	for _, f := range r.Traces[0].Failures {
		f.LiveThen = strings.Replace(f.LiveThen, r.Traces[0].Path, "small.gpurec", 1)
	}
	r.Traces[0].Path = "small.gpurec"
	return r
}

func small(t *testing.T) string {
	b, err := os.ReadFile("testdata/small.txt")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestText(t *testing.T) {
	moment := func(s string) analyze.Moment {
		m, err := analyze.ParseMoment(s)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	for name, q := range map[string]*analyze.Query{
		"all":     {},
		"process": {Processes: []int32{4712}},
		"device":  {Devices: []string{"GPU-0"}},
		"window":  {From: moment("104ms"), To: moment("1100ms")},
	} {
		t.Run(name, func(t *testing.T) {
			r := ask(t, small(t), q)
			var b bytes.Buffer
			if err := r.WriteText(&b); err != nil {
				t.Fatal(err)
			}
			formattest.Golden(t, name+".golden", b.Bytes())
		})
	}
}

// The numbers that people act on, apart from how they are printed.
func TestNumbers(t *testing.T) {
	r := ask(t, small(t), &analyze.Query{})
	if r.Completeness.Complete {
		t.Error("lost events, and complete")
	}
	tr := r.Traces[0]
	if tr.Events != 16 || tr.Lost != 5 || tr.Unknown != 1 || tr.Scopes != 1 || tr.Samples != 1 || len(tr.Unhooked) != 1 {
		t.Errorf("%+v", tr)
	}
	d0, d1 := tr.Devices[0], tr.Devices[1]
	if d0.Used.Bytes != 1536 || d0.Acquired.Bytes != 2097152 || d0.NVML == nil || d0.NVML.Bytes != 4000000 {
		t.Errorf("device 0: %+v", d0)
	}
	if d1.Used.Bytes != 4096 || d1.NVML != nil {
		t.Errorf("device 1: %+v", d1)
	}
	p1, p2 := tr.Processes[0], tr.Processes[1]
	if p1.UsedLayer != "pool" || p1.LiveAtEnd != 512 || p1.Status != nil || *p1.Rank != 0 || len(p1.Threads) != 2 {
		t.Errorf("process 1: %+v", p1)
	}
	if p2.UsedLayer != "driver" || p2.LiveAtEnd != 4096 || *p2.Status != 143 || p2.Failed != 2 {
		t.Errorf("process 2: %+v", p2)
	}
	if f := tr.Failures[0]; len(tr.Failures) != 1 || f.Count != 2 || f.Largest != 3<<30 || f.PID != 4712 {
		t.Errorf("failure: %+v", f)
	}
}

// A row says where its largest failure was, and how to see what was live then.
func TestFailures(t *testing.T) {
	const text = `process 1 pid=7
frame 1 python "train.py" 12 "main"
frame 2 python "net.py" 34 "forward"
frame 3 thread "" 0 "[thread loader]"
stack 2 0 1
stack 3 2 2
stack 4 0 3
part
1000 ScopeBegin process=1 thread=7 api=nvtx scope=1 name="step"
1001 ScopeBegin process=1 thread=7 api=nvtx scope=2 parent=1 name="forward"
1100 AllocFailed process=1 thread=7 api=cuMemAlloc_v2 device=0 requested=10 status=2 stack=2
1200000001 AllocFailed process=1 thread=7 api=cuMemAlloc_v2 device=1 requested=20 status=2 stack=3 scope=2
1200000002 AllocFailed process=1 thread=7 api=cuMemAlloc_v2 device=0 requested=20 status=2 stack=2
1200000003 AllocFailed process=1 thread=8 api=cuMemAlloc_v2 requested=5 status=201 stack=4
1200000004 AllocFailed process=1 thread=8 api=cuMemAllocManaged device=0 requested=5 status=2
`
	r := ask(t, text, &analyze.Query{})
	var got []string
	for _, f := range r.Traces[0].Failures {
		got = append(got, f.words()...)
	}
	want := `3 × cuMemAlloc_v2 of pid 7: out of memory, first at 0.000001s
largest 20 B at 1.200000s on device 1
by net.py:34:forward
in step / forward
live then: gpuanalyze lines --at 1.200000001s small.gpurec
1 × cuMemAlloc_v2 of pid 7: status 201, first at 1.200000s
largest 5 B at 1.200000s
by [thread loader]
in step / forward (inferred)
live then: gpuanalyze lines --at 1.200000003s small.gpurec
1 × cuMemAllocManaged of pid 7: out of memory, first at 1.200000s
largest 5 B at 1.200000s on device 0
by a line that is not known
in step / forward (inferred)
live then: gpuanalyze lines --at 1.200000004s small.gpurec`
	if s := strings.Join(got, "\n"); s != want {
		t.Errorf("got\n%s\nwant\n%s", s, want)
	}
	b, err := json.Marshal(r.Traces[0].Failures[0])
	for _, want := range []string{`"status_name":"out of memory"`, `"line":"net.py:34:forward"`, `"scope":["step","forward"]`, `"device":1`, `"largest_ns":1200000001`, `"live_then":"gpuanalyze lines --at 1.200000001s small.gpurec"`} {
		if err != nil || !strings.Contains(string(b), want) {
			t.Errorf("%s is not in %s, %v", want, b, err)
		}
	}
}

// What a process holds when it ends is not lost with it, and is of the layer
// that is used of it.
func TestLiveAtEnd(t *testing.T) {
	r := ask(t, small(t)+"2300000000 ProcessEnd process=1 status=0\n", &analyze.Query{})
	if p := r.Traces[0].Processes[0]; p.LiveAtEnd != 512 || p.Status == nil || *p.Status != 0 {
		t.Errorf("%+v", p)
	}
}

// A window's numbers leave out what was before it, by time or by scope.
func TestWindow(t *testing.T) {
	text := small(t) + `2210000000 ScopeBegin process=1 thread=4711 api=nvtx scope=2 name="late"
2220000000 Alloc process=1 thread=4711 api=torch device=0 address=0x40 size=256
2230000000 Free process=1 thread=4711 api=torch address=0x99
2240000000 AllocFailed process=1 thread=4711 api=cuMemAlloc_v2 device=0 requested=9 status=2
2250000000 ScopeEnd process=1 thread=4711 api=nvtx scope=2
2260000000 Alloc process=1 thread=4711 api=torch device=0 address=0x50 size=65536
`
	for _, row := range [][2]string{{"1205ms", "1255ms"}, {"scope:late", "scope:late"}} {
		from, err1 := analyze.ParseMoment(row[0])
		to, err2 := analyze.ParseMoment(row[1])
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		tr := ask(t, text, &analyze.Query{From: from, To: to}).Traces[0]
		if tr.Lost != 0 || tr.Unknown != 1 || tr.Unseen != 0 || len(tr.Failures) != 1 || tr.Samples != 0 || tr.Events != 5 {
			t.Errorf("%v: %+v", row, tr)
		}
		p1, p2 := tr.Processes[0], tr.Processes[1]
		if p1.Failed != 1 || p1.LiveAtEnd != 768 || !p1.Outlives || p1.Used.Bytes != 768 || p1.Used.At != 1220000000 {
			t.Errorf("%v: %+v", row, p1)
		}
		if begin := p1.Acquired.At; p1.Acquired.Bytes != 2097152 || begin < 1205000000 || begin > 1210000000 {
			t.Errorf("%v: acquired is highest at %d, outside", row, begin)
		}
		for _, s := range p1.Sums {
			if want := map[string][2]int64{"driver": {0, 0}, "pool": {1, 256}}[s.Layer]; s.Count != want[0] || s.Total != want[1] {
				t.Errorf("%v: %+v, want %v", row, s, want)
			}
		}
		if p2.Failed != 0 || p2.Outlives || p2.LiveAtEnd != 4096 || p2.End == nil || len(p2.Sums) != 0 {
			t.Errorf("%v: %+v", row, p2)
		}
	}
}

func TestNothing(t *testing.T) { // B3
	r := ask(t, "part\n", &analyze.Query{})
	var b bytes.Buffer
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"events       none", "odd frees    none\n", "samples      none", "no allocation failed"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
	if _, err := json.Marshal(r); err != nil {
		t.Error(err)
	}
}

// A request counts once; what a retry got is no failure that the program knew of.
func TestOutOfMemory(t *testing.T) {
	const text = `process 1 pid=7
part
10 AllocFailed process=1 thread=7 api=cuMemAlloc_v2 device=0 requested=10 status=2
11 Alloc process=1 thread=7 api=cuMemAlloc_v2 device=0 address=0x1 size=10 requested=10
`
	const told = `20 AllocFailed process=1 thread=7 api=cuMemAlloc_v2 device=0 requested=20 status=2
21 AllocFailed process=1 thread=7 api=cuMemAlloc_v2 device=0 requested=20 status=2
22 AllocFailed process=1 thread=7 api=torch.oom device=0 size=20
`
	for _, row := range []struct{ text, oom, failed string }{
		{text, "oom          never out of memory, but 1 time the driver refused and a retry worked", "1 × cuMemAlloc_v2 of pid 7: out of memory, and a retry worked, first"},
		{text + told, "oom          out of memory 1 time, and 1 time the driver refused and a retry worked", "3 × cuMemAlloc_v2 of pid 7: out of memory, of which 1 before a retry that worked, first"},
		{"process 1 pid=7\npart\n" + told, "oom          out of memory 1 time: gpuanalyze oom says more", "2 × cuMemAlloc_v2 of pid 7: out of memory, first"},
	} {
		var b bytes.Buffer
		if err := ask(t, row.text, &analyze.Query{}).WriteText(&b); err != nil || !strings.Contains(b.String(), row.oom) || !strings.Contains(b.String(), row.failed) {
			t.Errorf("%v, %s has no\n%s\nand\n%s", err, b.String(), row.oom, row.failed)
		}
	}
}

// TestCost prints what the recorder took, as far as the trace says it.
func TestCost(t *testing.T) {
	for _, row := range []struct {
		name string
		cost Cost
		want string
	}{
		{"all", Cost{Events: 1000, CPU: 400_000, Written: 2820, Waited: 1500_000, Memory: 64 << 20}, "0s CPU (400 ns an event), 2.75 KiB written (2.8 B an event), 64.00 MiB memory at most, threads waited 1.5ms"},
		{"no event", Cost{CPU: 5_000_000}, "5ms CPU"},
		{"an older trace", Cost{Events: 2, CPU: 3_000_000_000}, "3s CPU (1500000000 ns an event)"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := row.cost.String(); got != row.want {
				t.Errorf("%q, want %q", got, row.want)
			}
		})
	}
}

// Where a process stands in a distributed job, as far as its launcher said.
func TestJob(t *testing.T) {
	const text = `gpurec 1
meta job="10 5 1 8 77" job="11 6 -1 2 "
device 0 uuid="GPU-0" total=1000
process 1 pid=10 start_time=5 rank=3 command="a"
process 2 pid=11 start_time=6 rank=1 command="b"
process 3 pid=10 start_time=7 rank=4 command="c"
part
1 Alloc process=1 thread=1 api=cuMemAlloc_v2 device=0 address=0x1 size=1
2 Alloc process=2 thread=2 api=cuMemAlloc_v2 device=0 address=0x1 size=1
3 Alloc process=3 thread=3 api=cuMemAlloc_v2 device=0 address=0x1 size=1
`
	var out bytes.Buffer
	ask(t, text, &analyze.Query{}).WriteText(&out)
	for _, want := range []string{"process 10  rank 3 of 8, local rank 1, job 77  a\n", "process 11  rank 1 of 2  b\n", "process 10  rank 4  c\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
}

// Where what is not recorded can be, the summary says by what flag.
func TestRemedies(t *testing.T) {
	for _, row := range []struct{ symbol, want string }{
		{"libfar.so" + format.Deepbound, "             gpurec run --deepbind records libraries that are opened with RTLD_DEEPBIND\n"},
		{"cuMemNew", ""},
		{"libfar.so (dlmopen)", ""},
	} {
		r := ask(t, fmt.Sprintf("process 1 pid=7\npart\n1000 Unhooked process=1 thread=7 name=%q\n1001 Unhooked process=1 thread=7 name=\"cuMemNewer\"\n", row.symbol), &analyze.Query{})
		var b bytes.Buffer
		if err := r.WriteText(&b); err != nil {
			t.Fatal(err)
		}
		_, after, found := strings.Cut(b.String(), row.symbol)
		_, after, _ = strings.Cut(after, "not recorded\n")
		after, _, _ = strings.Cut(after, "contexts ")
		if !found || after != row.want {
			t.Errorf("%s: %q, want %q", row.symbol, after, row.want)
		}
	}
}
