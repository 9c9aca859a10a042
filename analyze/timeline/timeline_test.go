package timeline

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/formattest"
	"github.com/gpurec/gpurec/format/live"
)

func ask(t *testing.T, o Options, q *analyze.Query, tr *format.Trace) *Report {
	t.Helper()
	a := New(o)
	c, err := analyze.Run(context.Background(), []string{tr.Path()}, q, a, nil)
	if err != nil {
		t.Fatal(err)
	}
	return a.Report(c)
}

const small = `
meta trace_id="t" start_monotonic=0 end_monotonic=10000000000
device 0 uuid="GPU-0" name="H200" total=100000
process 1 pid=11 command=x
process 2 pid=12 rank=3 command=y
frame 1 python "/app/main.py" 5 "main"
frame 2 python "/app/main.py" 9 "main"
frame 3 python "/venv/lib/python3.12/site-packages/torch/nn/linear.py" 134 "forward"
stack 2 0 1
stack 3 0 2
stack 4 2 3
name 1 "step"
part
1000000000 Alloc process=1 thread=1 api=cuMemAlloc_v2 device=0 address=0x1000 size=4096 stack=4
1000000001 ScopeBegin process=1 thread=1 api=nvtx scope=1 name=1
2000000000 Alloc process=1 thread=1 api=torch device=0 address=0x1000 size=1000 stack=4 scope=1
3500000000 Alloc process=1 thread=1 api=torch device=0 address=0x1400 size=600 stack=3 scope=1
3500000001 Free process=1 thread=1 api=torch address=0x1400
4000000000 ScopeEnd process=1 thread=1 api=nvtx scope=1
5000000000 Alloc process=2 thread=2 api=cuMemAlloc_v2 device=1 address=0x1000 size=300 stack=2
6000000000 Alloc process=1 thread=1 api=cuMemAllocHost_v2 address=0x77 size=50 stack=2
7000000000 ProcessEnd process=2 status=0
sample 2500000000 device=0 total=100000 used=5000 free=95000
sample 8000000000 device=0 total=100000 used=6000 free=94000 peak_used=7000
`

func moment(t *testing.T, s string) analyze.Moment {
	t.Helper()
	m, err := analyze.ParseMoment(s)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestSeries(t *testing.T) {
	for _, row := range []struct {
		name string
		o    Options
		q    analyze.Query
		want string
	}{
		{"device", Options{By: ByDevice, Curve: Used, Points: 5}, analyze.Query{},
			"device 0 most 1600 at 3.5 end 1000: 0-0 0-1600 1000-1000 1000-1000 1000-1000; device 1 most 300 at 5 end 0: 0-0 0-0 0-300 0-300 0-0"},
		{"acquired", Options{By: ByDevice, Curve: Acquired, Points: 2}, analyze.Query{}, "device 0 most 4096 at 1 end 4096: 0-4096 4096-4096; device 1 most 300 at 5 end 0: 0-0 0-300"},
		{"nvml: as at first before it, and a peak between two readings", Options{By: ByDevice, Curve: NVML, Points: 5}, analyze.Query{},
			"device 0 most 7000 at 8 end 6000: 5000-5000 5000-5000 5000-5000 5000-5000 5000-7000"},
		{"process", Options{By: ByProcess, Curve: Used, Points: 1}, analyze.Query{}, "all most 1600 at 3.5 end 1000: 0-1600; pid 11 most 1600 at 3.5 end 1000: 0-1600; pid 12 rank 3 most 300 at 5 end 0: 0-300"},
		{"scope", Options{By: ByScope, Curve: Used, Points: 1}, analyze.Query{}, "all most 1600 at 3.5 end 1000: 0-1600; step most 1600 at 3.5 end 1000: 0-1600; [no scope] most 300 at 5 end 0: 0-300"},
		{"layer", Options{By: ByLayer, Points: 1}, analyze.Query{}, "driver device most 4396 at 5 end 4096: 0-4396; pool device most 1600 at 3.5 end 1000: 0-1600; host pinned most 50 at 6 end 50: 0-50"},
		{"class", Options{By: ByClass, Points: 1}, analyze.Query{}, "device most 4396 at 5 end 4096: 0-4396; pinned most 50 at 6 end 50: 0-50"},
		{"own line, the top one", Options{By: ByOwnLine, Curve: Used, Points: 1, Top: 1}, analyze.Query{}, "all most 1600 at 3.5 end 1000: 0-1600; /app/main.py:5:main most 1300 at 5 end 1000: 0-1300"},
		{"function", Options{By: ByFunction, Curve: Used, Points: 1, Top: 1}, analyze.Query{}, "all most 1600 at 3.5 end 1000: 0-1600; /venv/lib/python3.12/site-packages/torch/nn/linear.py:forward most 1000 at 2 end 1000: 0-1000"},
		{"a window begins with what is live", Options{By: ByDevice, Curve: Used, Points: 2}, analyze.Query{From: moment(t, "3s"), To: moment(t, "5s"), Devices: []string{"0"}},
			"device 0 most 1600 at 3.5 end 1000: 1000-1600 1000-1000"},
		{"a scope's window", Options{By: ByDevice, Curve: Used, Points: 1}, analyze.Query{From: moment(t, "scope:step"), To: moment(t, "scope:step")}, "device 0 most 1600 at 3.5 end 1000: 0-1600"},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := ask(t, row.o, &row.q, formattest.Text(t, small))
			var got []string
			for _, s := range r.Traces[0].Series {
				line := fmt.Sprintf("%s most %d at %g end %d:", s.Name, s.Max, float64(s.MaxAt)/1e9, s.End)
				for i := range s.Most {
					line += fmt.Sprintf(" %d-%d", s.Least[i], s.Most[i])
				}
				got = append(got, line)
			}
			if g := strings.Join(got, "; "); g != row.want {
				t.Errorf("\n got %s\nwant %s", g, row.want)
			}
		})
	}
}

// A window begins where it was asked to, whatever came before.
func TestFrom(t *testing.T) {
	for from, want := range map[string][2]int64{"": {0, 10_000_000_000}, "3s": {3_000_000_000, 10_000_000_000}, "scope:step": {1_000_000_001, 10_000_000_000}, "20s": {20_000_000_000, 20_000_000_000}} {
		var q analyze.Query
		if from != "" {
			q.From = moment(t, from)
		}
		text := strings.Replace(small, "1000000000 Alloc", "500000000 Alloc", 1)
		for _, curve := range []Curve{Used, NVML} {
			if got := ask(t, Options{By: ByDevice, Curve: curve, Points: 3}, &q, formattest.Text(t, text)).Traces[0]; got.From != want[0] || got.To != want[1] {
				t.Errorf("%s from %q: %d to %d, want %v", curve, from, got.From, got.To, want)
			}
		}
	}
}

// A reading from before the window holds from its begin on.
func TestReadingBeforeTheWindow(t *testing.T) {
	r := ask(t, Options{By: ByDevice, Curve: NVML, Points: 1}, &analyze.Query{From: moment(t, "7500ms")}, formattest.Text(t, strings.Replace(small, "used=6000 free=94000 peak_used=7000", "used=60 free=99940", 1)))
	if s := r.Traces[0].Series[0]; s.Max != 5000 || s.MaxAt != 7.5e9 || s.End != 60 {
		t.Errorf("%+v", s)
	}
}

// Where the first parts are deleted, nobody knows what was before.
func TestThinned(t *testing.T) {
	b := formattest.New(t)
	b.Process("x")
	b.Device("GPU-0", 1<<40)
	b.Meta.Monotonic = 0
	b.Alloc(format.APITorch, 1, 700).Time = 1000
	fold := live.New()
	for _, e := range b.Events() {
		fold.Apply(&e)
	}
	b.Part(fold.Checkpoint(1000))
	b.Alloc(format.APITorch, 2, 50).Time = 9000
	tr := b.Trace()
	if err := os.RemoveAll(filepath.Join(tr.Path(), "00000")); err != nil {
		t.Fatal(err)
	}
	tr, err := format.Open(tr.Path())
	if err != nil {
		t.Fatal(err)
	}
	for from, want := range map[string]int64{"": 1000, "500ns": 1000, "2us": 2000} {
		var q analyze.Query
		if from != "" {
			q.From = moment(t, from)
		}
		got := ask(t, Options{By: ByDevice, Curve: Used, Points: 3}, &q, tr).Traces[0]
		if s := got.Series[0]; got.From != want || s.Max != 750 || s.Least[0] != 700 {
			t.Errorf("from %q: %+v %+v", from, got, s)
		}
	}
}

// A process of which nothing is known has no rank.
func TestUndefinedProcess(t *testing.T) {
	r := ask(t, Options{By: ByProcess, Curve: Used, Points: 1}, &analyze.Query{}, formattest.Text(t, "part\n1000 Alloc process=7 thread=1 api=torch device=0 address=0x1000 size=100\n"))
	if got := r.Traces[0].Series[1].Name; got != "pid 0" {
		t.Error(got)
	}
}

// What a filter leaves nothing of is said to be elsewhere.
func TestOtherLayer(t *testing.T) {
	r := ask(t, Options{By: ByDevice, Curve: Used, Points: 1}, &analyze.Query{Layers: []format.Layer{format.LayerDriver}, Processes: []int32{11}}, formattest.Text(t, small))
	if n := r.Completeness.Notes; len(r.Traces[0].Series) != 0 || len(n) != 1 || !strings.Contains(n[0], "--curve acquired") {
		t.Errorf("%q", n)
	}
}

func TestText(t *testing.T) {
	for _, row := range []struct {
		name string
		o    Options
		rows bool
	}{
		{"plot", Options{By: ByDevice, Curve: Used, Points: 30}, false},
		{"lines", Options{By: ByOwnLine, Curve: Used, Points: 20}, false},
		{"rows", Options{By: ByProcess, Curve: Used, Points: 4}, true},
	} {
		r := ask(t, row.o, &analyze.Query{}, formattest.Text(t, small))
		var b bytes.Buffer
		write := r.WritePlot
		if row.rows {
			write = r.WriteRows
		}
		if err := write(&b); err != nil {
			t.Fatal(err)
		}
		formattest.Golden(t, row.name+".golden", b.Bytes())
	}
}

func TestEmpty(t *testing.T) {
	r := ask(t, Options{By: ByLine, Curve: Used, Points: 10}, &analyze.Query{}, formattest.Text(t, "part\n"))
	var b bytes.Buffer
	if err := r.WritePlot(&b); err != nil || !strings.HasPrefix(b.String(), "no bytes at any moment") {
		t.Errorf("%q %v", b.String(), err)
	}
	b.Reset()
	if err := r.WriteRows(&b); err != nil || b.String() != "from  to  least  most  series\n" {
		t.Errorf("%q %v", b.String(), err)
	}
}

// steps is what a device had after each event.
type steps struct {
	at    []format.Time
	bytes []int64
	peak  live.Curve
}

func (s *steps) Needs() analyze.Needs                       { return analyze.Needs{Pooled: true} }
func (s *steps) Begin(*analyze.Pass) error                  { return nil }
func (s *steps) Sample(*analyze.Pass, *format.Sample) error { return nil }
func (s *steps) End(p *analyze.Pass) error                  { s.peak = s.of(p); return nil }
func (s *steps) Event(p *analyze.Pass, e *format.Event) error {
	s.at, s.bytes = append(s.at, p.State.Now()), append(s.bytes, s.of(p).Now)
	return nil
}

func (s *steps) of(p *analyze.Pass) live.Curve {
	for _, d := range p.State.Devices() {
		if d.ID == 0 {
			return p.State.DeviceUsed(d)
		}
	}
	return live.Curve{}
}

// Each bucket is what a slow replay says of its time, whether the end is known
// or not; the most of all is the fold's peak, at its moment.
func TestBucketsAgainstReplay(t *testing.T) {
	for seed := range int64(60) {
		r := rand.New(rand.NewSource(seed))
		b := formattest.New(t)
		b.Process("x")
		b.Device("GPU-0", 1<<40)
		held := map[uint64]bool{}
		at := format.Time(0)
		for range 200 {
			at += format.Time(r.Intn(1 << r.Intn(20)))
			k := uint64(1 + r.Intn(20))
			if held[k] {
				b.Free(format.APITorch, k).Time = at
			} else {
				b.Alloc(format.APITorch, k, int64(1+r.Intn(1000))).Time = at
			}
			held[k] = !held[k]
		}
		b.Meta.Monotonic = 0
		if seed%2 == 0 {
			b.Meta.End = at + 1000
		}
		tr := b.Trace()
		replay := &steps{}
		if _, err := analyze.Run(context.Background(), []string{tr.Path()}, &analyze.Query{}, replay, nil); err != nil {
			t.Fatal(err)
		}
		points := 1 + r.Intn(40)
		got := ask(t, Options{By: ByDevice, Curve: Used, Points: points}, &analyze.Query{}, tr).Traces[0]
		s := got.Series[0]
		if s.Max != replay.peak.Peak || s.MaxAt != int64(replay.peak.PeakAt) || len(s.Most) > points {
			t.Fatalf("seed %d: most %d at %d in %d of %d buckets, the fold says %d at %d", seed, s.Max, s.MaxAt, len(s.Most), points, replay.peak.Peak, replay.peak.PeakAt)
		}
		most := int64(0)
		for i := range s.Most {
			from, to := format.Time(int64(i)*got.Width), format.Time(int64(i+1)*got.Width)
			carried, least, largest := int64(0), int64(math.MaxInt64), int64(0)
			for k, t := range replay.at {
				if t < from {
					carried = replay.bytes[k]
				} else if t < to {
					least, largest = min(least, replay.bytes[k]), max(largest, replay.bytes[k])
				}
			}
			least, largest = min(least, carried), max(largest, carried)
			if s.Least[i] != least || s.Most[i] != largest {
				t.Fatalf("seed %d bucket %d of %d: %d to %d, want %d to %d", seed, i, len(s.Most), s.Least[i], s.Most[i], least, largest)
			}
			most = max(most, s.Most[i])
		}
		if most != s.Max {
			t.Errorf("seed %d: the most of all buckets is %d, and the peak %d", seed, most, s.Max)
		}
	}
}

// Times that a hostile file may claim.
func TestAnyTime(t *testing.T) {
	g := newGrid(math.MinInt64, 0, 7)
	s := g.begin(1, 0)
	for _, at := range []format.Time{math.MinInt64, -1, 0, 1, math.MaxInt64, 3} {
		g.set(s, at, int64(at>>3))
		if n := len(s.buckets); n > 7 {
			t.Fatalf("%d buckets", n)
		}
	}
	if at := newGrid(math.MinInt64, math.MinInt64, 1).at(math.MaxInt64); at != 0 {
		t.Errorf("bucket %d of one", at)
	}
}

func TestLevel(t *testing.T) {
	for _, row := range []struct {
		v, scale int64
		want     int
	}{{0, 10, 0}, {1, 1000, 1}, {5, 10, 4}, {6, 10, 5}, {10, 10, 8}, {math.MaxInt64, math.MaxInt64, 8}, {math.MaxInt64 / 2, math.MaxInt64, 4}, {-1, 10, 0}, {1, 0, 0}} {
		if got := level(row.v, row.scale, 8); got != row.want {
			t.Errorf("level(%d, %d) = %d, want %d", row.v, row.scale, got, row.want)
		}
	}
}

// What a thread without scopes takes is a series of its own, that says so.
func TestInferred(t *testing.T) {
	tr := formattest.Text(t, `
process 1 pid=5 command=x
part
1000 ScopeBegin thread=5 api=nvtx scope=1 name="step"
1001 Alloc thread=5 api=torch device=0 address=0x10 size=10 scope=1
1002 Alloc thread=6 api=torch device=0 address=0x20 size=7
1003 ScopeEnd thread=5 api=nvtx scope=1
1004 Alloc thread=6 api=torch device=0 address=0x30 size=3
1005 Free thread=6 api=torch address=0x20
`)
	for infer, want := range map[analyze.Infer]string{
		analyze.InferMark: "all 20 false; step 10 false; step (inferred) 7 true; [no scope] 3 false; ",
		analyze.InferOff:  "all 20 false; [no scope] 10 false; step 10 false; ",
	} {
		r := ask(t, Options{By: ByScope, Curve: Used, Points: 5}, &analyze.Query{Infer: infer}, tr)
		got := ""
		for _, s := range r.Traces[0].Series {
			got += fmt.Sprintf("%s %d %v; ", s.Name, s.Max, s.Inferred)
		}
		if got != want {
			t.Errorf("%v: got %s, want %s", infer, got, want)
		}
	}
}
