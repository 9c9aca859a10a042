package tree

import (
	"bufio"
	"cmp"
	"fmt"
	"slices"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
)

// A CrossRow is a line, and its bytes by the path of scopes in which they were
// taken. Those of its Scopes add up to its own, and those of all rows to the total.
type CrossRow struct {
	Name     string       `json:"name"`
	Used     int64        `json:"used"`
	Acquired int64        `json:"acquired"`
	Scopes   []*CrossCell `json:"scopes"`
}

// A CrossCell is what a line took in one path of scopes.
type CrossCell struct {
	Name     string `json:"name"` // as Paths.Label says it
	Inferred bool   `json:"inferred,omitempty"`
	Used     int64  `json:"used"`
	Acquired int64  `json:"acquired"`
}

// A Cross is lines by scopes, of as many traces as are added.
type Cross struct {
	by    By
	rows  map[string]*CrossRow
	cells map[crossKey]*CrossCell
}

type crossKey struct {
	line, scope string
	inferred    bool
}

// NewCross returns an empty Cross of lines, own lines or functions.
func NewCross(by By) *Cross {
	return &Cross{by: by, rows: map[string]*CrossRow{}, cells: map[crossKey]*CrossCell{}}
}

// Add adds what each gives, whose paths are of one trace.
func (c *Cross) Add(each Each, defs *format.Defs, paths *Paths) {
	names := NewNames(c.by, defs)
	type place struct {
		line int32
		path Path
	}
	type sums struct {
		row  *CrossRow
		cell *CrossCell
	}
	places := map[place]sums{} // there are many more stacks
	each(func(k Key, a Amount) {
		line, _ := names.own(k.Stack)
		at := place{line, k.Path}
		in, ok := places[at]
		if !ok {
			in.row, in.cell = c.cell(crossKey{names.texts[line], paths.Label(k.Path), paths.Inferred(k.Path)})
			places[at] = in
		}
		in.row.Used += a.Used
		in.row.Acquired += a.Acquired
		in.cell.Used += a.Used
		in.cell.Acquired += a.Acquired
	})
}

func (c *Cross) cell(at crossKey) (*CrossRow, *CrossCell) {
	row := c.rows[at.line]
	if row == nil {
		row = &CrossRow{Name: at.line}
		c.rows[at.line] = row
	}
	cell := c.cells[at]
	if cell == nil {
		cell = &CrossCell{Name: at.scope, Inferred: at.inferred}
		c.cells[at] = cell
		row.Scopes = append(row.Scopes, cell)
	}
	return row, cell
}

// Rows are the lines, and the scopes of each, the largest first.
func (c *Cross) Rows() []*CrossRow {
	out := make([]*CrossRow, 0, len(c.rows))
	for _, r := range c.rows {
		slices.SortFunc(r.Scopes, func(x, y *CrossCell) int {
			return cmp.Or(cmp.Compare(y.Used, x.Used), cmp.Compare(y.Acquired, x.Acquired), cmp.Compare(x.Name, y.Name))
		})
		out = append(out, r)
	}
	slices.SortFunc(out, func(x, y *CrossRow) int {
		return cmp.Or(cmp.Compare(y.Used, x.Used), cmp.Compare(y.Acquired, x.Acquired), cmp.Compare(x.Name, y.Name))
	})
	return out
}

// WriteCross writes rows as a table, the scopes of a line below it.
func WriteCross(b *bufio.Writer, rows []*CrossRow) {
	var used int64
	for _, r := range rows {
		used += r.Used
	}
	fmt.Fprintf(b, "%7s %12s %15s %15s  line, and scopes in which it took them\n", "share", "used", "used bytes", "acquired bytes")
	for _, r := range rows {
		crossLine(b, percent(r.Used, used), r.Used, r.Acquired, analyze.Line(r.Name))
		for _, s := range r.Scopes {
			crossLine(b, "", s.Used, s.Acquired, "  "+analyze.Line(s.Name))
		}
	}
}

func percent(part, of int64) string {
	if of == 0 {
		return "0.0 %"
	}
	return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(of))
}

func crossLine(b *bufio.Writer, share string, used, acquired int64, name string) {
	fmt.Fprintf(b, "%7s %12s %15d %15d  %s\n", share, format.Bytes(used), used, acquired, name)
}
