package diff

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/tree"
)

// WriteMarkdown writes r as a comment on a pull request.
func (r *Report) WriteMarkdown(w io.Writer, by []By) error {
	b := bufio.NewWriter(w)
	x, y := &r.A.Bytes, &r.B.Bytes
	fmt.Fprintf(b, "**GPU memory**: peak %s %s\n\n", r.Curve, arrow(x.Peak, y.Peak))
	if r.Gate != nil {
		verdict := "passed"
		if r.Gate.Exceeded {
			verdict = "**failed**"
		}
		fmt.Fprintf(b, "Gate %s: %s\n\n", verdict, r.Gate.Sentence)
	}
	fmt.Fprintf(b, "A: %s  \nB: %s\n", code(r.A.words()), code(r.B.words()))
	if !r.Same() {
		r.markdownTotals(b)
		for _, t := range by {
			switch t {
			case ByLine:
				markdownRows(b, "line", r.Lines)
			case ByFunction:
				markdownRows(b, "function", r.Functions)
			case ByScope:
				r.markdownScopes(b)
			}
		}
	}
	if !r.Completeness.Complete {
		fmt.Fprintf(b, "\n%s\n", code(r.Completeness.String()))
	}
	return b.Flush()
}

// code is text that Markdown leaves alone, in a table too.
func code(s string) string {
	return "`" + strings.NewReplacer("`", "'", "|", `\|`).Replace(analyze.Line(s)) + "`"
}

func (r *Report) markdownTotals(b *bufio.Writer) {
	x, y := &r.A.Bytes, &r.B.Bytes
	fmt.Fprint(b, "\n| | A | B | change |\n|---|---:|---:|---:|\n")
	row := func(name string, m, n int64) {
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", name, tree.Size(m), tree.Size(n), change(m, n))
	}
	row("peak "+r.Curve, x.Peak, y.Peak)
	if len(r.Devices) > 1 {
		for _, d := range r.Devices {
			row(d.words(), d.Bytes[0].Peak, d.Bytes[1].Peak)
		}
	}
	row("live at the end", x.End, y.End)
	row("taken in all", x.Taken, y.Taken)
	fmt.Fprintf(b, "| allocations | %d | %d | %+d |\n", x.Count, y.Count, y.Count-x.Count)
}

func markdownRows(b *bufio.Writer, what string, rows []*Row) {
	if len(rows) == 0 {
		return
	}
	fmt.Fprintf(b, "\n| %s | held at the peak, A | B | change | own peak | allocations |\n|---|---:|---:|---:|---:|---:|\n", what)
	for i, r := range rows {
		if i == mostRows {
			fmt.Fprintf(b, "\n%d more\n", len(rows)-mostRows)
			break
		}
		x, y := &r.Bytes[0], &r.Bytes[1]
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %+d |\n", code(r.words()), tree.Size(x.AtPeak), tree.Size(y.AtPeak), change(x.AtPeak, y.AtPeak),
			change(x.Peak, y.Peak), y.Count-x.Count)
	}
}

func (r *Report) markdownScopes(b *bufio.Writer) {
	if len(r.Scopes) == 0 {
		return
	}
	fmt.Fprint(b, "\n| scope | max, A | B | change | peaked | times |\n|---|---:|---:|---:|---:|---:|\n")
	for i, s := range r.Scopes {
		if i == mostRows {
			fmt.Fprintf(b, "\n%d more\n", len(r.Scopes)-mostRows)
			break
		}
		x, y := &s.Scopes[0], &s.Scopes[1]
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %+d |\n", code(s.Name), tree.Size(x.Max), tree.Size(y.Max), change(x.Max, y.Max),
			change(x.Peaked, y.Peaked), y.Count-x.Count)
	}
}
