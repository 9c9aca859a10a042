package scopes

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

func ask(t *testing.T, tr *format.Trace, c Curve, q *analyze.Query) *Report {
	t.Helper()
	a := New(c, 1)
	comp, err := analyze.Run(context.Background(), []string{tr.Path()}, q, a, nil)
	if err != nil {
		t.Fatal(err)
	}
	return a.Report(comp)
}

// A course makes a trace in which used bytes go where they are told.
type course struct {
	strings.Builder
	now, held int64
	next      int
	blocks    []int // sizes, by address/16 − 1
}

func newCourse() *course {
	c := &course{now: 1000}
	c.WriteString("process 1 pid=4711 command=x\npart\n")
	return c
}

func (c *course) say(f string, a ...any) {
	c.now += 10
	fmt.Fprintf(c, "%d "+f+"\n", append([]any{c.now}, a...)...)
}

// to makes used bytes n: one block more, or all given back and one taken.
func (c *course) to(n int64) {
	if n < c.held {
		// A dip to nothing must not be seen as an end value, and never is a peak.
		for i, s := range c.blocks {
			if s > 0 {
				c.say("Free thread=7 api=torch address=%d", 16*(i+1))
				c.blocks[i] = 0
			}
		}
		c.held = 0
	}
	if d := n - c.held; d > 0 {
		c.blocks = append(c.blocks, int(d))
		c.say("Alloc thread=7 api=torch device=0 address=%d size=%d", 16*len(c.blocks), d)
	}
	c.held = n
}

func (c *course) begin(id int, name string) {
	c.say("ScopeBegin thread=7 api=scope scope=%d name=%q", id, name)
}

func (c *course) end(id int) { c.say("ScopeEnd thread=7 api=scope scope=%d", id) }

func (c *course) report(id int, sub string) {
	c.say("ScopeReport thread=7 api=scope scope=%d note=%q", id, sub)
}

func (c *course) reportPlain(id int) { c.say("ScopeReport thread=7 api=scope scope=%d", id) }

const mb = 1 << 20

// The rows of spec/semantics.md §4.4, but for the two that a sampler gets
// wrong: fastai's numbers, and the exact ones in whole MB.
func TestArithmetic(t *testing.T) {
	f := func(x float64) int64 { return int64(x * mb) }
	for _, row := range []struct {
		start        float64
		course       []float64
		used, peaked int64
		exact        [2]int64
	}{
		{1000, []float64{1010, 1025, 1010}, 10, 15, [2]int64{10, 15}},
		{1000, []float64{1010, 1025, 1010, 1000}, 0, 25, [2]int64{0, 25}},
		{1010, []float64{1000}, -10, 0, [2]int64{-10, 0}},
		{1000, []float64{1020}, 20, 0, [2]int64{20, 0}},
		{500, []float64{900, 450}, -50, 400, [2]int64{-50, 400}},
		{500, []float64{900, 700, 100, 600}, 100, 300, [2]int64{100, 300}},
		{0, []float64{4004, 2567}, 2567, 1437, [2]int64{2567, 1437}},
		{1000.9, []float64{1001.1}, 1, 0, [2]int64{0, 0}},
		{1000, []float64{999.9999}, -1, 0, [2]int64{0, 0}},
		{1000.5, []float64{1001.4, 1000.5}, 0, 1, [2]int64{0, 0}},
		{1000.6, []float64{1003.5, 1002.4}, 2, 1, [2]int64{1, 1}},
	} {
		c := newCourse()
		c.to(f(row.start))
		c.begin(1, "x")
		for _, v := range row.course {
			c.to(f(v))
		}
		c.end(1)
		r := ask(t, formattest.Text(t, c.String()), Used, &analyze.Query{})
		m := r.Scopes[0].Measure
		if used, peaked := fastai(m); used != row.used || peaked != row.peaked {
			t.Errorf("%v %v: fastai %d, %d, want %d, %d", row.start, row.course, used, peaked, row.used, row.peaked)
		}
		if used, peaked := m.Used/mb, m.Peaked/mb; used != row.exact[0] || peaked != row.exact[1] || m.Peaked < 0 {
			t.Errorf("%v %v: exact %d, %d, want %v", row.start, row.course, m.Used, m.Peaked, row.exact)
		}
	}
}

// After a reset both begin anew; what was reported before stays.
func TestReset(t *testing.T) {
	c := newCourse()
	c.begin(1, "x")
	c.to(10 * mb)
	c.to(2 * mb)
	c.report(1, "first")
	c.say("ScopeReset thread=7 api=scope scope=1")
	c.to(5 * mb)
	c.to(4 * mb)
	c.end(1)
	r := ask(t, formattest.Text(t, c.String()), Used, &analyze.Query{})
	s := r.Scopes[0]
	if m := s.Reports[0].Measure; m.Used != 2*mb || m.Peaked != 8*mb {
		t.Errorf("before: %+v", m)
	}
	if m := s.Measure; m.Used != 2*mb || m.Peaked != 1*mb || s.Resets != 1 {
		t.Errorf("after: %+v, %d resets", m, s.Resets)
	}
}

// B4: the inner scopes' peaks are theirs, and the outer one is exact too.
func TestOverlap(t *testing.T) {
	const block = 256 * mb
	c := newCourse()
	var held []int
	take := func(n int) {
		for range n {
			c.next++
			held = append(held, c.next)
			c.say("Alloc thread=7 api=torch device=0 address=%d size=%d", c.next*16, block)
		}
	}
	drop := func(n int) {
		for range n {
			c.say("Free thread=7 api=torch address=%d", held[0]*16)
			held = held[1:]
		}
	}
	c.begin(1, "outer")
	c.begin(2, "a")
	take(4)
	drop(4)
	c.end(2)
	c.begin(3, "b")
	take(2)
	drop(1)
	c.end(3)
	c.begin(4, "c")
	take(2)
	drop(2)
	c.end(4)
	c.end(1)
	r := ask(t, formattest.Text(t, c.String()), Used, &analyze.Query{})
	var got []string
	for _, s := range r.Scopes {
		got = append(got, fmt.Sprintf("%s %d/%d", s.Name, s.Measure.Used/mb, s.Measure.Peaked/mb))
	}
	if want := "[outer 256/768 a 0/1024 b 256/256 c 0/512]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

const table1 = `
device 0 uuid=GPU-0 name=H200 total=100000
process 1 pid=4711 command=x
part
1000 Alloc thread=7 api=cuMemAlloc_v2 device=0 address=0x10 size=5000
1010 ScopeBegin thread=7 api=nvtx scope=1 name="step"
1020 Alloc thread=7 api=torch device=0 address=0x10 size=700
sample 1025 device=0 total=100000 used=6000 free=94000
1030 ScopeBegin thread=7 api=nvtx scope=2 parent=1 name="forward" note="net"
1040 Alloc thread=7 api=torch device=0 address=0x20 size=300
sample 1045 device=0 total=100000 used=7000 free=93000 peak_used=9000
1050 Free thread=7 api=torch address=0x20
1060 ScopeReport thread=7 api=scope scope=2 note="mid"
1070 ScopeEnd thread=7 api=nvtx scope=2
1080 ScopeBegin thread=8 api=nvtx scope=3 name="step" flags=range
1090 Alloc thread=8 api=torch device=1 address=0x30 size=40
1100 ScopeEnd thread=7 api=nvtx scope=1
1110 ProcessEnd status=0
`

func TestText(t *testing.T) {
	for _, row := range []struct {
		name  string
		curve Curve
		q     analyze.Query
		want  string
	}{
		{"used", Used, analyze.Query{}, `context          n  thread       from              to  used  peaked  begin  end   max
step             1       7  0.000001s       0.000001s   740     260      0  740  1000
  net:forward    1       7  0.000001s       0.000001s     0     300    700  700  1000
    report: mid                             0.000001s     0     300    700  700  1000
step             2       8  0.000001s  0.000001s open    40       0    700  740   740
`},
		{"nvml", NVML, analyze.Query{Scopes: []analyze.ScopeRef{{Name: "step"}}}, `context  n  thread       from              to  used  peaked  begin   end   max
step     1       7  0.000001s       0.000001s  1000    2000   6000  7000  9000
step     2       8  0.000001s  0.000001s open     0       0   7000  7000  7000
`},
		{"acquired of a device with nothing", Acquired, analyze.Query{Devices: []string{"1"}, Scopes: []analyze.ScopeRef{{Name: "step", N: 2}}},
			`context  n  thread       from              to  used  peaked  begin  end  max
step     2       8  0.000001s  0.000001s open     0       0      0    0    0
`},
		{"used of a device", Used, analyze.Query{Devices: []string{"1"}, Threads: []uint32{8}},
			`context  n  thread       from              to  used  peaked  begin  end  max
step     2       8  0.000001s  0.000001s open    40       0      0   40   40
`},
		{"a window's scopes", Used, analyze.Query{From: moment(t, "1025ns"), To: moment(t, "1075ns")},
			`context        n  thread       from         to  used  peaked  begin  end   max
net:forward    1       7  0.000001s  0.000001s     0     300    700  700  1000
  report: mid                        0.000001s     0     300    700  700  1000
`},
		{"none", Used, analyze.Query{From: moment(t, "1h")}, "context  n  thread  from  to  used  peaked  begin  end  max\n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			var b bytes.Buffer
			if err := ask(t, formattest.Text(t, table1), row.curve, &row.q).WriteText(&b); err != nil {
				t.Fatal(err)
			}
			if b.String() != row.want {
				t.Errorf("got\n%swant\n%s", b.String(), row.want)
			}
		})
	}
}

func moment(t *testing.T, s string) analyze.Moment {
	m, err := analyze.ParseMoment(s)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestByName(t *testing.T) {
	var b bytes.Buffer
	names := ask(t, formattest.Text(t, table1), Used, &analyze.Query{}).ByName()
	if err := names.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	want := `context        count  used, sum  peaked, most   max
step               2        780           260  1000
  net:forward      1          0           300  1000
`
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}

// Where events were lost, so may begins and ends have been.
func TestNestingWithLosses(t *testing.T) {
	const scopes = "process 1 pid=11\nprocess 2 pid=22\npart\n1000 ScopeBegin process=1 thread=7 api=nvtx scope=1 name=\"a\"\n" +
		"1001 ScopeBegin process=1 thread=7 api=nvtx scope=2 parent=1 name=\"b\"\n1002 ScopeBegin process=1 thread=8 api=nvtx scope=3 name=\"a\"\n" +
		"1003 ScopeBegin process=2 thread=9 api=nvtx scope=4 name=\"a\"\n"
	for _, row := range []struct{ name, lost, on string }{
		{"none", "", ""},
		{"one thread", "1100 Lost process=1 thread=7 size=2\n1101 Lost process=1 thread=7 size=2\n", "7 of pid 11"},
		{"of unknown number", "1100 Lost process=2 thread=9\n", "9 of pid 22"},
		{"a thread without contexts", "1100 Lost process=1 thread=70 size=2\n", ""},
		{"a whole process", "1100 Lost process=1 size=2\n", "7 of pid 11, 8 of pid 11"},
	} {
		r := ask(t, formattest.Text(t, scopes+row.lost), Used, &analyze.Query{})
		notes := strings.Join(r.Completeness.Notes, "\n")
		if want := "nesting is not reliable on thread " + row.on + ": events were lost there"; row.on != "" && !strings.Contains(notes, want) || row.on == "" && strings.Contains(notes, "nesting") {
			t.Errorf("%s: %q, want %q", row.name, notes, row.on)
		}
	}
}

func TestWithoutSamples(t *testing.T) {
	c := newCourse()
	c.begin(1, "x")
	c.to(mb)
	c.end(1)
	r := ask(t, formattest.Text(t, c.String()), NVML, &analyze.Query{})
	if r.Scopes[0].Measure.Known {
		t.Errorf("a curve without samples is known: %+v", r.Scopes[0].Measure)
	}
	if !strings.Contains(strings.Join(r.Completeness.Notes, "\n"), "no samples") {
		t.Errorf("it is not said: %v", r.Completeness.Notes)
	}
}

// A trace whose first part is gone answers from its checkpoint.
func TestAfterDeletedParts(t *testing.T) {
	r := ask(t, formattest.Text(t, `
process 1 pid=4711 command=x
name 3 "outer"
part 3
900 Live thread=7 api=torch device=0 address=0x10 size=700
910 LiveScope thread=7 api=nvtx layer=pool scope=9 name=3 requested=100 size=5000 flags=open
910 LiveScope thread=7 api=nvtx layer=driver scope=9 name=3 requested=0 size=0 flags=open
1000 CheckpointEnd size=3
1010 Free thread=7 api=torch address=0x10
1020 ScopeEnd thread=7 api=nvtx scope=9
`), Used, &analyze.Query{})
	s := r.Scopes[0]
	if m := s.Measure; s.Name != "outer" || m.Used != -100 || m.Peaked != 4900 {
		t.Errorf("%s %+v", s.Name, m)
	}
	if !r.Completeness.Complete || !strings.Contains(strings.Join(r.Completeness.Notes, ""), "first part is 3") {
		t.Errorf("%+v", r.Completeness)
	}
}

// On the exact curves a peak is never negative, whatever happens.
func TestNeverNegative(t *testing.T) {
	r := rand.New(rand.NewSource(3))
	c := newCourse()
	open := []int{}
	for i := range 400 {
		switch r.Intn(4) {
		case 0:
			c.begin(i+1, "s")
			open = append(open, i+1)
		case 1:
			if len(open) > 0 {
				j := r.Intn(len(open))
				c.end(open[j])
				open = append(open[:j], open[j+1:]...)
			}
		default:
			c.to(int64(r.Intn(50)) * mb)
		}
	}
	rep := ask(t, formattest.Text(t, c.String()), Used, &analyze.Query{})
	if len(rep.Scopes) < 50 {
		t.Fatalf("%d scopes", len(rep.Scopes))
	}
	for _, s := range rep.Scopes {
		if s.Measure.Peaked < 0 || s.Measure.Max < max(s.Measure.Begin, s.Measure.End) {
			t.Errorf("scope %d: %+v", s.ID, s.Measure)
		}
		if _, p := fastai(s.Measure); p < 0 {
			t.Errorf("scope %d: fastai peaked %d", s.ID, p)
		}
	}
}

func TestJSON(t *testing.T) {
	b, err := json.Marshal(ask(t, formattest.Text(t, table1), Used, &analyze.Query{}))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"curve":"used"`, `"name":"forward"`, `"domain":"net"`, `"peaked":300`, `"open":true`, `"subcontext":"mid"`, `"complete":true`} {
		if !strings.Contains(string(b), want) {
			t.Errorf("%s is not in %s", want, b)
		}
	}
}

// Rows of several processes and traces are told apart; where there is one, no
// column says the same in each row.
func TestWhoseRow(t *testing.T) {
	const row = "%d ScopeBegin process=%d thread=7 api=nvtx scope=%d name=\"a\"\n"
	one := formattest.Text(t, "process 1 pid=11\npart\n"+fmt.Sprintf(row, 1000, 1, 1)).Path()
	two := formattest.Text(t, "process 1 pid=11\nprocess 2 pid=22\npart\n"+fmt.Sprintf(row, 1000, 1, 1)+fmt.Sprintf(row, 1001, 2, 2)).Path()
	for _, c := range []struct {
		name   string
		traces []string
		heads  string
		rows   []string
	}{
		{"one process", []string{one}, "context n thread", []string{"a 1 7"}},
		{"two processes", []string{two}, "context n pid thread", []string{"a 1 11 7", "a 2 22 7"}},
		{"two traces", []string{one, two}, "context n trace pid thread", []string{"a 1 " + one + " 11 7", "a 1 " + two + " 11 7", "a 2 " + two + " 22 7"}},
	} {
		a := New(Used, len(c.traces))
		comp, err := analyze.Run(context.Background(), c.traces, &analyze.Query{}, a, nil)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := a.Report(comp).WriteText(&b); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(b.String()), "\n")
		for i, want := range append([]string{c.heads}, c.rows...) {
			if i >= len(lines) || !strings.HasPrefix(strings.Join(strings.Fields(lines[i]), " "), want+" ") {
				t.Fatalf("%s: line %d is not %q:\n%s", c.name, i, want, b.String())
			}
		}
	}
}
