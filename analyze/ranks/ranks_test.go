package ranks

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/formattest"
)

func ask(t *testing.T, q analyze.Query, traces ...*format.Trace) *Report {
	t.Helper()
	var paths []string
	for _, tr := range traces {
		paths = append(paths, tr.Path())
	}
	a := New()
	c, err := analyze.Run(context.Background(), paths, &q, a, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := a.Report(c)
	for _, k := range r.Ranks {
		for i, p := range paths {
			k.Trace = strings.Replace(k.Trace, p, fmt.Sprintf("%d.gpurec", i), 1)
		}
	}
	return r
}

func text(t *testing.T, r *Report) string {
	t.Helper()
	var b bytes.Buffer
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func job(t *testing.T) *format.Trace {
	return formattest.File(t, "testdata/job.txt")
}

func TestText(t *testing.T) {
	other := formattest.Text(t, `
meta trace_id=x host=node2 start=2026-11-30T10:00:00.9Z start_monotonic=1000
process 1 pid=200 rank=4
part
1000 ScopeBegin thread=200 api=nvtx scope=1 name="step"
1001 Alloc thread=200 api=cuMemAlloc_v2 device=0 address=0x10 size=1000
1002 ProcessEnd status=137
`)
	formattest.Golden(t, "job.golden", []byte(text(t, ask(t, analyze.Query{}, job(t)))))
	formattest.Golden(t, "two.golden", []byte(text(t, ask(t, analyze.Query{}, job(t), other))))
}

// The numbers that people act on, apart from how they are printed.
func TestNumbers(t *testing.T) {
	r := ask(t, analyze.Query{}, job(t))
	if len(r.Ranks) != 4 {
		t.Fatalf("%d ranks", len(r.Ranks))
	}
	if p := r.Peaks; p.Least != 990 || p.Median != 1005 || p.Mean != 1125 || p.Most != 1500 {
		t.Errorf("peaks %+v", p)
	}
	for i, k := range r.Ranks {
		if *k.Rank != int32(i) || (k.Outlier != 0) != (i == 2) || !k.Complete {
			t.Errorf("%d: %+v", i, k)
		}
	}
	if k := r.Ranks[0]; k.Acquired.Bytes != 5000 || k.Live != 1000 || *k.Status != 134 || len(k.Devices) != 1 || k.Devices[0].UUID != "GPU-0" {
		t.Errorf("rank 0 %+v", k)
	}
	if k := r.Ranks[1]; k.End != nil || k.Live != 1010 || k.Status != nil {
		t.Errorf("rank 1 %+v", k)
	}
	if k := r.Ranks[2]; k.Failed != 1 || k.Retried != 0 || k.Live != 1500 || fmt.Sprint(k.OOMIn) != "[step#2 forward#1]" || fmt.Sprint(k.Doing) != "[step#2]" {
		t.Errorf("rank 2 %+v", k)
	}
	if d := r.Died; d == nil || d.Index != 2 || d.Next == nil || *d.Next != 1e9 || d.Time.Format("05.0") != "01.0" {
		t.Errorf("died %+v", d)
	}
	if d := r.OutOfMemory; d == nil || d.Index != 2 || d.Next != nil {
		t.Errorf("out of memory %+v", d)
	}
	if b, err := json.Marshal(r); err != nil || !bytes.Contains(b, []byte(`"first_death":{"index":2`)) {
		t.Errorf("%v %s", err, b)
	}
	if r := ask(t, analyze.Query{Ranks: []int32{1, 3}}, job(t)); len(r.Ranks) != 2 || r.Died != nil || r.OutOfMemory != nil || r.Peaks.Most != 1010 {
		t.Errorf("of two ranks %+v", r)
	}
}

// What the driver refused and a retry served has not failed.
func TestRetried(t *testing.T) {
	k := ask(t, analyze.Query{}, formattest.Text(t, `
process 1 pid=1
part
1000 AllocFailed thread=1 api=cuMemAlloc_v2 device=0 requested=500 status=2
1001 AllocFailed thread=1 api=cuMemAlloc_v2 device=0 requested=500 status=2
1002 Alloc thread=1 api=cuMemAlloc_v2 device=0 address=0x10 size=500 requested=500
1003 Alloc thread=1 api=torch device=0 address=0x10 size=500
1004 AllocFailed thread=1 api=cuMemAlloc_v2 device=0 requested=900 status=2
`)).Ranks[0]
	if k.Failed != 1 || k.Retried != 1 || k.OOM == nil {
		t.Errorf("%+v", k)
	}
}

// In a window a peak that stood at its begin is from then on, and who neither
// held nor asked for anything there is not in it.
func TestWindow(t *testing.T) {
	from, err := analyze.ParseMoment("2us")
	if err != nil {
		t.Fatal(err)
	}
	r := ask(t, analyze.Query{From: from}, formattest.Text(t, `
process 1 pid=1
process 2 pid=2
part
1000 AllocFailed process=1 thread=1 api=torch.oom device=0 requested=500
1001 ProcessEnd process=1 status=1
1002 Alloc process=2 thread=2 api=torch device=0 address=0x10 size=500
1003 AllocFailed process=2 thread=2 api=cuMemAlloc_v2 device=0 requested=500 status=2
3000 Free process=2 thread=2 api=torch address=0x10
3001 Mark process=2 thread=2 api=nvtx
`))
	if k := r.Ranks[0]; len(r.Ranks) != 1 || k.PID != 2 || k.Used != (Peak{500, 2000}) || k.Failed != 0 || k.OOM != nil {
		t.Errorf("%+v", r.Ranks[0])
	}
}

func TestNothing(t *testing.T) {
	if got := text(t, ask(t, analyze.Query{}, formattest.Text(t, "process 1 pid=1\npart\n"))); got != "nobody took memory\n" {
		t.Errorf("%q", got)
	}
}

func TestOutliers(t *testing.T) {
	for _, row := range []struct {
		name  string
		peaks []int64
		want  string // indices
	}{
		{"two are no crowd", []int64{1, 1000}, "[]"},
		{"alike to the byte, and one", []int64{1000, 1000, 1000, 1051}, "[3]"},
		{"less than 5 %", []int64{1000, 1000, 1000, 1049}, "[]"},
		{"one that needs less", []int64{1000, 1000, 500, 1000}, "[2]"},
		{"all differ", []int64{1000, 1200, 1400, 1600, 1800}, "[]"},
		{"nothing used", []int64{0, 0, 0}, "[]"},
	} {
		r := &Report{}
		for _, p := range row.peaks {
			r.Ranks = append(r.Ranks, &Rank{Used: Peak{Bytes: p}})
		}
		r.judge()
		got := []int{}
		for i, k := range r.Ranks {
			if k.Outlier != 0 {
				got = append(got, i)
			}
		}
		if fmt.Sprint(got) != row.want {
			t.Errorf("%s: %v, want %s", row.name, got, row.want)
		}
	}
}

// A backward pass runs out of memory on a thread that opened no scope.
func TestInferred(t *testing.T) {
	tr := formattest.Text(t, `
process 1 pid=5 rank=0 command=x
part
1000 ScopeBegin thread=5 api=nvtx scope=1 name="step"
1001 Alloc thread=5 api=torch device=0 address=0x10 size=10 scope=1
1002 AllocFailed thread=6 api=cuMemAlloc_v2 device=0 requested=50 status=2
1003 AllocFailed thread=6 api=torch.oom device=0 requested=50
`)
	for infer, want := range map[analyze.Infer]string{analyze.InferMark: "[step#1] true", analyze.InferOff: "[] false"} {
		r := ask(t, analyze.Query{Infer: infer}, tr)
		if k := r.Ranks[0]; fmt.Sprint(k.OOMIn, k.OOMInferred) != want {
			t.Errorf("%v: in %v %v, want %s", infer, k.OOMIn, k.OOMInferred, want)
		}
		if s := text(t, r); strings.Contains(s, ", in step#1 (inferred)") != (infer == analyze.InferMark) {
			t.Errorf("%v:\n%s", infer, s)
		}
	}
}
