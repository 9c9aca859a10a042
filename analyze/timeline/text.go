package timeline

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"math/big"
	"strings"
	"unicode/utf8"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/tree"
	"github.com/gpurec/gpurec/format"
)

// WriteRows writes a row for each series and bucket. Bytes are exact.
func (r *Report) WriteRows(w io.Writer) error {
	b := bufio.NewWriter(w)
	for i, t := range r.Traces {
		if i > 0 {
			fmt.Fprintln(b)
		}
		if len(r.Traces) > 1 {
			fmt.Fprintf(b, "%s\n", analyze.Line(t.Path))
		}
		rows := [][]string{{"from", "to", "least", "most", "series"}}
		for _, s := range t.Series {
			for i := range s.Most {
				from := t.From + int64(i)*t.Width
				rows = append(rows, []string{analyze.Seconds(from), analyze.Seconds(min(from+t.Width, t.To)), fmt.Sprint(s.Least[i]), fmt.Sprint(s.Most[i]), analyze.Line(s.Name)})
			}
		}
		table(b, rows)
	}
	return b.Flush()
}

// table aligns to the right; the last column is as it is.
func table(b *bufio.Writer, rows [][]string) {
	width := make([]int, len(rows[0]))
	for _, r := range rows {
		for i, c := range r {
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	for _, r := range rows {
		for i, c := range r {
			if i < len(r)-1 {
				b.WriteString(strings.Repeat(" ", width[i]-utf8.RuneCountInString(c)) + c + "  ")
			} else {
				b.WriteString(c + "\n")
			}
		}
	}
}

// WritePlot writes the first series as a plot and, where there are several, all
// as a line each. By device every one is a plot.
func (r *Report) WritePlot(w io.Writer) error {
	b := bufio.NewWriter(w)
	for i, t := range r.Traces {
		if i > 0 {
			fmt.Fprintln(b)
		}
		if len(r.Traces) > 1 {
			fmt.Fprintf(b, "%s\n", analyze.Line(t.Path))
		}
		if len(t.Series) == 0 {
			fmt.Fprintf(b, "no bytes at any moment from %s to %s\n", analyze.Seconds(t.From), analyze.Seconds(t.To))
			continue
		}
		if r.By == ByDevice {
			for k, s := range t.Series {
				if k > 0 {
					fmt.Fprintln(b)
				}
				t.plot(b, s, r.Curve)
			}
			continue
		}
		t.lines(b, r)
	}
	return b.Flush()
}

const plotHeight = 12

// plot draws a series: full where it never was below, shaded where it was at
// times.
func (t *Trace) plot(b *bufio.Writer, s *Series, c Curve) {
	fmt.Fprintf(b, "%s, %s: most %s at %s, %s at the end\n", analyze.Line(s.Name), c, tree.Size(s.Max), analyze.Seconds(s.MaxAt), tree.Size(s.End))
	for row := plotHeight - 1; row >= 0; row-- {
		label := ""
		if row == plotHeight-1 {
			label = format.Bytes(s.Max)
		} else if row == 0 {
			label = "0 B"
		}
		fmt.Fprintf(b, "%11s |", label)
		line := ""
		for i := range s.Most {
			switch {
			case level(s.Least[i], s.Max, plotHeight) > row:
				line += "█"
			case level(s.Most[i], s.Max, plotHeight) > row:
				line += "▒"
			default:
				line += " "
			}
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	from, to := analyze.Seconds(t.From), analyze.Seconds(t.To)
	fmt.Fprintf(b, "%11s +%s\n%11s  %s%*s\n", "", strings.Repeat("-", len(s.Most)), "", from, max(len(s.Most)-len(from), len(to)+1), to)
}

var eighths = []rune(" ▁▂▃▄▅▆▇█")

// lines draws every series on a line, all to the scale of the largest.
func (t *Trace) lines(b *bufio.Writer, r *Report) {
	scale := int64(0)
	for _, s := range t.Series {
		scale = max(scale, s.Max)
	}
	what := "bytes"
	if r.By != ByLayer && r.By != ByClass {
		what = string(r.Curve)
	}
	fmt.Fprintf(b, "%s by %s from %s to %s, the most of each %s; █ is %s\n", what, r.By, analyze.Seconds(t.From), analyze.Seconds(t.To),
		analyze.Seconds(t.Width), tree.Size(scale))
	rows := [][]string{{"most", "at", "at the end", "", "series"}}
	for _, s := range t.Series {
		var line strings.Builder
		for _, v := range s.Most {
			line.WriteRune(eighths[level(v, scale, len(eighths)-1)])
		}
		rows = append(rows, []string{tree.Size(s.Max), analyze.Seconds(s.MaxAt), format.Bytes(s.End), line.String(), analyze.Line(s.Name)})
	}
	rows[0][3] = strings.Repeat(" ", utf8.RuneCountInString(rows[1][3]))
	table(b, rows)
}

// level is v on a scale of so many steps, rounded up: what is not 0 is seen.
func level(v, scale int64, steps int) int {
	if v <= 0 || scale <= 0 {
		return 0
	}
	if v > math.MaxInt64/int64(steps) {
		n := new(big.Int).Mul(big.NewInt(v), big.NewInt(int64(steps)))
		n.Add(n, big.NewInt(scale-1)).Div(n, big.NewInt(scale))
		return int(n.Int64())
	}
	n := v * int64(steps)
	return int((n-1)/scale) + 1
}
