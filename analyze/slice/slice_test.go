package slice

import (
	"context"
	"fmt"
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

func moment(t *testing.T, s string) analyze.Moment {
	t.Helper()
	m, err := analyze.ParseMoment(s)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func cut(t *testing.T, tr *format.Trace, q analyze.Query) *format.Trace {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "slice.gpurec")
	a := New(dir)
	c, err := analyze.Run(context.Background(), []string{tr.Path()}, &q, a, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Close(c); err != nil {
		t.Fatal(err)
	}
	return formattest.Open(t, dir)
}

const whole = `
meta trace_id="5a" start_monotonic=1000 end_monotonic=1200 status=0
device 0 uuid=GPU-0 total=1000
process 1 pid=11
process 2 pid=12
frame 1 python a.py 1 main
stack 10 0 1
part
1010 ScopeBegin process=1 thread=7 api=nvtx scope=1 name="train"
1020 Alloc process=1 thread=7 seq=2 api=torch device=0 address=0x10 size=100 stack=10 scope=1
1030 Alloc process=2 thread=8 api=torch device=0 address=0x10 size=7
1035 Alloc process=1 thread=7 seq=3 api=torch device=0 address=0x30 size=500 stack=10 scope=1
1036 Free process=1 thread=7 seq=4 api=torch address=0x30 scope=1
1040 Free process=1 thread=7 seq=5 api=torch address=0x99 scope=1
1050 Alloc process=1 thread=7 seq=6 api=torch device=0 address=0x20 size=50 stack=10 scope=1
1060 Free process=1 thread=7 seq=7 api=torch address=0x10 scope=1
1070 ScopeEnd process=1 thread=7 api=nvtx scope=1
1080 ProcessEnd process=1 status=0
sample 1015 device=0 total=1000 used=10 free=990
sample 1045 device=0 total=1000 used=20 free=980 peak_used=25
sample 1075 device=0 total=1000 used=30 free=970
`

// A slice, hand-checkable: what is live, the open scope with its begin and its
// highest so far, sums from the begin, the reading that holds then.
func TestTwin(t *testing.T) {
	got := formattest.Twin(t, cut(t, formattest.Text(t, whole), analyze.Query{From: moment(t, "49ns"), To: moment(t, "65ns"), Processes: []int32{11}}))
	_, got, _ = strings.Cut(got, "\n")
	formattest.Golden(t, "process.golden", []byte(got))
}

func TestEnds(t *testing.T) {
	tr := formattest.Text(t, whole)
	all := cut(t, tr, analyze.Query{})
	if m := all.Meta(); m.Status == nil || m.Ending != format.EndClosed || m.Stats.Events != 10 {
		t.Errorf("all of it: %+v", m)
	}
	if twin := formattest.Twin(t, all); strings.Contains(twin, " Live") || strings.Count(twin, "sample") != 3 {
		t.Errorf("all of it begins as the trace does, with nothing live:\n%s", twin)
	}
	if m := cut(t, tr, analyze.Query{To: moment(t, "30ns")}).Meta(); m.Status != nil || m.End != 1030 {
		t.Errorf("before its end: %+v", m)
	}
	lossy := formattest.Text(t, whole+"1090 Lost process=1 thread=7 size=3\n")
	if m := cut(t, lossy, analyze.Query{}).Meta(); m.Ending != format.EndFailed || !strings.Contains(m.Reason, "3 events lost") {
		t.Errorf("of a partial trace: %+v", m)
	}
}

// What is used of a process is its pool's in a slice too that ends before the
// pool is first asked.
func TestPoolAfterTheEnd(t *testing.T) {
	tr := formattest.Text(t, `
meta start_monotonic=1000
process 1 pid=1
process 2 pid=2
part
1010 Alloc process=1 thread=1 api=cuMemAlloc_v2 device=0 address=0x10 size=100
1015 Alloc process=2 thread=2 api=cuMemAlloc_v2 device=0 address=0x10 size=7
1030 Alloc process=1 thread=1 api=torch device=0 address=0x10 size=50
`)
	for _, q := range []analyze.Query{{To: moment(t, "20ns")}, {From: moment(t, "5ns"), To: moment(t, "20ns")}, {From: moment(t, "12ns"), To: moment(t, "20ns")}} {
		one := cut(t, tr, q)
		l := &look{}
		if _, err := analyze.Run(context.Background(), []string{one.Path()}, &analyze.Query{}, l, nil); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(l.text, "device 0 7 107 0") {
			t.Errorf("%s to %s: %s", q.From, q.To, l.text)
		}
	}
}

func TestRefuses(t *testing.T) {
	tr := formattest.Text(t, whole)
	dir := t.TempDir()
	for _, row := range []struct {
		dir  string
		q    analyze.Query
		want string
	}{
		{dir, analyze.Query{}, "exist"},
		{filepath.Join(dir, "new"), analyze.Query{Devices: []string{"0"}}, "by process, rank and time only"},
	} {
		a := New(row.dir)
		_, err := analyze.Run(context.Background(), []string{tr.Path()}, &row.q, a, nil)
		a.Abort()
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%v, want %q", err, row.want)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// state is what a fold comes to, in words: what is live and where, the sums
// and peaks from the begin on, the scopes.
func state(s *live.State, from map[string]live.Curve) string {
	var b strings.Builder
	s.Each(func(a *live.Allocation) bool {
		fmt.Fprintf(&b, "%d %v %x %d %d %d %d\n", a.Process, a.Layer, a.Address, a.Size, a.Stack, a.Time, a.Scope)
		return true
	})
	for _, p := range s.Processes() {
		for _, acc := range p.Accounts() {
			k := fmt.Sprint(p.ID, acc.Device, acc.Layer, acc.Class)
			if acc.Peak > 0 || acc.Count > from[k].Count {
				fmt.Fprintf(&b, "%s now %d peak %d count %d total %d\n", k, acc.Now, acc.Peak, acc.Count-from[k].Count, acc.Total-from[k].Total)
			}
		}
	}
	for _, d := range s.Devices() {
		fmt.Fprintf(&b, "device %d %d %d %d\n", d.ID, s.DeviceUsed(d).Peak, d.Acquired.Now, d.Pool.Peak)
	}
	for _, sc := range s.Scopes() {
		fmt.Fprintf(&b, "scope %d %+v %+v\n", sc.ID, s.Measure(sc, live.CurvePool), s.Measure(sc, live.CurveAcquired))
	}
	return b.String()
}

// A look keeps the state of a pass at its end, as the window has seen it.
type look struct {
	from map[string]live.Curve
	text string
}

func (l *look) Needs() analyze.Needs                       { return analyze.Needs{} }
func (l *look) Begin(*analyze.Pass) error                  { return nil }
func (l *look) Event(*analyze.Pass, *format.Event) error   { return nil }
func (l *look) Sample(*analyze.Pass, *format.Sample) error { return nil }
func (l *look) End(p *analyze.Pass) error                  { l.text = state(p.State, l.from); return nil }
func (l *look) Enter(p *analyze.Pass) {
	l.from = map[string]live.Curve{}
	if !p.Windowed() {
		return
	}
	p.State.ResetPeaks()
	for _, q := range p.State.Processes() {
		for _, acc := range q.Accounts() {
			l.from[fmt.Sprint(q.ID, acc.Device, acc.Layer, acc.Class)] = acc.Curve
		}
	}
}

func fold(t *testing.T, tr *format.Trace, q analyze.Query) string {
	t.Helper()
	l := &look{}
	if _, err := analyze.Run(context.Background(), []string{tr.Path()}, &q, l, nil); err != nil {
		t.Fatal(err)
	}
	return l.text
}

// The state at a slice's end is that of the window of the whole, peaks and sums
// since the begin and scopes included; and a slice of a slice is one too.
func TestAgainstWindow(t *testing.T) {
	for seed := range int64(40) {
		r := rand.New(rand.NewSource(seed))
		var b strings.Builder
		b.WriteString("meta start_monotonic=1000\ndevice 0 uuid=GPU-0\ndevice 1 uuid=GPU-1\nprocess 1 pid=1\nprocess 2 pid=2\nframe 1 python a.py 1 f\nstack 10 0 1\npart\n")
		used, open, scopes := map[[2]int]bool{}, []int{}, 0
		for i := range 300 {
			k := [2]int{1 + r.Intn(2), 1 + r.Intn(20)}
			switch x := r.Intn(12); {
			case x == 0:
				scopes++
				open = append(open, scopes)
				fmt.Fprintf(&b, "%d ScopeBegin process=1 thread=1 api=nvtx scope=%d name=\"s\"\n", 1000+i, scopes)
			case x == 1 && len(open) > 0:
				at := r.Intn(len(open))
				fmt.Fprintf(&b, "%d ScopeEnd process=1 thread=1 api=nvtx scope=%d\n", 1000+i, open[at])
				open = append(open[:at], open[at+1:]...)
			case used[k]:
				fmt.Fprintf(&b, "%d Free process=%d thread=1 api=%s address=%d\n", 1000+i, k[0], []string{"torch", "cuMemFree_v2"}[k[1]%2], k[1])
				used[k] = false
			default:
				fmt.Fprintf(&b, "%d Alloc process=%d thread=1 api=%s device=%d address=%d size=%d stack=10\n", 1000+i, k[0],
					[]string{"torch", "cuMemAlloc_v2"}[k[1]%2], r.Intn(2), k[1], 1+r.Intn(99))
				used[k] = true
			}
		}
		tr := formattest.Text(t, b.String())
		from, to := r.Intn(200), 0
		to = from + r.Intn(300-from)
		q := analyze.Query{From: moment(t, fmt.Sprintf("%dns", from)), To: moment(t, fmt.Sprintf("%dns", to))}
		want := fold(t, tr, q)
		one := cut(t, tr, q)
		if got := fold(t, one, analyze.Query{}); got != want {
			t.Fatalf("seed %d, %d to %d: got\n%swant\n%s", seed, from, to, got, want)
		}
		if got := fold(t, cut(t, one, q), analyze.Query{}); got != want {
			t.Fatalf("seed %d, %d to %d, a slice of the slice: got\n%swant\n%s", seed, from, to, got, want)
		}
	}
}
