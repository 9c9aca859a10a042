package stacks

import (
	"bufio"
	"fmt"
	"io"
	"sort"
	"strings"
)

// WriteFolded writes a line for each stack that has some of v: its frames,
// outermost first, joined by semicolons, a space and the number. Frames are
// file:line:function; a semicolon in one is written as a comma. Where there are
// several devices or traces, they stand outermost.
func (a *Answer) WriteFolded(w io.Writer, v Value) error {
	sums := map[string]int64{}
	traces, devices := a.several()
	clean := strings.NewReplacer(";", ",")
	for i := range a.rows {
		r := &a.rows[i]
		if r.values[v] == 0 {
			continue
		}
		parts := r.where(traces, devices)
		for _, f := range r.frames {
			parts = append(parts, a.frames.all[f].label())
		}
		for j := range parts {
			parts[j] = clean.Replace(parts[j])
		}
		sums[strings.Join(parts, ";")] += r.values[v]
	}
	lines := make([]string, 0, len(sums))
	for s := range sums {
		lines = append(lines, s)
	}
	sort.Strings(lines)
	b := bufio.NewWriter(w)
	for _, s := range lines {
		fmt.Fprintf(b, "%s %d\n", s, sums[s])
	}
	return b.Flush()
}
