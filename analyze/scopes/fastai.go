package scopes

import (
	"bufio"
	"io"
	"strconv"

	"github.com/gpurec/gpurec/analyze"
)

// A line is where GPUMemTrace would have printed: at each report of a scope,
// and at the end of one that reported nothing.
type line struct {
	scope  *Scope
	report *ScopeReport
}

// WriteFastai writes the lines that fastai's GPUMemTrace prints, in the order
// of the program: whole MB, each value truncated before subtracting. Its
// negative peaks come from a sampler that missed the end, and cannot come here.
// What has no measure is left out; the number of those is returned.
func (r *Report) WriteFastai(w io.Writer) (skipped int, err error) {
	b := bufio.NewWriter(w)
	for _, l := range r.lines {
		m, ctx := l.scope.Measure, ""
		var sub *string
		if l.report != nil {
			m, sub = l.report.Measure, l.report.Subcontext
		}
		if !m.Known {
			skipped++
			continue
		}
		switch {
		case l.scope.hasName && sub != nil:
			ctx = " (" + analyze.Short(l.scope.Name) + ": " + analyze.Short(*sub) + ")"
		case l.scope.hasName:
			ctx = " (" + analyze.Short(l.scope.Name) + ")"
		case sub != nil:
			ctx = " (" + analyze.Short(*sub) + ")"
		}
		used, peaked := fastai(m)
		b.WriteString("△Used Peaked MB: " + field(used) + " " + field(peaked) + ctx + "\n")
	}
	return skipped, b.Flush()
}

// fastai is its arithmetic: used = E − S; peaked = P − S, less used where that
// is positive.
func fastai(m Measure) (used, peaked int64) {
	const mb = 1 << 20
	s, e := m.Begin/mb, m.End/mb // toward zero, as Python's int()
	p := max(m.Max/mb, s)
	used, peaked = e-s, p-s
	if peaked < 0 {
		return used, 0
	}
	return used, peaked - max(used, 0)
}

// field is a number with commas, six wide or as wide as it is.
func field(n int64) string {
	s := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	s = sign + s
	for len(s) < 6 {
		s = " " + s
	}
	return s
}
