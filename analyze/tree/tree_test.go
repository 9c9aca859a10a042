package tree

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math/rand"
	"reflect"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/formattest"
	"github.com/gpurec/gpurec/format/live"
)

// A Set says what a map would, keeps what it was at the last Mark, and forgets
// what holds nothing.
func TestSetAgainstMaps(t *testing.T) {
	for seed := range int64(50) {
		r := rand.New(rand.NewSource(seed))
		s, now, high := NewSet(), map[Key]Amount{}, map[Key]Amount{}
		for range 400 {
			k := Key{Stack: format.StackID(r.Intn(6)), Path: Path(r.Intn(3))}
			a := Amount{Used: int64(r.Intn(9)), Acquired: int64(r.Intn(3)), Blocks: 1}
			if n := now[k]; n != (Amount{}) && r.Intn(2) == 0 {
				a = Amount{-n.Used, -n.Acquired, -n.Blocks}
			}
			s.Add(k, a)
			n := now[k]
			n.add(a)
			now[k] = n
			if n == (Amount{}) {
				delete(now, k)
			}
			if r.Intn(10) == 0 {
				s.Mark()
				high = map[Key]Amount{}
				for k, a := range now {
					high[k] = a
				}
			}
			for name, c := range map[string]struct {
				each Each
				want map[Key]Amount
			}{"now": {s.Now, now}, "high": {s.High, high}} {
				got := map[Key]Amount{}
				c.each(func(k Key, a Amount) { got[k] = a })
				if !reflect.DeepEqual(got, c.want) {
					t.Fatalf("seed %d, %s: %v, want %v", seed, name, got, c.want)
				}
			}
			held := map[Key]bool{}
			for k := range now {
				held[k] = true
			}
			for k := range high {
				held[k] = true
			}
			if s.Len() != len(held) {
				t.Fatalf("seed %d: %d cells, %d are held", seed, s.Len(), len(held))
			}
		}
	}
}

// answer is the least that an answer does with a Watch and Paths.
type answer struct {
	w     *Watch[format.Device]
	paths *Paths
	most  int // cells at any time
	end   func(p *analyze.Pass, a *answer)
}

func (a *answer) Needs() analyze.Needs                       { return analyze.Needs{Pooled: true} }
func (a *answer) Sample(*analyze.Pass, *format.Sample) error { return nil }
func (a *answer) End(p *analyze.Pass) error                  { a.end(p, a); return nil }
func (a *answer) Begin(p *analyze.Pass) error {
	a.paths = NewPaths()
	var path Path
	a.w = NewWatch(p, func(al *live.Allocation) format.Device { return al.Device },
		func(al *live.Allocation) Key { return Key{al.Process, al.Stack, path, ClassOf(al.Size)} })
	p.State.OnBegin = func(al *live.Allocation, _ *format.Event) { path = a.paths.Begin(al); a.w.Change(al, 1) }
	p.State.OnEnd = func(al *live.Allocation, _ *format.Event) { path = a.paths.End(al); a.w.Change(al, -1) }
	return nil
}

func (a *answer) Event(p *analyze.Pass, e *format.Event) error {
	a.paths.Event(e, p.Defs)
	a.w.Event()
	for _, h := range a.w.highs {
		a.most = max(a.most, h.Len())
	}
	return nil
}

func ask(t *testing.T, tr *format.Trace, end func(p *analyze.Pass, a *answer)) *answer {
	t.Helper()
	a := &answer{end: end}
	if _, err := analyze.Run(context.Background(), []string{tr.Path()}, &analyze.Query{}, a, nil); err != nil {
		t.Fatal(err)
	}
	return a
}

const small = `
process 1 pid=1 command=x
frame 1 python "/app/main.py" 5 "main"
frame 2 python "/app/main.py" 9 "main"
frame 3 python "/venv/lib/python3.12/site-packages/torch/nn/linear.py" 134 "forward"
frame 4 thread "" 0 "[thread loader]"
stack 2 0 1
stack 3 0 2
stack 4 2 3
stack 5 3 3
stack 6 4 3
stack 7 0 4
name 1 "step"
name 2 "forward"
part
1000 ScopeBegin thread=1 api=nvtx scope=1 name=1
1010 Alloc thread=1 api=cuMemAlloc_v2 device=0 address=0x1000 size=4096 stack=6 scope=1
1020 Alloc thread=1 api=torch device=0 address=0x1000 size=1000 stack=4 scope=1
1030 ScopeBegin thread=1 api=nvtx scope=2 parent=1 name=2
1040 Alloc thread=1 api=torch device=0 address=0x1400 size=600 stack=5 scope=2
1050 Alloc thread=1 api=torch device=0 address=0x1700 size=600 stack=6 scope=2
1060 ScopeEnd thread=1 api=nvtx scope=2
1070 ScopeEnd thread=1 api=nvtx scope=1
1080 Alloc thread=1 api=torch device=0 address=0x1a00 size=5 stack=7
1090 Alloc thread=1 api=torch device=0 address=0x1b00 size=3
1100 Free thread=1 api=torch address=0x1400
`

func TestFlat(t *testing.T) {
	const linear = "/venv/lib/python3.12/site-packages/torch/nn/linear.py:134:forward"
	for _, row := range []struct {
		by   By
		want string
	}{
		{ByLine, linear + " 2200 4096 3 on 2200; [thread loader] 5 0 1 on 0; [no line] 3 0 1 on 0; /app/main.py:5:main 0 0 0 on 1600; /app/main.py:9:main 0 0 0 on 600"},
		{ByOwnLine, "/app/main.py:5:main 1600 4096 2 on 1600; /app/main.py:9:main 600 0 1 on 600; [thread loader] 5 0 1 on 0; [no line] 3 0 1 on 0"},
		{ByFunction, "/venv/lib/python3.12/site-packages/torch/nn/linear.py:forward 2200 4096 3 on 2200; [thread loader] 5 0 1 on 0; [no line] 3 0 1 on 0; /app/main.py:main 0 0 0 on 2200"},
		{ByScope, "step > forward 1200 0 2 on 0; step 1000 4096 1 on 0; [no scope] 8 0 2 on 0"},
		{BySize, "4.00 KiB to 8.00 KiB 0 4096 0 on 0; 512 B to 1.00 KiB 2200 0 3 on 0; 4 B to 8 B 5 0 1 on 0; 2 B to 4 B 3 0 1 on 0"},
	} {
		asked := false
		ask(t, formattest.Text(t, small), func(p *analyze.Pass, a *answer) {
			a.w.Each(func(a, b format.Device) bool { return a < b }, func(_ format.Device, h *High) {
				asked = true
				var got []string
				var sum Amount
				for _, r := range Each(h.High).Flat(row.by, p.Defs, a.paths) {
					got = append(got, fmt.Sprintf("%s %d %d %d on %d", r.Name, r.Used, r.Acquired, r.Blocks, r.OnStack))
					sum.add(Amount{r.Used, r.Acquired, r.Blocks})
				}
				if s := strings.Join(got, "; "); s != row.want {
					t.Errorf("by %v\n got %s\nwant %s", row.by, s, row.want)
				}
				if sum != h.Most || sum != Each(h.High).Sum() {
					t.Errorf("by %v: rows add up to %+v, the whole is %+v", row.by, sum, h.Most)
				}
			})
		})
		if !asked {
			t.Fatal("no device")
		}
	}
}

func TestWriteMost(t *testing.T) {
	ask(t, formattest.Text(t, small), func(p *analyze.Pass, a *answer) {
		tr := Each(a.w.highs[0].High).Tree(0, p.Defs)
		var out bytes.Buffer
		b := bufio.NewWriter(&out)
		tr.Root.WriteMost(b, Used, 700, func(n *Node) string { return Size(n.Used) })
		b.Flush()
		want := `_root (2.16 KiB (2208))
  /app/main.py:5:main (1.56 KiB (1600))
    /venv/lib/python3.12/site-packages/torch/nn/linear.py:134:forward (1.56 KiB (1600))
      1 smaller line (600 B)
  2 smaller lines (605 B)
`
		if out.String() != want {
			t.Errorf("got\n%swant\n%s", out.String(), want)
		}
	})
}

// However many scopes come by, what is remembered is what is held.
func TestBounded(t *testing.T) {
	var text strings.Builder
	text.WriteString("process 1 pid=1 command=x\nname 1 \"step\"\npart\n")
	const steps = 20_000
	for i := range steps {
		fmt.Fprintf(&text, "%d ScopeBegin thread=1 api=nvtx scope=%d name=1\n%d Alloc thread=1 api=torch device=0 address=16 size=%d scope=%d\n%d Free thread=1 api=torch address=16\n%d ScopeEnd thread=1 api=nvtx scope=%d\n",
			i, i+1, i, 10+i%2, i+1, i, i, i+1)
	}
	a := ask(t, formattest.Text(t, text.String()), func(*analyze.Pass, *answer) {})
	if a.most > 2 || len(a.paths.scopes) > fewGone+1 || len(a.paths.nodes) > 2 {
		t.Errorf("%d cells, %d scopes, %d paths", a.most, len(a.paths.scopes), len(a.paths.nodes))
	}
}

// What a first checkpoint holds is older than its scopes' begins, which the
// rows after it name.
func TestPathsOfCheckpoint(t *testing.T) {
	ask(t, formattest.Text(t, `
process 1 pid=1 command=x
name 3 "outer"
part 3
900 Live thread=7 api=torch device=0 address=0x10 size=700 scope=9
900 Live thread=7 api=torch device=0 address=0x20 size=5 scope=8
910 LiveScope thread=7 api=nvtx layer=pool scope=9 parent=9 name=3 requested=100 size=5000 flags=open
1000 CheckpointEnd size=3
1010 Alloc thread=7 api=torch device=0 address=0x30 size=30 scope=9
1020 Free thread=7 api=torch address=0x10
1030 ScopeEnd thread=7 api=nvtx scope=9
`), func(p *analyze.Pass, a *answer) {
		var got []string
		for _, r := range Each(a.w.highs[0].High).Flat(ByScope, p.Defs, a.paths) {
			got = append(got, fmt.Sprintf("%s %d", r.Name, r.Used))
		}
		if s := strings.Join(got, "; "); s != "outer 730; [scope unknown] 5" {
			t.Error(s)
		}
	})
}

func TestSizeClass(t *testing.T) {
	for n, want := range map[int64]string{-1: "0 B", 0: "0 B", 1: "1 B to 2 B", 512: "512 B to 1.00 KiB", 1023: "512 B to 1.00 KiB", 1 << 20: "1.00 MiB to 2.00 MiB",
		1 << 62: "4.00 EiB and more"} {
		if got := ClassOf(n).String(); got != want {
			t.Errorf("%d bytes are in %q, want %q", n, got, want)
		}
	}
	for b := range byCount {
		if got, err := ParseBy(b.String()); err != nil || got != b {
			t.Errorf("%v is read as %v, %v", b, got, err)
		}
	}
	if _, err := ParseBy("color"); err == nil {
		t.Error("color is a grouping")
	}
}
