package diff

import (
	"bufio"
	"fmt"
	"io"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/tree"
)

// A By is a table of the Report.
type By string

const (
	ByLine     By = "line"
	ByFunction By = "function"
	ByScope    By = "scope"
)

// ParseBy reads the name of a table.
func ParseBy(s string) (By, error) {
	switch b := By(s); b {
	case ByLine, ByFunction, ByScope:
		return b, nil
	}
	return "", fmt.Errorf("%q is none of line, function, scope", s)
}

// mostRows is what a page shows of a table; --json has all.
const mostRows = 20

// WriteText writes r for people, with the tables asked for.
func (r *Report) WriteText(w io.Writer, by []By) error {
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, "A  %s\nB  %s\n\n", r.A.words(), r.B.words())
	switch {
	case r.Same() && !r.Completeness.Complete:
		fmt.Fprintln(b, "no difference in what is there, but events are missing")
	case r.Same():
		fmt.Fprintln(b, "no difference")
	default:
		r.writeTotals(b)
		for _, t := range by {
			switch t {
			case ByLine:
				writeRows(b, "lines", r.Lines, r.Curve)
			case ByFunction:
				writeRows(b, "functions", r.Functions, r.Curve)
			case ByScope:
				r.writeScopes(b)
			}
		}
	}
	if r.Gate != nil {
		fmt.Fprintf(b, "\n%s\n", r.Gate.Sentence)
	}
	return b.Flush()
}

func (e *End) words() string {
	s := analyze.Line(e.Path)
	if e.Range != "" {
		s += "  " + analyze.Line(e.Range)
	}
	return s
}

// arrow is a number of bytes on both sides.
func arrow(a, b int64) string {
	if a == b {
		return tree.Size(a) + " on both"
	}
	return fmt.Sprintf("%s → %s, %s", tree.Size(a), tree.Size(b), change(a, b))
}

func (r *Report) writeTotals(b *bufio.Writer) {
	x, y := r.A.Bytes, r.B.Bytes
	fmt.Fprintf(b, "%-16s %s\n", "peak "+r.Curve, arrow(x.Peak, y.Peak))
	if len(r.Devices) > 1 {
		for _, d := range r.Devices {
			fmt.Fprintf(b, "  %s: %s\n", d.words(), arrow(d.Bytes[0].Peak, d.Bytes[1].Peak))
		}
	}
	fmt.Fprintf(b, "live at the end  %s\ntaken in all     %s\nallocations      %s\n", arrow(x.End, y.End), arrow(x.Taken, y.Taken), counts(x.Count, y.Count))
}

func counts(a, b int64) string {
	if a == b {
		return fmt.Sprintf("%d on both", a)
	}
	return fmt.Sprintf("%d → %d", a, b)
}

// writeRows writes what lines held at the peak, and below it what else differs.
func writeRows(b *bufio.Writer, what string, rows []*Row, curve string) {
	if len(rows) == 0 {
		fmt.Fprintf(b, "\n%s: no difference\n", what)
		return
	}
	fmt.Fprintf(b, "\n%s, by how much more or less they held at the peak of %s bytes:\n", what, curve)
	for i, r := range rows {
		if i == mostRows {
			fmt.Fprintf(b, "  and %d more\n", len(rows)-mostRows)
			break
		}
		if r.A == "" || r.B == "" {
			r.writeLone(b)
			continue
		}
		x, y := &r.Bytes[0], &r.Bytes[1]
		fmt.Fprintf(b, "  %s: %s\n", r.words(), arrow(x.AtPeak, y.AtPeak))
		for _, also := range []struct {
			what string
			a, b int64
		}{{"its own peak", x.Peak, y.Peak}, {"taken in all", x.Taken, y.Taken}, {"the largest", x.Largest, y.Largest}, {"live at the end", x.End, y.End}} {
			if also.a != also.b {
				fmt.Fprintf(b, "      %-16s %s\n", also.what, arrow(also.a, also.b))
			}
		}
		if x.Count != y.Count {
			fmt.Fprintf(b, "      %-16s %s\n", "allocations", counts(x.Count, y.Count))
		}
	}
}

// writeLone writes what only one side has.
func (r *Row) writeLone(b *bufio.Writer) {
	m := &r.Bytes[0]
	if r.A == "" {
		m = &r.Bytes[1]
	}
	fmt.Fprintf(b, "  %s: %s\n      its own peak %s; %s in %d allocation%s, the largest %s; %s live at the end\n", r.words(), tree.Size(m.AtPeak), tree.Size(m.Peak),
		tree.Size(m.Taken), m.Count, analyze.Plural(m.Count), tree.Size(m.Largest), tree.Size(m.End))
}

func (r *Row) words() string {
	switch {
	case r.A == "":
		return analyze.Line(r.B) + " (only in B)"
	case r.B == "":
		return analyze.Line(r.A) + " (only in A)"
	case r.Moved && r.A == r.B: // by its short name
		return analyze.Line(r.B) + " (of another folder, inferred)"
	case r.Moved:
		return fmt.Sprintf("%s (inferred to be %s of A)", analyze.Line(r.B), analyze.Line(r.A))
	}
	return analyze.Line(r.B)
}

func (r *Report) writeScopes(b *bufio.Writer) {
	if len(r.Scopes) == 0 {
		fmt.Fprintf(b, "\nscopes: no difference\n")
		return
	}
	fmt.Fprintf(b, "\nscopes, by how much higher or lower the curve was in them:\n")
	for i, s := range r.Scopes {
		if i == mostRows {
			fmt.Fprintf(b, "  and %d more\n", len(r.Scopes)-mostRows)
			break
		}
		x, y := &s.Scopes[0], &s.Scopes[1]
		fmt.Fprintf(b, "  %s: max %s\n", analyze.Line(s.Name), arrow(x.Max, y.Max))
		if x.Peaked != y.Peaked {
			fmt.Fprintf(b, "      %-16s %s\n", "peaked, most", arrow(x.Peaked, y.Peaked))
		}
		if x.Used != y.Used {
			fmt.Fprintf(b, "      %-16s %s\n", "used, sum", arrow(x.Used, y.Used))
		}
		if x.Count != y.Count {
			fmt.Fprintf(b, "      %-16s %s\n", "times", counts(x.Count, y.Count))
		}
	}
}
