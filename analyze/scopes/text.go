package scopes

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gpurec/gpurec/analyze"
)

// WriteText writes a row for each scope and each of its reports. Bytes are
// exact.
func (r *Report) WriteText(w io.Writer) error {
	rows := [][]string{{"context", "n", "trace", "pid", "thread", "from", "to", "used", "peaked", "begin", "end", "max"}}
	for _, s := range r.Scopes {
		to := analyze.Seconds(s.End)
		if s.Open {
			to += " open"
		}
		name := indent(s.Depth) + label(s)
		rows = append(rows, append([]string{name, strconv.Itoa(s.N), analyze.Line(s.Trace), strconv.Itoa(int(s.PID)), strconv.FormatUint(uint64(s.Thread), 10),
			analyze.Seconds(s.Begin), to}, s.Measure.cells()...))
		for _, p := range s.Reports {
			sub := "report"
			if p.Subcontext != nil {
				sub += ": " + analyze.Short(*p.Subcontext)
			}
			rows = append(rows, append([]string{indent(s.Depth+1) + sub, "", "", "", "", "", analyze.Seconds(p.Time)}, p.Measure.cells()...))
		}
	}
	traces := map[int]bool{}
	for p := range r.procs {
		traces[p.trace] = true
	}
	return table(w, rows, func(column int) bool {
		return column == traceColumn && len(traces) < 2 || column == pidColumn && len(r.procs) < 2
	})
}

// indent shows how deep a scope is nested. Deeper than anybody follows with the
// eye it stays: every row is as wide as the widest.
func indent(depth int) string { return strings.Repeat("  ", min(depth, 100)) }

func label(s *Scope) string {
	n := analyze.Short(s.Name)
	if n == "" {
		n = "(no name)"
	}
	if s.Domain != "" {
		n = analyze.Short(s.Domain) + ":" + n
	}
	if s.Late {
		n += " (began earlier)"
	}
	if s.Resets > 0 {
		n += fmt.Sprintf(" (since reset %d)", s.Resets)
	}
	return n
}

func (m *Measure) cells() []string {
	if !m.Known {
		return []string{"-", "-", "-", "-", "-"}
	}
	var c []string
	for _, n := range []int64{m.Used, m.Peaked, m.Begin, m.End, m.Max} {
		c = append(c, strconv.FormatInt(n, 10))
	}
	return c
}

// Columns that are shown where they tell something apart.
const (
	traceColumn = 2
	pidColumn   = 3
)

// table aligns: the first column to the left, numbers to the right.
func table(w io.Writer, rows [][]string, hide func(column int) bool) error {
	width := make([]int, len(rows[0]))
	for _, r := range rows {
		for i, c := range r {
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	b := bufio.NewWriter(w)
	for _, r := range rows {
		for i, c := range r {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(c))
			switch {
			case i == 0:
				b.WriteString(c + pad)
			case !hide(i):
				b.WriteString("  " + pad + c)
			}
		}
		b.WriteByte('\n')
	}
	return b.Flush()
}
