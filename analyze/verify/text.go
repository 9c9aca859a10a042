package verify

import (
	"bufio"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/gpurec/gpurec/analyze"
)

// WriteText writes r for people: parts, totals, findings, the verdict last.
func (r *Report) WriteText(w io.Writer) error {
	b := bufio.NewWriter(w)
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "part\tbatches\trows\tcheckpoint\tsamples\tfrom\tto\tolder than before\t\n")
	for _, p := range r.Parts {
		from, to, how := "-", "-", ""
		if p.First != nil {
			from, to = analyze.Seconds(*p.First), analyze.Seconds(*p.Last)
		}
		if !p.Closed {
			how = "  not whole"
		}
		fmt.Fprintf(t, "%d\t%d\t%d\t%d\t%d\t%s\t%s\t%d\t%s\n", p.Index, p.Batches, p.Rows, p.CheckpointRows, p.Samples, from, to, p.Regressions, how)
	}
	t.Flush()
	fmt.Fprintf(b, "\nevents %d, lost %d, gaps in numbering %d, rows older than the one before %d\n", r.Events, r.Lost, r.Gaps, r.Regressions)
	fmt.Fprintf(b, "unknown ids: %d stacks, %d frames, %d names, %d processes, %d devices\n", r.Unknown.Stacks, r.Unknown.Frames, r.Unknown.Names, r.Unknown.Processes, r.Unknown.Devices)
	fmt.Fprintf(b, "checkpoints equal to the fold: %d of %d\n", r.Checkpoints-r.Differ, r.Checkpoints)
	if c := r.Torch; c.Compared > 0 {
		fmt.Fprintf(b, "PyTorch's own sums equal to the fold: %d of %d", c.Compared-c.Differ, c.Compared)
		if c.Earlier != 0 {
			fmt.Fprintf(b, ", with %d bytes from before the recording", c.Earlier)
		}
		fmt.Fprintln(b)
	}
	for _, list := range []struct {
		word  string
		lines []string
	}{{"note", r.Notes}, {"partial", r.Partial}, {"fault", r.Faults}} {
		for _, l := range list.lines {
			fmt.Fprintf(b, "%s: %s\n", list.word, analyze.Line(l))
		}
	}
	fmt.Fprintln(b, r.Verdict())
	return b.Flush()
}

// Verdict is one word of the whole.
func (r *Report) Verdict() string {
	switch {
	case len(r.Faults) > 0:
		return "faulty"
	case len(r.Partial) > 0:
		return "sound, but partial"
	}
	return "sound"
}
