package peak

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/tree"
	"github.com/gpurec/gpurec/format"
)

// Text is what of a Report is written.
type Text struct {
	By  string // all, parts, tree, or a tree.By
	Top int    // rows of each table; 0 is all
}

// TreeLeast is the share of a tree's bytes below which its lines are summed up.
const TreeLeast = 0.01

// WriteText writes r for people: sizes as people read them and exact beside.
func (r *Report) WriteText(w io.Writer, x Text) error {
	b := bufio.NewWriter(w)
	if len(r.Devices) == 0 {
		fmt.Fprintln(b, "no device memory was live at any moment")
	}
	for i, d := range r.Devices {
		if i > 0 {
			fmt.Fprintln(b)
		}
		d.write(b, x)
	}
	if x.By == "all" && len(r.Processes) > 0 {
		fmt.Fprintf(b, "\neach process at its own peak\n")
		for _, p := range r.Processes {
			p.write(b)
		}
	}
	return b.Flush()
}

func itoa(n int32) string { return strconv.Itoa(int(n)) }

func deviceName(d format.Device) string {
	if d == format.NoDevice {
		return "device unknown"
	}
	return "device " + strconv.Itoa(int(d))
}

func (d *Device) write(b *bufio.Writer, x Text) {
	if d.Trace != "" {
		fmt.Fprintf(b, "%s\n", analyze.Line(d.Trace))
	}
	fmt.Fprint(b, deviceName(d.Device))
	for _, s := range []string{d.Name, d.UUID} {
		if s != "" {
			fmt.Fprintf(b, "  %s", analyze.Short(s))
		}
	}
	if d.Total >= 0 {
		fmt.Fprintf(b, "  total %s", tree.Size(d.Total))
	}
	fmt.Fprintf(b, "\npeak %s used at %s, in %d block%s; acquired then %s\n", tree.Size(d.Used), analyze.Seconds(d.At), d.Blocks, analyze.Plural(d.Blocks), tree.Size(d.Acquired))
	for _, s := range d.Open {
		fmt.Fprintf(b, "open then: %s (pid %d, thread %d)\n", s.label(), s.PID, s.Thread)
	}
	if d.Parts != nil && (x.By == "all" || x.By == "parts") {
		d.Parts.write(b, d.At)
	}
	curve := tree.Used
	if d.Used == 0 {
		curve = tree.Acquired // by which the moment was chosen then
	}
	for _, t := range []struct {
		by    tree.By
		title string
		rows  []*tree.Row
	}{
		{tree.ByOwnLine, "by own line: the innermost of the program's own code, inferred from file names", d.OwnLines},
		{tree.ByLine, "by line", d.Lines},
		{tree.ByFunction, "by function", d.Functions},
		{tree.ByScope, "by context", d.Scopes},
		{tree.BySize, "by size of allocation", d.Sizes},
		{tree.ByProcess, "by process", d.Processes},
	} {
		if x.By == t.by.String() || x.By == "all" && (t.by != tree.ByProcess || len(t.rows) > 1) {
			fmt.Fprintf(b, "\n%s\n", t.title)
			tree.WriteRows(b, t.by, curve, t.rows, x.Top)
		}
	}
	if x.By == "all" || x.By == "tree" {
		fmt.Fprintf(b, "\nas a tree (%s; lines under %g %% are summed up)\n", curve, 100*TreeLeast)
		whole := curve.Of(d.Used, d.Acquired)
		d.Tree.WriteMost(b, curve, max(int64(float64(whole)*TreeLeast), 1), func(n *tree.Node) string {
			bytes := curve.Of(n.Used, n.Acquired)
			return share(bytes, whole) + ", " + tree.Size(bytes)
		})
	}
}

// label is a scope's path; the last name says which of that name it is.
func (s *Scope) label() string {
	return analyze.Line(strings.Join(s.Path, " > ")) + "#" + strconv.Itoa(s.N)
}

func share(part, of int64) string {
	if of == 0 {
		return "0.0 %"
	}
	return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(of))
}

func (ps *Parts) write(b *bufio.Writer, at int64) {
	what, read := "used", ps.Used
	if ps.Reserved != nil {
		what, read = "used and reserved", ps.Used+*ps.Reserved
	}
	when := "before the peak"
	if ps.At >= at {
		when = "after the peak"
	}
	fmt.Fprintf(b, "\nparts of %s: NVML read %s as %s, %.3f ms %s", tree.Size(ps.Sum), tree.Size(read), what, float64(abs(ps.At-at))/1e6, when)
	switch {
	case ps.Taken > 0:
		fmt.Fprintf(b, ", and %s more was taken then", tree.Size(ps.Taken))
	case ps.Taken < 0:
		fmt.Fprintf(b, ", and %s less was taken then", tree.Size(-ps.Taken))
	}
	fmt.Fprintln(b)
	for _, p := range ps.Rows {
		name := p.Name
		if p.PID != nil {
			name += " of pid " + itoa(*p.PID)
		}
		if p.Inferred {
			name += " (inferred)"
		}
		fmt.Fprintf(b, "%11s  %6s  %-45s %15d%s\n", format.Bytes(p.Bytes), strings.TrimSuffix(share(p.Bytes, ps.Sum), " %"), name, p.Bytes, stepWords(p.Steps))
		for _, q := range p.Detail {
			fmt.Fprintf(b, "%21s%s: %s\n", "", analyze.Line(q.Name), tree.Size(q.Bytes))
		}
	}
	for _, n := range ps.Notes {
		fmt.Fprintln(b, n)
	}
	if ps.Used > 0 {
		fmt.Fprintf(b, "unexplained is %.2f %% of NVML's used bytes; NVML read %s as free\n", 100*float64(ps.Unexplained())/float64(ps.Used), tree.Size(ps.Free))
	}
}

// fewSteps are told of a part; --json has more.
const fewSteps = 3

// stepWords are the largest steps, in their order. One alone says nothing.
func stepWords(steps []Step) string {
	if len(steps) < 2 {
		return ""
	}
	var s []string
	for _, st := range steps {
		larger := 0
		for _, o := range steps {
			if abs(o.Bytes) > abs(st.Bytes) {
				larger++
			}
		}
		if larger >= fewSteps || len(s) == fewSteps {
			continue
		}
		sign := "+"
		if st.Bytes < 0 {
			sign = ""
		}
		s = append(s, sign+format.Bytes(st.Bytes)+" by "+analyze.Seconds(st.At))
	}
	return "  " + strings.Join(s, ", ")
}

func (p *Process) write(b *bufio.Writer) {
	rank, trace := "", ""
	if p.Rank != nil {
		rank = " rank " + itoa(*p.Rank)
	}
	if p.Trace != "" {
		trace = analyze.Line(p.Trace) + " "
	}
	fmt.Fprintf(b, "%spid %d%s on %s: %s used (%s layer) at %s, acquired then %s  %s\n", trace, p.PID, rank, deviceName(p.Device), tree.Size(p.Used), p.UsedLayer,
		analyze.Seconds(p.At), tree.Size(p.Acquired), analyze.Short(p.Command))
	for _, s := range p.Open {
		fmt.Fprintf(b, "  open then: %s (thread %d)\n", s.label(), s.Thread)
	}
}
