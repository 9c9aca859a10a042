package leaks

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand"
	"strings"
	"testing"
	"time"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/formattest"
)

func ask(t *testing.T, tr *format.Trace, opt Options, q *analyze.Query) *Report {
	t.Helper()
	a := New(opt)
	c, err := analyze.Run(context.Background(), []string{tr.Path()}, q, a, nil)
	if err != nil {
		t.Fatal(err)
	}
	return a.Report(c)
}

func small(t *testing.T) *format.Trace {
	return formattest.File(t, "testdata/small.txt")
}

func text(t *testing.T, r *Report) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func moment(t *testing.T, s string) analyze.Moment {
	t.Helper()
	m, err := analyze.ParseMoment(s)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func suppressions(t *testing.T, s string) *Suppressions {
	t.Helper()
	sup, err := ReadSuppressions(strings.NewReader(s))
	if err != nil {
		t.Fatal(err)
	}
	return sup
}

func TestText(t *testing.T) {
	step := Options{TemporaryEvents: TemporaryEvents}
	for _, row := range []struct {
		name string
		opt  Options
		q    analyze.Query
	}{
		{"all", step, analyze.Query{}},
		{"function", Options{By: ByFunction, TemporaryEvents: 1, Per: "step"}, analyze.Query{Processes: []int32{4711}}},
		{"window", step, analyze.Query{From: moment(t, "scope:step#3"), To: moment(t, "scope:step#4")}},
		{"scope", step, analyze.Query{Scopes: []analyze.ScopeRef{{Name: "step", N: 3}}}},
		{"driver", step, analyze.Query{Layers: []format.Layer{format.LayerDriver}}},
		{"suppressed", Options{Suppressions: suppressions(t, "# known\ntrain.py:*:keep\n\nnowhere\n"), TemporaryTime: time.Microsecond}, analyze.Query{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			formattest.Golden(t, row.name+".golden", text(t, ask(t, small(t), row.opt, &row.q)))
		})
	}
}

// The numbers that people act on, apart from how they are printed.
func TestNumbers(t *testing.T) {
	r := ask(t, small(t), Options{TemporaryEvents: TemporaryEvents}, &analyze.Query{})
	p := r.Traces[0].Processes[0]
	g := p.Growth
	if g.Scope != "step" || g.Turns != 9 || g.Length != 1 || g.Stretches != 9 || g.Warmup != 3 || len(g.Growing) != 1 {
		t.Fatalf("growth %+v", g)
	}
	k := g.Growing[0]
	if k.Name != "/home/me/train.py:4:keep" || k.Slope != 100 || k.Low != 100 || k.High != 100 || k.Rose != 500 || k.Floor != 900 || k.Rises != 5 || k.Parts != 5 {
		t.Errorf("growing %+v", k)
	}
	if h := p.AtEnd; len(h.Sums) != 2 || h.Sums[0].Bytes != 6000 || h.Sums[0].Blocks != 11 || h.Sums[1].Layer != "host" || h.Sums[1].Bytes != 64 || len(h.Sites) != 3 {
		t.Errorf("at end %+v", h)
	}
	if m := p.Temporaries; m.Count != 10 || m.Of != 22 || m.Bytes != 10000 || len(m.Sites) != 1 || m.Sites[0].Largest != 1000 {
		t.Errorf("temporaries %+v", m)
	}
	if p2 := r.Traces[0].Processes[1]; p2.UsedLayer != "driver" || p2.AtEnd.Sums[0].Bytes != 4096 {
		t.Errorf("process without a pool %+v", p2)
	}
	b, err := json.Marshal(r)
	if err != nil || !bytes.Contains(b, []byte(`"complete":true`)) || !bytes.Contains(b, []byte(`"certainty_percent":95`)) {
		t.Errorf("%v %s", err, b)
	}
}

func TestNothing(t *testing.T) {
	r := ask(t, formattest.Text(t, "part\n"), Options{}, &analyze.Query{})
	if got := string(text(t, r)); got != "nothing was taken\n" || r.Traces[0].Processes == nil {
		t.Errorf("%q", got)
	}
}

// Where a scope has too few turns to say what grows from one to the next, it is
// said how many it has, how many it takes, and what to do.
func TestFewTurns(t *testing.T) {
	for _, row := range []struct {
		name  string
		turns int
		apart time.Duration // of one allocation and the next
		per   string
		want  string
	}{
		{"enough", 9, time.Millisecond, "", "over 8 turns of step"},
		{"too few, and time enough", 8, 20 * time.Millisecond, "", "\n  not from turn to turn: scope step has 7 turns after the first, and it takes 8: record more of them\n"},
		{"too few, in a short time", 8, time.Millisecond, "",
			"unknown: scope step has 7 turns after the first, and it takes 8; memory was taken during 7ms only, where it takes 80ms: record more turns\n"},
		{"asked for, and too few", 7, 20 * time.Millisecond, "step", "unknown: scope step has 7 turns, and it takes 8: record more of them, or leave out --per for stretches of time\n"},
		{"asked for, and not there", 7, time.Millisecond, "epoch", "unknown: there is no scope epoch: gpuanalyze contexts lists those that there are\n"},
		{"comes once", 1, time.Millisecond, "", "unknown: no scope comes round, and memory was taken during 0s only, where it takes 80ms: record more steps, each in a scope or an NVTX range\n"},
	} {
		var b strings.Builder
		b.WriteString("process 1 pid=7\npart\n")
		for i := range row.turns {
			at := int64(1000 + i*int(row.apart))
			fmt.Fprintf(&b, "%d ScopeBegin process=1 thread=7 api=nvtx scope=%d name=\"step\"\n%d Alloc process=1 thread=7 api=torch device=0 address=%d size=512\n%d ScopeEnd process=1 thread=7 api=nvtx scope=%d\n",
				at, i+1, at+1, 512*(i+1), at+2, i+1)
		}
		if got := string(text(t, ask(t, formattest.Text(t, b.String()), Options{Per: row.per}, &analyze.Query{}))); !strings.Contains(got, row.want) {
			t.Errorf("%s: %q is not in\n%s", row.name, row.want, got)
		}
	}
}

// A verdict by hand-made floors.
func TestTrend(t *testing.T) {
	line := func(n int, f func(i int) int64) (y []int64) {
		for i := range n {
			y = append(y, f(i))
		}
		return y
	}
	for _, row := range []struct {
		name  string
		y     []int64
		grows bool
	}{
		{"too few", line(7, func(i int) int64 { return int64(i) }), false},
		{"the fewest", line(8, func(i int) int64 { return int64(i) }), true},
		{"steady", line(32, func(i int) int64 { return 7 }), false},
		{"steady growth", line(32, func(i int) int64 { return int64(10 * i) }), true},
		{"every fourth time", line(32, func(i int) int64 { return int64(i / 4) }), true},
		{"only in the warm-up", line(32, func(i int) int64 { return min(int64(i), 8) }), false},
		{"one jump", line(32, func(i int) int64 { return int64(i / 20) }), false},
		{"two jumps", line(32, func(i int) int64 { return int64(i / 12) }), false},
		{"a rise that stops half-way", line(32, func(i int) int64 { return min(int64(i), 16) }), false},
		{"falling", line(32, func(i int) int64 { return int64(-i) }), false},
		{"up and down", line(32, func(i int) int64 { return int64(i % 5) }), false},
		{"growth with noise", line(32, func(i int) int64 { return int64(10*i + i*7%5) }), true},
		{"noise with a little growth", line(32, func(i int) int64 { return int64(i + i*7%5*20) }), false},
	} {
		tr, ok := trendOf(row.y)
		if ok != (len(row.y) >= fewest) || tr.grows() != row.grows {
			t.Errorf("%s: %+v, %v", row.name, tr, ok)
		}
	}
}

// What only wanders is called growth about as rarely as the certainty says.
func TestTrendOfNoise(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	const tries = 4000
	for _, n := range []int{8, 20, 31} {
		walks, noise := 0, 0
		for range tries {
			walk, white := make([]int64, n), make([]int64, n)
			at := int64(1 << 20)
			for i := range n {
				at += int64(r.Intn(201) - 100)
				walk[i], white[i] = at, int64(r.Intn(1000))
			}
			if tr, _ := trendOf(walk); tr.grows() {
				walks++
			}
			if tr, _ := trendOf(white); tr.grows() {
				noise++
			}
		}
		if walks > tries/20 || noise > tries/200 {
			t.Errorf("%d stretches: %d walks and %d rows of noise of %d grow", n, walks, noise, tries)
		}
	}
}

// Floors are the minimum of each stretch, however many there are and wherever a
// site changed.
func TestFloorsAgainstReplay(t *testing.T) {
	for seed := range int64(200) {
		r := rand.New(rand.NewSource(seed))
		c, f := &clock{}, &floors{}
		held, low := int64(0), []int64{0} // by turn
		for range 1 + r.Intn(600) {
			if r.Intn(3) == 0 {
				c.set(c.hand + 1)
				low = append(low, held)
				continue
			}
			before := held
			held = max(held+int64(r.Intn(21)-8), 0)
			f.change(c, before, held)
			last := len(low) - 1
			low[last] = min(low[last], held)
		}
		f.advance(c, held)
		for i := range c.bucket() {
			want := low[i<<c.level]
			for _, v := range low[i<<c.level : (i+1)<<c.level] {
				want = min(want, v)
			}
			if f.low[i] != want {
				t.Fatalf("seed %d: stretch %d of %d at level %d: %d, want %d", seed, i, c.bucket(), c.level, f.low[i], want)
			}
		}
		if n := c.bucket(); n >= buckets || c.level > 0 && n < buckets/2 {
			t.Fatalf("seed %d: %d stretches", seed, n)
		}
	}
}

// What is live at the end, and who took it, against a slow replay; the sums are
// those of the sites, however they are grouped.
func TestAtEndAgainstReplay(t *testing.T) {
	for seed := range int64(20) {
		r := rand.New(rand.NewSource(seed))
		var b strings.Builder
		b.WriteString("process 1 pid=1\n")
		for i := range 6 {
			fmt.Fprintf(&b, "frame %d python a.py %d f%d\nstack %d 0 %d\n", i+1, i+1, i/2, 10+i, i+1)
		}
		b.WriteString("part\n")
		type block struct {
			stack int
			size  int64
			at    int
		}
		live := map[int]block{}
		const from, events = 150, 300
		for i := range events {
			at := 1 + r.Intn(40)
			if _, ok := live[at]; ok {
				fmt.Fprintf(&b, "%d Free thread=1 api=torch address=%d\n", 1000+i, at)
				delete(live, at)
			} else {
				live[at] = block{r.Intn(6), int64(1 + r.Intn(100)), i}
				fmt.Fprintf(&b, "%d Alloc thread=1 api=torch device=0 address=%d size=%d stack=%d\n", 1000+i, at, live[at].size, 10+live[at].stack)
			}
		}
		tr := formattest.Text(t, b.String())
		for _, since := range []int{0, from} {
			want := map[string]int64{}
			for _, l := range live {
				if l.at >= since {
					want[fmt.Sprintf("a.py:%d:f%d", l.stack+1, l.stack/2)] += l.size
					want[fmt.Sprintf("a.py:f%d", l.stack/2)] += l.size
					want["sum"] += l.size
				}
			}
			for _, by := range []By{ByStack, ByLine, ByFunction} {
				q := &analyze.Query{}
				if since > 0 {
					q.From = moment(t, fmt.Sprintf("%dns", 1000+since)) // the text says no start
				}
				p := ask(t, tr, Options{By: by}, q).Traces[0].Processes[0]
				sum := int64(0)
				for _, s := range p.AtEnd.Sites {
					if sum += s.Bytes; s.Bytes != want[s.Name] {
						t.Errorf("seed %d by %s since %d: %s holds %d, want %d", seed, by, since, s.Name, s.Bytes, want[s.Name])
					}
				}
				if sum != want["sum"] || p.AtEnd.Sums[0].Bytes != sum {
					t.Errorf("seed %d by %s since %d: %d in all, want %d", seed, by, since, sum, want["sum"])
				}
			}
		}
	}
}

func TestSuppressions(t *testing.T) {
	const line = "/home/me/train.py:10:load"
	for pattern, want := range map[string]bool{
		line: true, "train.py:10:load": true, "me/train.py:10:load": true, "rain.py:10:load": false, "train.py:*:load": true,
		"train.py:10": false, "train.py*": true, "*:load": true, "*": true, "*:store": false, "*load*load": false, "tr*in*:1*load": true,
	} {
		if got := suppressions(t, pattern).match(line) > 0; got != want {
			t.Errorf("%s: %v", pattern, got)
		}
	}
	s := suppressions(t, "# none\n\n a \nb\na\n")
	if s.match("a") != 3 || s.match("c") != 0 || fmt.Sprint(s.unused()) != "[4 5]" || s.len() != 3 {
		t.Errorf("%+v", s)
	}
	if _, err := ReadSuppressions(strings.NewReader(strings.Repeat("x\n", mostSuppressions+1))); err == nil {
		t.Error("as many as anybody likes")
	}
}

// A pattern is for a line of the stack, however sites are made.
func TestSuppressedStack(t *testing.T) {
	tr := formattest.Text(t, `
process 1 pid=1
frame 1 python /app/a.py 1 main
frame 2 python /app/a.py 2 load
frame 3 python /app/b.py 3 take
stack 10 0 1
stack 11 10 2
stack 12 10 3
stack 13 11 3
part
1000 Alloc thread=1 api=torch device=0 address=1 size=1 stack=12
1001 Alloc thread=1 api=torch device=0 address=2 size=20 stack=13
`)
	for _, by := range []By{ByStack, ByLine, ByFunction} {
		r := ask(t, tr, Options{By: by, Suppressions: suppressions(t, "a.py:*:load\nb.py:*:store")}, &analyze.Query{})
		p := r.Traces[0].Processes[0]
		if len(p.AtEnd.Sites) != 1 || p.AtEnd.Sites[0].Bytes != 1 || len(p.Suppressed) != 1 || p.Suppressed[0].Bytes != 20 || p.Suppressed[0].Line != 1 || fmt.Sprint(r.Rules.Unused) != "[2]" {
			t.Errorf("by %s: %+v, suppressed %+v, unused %v", by, p.AtEnd, p.Suppressed, r.Rules.Unused)
		}
	}
}

// A process that ended before the window is not in it.
func TestEndedBefore(t *testing.T) {
	p := ask(t, small(t), Options{}, &analyze.Query{From: moment(t, "55500ns")}).Traces[0].Processes
	if len(p) != 1 || p[0].PID != 4712 {
		t.Errorf("%+v", p)
	}
}

func FuzzSuppressions(f *testing.F) {
	f.Add("a*b*c", "aabbcc")
	f.Add("*", "")
	f.Add("**a", "a")
	f.Fuzz(func(t *testing.T, pattern, text string) {
		s, err := ReadSuppressions(strings.NewReader(pattern))
		if err != nil {
			return
		}
		s.match(text)
		if trimmed := strings.TrimSpace(text); trimmed != "" && trimmed[0] != '#' && !strings.ContainsAny(trimmed, "*\n\r") {
			if own, err := ReadSuppressions(strings.NewReader(text)); err == nil && own.match(trimmed) == 0 {
				t.Errorf("%q does not match itself", text)
			}
		}
	})
}
