package stats

import (
	"bufio"
	"fmt"
	"io"
	"sort"
	"strings"
	"time"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/tree"
	"github.com/gpurec/gpurec/format"
)

// mostLines is what a page shows of lines; --json has all.
const mostLines = 10

// WriteText writes r for people.
func (r *Report) WriteText(w io.Writer) error {
	b := bufio.NewWriter(w)
	first := true
	for _, t := range r.Traces {
		for _, p := range t.Processes {
			if !first {
				fmt.Fprintln(b)
			}
			first = false
			if len(r.Traces) > 1 {
				fmt.Fprintln(b, analyze.Line(t.Path))
			}
			p.write(b)
		}
	}
	if first {
		fmt.Fprintln(b, "nothing was taken")
	}
	return b.Flush()
}

func (p *Process) write(b *bufio.Writer) {
	fmt.Fprintf(b, "process %d", p.PID)
	if p.Rank != nil {
		fmt.Fprintf(b, "  rank %d", *p.Rank)
	}
	fmt.Fprintf(b, "  %s\n", analyze.Short(p.Command))
	if r := &p.Rate; r.Count > 0 {
		fmt.Fprintf(b, "rate         %d allocations of used bytes from %s to %s, %.1f a second; %d in the busiest second, from %s\n", r.Count,
			analyze.Seconds(r.First), analyze.Seconds(r.Last), r.PerSecond, r.Busiest, analyze.Seconds(r.BusiestAt))
	}
	for _, pool := range p.Pools {
		fmt.Fprintf(b, "pool         %s: %.2f %% of %d allocations needed no driver; %d did, of %s\n", analyze.Short(pool.Name), 100*pool.HitRatio, pool.Count, pool.Misses, tree.Size(pool.MissBytes))
	}
	for _, m := range p.Memory {
		m.write(b)
	}
	p.writeAPIs(b)
	writeLines(b, "most bytes", p.Lines)
	if len(p.Lines) > mostLines {
		often := append([]*Line(nil), p.Lines...)
		sort.SliceStable(often, func(i, j int) bool { return often[i].Count > often[j].Count })
		writeLines(b, "most allocations", often)
	}
	p.Kinds.write(b)
}

func (m *Memory) write(b *bufio.Writer) {
	fmt.Fprintf(b, "\n%s %s: ", m.Layer, m.Class)
	if m.Count == 0 {
		fmt.Fprintln(b, "nothing taken")
	} else {
		fmt.Fprintf(b, "%d taken, %s in all, from %s to %s, %s on average\n", m.Count, tree.Size(m.Bytes), tree.Size(m.Smallest), tree.Size(m.Largest),
			format.Bytes(m.Bytes/m.Count))
	}
	table := func(what string, bins []*Bin, words func(*Bin) string) {
		if len(bins) == 0 {
			return
		}
		fmt.Fprintf(b, "  %-30s %10s %12s\n", what, "count", "bytes")
		for _, bin := range bins {
			fmt.Fprintf(b, "  %-30s %10d %12s\n", words(bin), bin.Count, format.Bytes(bin.Bytes))
		}
	}
	table("size", m.Sizes, (*Bin).size)
	table("lived", m.Lifetimes, (*Bin).lifetime)
}

func (n *Bin) size() string {
	switch {
	case n.From == 0:
		return "0 B"
	case n.Below == nil:
		return format.Bytes(n.From) + " and more"
	}
	return format.Bytes(n.From) + " to below " + format.Bytes(*n.Below)
}

func (n *Bin) lifetime() string {
	switch {
	case n.Kept:
		return "to the end"
	case n.Below == nil:
		return time.Duration(n.From).String() + " and more"
	case n.From == 0:
		return "below " + time.Duration(*n.Below).String()
	}
	return fmt.Sprintf("%s to below %s", time.Duration(n.From), time.Duration(*n.Below))
}

func (p *Process) writeAPIs(b *bufio.Writer) {
	if len(p.APIs) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%-28s %9s %10s %7s %12s %12s %12s\n", "function", "taken", "given back", "failed", "bytes taken", "time in it", "longest")
	for _, c := range p.APIs {
		spent, longest := "-", "-"
		if c.Timed > 0 {
			spent, longest = time.Duration(c.Time).Round(time.Microsecond).String(), time.Duration(c.Longest).Round(time.Microsecond).String()
		}
		fmt.Fprintf(b, "%-28s %9d %10d %7d %12s %12s %12s\n", analyze.Short(c.Name), c.Taken, c.Given, c.Failed, format.Bytes(c.Bytes), spent, longest)
	}
}

func writeLines(b *bufio.Writer, what string, lines []*Line) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%-24s %9s %12s %12s  line\n", what, "count", "largest", "mean life")
	for i, l := range lines {
		if i == mostLines {
			fmt.Fprintf(b, "and %d lines more\n", len(lines)-mostLines)
			break
		}
		life := "-"
		if l.Lifetime >= 0 {
			life = time.Duration(l.Lifetime).Round(time.Microsecond).String()
		}
		fmt.Fprintf(b, "%-24s %9d %12s %12s  %s\n", tree.Size(l.Bytes), l.Count, format.Bytes(l.Largest), life, analyze.Line(l.Name))
	}
}

func (k *Kinds) write(b *bufio.Writer) {
	if k.Unknown != "" {
		fmt.Fprintf(b, "\nwhat it was for: unknown; %s\n", k.Unknown)
		return
	}
	fmt.Fprintf(b, "\n%-24s %10s %12s %16s\n", "for (inferred)", "count", "bytes", "live on average")
	for _, u := range k.Kinds {
		fmt.Fprintf(b, "%-24s %10d %12s %16s\n", u.Name, u.Count, format.Bytes(u.Bytes), format.Bytes(u.Mean))
	}
	var phases []string
	for _, p := range k.AtPeak {
		phases = append(phases, fmt.Sprintf("%s %s", p.Name, tree.Size(p.Bytes)))
	}
	fmt.Fprintf(b, "at the peak of %s used at %s, by the phase it was taken in (inferred): %s\n", tree.Size(k.Peak), analyze.Seconds(k.PeakAt), strings.Join(phases, ", "))
}
