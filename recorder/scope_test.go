package recorder

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
)

const testMB = 1 << 20

// A testPool is a pool of whole blocks over a hook.
type testPool struct {
	h    *Hook
	mu   sync.Mutex
	next uint64
}

type testBlock struct {
	size      int64
	ptr, pmem uint64
}

func (p *testPool) malloc(mb int64) testBlock {
	p.mu.Lock()
	p.next += 1 << 40
	b := testBlock{mb * testMB, p.next, p.next + 1}
	p.mu.Unlock()
	p.h.MallocPre(0, b.size, b.size)
	p.h.MallocPost(0, b.size, b.size, b.ptr, b.pmem)
	return b
}

func (p *testPool) free(b testBlock) {
	p.h.FreePre(0, b.size, b.ptr, b.pmem)
	p.h.FreePost(0, b.size, b.ptr, b.pmem)
}

// to brings the pool's live bytes, which block holds alone, to mb.
func (p *testPool) to(b *testBlock, mb int64) {
	p.free(*b)
	*b = p.malloc(mb)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The course of fastai's own example (spec/semantics.md §4.7), to the byte.
func TestScopeReports(t *testing.T) {
	var out bytes.Buffer
	trace := recordSelf(t, Options{}, func(r *Recorder) {
		p := &testPool{h: r.Hook()}
		base := p.malloc(900)
		b := p.malloc(100)
		s := r.Scope("foobar").Output(&out)
		must(t, s.Report())
		extra := p.malloc(250)
		p.free(extra)
		more := p.malloc(100)
		must(t, s.Report("a"))
		p.free(more)
		must(t, s.Report("b"))
		p.free(b)
		must(t, s.Report("c"))
		must(t, s.Stop())
		p.free(base)
		must(t, s.Report("frozen"))
		s.Silent(true)
		must(t, s.Report("not printed"))
	})
	const want = `△Used Peaked MB:      0      0 (foobar)
△Used Peaked MB:    100    150 (foobar: a)
△Used Peaked MB:      0    250 (foobar: b)
△Used Peaked MB:   -100    250 (foobar: c)
△Used Peaked MB:   -100    250 (foobar: frozen)
`

	if out.String() != want {
		t.Errorf("printed\n%swant\n%s", out.String(), want)
	}

	// In the trace each printed report is one of that scope, so that an analysis
	// can print them again: also the one after its end, and none that was silent.
	events, defs := read(t, trace)
	var begun format.ScopeID
	var notes []string
	for i := range events {
		switch e := &events[i]; e.Kind {
		case format.ScopeBegin:
			begun = e.Scope
			if defs.Name(e.Name) != "foobar" {
				t.Errorf("the scope is called %q", defs.Name(e.Name))
			}
		case format.ScopeReport:
			if e.Scope != begun || begun == 0 {
				t.Errorf("a report is of scope %d, want %d", e.Scope, begun)
			}
			notes = append(notes, fmt.Sprintf("%v %s", e.Note != 0, defs.Name(e.Note)))
		}
	}
	if got := strings.Join(notes, ", "); got != "false , true a, true b, true c, true frozen" {
		t.Errorf("the trace's reports are %q", got)
	}
}

// An empty name or note is there, an absent one is not: in the trace too.
func TestScopeEmptyTexts(t *testing.T) {
	var out bytes.Buffer
	trace := recordSelf(t, Options{}, func(r *Recorder) {
		must(t, r.Scope("").Output(&out).Report(""))
		must(t, r.Scope("").Output(&out).Report())
		must(t, r.AnonymousScope().Output(&out).Report(""))
		must(t, r.AnonymousScope().Output(&out).Report())
	})
	const zero = "△Used Peaked MB:      0      0"
	if want := zero + " (: )\n" + zero + " ()\n" + zero + " ()\n" + zero + "\n"; out.String() != want {
		t.Errorf("printed\n%swant\n%s", out.String(), want)
	}
	events, _ := read(t, trace)
	var got []string
	for i := range events {
		switch e := &events[i]; e.Kind {
		case format.ScopeBegin:
			got = append(got, fmt.Sprintf("name %v", e.Name != 0))
		case format.ScopeReport:
			got = append(got, fmt.Sprintf("note %v", e.Note != 0))
		}
	}
	if want := "name true, note true, name true, note false, name false, note true, name false, note false"; strings.Join(got, ", ") != want {
		t.Errorf("the trace has %q", got)
	}
}

// What fastai's tests of its own assert (§5), and the faults of the original
// that must not exist here (§7).
func TestScope(t *testing.T) {
	data := func(t *testing.T, s *Scope, used, peaked int64) {
		t.Helper()
		d, err := s.Data()
		if err != nil || d.Used() != used*testMB || d.Peaked() != peaked*testMB {
			t.Errorf("used %d, peaked %d, %v; want %d and %d MB", d.Used(), d.Peaked(), err, used, peaked)
		}
	}
	for _, tc := range []struct {
		name string
		do   func(t *testing.T, r *Recorder, p *testPool, out *bytes.Buffer)
		want string // printed
	}{
		{"peak, then back, then reset", func(t *testing.T, r *Recorder, p *testPool, out *bytes.Buffer) {
			s := r.AnonymousScope().Output(out)
			a, b := p.malloc(10), p.malloc(15)
			p.free(b)
			data(t, s, 10, 15)
			must(t, s.Report("whoah"))
			p.free(a)
			data(t, s, 0, 25)
			c := p.malloc(10)
			s.Reset()
			p.free(c)
			data(t, s, -10, 0)
		}, "△Used Peaked MB:     10     15 (whoah)\n"},
		{"exit", func(t *testing.T, r *Recorder, p *testPool, out *bytes.Buffer) {
			s := r.AnonymousScope().Output(out)
			p.malloc(20)
			must(t, s.Exit())
			p.malloc(5)
			data(t, s, 20, 0)
		}, "△Used Peaked MB:     20      0 (exit)\n"},
		{"exit of a named one", func(t *testing.T, r *Recorder, p *testPool, out *bytes.Buffer) {
			must(t, r.Scope("test").Output(out).Exit())
		}, "△Used Peaked MB:      0      0 (test: exit)\n"},
		{"no report on exit", func(t *testing.T, r *Recorder, p *testPool, out *bytes.Buffer) {
			s := r.Scope("test").Output(out).OnExitReport(false)
			p.malloc(1)
			must(t, s.Exit())
			data(t, s, 1, 0)
		}, ""},
		{"Q9: silent can be called, and back", func(t *testing.T, r *Recorder, p *testPool, out *bytes.Buffer) {
			s := r.Scope("x").Output(out).Silent(true)
			p.malloc(3)
			must(t, s.Report("a"))
			must(t, s.ReportAndReset("b")) // begins anew all the same
			p.malloc(2)
			must(t, s.Silent(false).Report("c"))
			must(t, s.Silent(true).Exit())
		}, "△Used Peaked MB:      2      0 (x: c)\n"},
		{"report and reset", func(t *testing.T, r *Recorder, p *testPool, out *bytes.Buffer) {
			s := r.Scope("x").Output(out)
			b := p.malloc(3)
			must(t, s.ReportAndReset("1"))
			p.free(b)
			must(t, s.ReportAndReset("2"))
			must(t, s.ReportAndReset())
		}, "△Used Peaked MB:      3      0 (x: 1)\n△Used Peaked MB:     -3      0 (x: 2)\n△Used Peaked MB:      0      0 (x)\n"},
		{"Q10: a peak shorter than any sample", func(t *testing.T, r *Recorder, p *testPool, out *bytes.Buffer) {
			s := r.Scope("foobar").Output(out)
			for range 100 {
				p.free(p.malloc(7))
			}
			p.malloc(100) // the end itself is the peak's floor
			must(t, s.Report("peak not sampled"))
		}, "△Used Peaked MB:    100      0 (foobar: peak not sampled)\n"},
		{"Q17: started again it is one measurement", func(t *testing.T, r *Recorder, p *testPool, out *bytes.Buffer) {
			s := r.Scope("x").Output(out)
			p.malloc(4)
			for range 5 {
				s.Start()
			}
			p.malloc(1)
			data(t, s, 1, 0)
			var open int
			must(t, r.Session().View(t.Context(), func(v *View) { open = len(v.Scopes()) }))
			if open != 1 {
				t.Errorf("%d scopes are open, want 1", open)
			}
		}, ""},
		{"stopped twice, then reset", func(t *testing.T, r *Recorder, p *testPool, out *bytes.Buffer) {
			s := r.Scope("x").Output(out)
			p.malloc(4)
			must(t, s.Stop())
			p.malloc(2)
			must(t, s.Stop())
			s.Reset()
			data(t, s, 4, 0)
			must(t, s.ReportAndReset("r"))
			data(t, s, 4, 0)
		}, "△Used Peaked MB:      4      0 (x: r)\n"},
		{"started after a stop", func(t *testing.T, r *Recorder, p *testPool, out *bytes.Buffer) {
			s := r.Scope("x").Output(out)
			p.malloc(4)
			must(t, s.Stop())
			p.malloc(2)
			s.Start()
			p.malloc(1)
			must(t, s.Report())
			must(t, s.Exit())
		}, "△Used Peaked MB:      1      0 (x)\n△Used Peaked MB:      1      0 (x: exit)\n"},
		{"Q19: a peak before the reset is not in it", func(t *testing.T, r *Recorder, p *testPool, out *bytes.Buffer) {
			s := r.Scope("x").Output(out)
			p.free(p.malloc(50))
			s.Reset()
			data(t, s, 0, 0)
		}, ""},
		{"nested and overlapping, case B4", func(t *testing.T, r *Recorder, p *testPool, out *bytes.Buffer) {
			outer := r.Scope("outer").Output(out)
			in := func(name string, take, drop int) {
				s := r.Scope(name).Output(out)
				var bs []testBlock
				for range take {
					bs = append(bs, p.malloc(256))
				}
				for _, b := range bs[:drop] {
					p.free(b)
				}
				must(t, s.Exit())
			}
			in("first", 4, 4)
			in("second", 2, 1)
			in("third", 2, 2)
			must(t, outer.Exit())
		}, "△Used Peaked MB:      0  1,024 (first: exit)\n△Used Peaked MB:    256    256 (second: exit)\n" +
			"△Used Peaked MB:      0    512 (third: exit)\n△Used Peaked MB:    256    768 (outer: exit)\n"},
		{"acquired", func(t *testing.T, r *Recorder, p *testPool, out *bytes.Buffer) {
			s := r.Scope("x").Output(out).Measure(CurveAcquired)
			p.h.AllocPost(0, 32*testMB, 0x1000)
			p.h.AllocPost(0, 8*testMB, 0x2000)
			p.malloc(1)
			p.h.Release(0, 0x2000)
			must(t, s.Report())
			must(t, s.Measure(CurveUsed).Report())
		}, "△Used Peaked MB:     32      8 (x)\n△Used Peaked MB:      1      0 (x)\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out bytes.Buffer
			recordSelf(t, Options{}, func(r *Recorder) { tc.do(t, r, &testPool{h: r.Hook()}, &out) })
			if out.String() != tc.want {
				t.Errorf("printed\n%swant\n%s", out.String(), tc.want)
			}
		})
	}
}

// A function in a scope of its own reports also when it panics, and the panic
// passes.
func TestDo(t *testing.T) {
	stdout := os.Stdout
	rd, wr, err := os.Pipe()
	must(t, err)
	os.Stdout = wr
	defer func() { os.Stdout = stdout }()
	trace := recordSelf(t, Options{}, func(r *Recorder) {
		p := &testPool{h: r.Hook()}
		r.Do("f", func() { p.malloc(2) })
		func() {
			defer func() {
				if recover() != "as it was" {
					t.Error("the panic did not pass")
				}
			}()
			r.Do("g", func() { p.malloc(3); panic("as it was") })
		}()
	})
	wr.Close()
	var out bytes.Buffer
	out.ReadFrom(rd)
	events, defs := read(t, trace)
	for i := range events {
		switch e := &events[i]; e.Kind {
		case format.Alloc, format.ScopeBegin:
			ids, _ := defs.Walk(e.Stack, nil)
			var names []string
			for _, id := range ids {
				f, _ := defs.Frame(id)
				names = append(names, f.Function)
			}
			if len(names) == 0 || strings.Contains(strings.Join(names, " "), "(*Recorder)") || !strings.Contains(names[len(names)-1], "TestDo") && e.Kind == format.ScopeBegin {
				t.Errorf("the stack of %s is %q", e.Kind, names)
			}
		}
	}
	if want := "△Used Peaked MB:      2      0 (f: exit)\n△Used Peaked MB:      3      0 (g: exit)\n"; out.String() != want {
		t.Errorf("printed\n%swant\n%s", out.String(), want)
	}
}

// Many goroutines allocate while scopes report: each printed number is what a
// replay of the file finds at that very report.
func TestScopeLiveEqualsReplay(t *testing.T) {
	const workers, scopes, reports = 4, 3, 20
	var mu sync.Mutex
	said := map[string]Data{}
	trace := recordSelf(t, Options{Wait: true}, func(r *Recorder) {
		p := &testPool{h: r.Hook()}
		stop := make(chan struct{})
		var busy, wg sync.WaitGroup
		for range workers {
			busy.Add(1)
			go func() {
				defer busy.Done()
				for i := int64(1); ; i++ {
					select {
					case <-stop:
						return
					default:
					}
					b := p.malloc(1 + i%7)
					if i%3 != 0 || i > 300 {
						p.free(b)
					}
					time.Sleep(50 * time.Microsecond) // some events a report, not all of a core
				}
			}()
		}
		for i := range scopes {
			wg.Add(1)
			go func() {
				defer wg.Done()
				name := string(rune('a' + i))
				var out bytes.Buffer
				s := r.Scope(name).Output(&out)
				for j := range reports {
					note := name + string(rune('A'+j))
					must(t, s.Report(note))
					mu.Lock()
					said[note] = s.latest
					mu.Unlock()
					if j == reports/2 {
						s.Reset()
					}
				}
				must(t, s.Stop())
				d, err := s.Data()
				must(t, err)
				mu.Lock()
				said[name] = d
				mu.Unlock()
				if n := strings.Count(out.String(), "\n"); n != reports {
					t.Errorf("%d lines printed", n)
				}
			}()
		}
		wg.Wait()
		close(stop)
		busy.Wait()
	})
	events, defs := read(t, trace)
	state := live.New()
	checked := 0
	for i := range events {
		e := &events[i]
		if e.Kind == format.ScopeReport || e.Kind == format.ScopeEnd {
			key := defs.Name(e.Note)
			if e.Kind == format.ScopeEnd {
				key = defs.Name(state.Scope(e.Scope).Name)
			}
			m := measure(state, e.Scope)
			c := m.curves[CurveUsed]
			if d, said := said[key]; !m.open || !said || d != (Data{c.Begin, c.End, c.Max, 0}) {
				t.Errorf("%s %q: the program was told %+v (%v), a replay finds %+v", e.Kind, key, d, said, c)
			}
			checked++
		}
		state.Apply(e)
	}
	if checked != scopes*(reports+1) {
		t.Errorf("%d numbers compared, want %d", checked, scopes*(reports+1))
	}
}

const (
	uuid0 = "GPU-00000000-0000-0000-0000-000000000000"
	uuid1 = "GPU-00000000-0000-0000-0000-000000000001"
)
