package fragmentation

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand"
	"reflect"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/segments"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/formattest"
	"github.com/gpurec/gpurec/format/live"
)

func ask(t *testing.T, tr *format.Trace, at At, q *analyze.Query) *Report {
	t.Helper()
	a := New(at)
	c, err := analyze.Run(context.Background(), []string{tr.Path()}, q, a, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := a.Report(c)
	for _, p := range r.Pools {
		p.Trace = "small.gpurec"
	}
	return r
}

func moment(t *testing.T, s string) analyze.Moment {
	t.Helper()
	m, err := analyze.ParseMoment(s)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// small has a pool whose worst moment comes before its end, and one on another
// device that is mapped.
const small = `meta start=2026-11-30T03:00:00Z start_monotonic=0
device 0 uuid=GPU-0 name=H200 total=100000
device 1 uuid=GPU-1 name=H200 total=100000
process 1 pid=7 command="python a.py"
process 2 pid=8 command="python b.py"
frame 1 python a.py 1 weights
frame 2 python a.py 2 step
frame 3 python /x/site-packages/torch/nn.py 3 forward
stack 10 0 1
stack 11 0 2
stack 12 11 3
part
sample 500000 device=0 total=100000 used=10000 free=90000
1000000 Alloc process=1 thread=7 api=cuMemAlloc_v2 device=0 address=0x100000 size=4096 stack=12
1000001 Alloc process=1 thread=7 api=torch device=0 address=0x100000 size=1024 stack=10
1000002 Alloc process=1 thread=7 api=torch device=0 address=0x100400 size=2048 stack=12
2000000 Alloc process=1 thread=7 api=cuMemAlloc_v2 device=0 address=0x200000 size=8192 stack=12
2000001 Alloc process=1 thread=7 api=torch device=0 address=0x200000 size=512 stack=12
2000002 Alloc process=1 thread=7 api=torch device=0 address=0x201000 size=512 stack=10
2500000 Alloc process=1 thread=7 api=cuMemAlloc_v2 device=0 address=0x300000 size=2048 stack=12
2500001 Alloc process=1 thread=7 api=torch device=0 address=0x300000 size=2048 stack=12
3000000 Free process=1 thread=7 api=torch address=0x100400
3000001 Free process=1 thread=7 api=torch address=0x300000
3500000 Alloc process=1 thread=7 api=torch device=0 address=0x100400 size=1024 stack=12
4000000 Alloc process=2 thread=8 api=cuMemCreate device=1 object=1 size=4096 stack=11
4000001 Map process=2 thread=8 api=cuMemMap device=1 object=1 address=0x500000 size=4096
4000002 Alloc process=2 thread=8 api=cuMemCreate device=1 object=2 size=4096 stack=11
4000003 Map process=2 thread=8 api=cuMemMap device=1 object=2 address=0x501000 size=4096
4000004 Alloc process=2 thread=8 api=torch device=1 address=0x500800 size=4096 stack=11
6000000 Free process=1 thread=7 api=torch address=0x200000
6000001 Free process=1 thread=7 api=torch address=0x201000
6000002 Free process=1 thread=7 api=cuMemFree_v2 address=0x200000
9000000 ProcessEnd process=1 status=0
`

// short is a pool in a line, its segments in one each.
func short(r *Report) string {
	var b strings.Builder
	for _, p := range r.Pools {
		fmt.Fprintf(&b, "%d on %d at %d: %d = %d + %d pinned + %d whole, largest %d, device %d\n", p.PID, p.Device, p.Time, p.Bytes, p.Occupied, p.Pinned, p.Whole, p.Largest, p.DeviceFree)
		for _, s := range p.Segments {
			fmt.Fprintf(&b, "  %s %d %d×:", s.Address, s.Bytes, s.Pieces)
			for _, v := range s.Intervals {
				fmt.Fprintf(&b, " %d+%d%s", v.Offset, v.Bytes, strings.TrimPrefix(v.Line, "a.py:"))
			}
			fmt.Fprintln(&b)
		}
		for _, pin := range p.Pins {
			fmt.Fprintf(&b, "  pin %s: %d blocks of %d, %d free in %d segments, %d alone\n", pin.Line, pin.Blocks, pin.Bytes, pin.Free, pin.Segments, pin.Alone)
		}
	}
	return b.String()
}

func TestMoments(t *testing.T) {
	mapped := `8 on 1 at 4000004: 8192 = 4096 + 4096 pinned + 0 whole, largest 2048, device -1
  0x500000 8192 2×: 0+2048 2048+40962:step 6144+2048
  pin a.py:2:step: 1 blocks of 4096, 4096 free in 1 segments, 4096 alone
`
	for _, row := range []struct {
		name string
		at   At
		q    analyze.Query
		want string
	}{
		{"worst", Worst, analyze.Query{}, `7 on 0 at 3000000: 14336 = 4096 + 10240 pinned + 0 whole, largest 3584, device 75664
  0x200000 8192 1×: 0+5122:step 512+3584 4096+5121:weights 4608+3584
  0x100000 4096 1×: 0+10241:weights 1024+3072
  0x300000 2048 1×: 0+20482:step
  pin a.py:1:weights: 2 blocks of 1536, 10240 free in 2 segments, 3072 alone
  pin a.py:2:step: 1 blocks of 512, 7168 free in 1 segments, 0 alone
` + mapped},
		{"end", End, analyze.Query{}, `7 on 0 at 9000000: 6144 = 2048 + 2048 pinned + 2048 whole, largest 2048, device 83856
  0x100000 4096 1×: 0+10241:weights 1024+10242:step 2048+2048
  0x300000 2048 1×: 0+2048
  pin a.py:1:weights: 1 blocks of 1024, 2048 free in 1 segments, 0 alone
  pin a.py:2:step: 1 blocks of 1024, 2048 free in 1 segments, 0 alone
` + strings.Replace(mapped, "4000004", "9000000", 1)},
		{"a time", Moment, analyze.Query{To: moment(t, "2ms")}, `7 on 0 at 2000000: 4096 = 3072 + 1024 pinned + 0 whole, largest 1024, device 77712
  0x100000 4096 1×: 0+10241:weights 1024+20482:step 3072+1024
  pin a.py:1:weights: 1 blocks of 1024, 1024 free in 1 segments, 0 alone
  pin a.py:2:step: 1 blocks of 2048, 1024 free in 1 segments, 0 alone
`},
		{"worst of a window", Worst, analyze.Query{From: moment(t, "7ms"), Processes: []int32{7}}, `7 on 0 at 6000002: 6144 = 2048 + 2048 pinned + 2048 whole, largest 2048, device 83856
  0x100000 4096 1×: 0+10241:weights 1024+10242:step 2048+2048
  0x300000 2048 1×: 0+2048
  pin a.py:1:weights: 1 blocks of 1024, 2048 free in 1 segments, 0 alone
  pin a.py:2:step: 1 blocks of 1024, 2048 free in 1 segments, 0 alone
`},
		{"a device", Worst, analyze.Query{Devices: []string{"1"}}, mapped},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := short(ask(t, formattest.Text(t, small), row.at, &row.q)); got != row.want {
				t.Errorf("got\n%swant\n%s", got, row.want)
			}
		})
	}
}

func TestText(t *testing.T) {
	for name, at := range map[string]At{"worst": Worst, "end": End} {
		r := ask(t, formattest.Text(t, small), at, &analyze.Query{})
		var b bytes.Buffer
		if err := r.WriteText(&b, 2); err != nil {
			t.Fatal(err)
		}
		formattest.Golden(t, name+".golden", b.Bytes())
		j, err := json.MarshalIndent(r, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		formattest.Golden(t, name+".json.golden", j)
	}
	var b bytes.Buffer
	if err := ask(t, formattest.Text(t, "part\n"), Worst, &analyze.Query{}).WriteText(&b, 20); err != nil || b.String() != "no pool had a segment\n" {
		t.Errorf("%q, %v", b.String(), err)
	}
}

// A slow answer: it makes the layout anew after each event, and keeps the worst.
type slow struct {
	tracker *segments.Tracker
	owner   segments.Owner
	worst   segments.Sums
	any     bool
	time    format.Time
	layout  []*segments.Segment
	most    int64 // pinned, of any moment
}

func (a *slow) Needs() analyze.Needs                       { return analyze.Needs{} }
func (a *slow) Sample(*analyze.Pass, *format.Sample) error { return nil }
func (a *slow) End(*analyze.Pass) error                    { return nil }
func (a *slow) Begin(p *analyze.Pass) error {
	a.tracker = segments.New(p)
	p.State.OnBegin = func(al *live.Allocation, _ *format.Event) { a.tracker.Begin(al) }
	p.State.OnEnd = a.tracker.End
	return nil
}
func (a *slow) Event(p *analyze.Pass, e *format.Event) error {
	a.tracker.Event(e)
	layout := a.tracker.Layout(a.owner)
	sums := segments.Total(layout)
	a.most = max(a.most, sums.Pinned)
	sums.Count = 0
	if !a.any && len(layout) > 0 || a.any && worse(sums, a.worst) {
		a.any, a.worst, a.time, a.layout = true, sums, e.Time, layout
	}
	return nil
}

// The worst moment and its layout, kept at O(1) an event, are those that a look
// at everything after every event finds; and the history has them.
func TestWorstIsTheWorst(t *testing.T) {
	for seed := range int64(25) {
		b := formattest.New(t)
		p := b.Process("random")
		d := b.Device("G", 1<<20)
		b.Stack("a.py:1:f")
		b.RandomPool(rand.New(rand.NewSource(seed)), 400)
		if seed%2 == 0 {
			b.Event(format.ProcessEnd, format.APINone).Status = 0
		}
		tr := b.Trace()
		want := &slow{owner: segments.Owner{Process: p, Device: d}}
		if _, err := analyze.Run(context.Background(), []string{tr.Path()}, &analyze.Query{}, want, nil); err != nil {
			t.Fatal(err)
		}
		got := ask(t, tr, Worst, &analyze.Query{}).Pools[0]
		if got.Pinned != want.worst.Pinned || got.Bytes != want.worst.Segments || got.Occupied != want.worst.Occupied || got.Time != int64(want.time)-formattest.Step {
			t.Fatalf("seed %d: got %d pinned of %d at %d, want %+v at %d", seed, got.Pinned, got.Bytes, got.Time, want.worst, want.time)
		}
		a := New(Worst)
		a.p = &analyze.Pass{Defs: format.NewDefs()}
		a.sites = map[format.StackID]string{}
		byAddress := map[string][]Interval{}
		for _, s := range got.Segments {
			for i := range s.Intervals {
				if s.Intervals[i].Line != "" {
					s.Intervals[i].Line = "x"
				}
			}
			byAddress[s.Address] = s.Intervals
		}
		for _, s := range want.layout {
			seg := a.segment(s)
			for i := range seg.Intervals {
				if seg.Intervals[i].Line != "" {
					seg.Intervals[i].Line = "x"
				}
			}
			if !reflect.DeepEqual(seg.Intervals, byAddress[seg.Address]) {
				t.Fatalf("seed %d, segment %s: got %v, want %v", seed, seg.Address, byAddress[seg.Address], seg.Intervals)
			}
		}
		if len(want.layout) != len(got.Segments) {
			t.Fatalf("seed %d: %d segments, want %d", seed, len(got.Segments), len(want.layout))
		}
		most := int64(0)
		for _, h := range got.History {
			most = max(most, h.Pinned)
		}
		if most != want.most {
			t.Fatalf("seed %d: the history's most is %d, want %d", seed, most, want.most)
		}
	}
}

// However long, a history has few stretches, and each has the most and the least
// of its time.
func TestHistory(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	for range 50 {
		var h history
		type change struct {
			at     format.Time
			pinned int64
		}
		var all []change
		at := format.Time(r.Int63n(1e9))
		for range 300 {
			at += format.Time(r.ExpFloat64() * float64(firstStretch))
			if r.Intn(100) == 0 {
				at += firstStretch * 200
			}
			c := change{at, r.Int63n(1000)}
			all = append(all, c)
			h.set(c.at, segments.Sums{Pinned: c.pinned, Segments: 1000})
		}
		if len(h.stretches) > mostStretches {
			t.Fatalf("%d stretches", len(h.stretches))
		}
		for i, s := range h.stretches {
			from := h.from + format.Time(i)*h.width
			most, least, any := int64(-1), int64(1000), false
			for k, c := range all { // c holds until the next
				until := h.from + format.Time(len(h.stretches))*h.width
				if k+1 < len(all) {
					until = all[k+1].at
				}
				if c.at < from+h.width && (until > from || c.at >= from) {
					most, least, any = max(most, c.pinned), min(least, c.pinned), true
				}
			}
			if !any || s.most.Pinned != most || s.least != least {
				t.Fatalf("stretch %d from %d: most %d, least %d, want %d, %d", i, from, s.most.Pinned, s.least, most, least)
			}
		}
	}
	var h history
	h.set(0, segments.Sums{})
	h.set(1<<62, segments.Sums{Pinned: 1}) // a file may claim any time
	h.set(-5, segments.Sums{Pinned: 2})
	if len(h.stretches) > mostStretches {
		t.Errorf("%d stretches", len(h.stretches))
	}
}
