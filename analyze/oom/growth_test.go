package oom

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/formattest"
)

// program runs steps: each calls f between its begin and its end. Then a request
// fails, on a device that has then n bytes.
func program(t *testing.T, steps int, scopes bool, n int64, f func(b *formattest.Builder, step int, next func() uint64)) *Failure {
	t.Helper()
	b := formattest.New(t)
	b.Process("program")
	b.Device("G", n)
	at := uint64(0)
	next := func() uint64 { at += 4096; return at }
	for i := range steps {
		if scopes {
			b.Begin("step")
		}
		f(b, i, next)
		if scopes {
			b.End()
		}
	}
	b.Stack("a.py:99:fail")
	b.AllocFailed(format.APIMemAlloc, n/10)
	return ask(t, b.Trace(), &analyze.Query{}).Traces[0].Failures[0]
}

func TestGrowth(t *testing.T) {
	keep := func(b *formattest.Builder, _ int, next func() uint64) {
		b.Stack("a.py:1:keep")
		b.Alloc(format.APITorch, next(), 100)
		b.Stack("a.py:2:pass")
		at := next()
		b.Alloc(format.APITorch, at, 300)
		b.Free(format.APITorch, at)
	}
	lines := func(f *Failure) string {
		if f.Growth == nil {
			return "none"
		}
		s := fmt.Sprintf("%s %q %d to %d:", f.Growth.By, f.Growth.Scope, f.Growth.From, f.Growth.To)
		for _, l := range f.Growth.Lines {
			s += fmt.Sprintf(" %s +%d %d/%d", l.Line, l.Bytes, l.Rises, l.Looks)
		}
		return s + " " + f.Causes[0].ID
	}
	for _, row := range []struct {
		name   string
		steps  int
		scopes bool
		n      int64
		f      func(b *formattest.Builder, step int, next func() uint64)
		want   string
	}{
		{"kept from step to step", 20, true, 2000, keep, `step "step" 2 to 20: a.py:1:keep +1800 9/9 kept-tensors`},
		{"the looks are thinned out", 1000, true, 100000, keep, `step "step" 64 to 960: a.py:1:keep +89600 14/14 kept-tensors`},
		{"without scopes", 1000, false, 100000, keep, `allocations "" 128 to 1920: a.py:1:keep +89600 14/14 growing-memory`},
		{"too few steps to say", 4, true, 400, keep, `none`},
		{"kept in the first steps only", 30, true, 1000, func(b *formattest.Builder, i int, next func() uint64) {
			if i < 10 {
				keep(b, i, next)
			}
		}, `step "step" 2 to 30: live-memory`},
		{"kept until a little before the failure", 20, true, 2000, func(b *formattest.Builder, i int, next func() uint64) {
			if i < 18 {
				keep(b, i, next)
			}
		}, `step "step" 2 to 20: live-memory`},
		{"grown, and given back since the last look", 21, true, 2000, func(b *formattest.Builder, i int, next func() uint64) {
			keep(b, i, next)
			if i == 20 {
				for k := range 20 {
					b.Free(format.APITorch, uint64(2*k+1)*4096)
				}
				b.Alloc(format.APITorch, next(), 1900)
			}
		}, `step "step" 2 to 20: live-memory`},
		{"up and down", 30, true, 500, func(b *formattest.Builder, i int, next func() uint64) {
			b.Stack("a.py:1:cache")
			b.Alloc(format.APITorch, uint64(1+i%3)*4096, 100)
			if i%3 == 2 {
				for k := range 3 {
					b.Free(format.APITorch, uint64(1+k)*4096)
				}
			}
		}, `step "step" 2 to 30: unknown`},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := lines(program(t, row.steps, row.scopes, row.n, row.f)); got != row.want {
				t.Errorf("got  %s\nwant %s", got, row.want)
			}
		})
	}
}

// Which scopes are steps: the outermost that come again, unless they hold so
// many of the ones inside that they are epochs.
func TestSteps(t *testing.T) {
	for _, row := range []struct {
		epochs, steps, layers int
		want                  string
	}{
		{1, 20, 3, "step"},
		{10, 100, 1, "step"}, // an epoch has too many steps to be one
		{30, 3, 2, "epoch"},
	} {
		b := formattest.New(t)
		b.Process("p")
		b.Device("G", 1000)
		b.Stack("a.py:1:f")
		at := uint64(0)
		b.Begin("run")
		for range row.epochs {
			b.Begin("epoch")
			for range row.steps {
				b.Begin("step")
				for range row.layers {
					b.Begin("layer")
					at += 4096
					b.Alloc(format.APITorch, at, 1)
					b.End()
				}
				b.End()
			}
			b.End()
		}
		b.AllocFailed(format.APIMemAlloc, 100)
		f := ask(t, b.Trace(), &analyze.Query{}).Traces[0].Failures[0]
		if f.Growth == nil || f.Growth.Scope != row.want || !strings.Contains(f.Growth.span(), `"`+row.want+`"`) {
			t.Errorf("%+v: got %+v", row, f.Growth)
		}
	}
}

// Memory that grew and was then given back in every second place is there, in
// pieces: that goes before what is still held.
func TestGrownAndFragmented(t *testing.T) {
	var freed []uint64
	f := program(t, 200, false, 100_000, func(b *formattest.Builder, i int, next func() uint64) {
		b.Stack("a.py:1:keep")
		at := next()
		b.Alloc(format.APIMemAlloc, at, 400)
		for k := range uint64(4) {
			b.Alloc(format.APITorch, at+100*k, 100)
			if k%2 == 0 {
				freed = append(freed, at+100*k)
			}
		}
		if i == 199 {
			for _, at := range freed {
				b.Free(format.APITorch, at)
			}
		}
	})
	var got []string
	for _, c := range f.Causes {
		got = append(got, c.ID)
	}
	if s := strings.Join(got, " "); s != "fragmentation growing-memory" {
		t.Errorf("%s\n%+v", s, f.Memory)
	}
}
