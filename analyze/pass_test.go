package analyze

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/formattest"
)

// A recorder writes down what it is fed.
type recorder struct {
	needs Needs
	log   []string
	stop  int // after so many events; 0 never
	count Fields
	end   func(p *Pass)
}

func (r *recorder) Needs() Needs { return r.needs }
func (r *recorder) Begin(p *Pass) error {
	r.log = append(r.log, "begin")
	p.CountOnly(r.count)
	return nil
}
func (r *recorder) Enter(p *Pass) { r.log = append(r.log, "enter") }
func (r *recorder) Event(p *Pass, e *format.Event) error {
	if p.In && !e.Kind.Checkpoint() && p.Matches(e, ByAll) {
		r.log = append(r.log, fmt.Sprintf("%d %v", e.Time, e.Kind))
	}
	if r.stop > 0 && p.Event+1 >= int64(r.stop) {
		return ErrStop
	}
	return nil
}
func (r *recorder) Sample(p *Pass, s *format.Sample) error {
	r.log = append(r.log, fmt.Sprintf("%d sample", s.Time))
	return nil
}
func (r *recorder) End(p *Pass) error {
	if r.end != nil {
		r.end(p)
	}
	r.log = append(r.log, "end")
	return nil
}

const trace1 = `
meta start=2026-11-30T10:00:00Z start_monotonic=1000
device 0 uuid=GPU-aaa
device 1 uuid=GPU-bbb
process 1 pid=11 rank=0 command=a
process 2 pid=22 rank=1 command=b
part
1100 ScopeBegin process=1 thread=5 api=nvtx scope=1 name="step"
1200 Alloc process=1 thread=5 api=cuMemAlloc_v2 device=0 address=0x10 size=100
sample 1250 device=0 total=1 used=1 free=0
1300 Alloc process=1 thread=6 api=torch device=1 address=0x10 size=10
1400 ScopeEnd process=1 thread=5 api=nvtx scope=1
1500 ScopeBegin process=1 thread=5 api=nvtx scope=2 name="step"
1600 Alloc process=1 thread=5 api=cuMemHostAlloc address=0x10 size=100
1700 ScopeEnd process=1 thread=5 api=nvtx scope=2
1800 Alloc process=2 thread=9 api=cuMemAlloc_v2 device=0 address=0x10 size=100
sample 1900 device=0 total=1 used=1 free=0
`

func mustMoment(t *testing.T, s string) Moment {
	t.Helper()
	m, err := ParseMoment(s)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestPass(t *testing.T) {
	scope := func(s string) []ScopeRef {
		r, err := ParseScope(s)
		if err != nil {
			t.Fatal(err)
		}
		return []ScopeRef{r}
	}
	const all = "1100 ScopeBegin, 1200 Alloc, 1300 Alloc, 1400 ScopeEnd, 1500 ScopeBegin, 1600 Alloc, 1700 ScopeEnd, 1800 Alloc"
	for _, row := range []struct {
		name  string
		q     Query
		needs Needs
		stop  int
		want  string
	}{
		{"all", Query{}, Needs{}, 0, "begin, enter, " + all + ", end"},
		{"samples stand before what is younger", Query{}, Needs{Samples: true}, 3, "begin, enter, 1100 ScopeBegin, 1200 Alloc, 1250 sample, 1300 Alloc, end"},
		{"samples after the last event", Query{From: mustMoment(t, "750ns")}, Needs{Samples: true}, 0, "begin, 1250 sample, enter, 1800 Alloc, 1900 sample, end"},
		{"process", Query{Processes: []int32{22}}, Needs{}, 0, "begin, enter, 1800 Alloc, end"},
		{"rank", Query{Ranks: []int32{1}}, Needs{}, 0, "begin, enter, 1800 Alloc, end"},
		{"thread", Query{Threads: []uint32{6, 9}}, Needs{}, 0, "begin, enter, 1300 Alloc, 1800 Alloc, end"},
		{"device by index", Query{Devices: []string{"1"}}, Needs{}, 0, "begin, enter, 1300 Alloc, end"},
		{"device by uuid", Query{Devices: []string{"GPU-b"}}, Needs{}, 0, "begin, enter, 1300 Alloc, end"},
		{"layer", Query{Layers: []format.Layer{format.LayerHost}}, Needs{}, 0, "begin, enter, 1600 Alloc, end"},
		{"a scope holds what its thread does", Query{Scopes: scope("step#1")}, Needs{}, 0, "begin, enter, 1100 ScopeBegin, 1200 Alloc, 1400 ScopeEnd, end"},
		{"all scopes of a name", Query{Scopes: scope("step")}, Needs{}, 0,
			"begin, enter, 1100 ScopeBegin, 1200 Alloc, 1400 ScopeEnd, 1500 ScopeBegin, 1600 Alloc, 1700 ScopeEnd, end"},
		{"a scope by id", Query{Scopes: scope("2")}, Needs{}, 0, "begin, enter, 1500 ScopeBegin, 1600 Alloc, 1700 ScopeEnd, end"},
		{"from and to, both included", Query{From: mustMoment(t, "300ns"), To: mustMoment(t, "500ns")}, Needs{}, 0,
			"begin, enter, 1300 Alloc, 1400 ScopeEnd, 1500 ScopeBegin, end"},
		{"from an instant", Query{From: mustMoment(t, "2026-11-30T10:00:00.0000008Z")}, Needs{}, 0, "begin, enter, 1800 Alloc, end"},
		{"from and to a scope", Query{From: mustMoment(t, "scope:step#2"), To: mustMoment(t, "scope:step#2")}, Needs{}, 0,
			"begin, enter, 1500 ScopeBegin, 1600 Alloc, 1700 ScopeEnd, end"},
		{"a scope's first is its default", Query{To: mustMoment(t, "scope:step")}, Needs{}, 0,
			"begin, enter, 1100 ScopeBegin, 1200 Alloc, 1300 Alloc, 1400 ScopeEnd, end"},
		{"a window after everything", Query{From: mustMoment(t, "1h")}, Needs{}, 0, "begin, enter, end"},
		{"stopped", Query{}, Needs{}, 2, "begin, enter, 1100 ScopeBegin, 1200 Alloc, end"},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := &recorder{needs: row.needs, stop: row.stop}
			c, err := Run(context.Background(), []string{formattest.Text(t, trace1).Path()}, &row.q, r, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(r.log, ", "); got != row.want {
				t.Errorf("got  %s\nwant %s", got, row.want)
			}
			if !c.Complete {
				t.Errorf("%v", c)
			}
		})
	}
}

// A filter that matches nothing in any trace is a slip; a value beside others is
// noted, and so is what may come after the window.
func TestFilterMatchesNothing(t *testing.T) {
	scope := func(s string) []ScopeRef { return []ScopeRef{{Name: s}} }
	for _, row := range []struct {
		name      string
		q         Query
		err, note string
	}{
		{"process", Query{Processes: []int32{1}}, "no process 1; there are 11, 22", ""},
		{"a process beside others", Query{Processes: []int32{1, 11}}, "", "no process 1; there are 11, 22"},
		{"rank", Query{Ranks: []int32{7}}, "no rank 7; there are 0, 1", ""},
		{"device", Query{Devices: []string{"7"}}, "no device 7; there are 0 (GPU-aaa), 1 (GPU-bbb)", ""},
		{"device by UUID", Query{Devices: []string{"GPU-x", ""}}, "no device GPU-x, ; there are 0 (GPU-aaa), 1 (GPU-bbb)", ""},
		{"thread", Query{Threads: []uint32{1}}, "no thread 1; there are 5, 6, 9", ""},
		{"thread of a process", Query{Threads: []uint32{5}, Processes: []int32{22}}, "no thread 5; there is 9", ""},
		{"thread after the window", Query{Threads: []uint32{9}, To: mustMoment(t, "300ns")}, "", "no thread 9; there are 5, 6"},
		{"scope", Query{Scopes: scope("nope")}, "no scope nope; there is step", ""},
		{"scope by number", Query{Scopes: []ScopeRef{{Name: "step", N: 3}}}, "no scope step#3; there is step", ""},
		{"scope by id", Query{Scopes: []ScopeRef{{ID: 3}}}, "no scope 3; there is step", ""},
		{"scope after the window", Query{Scopes: []ScopeRef{{Name: "step", N: 2}}, To: mustMoment(t, "300ns")}, "", "no scope step#2; there is step"},
		{"all there", Query{Scopes: scope("step"), Processes: []int32{11}, Devices: []string{"GPU-a"}, Threads: []uint32{5}, Ranks: []int32{0}}, "", ""},
		{"a window after the end", Query{From: mustMoment(t, "1h")}, "", "no event is in the window: the last is at 0.000001s"},
		{"an empty window", Query{From: mustMoment(t, "2s"), To: mustMoment(t, "1s")}, "the window is empty: it begins at 2s and ends before, at 1s", ""},
		{"an empty window of scopes", Query{From: mustMoment(t, "scope:step#2"), To: mustMoment(t, "scope:step#1")}, "the window is empty", ""},
		{"a window of one moment", Query{From: mustMoment(t, "300ns"), To: mustMoment(t, "300ns")}, "", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			other := formattest.Text(t, "process 1 pid=11 rank=0\n").Path()
			if row.name == "scope by number" {
				other = formattest.Text(t, trace1).Path() // numbers count in each trace
			}
			c, err := Run(context.Background(), []string{formattest.Text(t, trace1).Path(), other}, &row.q, &recorder{}, nil)
			got := ""
			if err != nil {
				got = err.Error()
			}
			if !strings.Contains(got, row.err) || row.err == "" && got != "" {
				t.Fatalf("error %q, want %q", got, row.err)
			}
			if err == nil && (!c.Complete || !strings.Contains(strings.Join(c.Notes, "\n"), row.note) || row.note == "" && len(c.Notes) > 0) {
				t.Errorf("%v, notes %q, want %q", c, c.Notes, row.note)
			}
		})
	}
}

func TestNoSuchScope(t *testing.T) {
	_, err := Run(context.Background(), []string{formattest.Text(t, trace1).Path()}, &Query{From: mustMoment(t, "scope:step#3")}, &recorder{}, nil)
	if err == nil || !strings.Contains(err.Error(), "no scope step#3") {
		t.Errorf("error %v", err)
	}
}

// Who has a pool is known from the first event on when an answer needs it.
func TestPooledIsKnownBefore(t *testing.T) {
	for _, needs := range []bool{false, true} {
		r := &recorder{needs: Needs{Pooled: needs}, stop: 1}
		r.end = func(p *Pass) {
			if p.Pooled(1) != needs || p.Pooled(2) {
				t.Errorf("needs %v: process 1 %v, process 2 %v", needs, p.Pooled(1), p.Pooled(2))
			}
		}
		if _, err := Run(context.Background(), []string{formattest.Text(t, trace1).Path()}, &Query{}, r, nil); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCountOnly(t *testing.T) {
	r := &recorder{count: ByDevice}
	r.end = func(p *Pass) {
		if n := p.State.Process(1).Acquired().Now + p.State.Process(1).Pool().Now; n != 10 {
			t.Errorf("device 1 holds %d, want 10", n)
		}
	}
	if _, err := Run(context.Background(), []string{formattest.Text(t, trace1).Path()}, &Query{Devices: []string{"1"}}, r, nil); err != nil {
		t.Fatal(err)
	}
}

func TestCompleteness(t *testing.T) {
	head := "process 1 pid=1 command=x\n"
	body := "1000 Alloc thread=1 api=torch device=0 address=0x10 size=1\n"
	for _, row := range []struct {
		name, text, partial, note string
	}{
		{"whole", head + "part\n" + body, "", ""},
		{"empty", head + "part\n", "", ""},
		{"B1: lost", head + "part\n" + body + "1001 Lost thread=1 size=41\n1002 Lost thread=2 size=1\n", "42 events lost on 2 threads", ""},
		{"lost more than a number holds", head + "part\n" + body + "1001 Lost thread=1 size=9223372036854775807\n1002 Lost thread=1 size=9223372036854775807\n", "9223372036854775807 events lost on 1 thread", ""},
		{"lost, and nobody knows how many", head + "part\n" + body + "1001 Lost thread=1\n", "an unknown number of events lost on 1 thread", ""},
		{"lost at least", head + "part\n" + body + "1001 Lost thread=1 size=-5\n1001 Lost thread=1 size=2\n", "at least 2 events lost on 1 thread", ""},
		{"lost by a recorder's huge count", "meta lost=18446744073709551615\n" + head + "part\n" + body, "9223372036854775807 events lost", ""},
		{"lost by the recorder's count", "meta lost=7\n" + head + "part\n" + body, "7 events lost", ""},
		{"a closed lane", "meta closed_lanes=1\n" + head + "part\n" + body, "1 lane closed", ""},
		{"growing", "meta ending=growing\n" + head + "part\n" + body, "not closed", ""},
		{"failed", "meta ending=failed reason=\"disk full\"\n" + head + "part\n" + body, "disk full", ""},
		{"a part missing in the middle", head + "part\n" + body + "part 3\n1001 CheckpointEnd size=0\n", "parts 1 to 2 are missing", ""},
		{"retention", head + "part 4\n1001 CheckpointEnd size=0\n", "", "its first part is 4"},
		{"the last parts missing", "meta parts=4\n" + head + "part\n" + body, "parts 1 to 3 are missing", ""},
		{"no NVML", "meta no_samples=\"libnvidia-ml.so.1 not found\"\n" + head + "part\n" + body, "", "no NVML samples: libnvidia-ml.so.1 not found"},
		{"A3: unknown frees", head + "part\n1000 Free thread=1 api=torch address=0x20\n", "", "1 free of what was allocated before"},
		{"lost frees", head + "part\n" + body + body, "", "1 free not seen"},
		{"F7: unhooked", head + "part\n1000 Unhooked thread=1 name=\"cuMemNew\"\n", "", "1 look-up of functions"},
		{"late", "meta late=3\n" + head + "part\n" + body, "", "3 events passed on after their place"},
		{"unresolved", "meta unresolved=3\n" + head + "part\n" + body, "", "3 stacks without a definition"},
	} {
		t.Run(row.name, func(t *testing.T) {
			c, err := Run(context.Background(), []string{formattest.Text(t, row.text).Path()}, &Query{}, &recorder{needs: Needs{Samples: true}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if c.Complete != (row.partial == "") || !strings.Contains(c.String(), row.partial) {
				t.Errorf("%v, want partial %q", c, row.partial)
			}
			notes := strings.Join(c.Notes, "\n")
			if !strings.Contains(notes, row.note) || row.note == "" && notes != "" {
				t.Errorf("notes %q, want %q", notes, row.note)
			}
		})
	}
}

// A cut part answers from its whole batches; the part after it begins with a
// checkpoint, which sets what is live.
func TestCutPart(t *testing.T) {
	tr := formattest.Text(t, `
process 1 pid=1 command=x
part
1000 Alloc thread=1 api=torch device=0 address=0x10 size=1
1001 Alloc thread=1 api=torch device=0 address=0x20 size=20
part
1001 Live thread=1 api=torch device=0 address=0x20 size=20
1002 CheckpointEnd size=1
1003 Alloc thread=1 api=torch device=0 address=0x30 size=300
`)
	events := filepath.Join(tr.Path(), "00000", "events.arrow")
	b, err := os.ReadFile(events)
	if err != nil {
		t.Fatal(err)
	}
	for _, keep := range []int{len(b) - 1, len(b) / 2, 8, 0} {
		if err := os.WriteFile(events, b[:keep], 0o600); err != nil {
			t.Fatal(err)
		}
		r := &recorder{}
		r.end = func(p *Pass) {
			if n := p.State.Process(1).Pool().Now; n != 320 {
				t.Errorf("%d bytes kept: live %d, want 320", keep, n)
			}
		}
		c, err := Run(context.Background(), []string{tr.Path()}, &Query{}, r, nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.Complete || !strings.Contains(c.String(), "00000") {
			t.Errorf("%d bytes kept: %v", keep, c)
		}
	}
}

func TestErrors(t *testing.T) {
	if _, err := Run(context.Background(), []string{filepath.Join(t.TempDir(), "none")}, &Query{}, &recorder{}, nil); err == nil {
		t.Error("a trace that is not there is no error")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Run(ctx, []string{formattest.Text(t, trace1).Path()}, &Query{}, &recorder{}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	if _, err := Run(context.Background(), []string{formattest.Text(t, trace1).Path()}, &Query{}, &failing{}, nil); err == nil || err.Error() != "full" {
		t.Errorf("an answer's error: %v", err)
	}
}

type failing struct{ recorder }

func (f *failing) Event(*Pass, *format.Event) error { return errors.New("full") }

func TestParse(t *testing.T) {
	for s, want := range map[string]Moment{
		"12.5s":                {kind: momentOffset, offset: 12500 * time.Millisecond},
		"2026-11-30T10:00:00Z": {kind: momentWall, wall: time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)},
		"scope:forward#3":      {kind: momentScope, scope: ScopeRef{Name: "forward", N: 3}},
		"scope:forward":        {kind: momentScope, scope: ScopeRef{Name: "forward", N: 1}},
		"scope:17":             {kind: momentScope, scope: ScopeRef{ID: 17}},
		"scope:17#1":           {kind: momentScope, scope: ScopeRef{Name: "17", N: 1}},
		"scope:a#b#2":          {kind: momentScope, scope: ScopeRef{Name: "a#b", N: 2}},
		"scope:a#b":            {kind: momentScope, scope: ScopeRef{Name: "a#b", N: 1}},
	} {
		if m, err := ParseMoment(s); err != nil || m != want {
			t.Errorf("%s is %+v, %v", s, m, err)
		}
	}
	for _, s := range []string{"", "12", "yesterday", "scope:", "scope:x#0", "scope:x#-1"} {
		if m, err := ParseMoment(s); err == nil {
			t.Errorf("%q is %+v", s, m)
		}
	}
}

// What is accepted says the same when it is written and read again.
func FuzzMoment(f *testing.F) {
	for _, s := range []string{"12.5s", "-3ms", "2026-11-30T10:00:00.5+02:00", "scope:forward#3", "scope:17", "scope:a#b", "scope:#1", "scope:0x1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		m, err := ParseMoment(s)
		if err != nil {
			return
		}
		again, err := ParseMoment(m.String())
		if err != nil || again.String() != m.String() || again.kind != m.kind || !again.wall.Equal(m.wall) || again.scope != m.scope || again.offset != m.offset {
			t.Errorf("%q is %+v, written %q, read %+v, %v", s, m, m, again, err)
		}
	})
}
