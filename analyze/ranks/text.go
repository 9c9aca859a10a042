package ranks

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/tree"
)

// WriteText writes r for people.
func (r *Report) WriteText(w io.Writer) error {
	b := bufio.NewWriter(w)
	if len(r.Ranks) == 0 {
		fmt.Fprintln(b, "nobody took memory")
		return b.Flush()
	}
	p := r.Peaks
	fmt.Fprintf(b, "peak used        least %s, median %s, most %s: %.1f %% above the mean of %s\n", tree.Size(p.Least), tree.Size(p.Median), tree.Size(p.Most),
		100*p.Imbalance, tree.Size(p.Mean))
	r.writeOutliers(b)
	r.writeDeath(b, "out of memory", "reported first by", r.OutOfMemory)
	r.writeDeath(b, "died first", "", r.Died)
	fmt.Fprintln(b)
	r.writeTable(b)
	return b.Flush()
}

func (r *Report) writeOutliers(b *bufio.Writer) {
	if len(r.Ranks) < fewest {
		fmt.Fprintf(b, "outliers         not looked for: it takes %d ranks\n", fewest)
		return
	}
	n := 0
	for _, one := range r.Ranks {
		if one.Outlier == 0 {
			continue
		}
		n++
		fmt.Fprintf(b, "outlier          %s: its peak is %+.1f %% against the median, more than %.1f deviations and %.0f %%\n", one.words(), 100*one.Outlier, deviations, float64(percent))
	}
	if n == 0 {
		fmt.Fprintf(b, "outliers         none: no peak is more than %.1f deviations and %.0f %% from the median\n", deviations, float64(percent))
	}
}

func (r *Report) writeDeath(b *bufio.Writer, what, who string, d *Death) {
	if d == nil {
		fmt.Fprintf(b, "%-16s none\n", what)
		return
	}
	one := r.Ranks[d.Index]
	if who != "" {
		who += " "
	}
	fmt.Fprintf(b, "%-16s %s%s at %s", what, who, one.words(), d.Time.Format(time.RFC3339Nano))
	if d == r.Died {
		fmt.Fprintf(b, " with status %d", *one.Status)
	}
	if d.Next != nil {
		fmt.Fprintf(b, ", the next %s later", time.Duration(*d.Next))
	}
	in, mark := one.Doing, ""
	if d == r.OutOfMemory {
		in = one.OOMIn
		if one.OOMInferred {
			mark = tree.InferredMark
		}
	}
	if len(in) > 0 {
		fmt.Fprintf(b, ", in %s%s", path(in), mark)
	}
	fmt.Fprintln(b)
}

func (k *Rank) words() string {
	if k.Rank != nil {
		return fmt.Sprintf("rank %d (pid %d)", *k.Rank, k.PID)
	}
	return fmt.Sprintf("pid %d", k.PID)
}

// path is scopes on one line, cut where nobody reads on.
func path(scopes []string) string {
	const most = 8
	if n := len(scopes); n > most {
		return analyze.Short(strings.Join(scopes[:most], " > ")) + fmt.Sprintf(" and %d more", n-most)
	}
	return analyze.Short(strings.Join(scopes, " > "))
}

// traceColumn is shown where it tells something apart.
const traceColumn = 1

func (r *Report) writeTable(b *bufio.Writer) {
	traces := map[string]bool{}
	for _, k := range r.Ranks {
		traces[k.Trace] = true
	}
	rows := [][]string{{"rank", "trace", "host", "pid", "devices", "peak used", "at", "peak acquired", "live at end", "failed", "retried", "status", "in"}}
	for _, k := range r.Ranks {
		rank, status := "-", "-"
		if k.Rank != nil {
			rank = fmt.Sprint(*k.Rank)
		}
		switch {
		case k.Status != nil:
			status = fmt.Sprint(*k.Status)
		case k.End == nil:
			status = "goes on"
		}
		var devices []string
		for _, d := range k.Devices {
			devices = append(devices, fmt.Sprint(d.Device))
		}
		rows = append(rows, []string{rank, analyze.Line(k.Trace), analyze.Short(k.Host), fmt.Sprint(k.PID), strings.Join(devices, ","), tree.Size(k.Used.Bytes), analyze.Seconds(k.Used.At),
			tree.Size(k.Acquired.Bytes), tree.Size(k.Live), fmt.Sprint(k.Failed), fmt.Sprint(k.Retried), status, path(k.Doing)})
	}
	width := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, c := range row {
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	for _, row := range rows {
		var s strings.Builder
		for i, c := range row {
			if i == traceColumn && len(traces) < 2 {
				continue
			}
			s.WriteString(c)
			s.WriteString(strings.Repeat(" ", width[i]-utf8.RuneCountInString(c)+2))
		}
		fmt.Fprintln(b, strings.TrimRight(s.String(), " "))
	}
}
