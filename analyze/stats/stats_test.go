package stats

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/formattest"
)

func ask(t *testing.T, tr *format.Trace, q analyze.Query) *Report {
	t.Helper()
	a := New()
	c, err := analyze.Run(context.Background(), []string{tr.Path()}, &q, a, nil)
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

func train(t *testing.T) *format.Trace {
	return formattest.File(t, "testdata/train.txt")
}

func TestText(t *testing.T) {
	formattest.Golden(t, "train.golden", []byte(text(t, ask(t, train(t), analyze.Query{}))))
}

// The numbers that people act on, apart from how they are printed.
func TestNumbers(t *testing.T) {
	r := ask(t, train(t), analyze.Query{})
	p := r.Traces[0].Processes[0]
	kinds := map[string][2]int64{}
	for _, k := range p.Kinds.Kinds {
		kinds[k.Name] = [2]int64{k.Count, k.Bytes}
	}
	for name, want := range map[string][2]int64{"weights": {1, 1000}, "gradients": {1, 200}, "optimizer state": {1, 400}, "activations": {1, 300},
		"temporary": {2, 110}, "inputs and other": {2, 30}} {
		if kinds[name] != want {
			t.Errorf("%s: %v, want %v", name, kinds[name], want)
		}
	}
	if k := p.Kinds; k.Peak != 1660 || k.PeakAt != 300000 || fmt.Sprint(*k.AtPeak[0], *k.AtPeak[1], *k.AtPeak[2], *k.AtPeak[3]) != "{outside 1000} {forward 0} {backward 200} {optimizer 460}" {
		t.Errorf("at the peak %+v", k)
	}
	if l := p.Pools; len(l) != 1 || l[0].Count != 8 || l[0].Misses != 2 || l[0].MissBytes != 1300 || l[0].HitRatio != 0.75 {
		t.Errorf("pool %+v", l[0])
	}
	if x := p.Rate; x.Count != 8 || x.Bytes != 2040 || x.First != 1000 || x.Last != 399000 || x.Busiest != 8 {
		t.Errorf("rate %+v", x)
	}
	m := p.Memory[0]
	if m.Layer != "pool" || m.Smallest != 10 || m.Largest != 1000 || len(m.Lifetimes) != 4 || !m.Lifetimes[3].Kept || m.Lifetimes[3].Count != 3 || m.Lifetimes[0].Count != 3 {
		t.Errorf("memory %+v", m)
	}
	if c := p.APIs[2]; c.Name != "cuMemAlloc_v2" || c.Taken != 1 || c.Failed != 1 || c.Timed != 2 || c.Time != 1200 || c.Longest != 700 {
		t.Errorf("api %+v", c)
	}
	if l := p.Lines[0]; l.Name != "/home/me/train.py:3:main" || l.Count != 6 || l.Bytes != 1540 || l.Given != 3 || l.Lifetime != 1000 {
		t.Errorf("line %+v", l)
	}
	if b, err := json.Marshal(r); err != nil || !bytes.Contains(b, []byte(`"complete":true`)) {
		t.Errorf("%v %s", err, b)
	}
}

func TestNothing(t *testing.T) {
	r := ask(t, formattest.Text(t, "part\n"), analyze.Query{})
	if got := text(t, r); got != "nothing was taken\n" {
		t.Errorf("%q", got)
	}
	r = ask(t, formattest.Text(t, "process 1 pid=1\npart\n1000 Alloc thread=1 api=cuMemAlloc_v2 device=0 address=0x10 size=5\n"), analyze.Query{})
	if k := r.Traces[0].Processes[0].Kinds; k.Unknown == "" || len(k.Kinds) != 0 {
		t.Errorf("of a program that trains nothing: %+v", k)
	}
}

// A refused free has given nothing back, in no table.
func TestRefusedFree(t *testing.T) {
	p := ask(t, formattest.Text(t, `
process 1 pid=1
frame 1 python a.py 1 forward
stack 10 0 1
part
1000 Alloc thread=1 api=cuMemAlloc_v2 device=0 address=0x10 size=5 stack=10
1001 Free thread=1 api=cuMemFree_v2 address=0x10
1002 FreeFailed thread=1 api=cuMemFree_v2 device=0 address=0x10 size=5 status=4
1003 Free thread=1 api=cuMemFree_v2 address=0x10
`), analyze.Query{}).Traces[0].Processes[0]
	if c := p.APIs; len(c) != 2 || c[1].Name != "cuMemFree_v2" || c[1].Given != 1 || c[1].Failed != 1 {
		t.Errorf("%+v", c[1])
	}
	if l := p.Memory[0].Lifetimes; len(l) != 1 || l[0].Count != 1 || l[0].Bytes != 5 {
		t.Errorf("lifetimes %+v", l[0])
	}
	if l := p.Lines[0]; l.Given != 1 || l.Lifetime != 3 {
		t.Errorf("line %+v", l)
	}
	for _, k := range p.Kinds.Kinds {
		if (k.Count == 1) != (k.Name == "temporary") || (k.Mean == 5) != (k.Name == "temporary") {
			t.Errorf("kind %+v", k)
		}
	}
}

// What a window only gives back has lived.
func TestGivenOnly(t *testing.T) {
	from, err := analyze.ParseMoment("2us")
	if err != nil {
		t.Fatal(err)
	}
	p := ask(t, formattest.Text(t, `
process 1 pid=1
part
1000 Alloc thread=1 api=torch device=0 address=0x10 size=5
3000 Free thread=1 api=torch address=0x10
`), analyze.Query{From: from}).Traces[0].Processes[0]
	if m := p.Memory[0]; m.Count != 0 || len(m.Lifetimes) != 1 || m.Lifetimes[0].Bytes != 5 {
		t.Errorf("%+v", m)
	}
}

func TestPhases(t *testing.T) {
	for name, want := range map[string]phase{"forward": forward, "Model.FORWARD": forward, "forward_backward": backward, "optimizer.step": optimizer, "zero": outside, "": outside} {
		if got, ok := phaseOfName(name); got != want || ok != (want != outside) {
			t.Errorf("%q is %v, %v", name, got, ok)
		}
	}
}

func TestDecades(t *testing.T) {
	for ns, want := range map[int64]int{0: 0, 9_999: 0, 10_000: 1, 99_999: 1, 100_000: 2, 1e9: 6, 99e9: 7, 100e9: 7 + 1, 1 << 62: 8} {
		if got := decade(ns); got != want {
			t.Errorf("%d ns is in bin %d, want %d", ns, got, want)
		}
	}
}

// Every table adds up to the same whole, and the phases at the peak to a slow
// replay's peak.
func TestSums(t *testing.T) {
	for seed := range int64(30) {
		r := rand.New(rand.NewSource(seed))
		var b strings.Builder
		b.WriteString("process 1 pid=1\n")
		for i, f := range []string{"forward", "main", "backward"} {
			fmt.Fprintf(&b, "frame %d python a.py %d %s\nstack %d 0 %d\n", i+1, i+1, f, 10+i, i+1)
		}
		b.WriteString("frame 4 python /torch/optim/a.py 1 step\nstack 13 0 4\npart\n")
		live, sum, peak, taken := map[int]int64{}, int64(0), int64(0), int64(0)
		for i := range 400 {
			at := 1 + r.Intn(30)
			if n, ok := live[at]; ok {
				fmt.Fprintf(&b, "%d Free thread=1 api=torch address=%d\n", 1000*i, at)
				sum -= n
				delete(live, at)
				continue
			}
			live[at] = int64(1 + r.Intn(5000))
			sum += live[at]
			taken += live[at]
			peak = max(peak, sum)
			fmt.Fprintf(&b, "%d Alloc thread=1 api=torch device=0 address=%d size=%d stack=%d\n", 1000*i, at, live[at], 10+r.Intn(4))
		}
		p := ask(t, formattest.Text(t, b.String()), analyze.Query{}).Traces[0].Processes[0]
		var sizes, lives, lines, kinds, phases int64
		for _, x := range p.Memory[0].Sizes {
			sizes += x.Bytes
		}
		for _, x := range p.Memory[0].Lifetimes {
			lives += x.Bytes
		}
		for _, x := range p.Lines {
			lines += x.Bytes
		}
		for _, x := range p.Kinds.Kinds {
			kinds += x.Bytes
		}
		for _, x := range p.Kinds.AtPeak {
			phases += x.Bytes
		}
		if sizes != taken || lives != taken || lines != taken || kinds != taken || p.Memory[0].Bytes != taken || p.Rate.Bytes != taken || phases != peak || p.Kinds.Peak != peak {
			t.Errorf("seed %d: sizes %d, lifetimes %d, lines %d, kinds %d, want %d; phases %d, want %d", seed, sizes, lives, lines, kinds, taken, phases, peak)
		}
	}
}
