package main

import (
	"bytes"
	"math"
	"strings"
	"testing"
)

// The intervals are those of tables of the sign test: for n values, the ranks
// between which the median lies with at least 95 %.
func TestInterval(t *testing.T) {
	for _, c := range []struct {
		name           string
		n              int
		median, lo, hi float64
	}{
		{"one value", 1, 1, 1, 1},
		{"too few for 95 %: the range", 5, 3, 1, 5},
		{"six: the range is just enough", 6, 3.5, 1, 6},
		{"eight", 8, 4.5, 1, 8},
		{"nine", 9, 5, 2, 8},
		{"twenty", 20, 10.5, 6, 15},
		{"thirty", 30, 15.5, 10, 21},
	} {
		t.Run(c.name, func(t *testing.T) {
			var v []float64
			for i := c.n; i > 0; i-- {
				v = append(v, float64(i))
			}
			median, lo, hi := interval(v)
			if median != c.median || lo != c.lo || hi != c.hi {
				t.Errorf("median %v [%v, %v], want %v [%v, %v]", median, lo, hi, c.median, c.lo, c.hi)
			}
		})
	}
	if m, _, _ := interval(nil); !math.IsNaN(m) {
		t.Errorf("the median of nothing is %v", m)
	}
}

// Ratios are taken round by round, and other text becomes a comment.
func TestSheet(t *testing.T) {
	var out bytes.Buffer
	s := &sheet{out: &out}
	err := s.read(strings.NewReader(`hello
BenchmarkX/k=1/who=gpurec 10 2.0 ns/op 7 B/event
BenchmarkX/k=1/who=store 10 1.0 ns/op
BenchmarkX/k=1/who=gpurec 10 30 ns/op
BenchmarkX/k=1/who=store 10 10 ns/op
`))
	if err != nil {
		t.Fatal(err)
	}
	s.print()
	for _, want := range []string{"# hello\n", "BenchmarkX/k=1/who=store 10 10 ns/op\n", "# X/k=1, ns/op\n", "  2.5 [2, 3]\n", "# X/k=1, B/event\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
}
