package scopes

import (
	"io"
	"strconv"

	"github.com/gpurec/gpurec/analyze"
)

// A NameReport is a Report with a row for each path of names, in the order in
// which they were first seen: an inner one comes after the one around it.
type NameReport struct {
	Completeness *analyze.Completeness `json:"completeness"`
	Curve        Curve                 `json:"curve"`
	Names        []*Name               `json:"names"`
}

// A Name is the scopes of one name in one path of names. Bytes are those of
// the scopes of which they are known, and 0 where Known is.
type Name struct {
	Name   string `json:"name"`
	Domain string `json:"domain,omitempty"`
	Depth  int    `json:"depth"`
	Count  int64  `json:"count"`
	Known  int64  `json:"known"`  // of Count
	Used   int64  `json:"used"`   // sum
	Peaked int64  `json:"peaked"` // most
	Max    int64  `json:"max"`
}

// ByName puts the scopes of r together.
func (r *Report) ByName() *NameReport {
	out := &NameReport{Completeness: r.Completeness, Curve: r.Curve, Names: []*Name{}}
	type key struct {
		around *Name
		name   string
	}
	paths := map[key]*Name{}
	byID := map[process]map[uint64]*Name{}
	for _, s := range r.Scopes {
		ids := byID[s.process]
		if ids == nil {
			ids = map[uint64]*Name{}
			byID[s.process] = ids
		}
		path := key{name: s.Name}
		if s.Depth > 0 {
			path.around = ids[uint64(s.Parent)]
		}
		n := paths[path]
		if n == nil {
			n = &Name{Name: s.Name, Domain: s.Domain, Depth: s.Depth}
			paths[path] = n
			out.Names = append(out.Names, n)
		}
		ids[uint64(s.ID)] = n
		n.Count++
		if s.Measure.Known {
			n.Known++
			n.Used += s.Measure.Used
			n.Peaked = max(n.Peaked, s.Measure.Peaked)
			n.Max = max(n.Max, s.Measure.Max)
		}
	}
	return out
}

// WriteText writes a row for each name. Bytes are exact.
func (r *NameReport) WriteText(w io.Writer) error {
	rows := [][]string{{"context", "count", "used, sum", "peaked, most", "max"}}
	for _, n := range r.Names {
		row := []string{indent(n.Depth) + label(&Scope{Name: n.Name, Domain: n.Domain}), strconv.FormatInt(n.Count, 10), "-", "-", "-"}
		if n.Known > 0 {
			row[2], row[3], row[4] = strconv.FormatInt(n.Used, 10), strconv.FormatInt(n.Peaked, 10), strconv.FormatInt(n.Max, 10)
		}
		rows = append(rows, row)
	}
	return table(w, rows, func(int) bool { return false })
}
