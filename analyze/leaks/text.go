package leaks

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/tree"
	"github.com/gpurec/gpurec/format"
)

// What a page shows; --json has all.
const (
	mostSites  = 10
	mostFrames = 16 // of a stack, the innermost
	mostTemps  = 5
	mostAround = 4 // frames of a temporary's stack
)

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
			p.write(b, &r.Rules)
		}
	}
	if first {
		fmt.Fprintln(b, "nothing was taken")
	}
	return b.Flush()
}

func (p *Process) write(b *bufio.Writer, r *Rules) {
	fmt.Fprintf(b, "process %d", p.PID)
	if p.Rank != nil {
		fmt.Fprintf(b, "  rank %d", *p.Rank)
	}
	fmt.Fprintf(b, "  %s\n", analyze.Short(p.Command))
	p.Growth.write(b, r)
	p.AtEnd.write(b, p)
	p.Temporaries.write(b, r)
	if len(p.Suppressed) > 0 {
		var n int64
		for _, h := range p.Suppressed {
			n = analyze.Add(n, h.Bytes)
		}
		fmt.Fprintf(b, "suppressed    %s at %d site%s\n", tree.Size(n), len(p.Suppressed), analyze.Plural(int64(len(p.Suppressed))))
	}
}

func (g *Growth) write(b *bufio.Writer, r *Rules) {
	if g.Unknown != "" {
		fmt.Fprintf(b, "growth        unknown: %s\n", g.Unknown)
		return
	}
	unit, measure := "a second", fmt.Sprintf("%d stretches of %s", g.Stretches, time.Duration(g.Length))
	if g.Turns > 0 {
		unit, measure = "a turn", fmt.Sprintf("%d turns of %s", g.Turns, analyze.Short(g.Scope))
		if g.Length > 1 {
			measure += fmt.Sprintf(", %d at a time", g.Length)
		}
	}
	if g.Looked == 0 {
		fmt.Fprintln(b, "growth        no site took or gave back anything")
		return
	}
	verdict := fmt.Sprintf("%d of %d sites hold more and more (inferred)", len(g.Growing), g.Looked)
	switch len(g.Growing) {
	case 0:
		verdict = fmt.Sprintf("none of %d sites holds more and more", g.Looked)
	case 1:
		verdict = fmt.Sprintf("1 of %d sites holds more and more (inferred)", g.Looked)
	}
	fmt.Fprintf(b, "growth        over %s, the first %d of %d stretches left out as warm-up: %s\n", measure, g.Warmup, g.Stretches, verdict)
	if g.Few != "" {
		fmt.Fprintf(b, "  not from turn to turn: %s: record more of them\n", g.Few)
	}
	for i, s := range g.Growing {
		if i == mostSites {
			fmt.Fprintf(b, "  and %d sites more\n", len(g.Growing)-mostSites)
			break
		}
		fmt.Fprintf(b, "  +%s %s, %d %% sure of %s to %s; +%s in all, rising in %d of %d parts of the run\n", tree.Size(round(s.Slope)), unit,
			r.Certainty, format.Bytes(round(s.Low)), format.Bytes(round(s.High)), tree.Size(s.Rose), s.Rises, s.Parts)
		s.Site.write(b, mostFrames)
	}
}

func (h *AtEnd) write(b *bufio.Writer, p *Process) {
	when := "just before the process ended"
	if !p.Ended {
		when = "as far as the trace or the window goes,"
	}
	if len(h.Sites) == 0 {
		fmt.Fprintf(b, "live at end   nothing, %s at %s\n", when, analyze.Seconds(p.Until))
		return
	}
	for _, s := range h.Sums {
		fmt.Fprintf(b, "live at end   %s in %d block%s of class %s at the %s layer, %s at %s\n", tree.Size(s.Bytes), s.Blocks, analyze.Plural(s.Blocks),
			s.Class, s.Layer, when, analyze.Seconds(p.Until))
	}
	for i, s := range h.Sites {
		if i == mostSites {
			var rest int64
			for _, s := range h.Sites[i:] {
				rest = analyze.Add(rest, s.Bytes)
			}
			fmt.Fprintf(b, "  and %s at %d sites more\n", tree.Size(rest), len(h.Sites)-i)
			break
		}
		taken := "taken at " + analyze.Seconds(s.Oldest)
		if s.Blocks > 1 {
			taken = fmt.Sprintf("taken from %s to %s", analyze.Seconds(s.Oldest), analyze.Seconds(s.Newest))
		}
		fmt.Fprintf(b, "  %s in %d block%s, %s\n", tree.Size(s.Bytes), s.Blocks, analyze.Plural(s.Blocks), taken)
		s.Site.write(b, mostFrames)
	}
}

func (t *Temporaries) write(b *bufio.Writer, r *Rules) {
	within := fmt.Sprintf("within %d event%s of the thread", r.TemporaryEvents, analyze.Plural(r.TemporaryEvents))
	if r.TemporaryTime > 0 {
		within += fmt.Sprintf(" or %s", time.Duration(r.TemporaryTime))
	}
	share := 0.0
	if t.Of > 0 {
		share = 100 * float64(t.Count) / float64(t.Of)
	}
	fmt.Fprintf(b, "temporaries   %d of %d allocations (%.1f %%), %s, were given back %s\n", t.Count, t.Of, share, tree.Size(t.Bytes), within)
	for i, s := range t.Sites {
		if i == mostTemps {
			fmt.Fprintf(b, "  and %d sites more\n", len(t.Sites)-i)
			break
		}
		fmt.Fprintf(b, "  %d of %d, %s, the largest %s\n", s.Count, s.Of, tree.Size(s.Bytes), tree.Size(s.Largest))
		s.Site.write(b, mostAround)
	}
}

// write names the site's own line, and below it how it was got to, in so many lines.
func (s *Site) write(b *bufio.Writer, most int) {
	fmt.Fprintf(b, "      %s", analyze.Line(s.Name))
	if s.Layer == "host" || s.Class != "device" {
		fmt.Fprintf(b, "  [%s, %s]", s.Layer, s.Class)
	}
	fmt.Fprintln(b)
	if len(s.Stack) == 1 && s.Stack[0] == s.Name {
		return
	}
	lines := s.path()
	if cut := len(lines) - most; cut > 0 {
		fmt.Fprintf(b, "        %d lines outside\n", cut)
		lines = lines[cut:]
	}
	for _, l := range lines {
		fmt.Fprintf(b, "        %s\n", analyze.Line(l))
	}
}

// path is a stack without what is between the program's own lines and the
// innermost.
func (s *Site) path() (lines []string) {
	skipped := int64(0)
	for i, f := range s.Stack {
		last := i == len(s.Stack)-1
		if !s.own[i] && !last {
			skipped++
			continue
		}
		if skipped > 0 {
			lines = append(lines, fmt.Sprintf("… %d line%s of installed code", skipped, analyze.Plural(skipped)))
			skipped = 0
		}
		lines = append(lines, f)
	}
	return lines
}

func round(f float64) int64 { return int64(math.Round(f)) }
