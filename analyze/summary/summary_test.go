package summary

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze"
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

// What a process holds when it ends is not lost with it, and is of the layer
// that is used of it.
func TestLiveAtEnd(t *testing.T) {
	r := ask(t, small(t)+"2300000000 ProcessEnd process=1 status=0\n", &analyze.Query{})
	if p := r.Traces[0].Processes[0]; p.LiveAtEnd != 512 || p.Status == nil || *p.Status != 0 {
		t.Errorf("%+v", p)
	}
}

func TestNothing(t *testing.T) { // B3
	r := ask(t, "part\n", &analyze.Query{})
	var b bytes.Buffer
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"events       none", "samples      none", "no allocation failed"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
	if _, err := json.Marshal(r); err != nil {
		t.Error(err)
	}
}
