package diff

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

func side(t *testing.T, tr *format.Trace, q analyze.Query) (*Side, *analyze.Completeness) {
	t.Helper()
	s := NewSide()
	c, err := analyze.Run(context.Background(), []string{tr.Path()}, &q, s, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s, c
}

func ask(t *testing.T, a, b *format.Trace, qa, qb analyze.Query) *Report {
	t.Helper()
	x, c := side(t, a, qa)
	y, _ := side(t, b, qb)
	r := Compare(x, y, c)
	r.A.Path, r.B.Path = "before.gpurec", "after.gpurec"
	return r
}

func file(t *testing.T, name string) *format.Trace {
	return formattest.File(t, "testdata/"+name+".txt")
}

func moment(t *testing.T, s string) analyze.Moment {
	t.Helper()
	m, err := analyze.ParseMoment(s)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func window(t *testing.T, from, to string) analyze.Query {
	return analyze.Query{From: moment(t, from), To: moment(t, to)}
}

func limit(t *testing.T, s string) Limit {
	t.Helper()
	l, err := ParseLimit(s)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestText(t *testing.T) {
	r := ask(t, file(t, "before"), file(t, "after"), analyze.Query{}, analyze.Query{})
	r.Judge(limit(t, "5%"))
	var text, markdown bytes.Buffer
	if err := r.WriteText(&text, []By{ByLine, ByFunction, ByScope}); err != nil {
		t.Fatal(err)
	}
	if err := r.WriteMarkdown(&markdown, []By{ByLine, ByFunction, ByScope}); err != nil {
		t.Fatal(err)
	}
	formattest.Golden(t, "text.golden", text.Bytes())
	formattest.Golden(t, "markdown.golden", markdown.Bytes())
}

// The numbers that people act on, apart from how they are printed.
func TestNumbers(t *testing.T) {
	r := ask(t, file(t, "before"), file(t, "after"), analyze.Query{}, analyze.Query{})
	if r.A.Bytes != (Measure{AtPeak: 2550, Peak: 2550, End: 2000, Taken: 2550, Count: 4, Largest: 2000}) ||
		r.B.Bytes != (Measure{AtPeak: 3014, Peak: 3014, End: 2064, Taken: 3014, Count: 5, Largest: 2000}) {
		t.Errorf("in all %+v %+v", r.A, r.B)
	}
	if len(r.Lines) != 2 || len(r.Functions) != 2 || len(r.Scopes) != 1 || len(r.Devices) != 1 || r.Same() {
		t.Fatalf("%+v", r)
	}
	if l := r.Lines[0]; l.A != "/home/me/model.py:10:forward" || l.B != "/ci/build/model.py:11:forward" || !l.Moved || l.Bytes[0].AtPeak != 400 || l.Bytes[1].AtPeak != 800 {
		t.Errorf("the wide layer %+v", l)
	}
	if l := r.Lines[1]; l.A != "" || l.B != "/ci/build/cache.py:5:keep" || l.Bytes[1].End != 64 {
		t.Errorf("the cache %+v", l)
	}
	if s := r.Scopes[0]; s.Name != "step" || s.Scopes != [2]Scope{{1, 0, 550, 2550}, {1, 64, 950, 3014}} {
		t.Errorf("the step %+v", s)
	}
	if d := r.Devices[0]; d.SameUUID || d.A != 0 || d.B != 0 || d.Bytes[1].Peak != 3014 {
		t.Errorf("the device %+v", d)
	}
	b, err := json.Marshal(r)
	if err != nil || !bytes.Contains(b, []byte(`"complete":true`)) {
		t.Errorf("%v %s", err, b)
	}
}

func TestNothing(t *testing.T) {
	none := formattest.Text(t, "part\n")
	r := ask(t, none, none, analyze.Query{}, analyze.Query{})
	var b bytes.Buffer
	if err := r.WriteText(&b, []By{ByLine}); err != nil || !r.Same() || !strings.HasSuffix(b.String(), "\nno difference\n") {
		t.Errorf("%v %q", err, b.String())
	}
}

// random is a trace in which everything happens, and its slow replay's peak.
func random(t *testing.T, seed int64, shift int) (tr *format.Trace, peak int64) {
	r := rand.New(rand.NewSource(seed))
	var b strings.Builder
	b.WriteString("device 0 uuid=GPU-0\ndevice 1 uuid=GPU-1\nprocess 1 pid=1\nprocess 2 pid=2\n")
	for i := range 8 {
		fmt.Fprintf(&b, "frame %d python a.py %d f%d\nstack %d 0 %d\n", i+1, i+1+shift, i/3, 10+i, i+1)
	}
	b.WriteString("part\n")
	type key struct{ process, at int }
	live := map[key]int64{}
	sum, scopes, open := int64(0), 0, []int{}
	for i := range 400 {
		k := key{1 + r.Intn(2), 1 + r.Intn(20)}
		switch x := r.Intn(10); {
		case x == 0:
			scopes++
			open = append(open, scopes)
			fmt.Fprintf(&b, "%d ScopeBegin process=1 thread=1 api=nvtx scope=%d name=\"s%d\"\n", 1000+i, scopes, r.Intn(3))
		case x == 1 && len(open) > 0:
			fmt.Fprintf(&b, "%d ScopeEnd process=1 thread=1 api=nvtx scope=%d\n", 1000+i, open[0])
			open = open[1:]
		case live[k] > 0:
			fmt.Fprintf(&b, "%d Free process=%d thread=1 api=torch address=%d\n", 1000+i, k.process, k.at)
			sum -= live[k]
			delete(live, k)
		default:
			live[k] = int64(1 + r.Intn(100))
			sum += live[k]
			fmt.Fprintf(&b, "%d Alloc process=%d thread=1 api=torch device=%d address=%d size=%d stack=%d\n", 1000+i, k.process, r.Intn(2), k.at, live[k], 10+r.Intn(8))
		}
		peak = max(peak, sum)
	}
	return formattest.Text(t, b.String()), peak
}

// A trace does not differ from itself, nor from itself with all lines moved; its
// peak is a slow replay's, and lines and functions add up to it.
func TestProperties(t *testing.T) {
	for seed := range int64(30) {
		tr, peak := random(t, seed, 0)
		moved, _ := random(t, seed, 3)
		if r := ask(t, tr, tr, analyze.Query{}, analyze.Query{}); !r.Same() || len(r.Devices) != 2 {
			t.Errorf("seed %d differs from itself: %+v", seed, r)
		}
		if r := ask(t, tr, moved, analyze.Query{}, analyze.Query{}); !r.Same() {
			t.Errorf("seed %d differs when its lines move: %+v", seed, r.Lines)
		}
		for _, q := range []analyze.Query{{}, window(t, "1100ns", "1300ns"), {Devices: []string{"1"}}} {
			s, _ := side(t, tr, q)
			if len(q.Devices) == 0 && q.From.IsZero() && s.total.Peak != peak {
				t.Errorf("seed %d: peak %d, want %d", seed, s.total.Peak, peak)
			}
			lines, functions, taken, end := int64(0), int64(0), int64(0), int64(0)
			for _, l := range s.lines {
				lines, taken, end = lines+l.AtPeak, taken+l.Taken, end+l.End
			}
			for _, f := range s.functions {
				functions += f.AtPeak
			}
			if lines != s.total.Peak || functions != lines || taken != s.total.Taken || end != s.total.End || s.total.AtPeak != lines {
				t.Errorf("seed %d: lines %d, functions %d, taken %d, end %d of %+v", seed, lines, functions, taken, end, s.total)
			}
		}
	}
}

// The peak in a range begins with what is live there; a range is compared with
// another of the same trace.
func TestRanges(t *testing.T) {
	tr := formattest.Text(t, `
process 1 pid=1
frame 1 python a.py 1 f
frame 2 python a.py 2 g
stack 10 0 1
stack 11 0 2
part
1000 Alloc thread=1 api=torch device=0 address=0x10 size=1000 stack=10
1010 ScopeBegin thread=1 api=nvtx scope=1 name="step"
1020 Alloc thread=1 api=torch device=0 address=0x20 size=100 stack=11 scope=1
1030 Free thread=1 api=torch address=0x20 scope=1
1040 ScopeEnd thread=1 api=nvtx scope=1
1050 ScopeBegin thread=1 api=nvtx scope=2 name="step"
1060 Alloc thread=2 api=torch device=0 address=0x20 size=300 stack=11
1070 ScopeEnd thread=1 api=nvtx scope=2
1080 Free thread=2 api=torch address=0x20
`)
	r := ask(t, tr, tr, window(t, "scope:step#1", "scope:step#1"), window(t, "scope:step#2", "scope:step#2"))
	if r.A.Bytes != (Measure{1100, 1100, 1000, 100, 1, 100}) || r.B.Bytes != (Measure{1300, 1300, 1300, 300, 1, 300}) {
		t.Errorf("%+v %+v", r.A.Bytes, r.B.Bytes)
	}
	if len(r.Lines) != 1 || r.Lines[0].B != "a.py:2:g" || r.Scopes[0].Scopes != [2]Scope{{1, 0, 100, 1100}, {1, 300, 0, 1300}} {
		t.Errorf("%+v %+v", r.Lines[0], r.Scopes[0])
	}
}

// What a layer holds is compared when it is asked for.
func TestLayer(t *testing.T) {
	before, after := file(t, "before"), file(t, "after")
	q := analyze.Query{Layers: []format.Layer{format.LayerDriver}}
	if r := ask(t, before, after, q, q); r.A.Bytes.Peak != 100000 || r.A.Bytes != r.B.Bytes {
		t.Errorf("%+v", r.A)
	}
}

// Lines are put together as somebody who knows the change would.
func TestAlign(t *testing.T) {
	// A line is its number, allocations and bytes.
	type line struct{ n, count, taken int64 }
	for _, c := range []struct {
		name string
		a, b []line
		want string
	}{
		{"the same", []line{{1, 1, 10}, {2, 2, 20}}, []line{{1, 1, 10}, {2, 2, 20}}, "1-1 2-2"},
		{"one line inserted above moves all", []line{{4, 1, 10}, {5, 1, 20}, {6, 1, 30}}, []line{{5, 1, 10}, {6, 1, 20}, {7, 1, 30}}, "4-5 5-6 6-7"},
		{"a line inserted in the middle that takes nothing", []line{{4, 1, 10}, {5, 1, 20}}, []line{{4, 1, 10}, {6, 1, 20}}, "4-4 5-6"},
		{"a new line that takes memory", []line{{4, 1, 10}, {5, 1, 2000}}, []line{{4, 1, 10}, {5, 7, 300}, {6, 1, 2000}}, "4-4 -5 5-6"},
		{"a line gone", []line{{4, 1, 10}, {5, 7, 300}, {6, 1, 2000}}, []line{{4, 1, 10}, {5, 1, 2000}}, "4-4 5- 6-5"},
		{"a size that doubled does not part them", []line{{4, 20, 10}, {5, 20, 20}}, []line{{5, 20, 20}, {6, 20, 40}}, "4-5 5-6"},
		{"equals keep their number", []line{{4, 1, 10}}, []line{{3, 1, 10}, {4, 1, 10}, {5, 1, 10}}, "-3 4-4 -5"},
		{"another line altogether", []line{{4, 20, 100}}, []line{{9, 1, 9000}}, "4- -9"},
		{"nothing", nil, nil, ""},
	} {
		rows := func(ls []line) (out []*row) {
			for _, l := range ls {
				r := &row{line: int32(l.n)}
				r.Count, r.Taken = l.count, l.taken
				out = append(out, r)
			}
			return out
		}
		var got []string
		for _, p := range align(rows(c.a), rows(c.b)) {
			s := ""
			if p.a != nil {
				s = fmt.Sprint(p.a.line)
			}
			s += "-"
			if p.b != nil {
				s += fmt.Sprint(p.b.line)
			}
			got = append(got, s)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %v, want %s", c.name, got, c.want)
		}
	}
	many := make([]*row, mostAligned+1)
	for i := range many {
		many[i] = &row{line: int32(i)}
	}
	if pairs := align(many, many[1:]); len(pairs) != len(many) || pairs[0].b != nil || pairs[1].b.line != 1 {
		t.Errorf("many lines: %d pairs", len(pairs))
	}
}

func TestLimit(t *testing.T) {
	for _, row := range []struct {
		limit    string
		a, b     int64
		exceeded bool
	}{
		{"5%", 100, 105, false}, {"5%", 100, 106, true}, {"5%", 100, 90, false}, {"0%", 0, 1, true}, {"5%", 0, 0, false}, {"12.5%", 1000, 1125, false},
		{"0", 7, 7, false}, {"0", 7, 8, true}, {"1KiB", 0, 1024, false}, {"1KiB", 0, 1025, true}, {"1.5 KiB", 0, 1537, true}, {"1.5KiB", 0, 1536, false},
	} {
		if got := limit(t, row.limit).exceeded(row.a, row.b); got != row.exceeded {
			t.Errorf("%s from %d to %d: %v", row.limit, row.a, row.b, got)
		}
	}
	for _, bad := range []string{"", "x", "-1", "-5%", "5 percent", "NaN%", "infTiB", "1.5", "9999999999999TiB", "%"} {
		if l, err := ParseLimit(bad); err == nil {
			t.Errorf("%q is %+v", bad, l)
		}
	}
}

// Devices are those of one UUID, wherever they stand; then those in order. What
// is of no known device stays apart.
func TestDevices(t *testing.T) {
	trace := func(uuids string, devices ...int) *format.Trace {
		text := ""
		for i, u := range uuids {
			text += fmt.Sprintf("device %d uuid=GPU-%c\n", i, u)
		}
		text += "process 1 pid=1\npart\n"
		for _, d := range devices {
			text += fmt.Sprintf("1000 Alloc thread=1 api=torch device=%d address=%d size=%d\n", d, d+100, d+10)
		}
		return formattest.Text(t, text)
	}
	for _, c := range []struct {
		a, b *format.Trace
		want string
	}{
		{trace("XY", 0, 1), trace("YX", 0, 1), "0=1 10 11; 1=0 11 10"},
		{trace("X", 0), trace("Y", 0), "0-0 10 10"},
		{trace("XY", 1), trace("XY", 0), "1-0 11 10"},
		{trace("X", -1, 0), trace("Y", 0), "-1--1 9 0; 0-0 10 10"},
		{trace("X", 0), trace("Y", -1, 0), "0-0 10 10; -1--1 0 9"},
		{trace("X", -1), trace("X", 0), "-1--1 9 0; -1-0 0 10"},
		{trace("X", -1), trace("X", -1), "-1--1 9 9"},
	} {
		var got []string
		for _, d := range ask(t, c.a, c.b, analyze.Query{}, analyze.Query{}).Devices {
			got = append(got, fmt.Sprintf("%d%s%d %d %d", d.A, map[bool]string{true: "=", false: "-"}[d.SameUUID], d.B, d.Bytes[0].Peak, d.Bytes[1].Peak))
		}
		if g := strings.Join(got, "; "); g != c.want {
			t.Errorf("got %s, want %s", g, c.want)
		}
	}
}

// A fall on one device hides no rise on another.
func TestGateByDevice(t *testing.T) {
	trace := func(a, b int) *format.Trace {
		return formattest.Text(t, fmt.Sprintf(`
device 0 uuid=GPU-0
device 1 uuid=GPU-1
process 1 pid=1
part
1000 Alloc thread=1 api=torch device=0 address=0x10 size=%d
1001 Alloc thread=1 api=torch device=1 address=0x20 size=%d
`, a, b))
	}
	r := ask(t, trace(100, 100), trace(50, 120), analyze.Query{}, analyze.Query{})
	r.Judge(limit(t, "10%"))
	if !r.Gate.Exceeded || !strings.HasPrefix(r.Gate.Sentence, "device 1: its peak of used bytes went from 100 B to 120 B, +20 B, +20.0 %, more than 10%") {
		t.Errorf("%+v", r.Gate)
	}
	r.Judge(limit(t, "20%"))
	if r.Gate.Exceeded {
		t.Errorf("%+v", r.Gate)
	}
}
