package main

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"sort"
	"strconv"
	"strings"
)

// A sheet collects benchmark lines of one table. Lines of one name and
// contender are rounds; the n-th rounds of two contenders were measured in
// turns, so ratios are taken round by round.
type sheet struct {
	out    io.Writer
	groups []*group
}

// A group is one row of the table: a name and a unit.
type group struct {
	name, unit string
	who        []string
	values     map[string][]float64
}

// add takes a line "BenchmarkNAME/who=X N V1 UNIT1 V2 UNIT2" and prints it;
// other text is passed on as a comment.
func (s *sheet) add(line string) {
	f := strings.Fields(line)
	if len(f) < 4 || !strings.HasPrefix(f[0], "Benchmark") {
		if line != "" {
			fmt.Fprintln(s.out, "#", line)
		}
		return
	}
	fmt.Fprintln(s.out, line)
	name, who, _ := strings.Cut(strings.TrimPrefix(f[0], "Benchmark"), "/who=")
	for i := 2; i+1 < len(f); i += 2 {
		if v, err := strconv.ParseFloat(f[i], 64); err == nil {
			g := s.group(name, f[i+1])
			if _, ok := g.values[who]; !ok {
				g.who = append(g.who, who)
			}
			g.values[who] = append(g.values[who], v)
		}
	}
}

// put adds what was measured here; pairs are value, unit.
func (s *sheet) put(name, who string, n int, pairs ...any) {
	b := fmt.Sprintf("Benchmark%s/who=%s %d", name, who, n)
	for i := 0; i+1 < len(pairs); i += 2 {
		b += fmt.Sprintf(" %.6g %s", pairs[i], pairs[i+1])
	}
	s.add(b)
}

// read adds every line of r.
func (s *sheet) read(r io.Reader) error {
	in := bufio.NewScanner(r)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		s.add(in.Text())
	}
	return in.Err()
}

func (s *sheet) group(name, unit string) *group {
	for _, g := range s.groups {
		if g.name == name && g.unit == unit {
			return g
		}
	}
	g := &group{name: name, unit: unit, values: map[string][]float64{}}
	s.groups = append(s.groups, g)
	return g
}

// ours is the contender to which the others are compared, where it took part.
const ours = "gpurec"

// print writes the medians, quartiles, and gpurec's ratio to each other
// contender with a 95 % interval of the median of the paired ratios.
func (s *sheet) print() {
	for _, g := range s.groups {
		fmt.Fprintf(s.out, "#\n# %s, %s\n", g.name, g.unit)
		fmt.Fprintf(s.out, "# %-28s %6s %12s %12s %12s  %s\n", "who", "rounds", "median", "quartile 1", "quartile 3", "gpurec is … × this [95 % interval]")
		for _, who := range g.who {
			v := sorted(g.values[who])
			line := fmt.Sprintf("# %-28s %6d %12s %12s %12s", who, len(v), short(quantile(v, .5)), short(quantile(v, .25)), short(quantile(v, .75)))
			if mine := g.values[ours]; len(mine) > 0 && who != ours {
				m, lo, hi := ratio(mine, g.values[who])
				line += fmt.Sprintf("  %.4g [%.4g, %.4g]", m, lo, hi)
			}
			fmt.Fprintln(s.out, line)
		}
	}
	fmt.Fprintln(s.out)
}

// ratio is the median of a[i]/b[i], and its interval.
func ratio(a, b []float64) (median, lo, hi float64) {
	n := min(len(a), len(b))
	r := make([]float64, 0, n)
	for i := range n {
		if b[i] != 0 {
			r = append(r, a[i]/b[i])
		}
	}
	return interval(r)
}

// interval is the median of v with a 95 % interval that assumes nothing of its
// distribution: the order statistics between which the median of the
// population lies with that probability, by the binomial distribution. Below
// six values there is no such pair, and it is the range.
func interval(v []float64) (median, lo, hi float64) {
	v = sorted(v)
	n := len(v)
	if n == 0 {
		return math.NaN(), math.NaN(), math.NaN()
	}
	k := 0 // P(X < k) ≤ 2.5 % for X binomial(n, 1/2)
	for p, c := math.Pow(.5, float64(n)), 0.0; k < n/2; k++ {
		if c += p; c > .025 {
			break
		}
		p *= float64(n-k) / float64(k+1)
	}
	k = max(k-1, 0)
	return quantile(v, .5), v[k], v[n-1-k]
}

func sorted(v []float64) []float64 {
	v = append([]float64(nil), v...)
	sort.Float64s(v)
	return v
}

// quantile of sorted values, between two of them by proportion.
func quantile(v []float64, q float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	at := q * float64(len(v)-1)
	i := int(at)
	if i+1 == len(v) {
		return v[i]
	}
	return v[i] + (at-float64(i))*(v[i+1]-v[i])
}

func short(v float64) string {
	switch a := math.Abs(v); {
	case a >= 1e6 || a == 0:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 100:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case a >= 1:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}
