package oom

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/tree"
	"github.com/gpurec/gpurec/format"
)

// WriteText writes r for people: a page for the first failure of a trace, which
// is the fatal one, and a line for each other; with all a page for each.
func (r *Report) WriteText(w io.Writer, all bool) error {
	b := bufio.NewWriter(w)
	for i, t := range r.Traces {
		if i > 0 {
			fmt.Fprintln(b)
		}
		t.write(b, all)
	}
	return b.Flush()
}

// nearlyAll is the share of live memory from which on a line with several callers is
// taken to be a wrapper, which says little.
const nearlyAll = 0.9

const mostRows = 20 // of what has a line each; JSON has all

func (t *Trace) write(w io.Writer, all bool) {
	var told, retried int64
	for _, f := range t.Failures {
		told += f.Count
	}
	for _, r := range t.Retried {
		retried += r.Count
	}
	fmt.Fprintf(w, "%s: ", analyze.Line(t.Path))
	switch {
	case told+retried == 0:
		fmt.Fprintf(w, "never out of device memory\n")
	case told == 0:
		fmt.Fprintf(w, "never out of memory, but %d time%s the driver refused and a retry worked\n", retried, analyze.Plural(retried))
	case retried == 0:
		fmt.Fprintf(w, "out of memory %d time%s\n", told, analyze.Plural(told))
	default:
		fmt.Fprintf(w, "out of memory %d time%s, and %d time%s a retry worked\n", told, analyze.Plural(told), retried, analyze.Plural(retried))
	}
	for i, f := range t.Failures {
		f.start = t.start
		switch {
		case all || i == 0:
			fmt.Fprintln(w)
			f.write(w)
		case i == 1:
			fmt.Fprintf(w, "\nother failures (--all has a page for each)\n")
			fallthrough
		case i <= mostRows:
			f.writeRow(w)
		case i == mostRows+1:
			fmt.Fprintf(w, "  and %d more\n", len(t.Failures)-i)
		}
	}
	if t.Skipped > 0 {
		fmt.Fprintf(w, "%d of these failures are only counted: the numbers are of one before\n", t.Skipped)
	}
	t.writeRetried(w)
	for _, o := range t.Other {
		what := fmt.Sprintf("status %d, which is not out of memory", o.Status)
		if o.Host {
			what = fmt.Sprintf("status %d: pinned host memory, not the device's", o.Status)
		}
		fmt.Fprintf(w, "also failed: %d × %s of pid %d, %s, first at %s\n", o.Count, analyze.Short(o.API), o.PID, what, analyze.Seconds(o.First))
	}
}

func (t *Trace) writeRetried(w io.Writer) {
	if len(t.Retried) == 0 {
		return
	}
	fmt.Fprintf(w, "\nretried: the driver refused, memory was given back to it, and the retry worked. The program went on\n")
	for i, r := range t.Retried {
		if i == mostRows {
			fmt.Fprintf(w, "  and %d more\n", len(t.Retried)-i)
			break
		}
		times := ""
		if r.Count > 1 {
			times = fmt.Sprintf("%d times, the largest ", r.Count)
		}
		fmt.Fprintf(w, "  %s by pid %d on device %d: %s%s; %s given back for it, %s\n", analyze.Seconds(r.First), r.PID, r.Device, times, size(r.Largest),
			size(r.Freed), millis(r.Took))
		fmt.Fprintf(w, "    by %s\n", where(r.Line, r.In))
	}
}

func (f *Failure) device() string {
	if f.Device == format.NoDevice {
		return "device unknown"
	}
	s := fmt.Sprintf("device %d", f.Device)
	if f.Name != "" {
		s += " (" + analyze.Short(f.Name) + ")"
	}
	return s
}

func (f *Failure) writeRow(w io.Writer) {
	times := ""
	if f.Count > 1 {
		times = fmt.Sprintf(", %d times", f.Count)
	}
	fmt.Fprintf(w, "  %s  %s: %s asked for on device %d by pid %d%s, %s\n    by %s\n", analyze.Seconds(f.At), f.Causes[0].ID, size(f.Asked), f.Device, f.PID, times, f.Outcome,
		where(f.Line, f.In))
}

// write is the page: the headline, what was asked for and by whom, why, where
// the device's bytes were, who held them, what grew, what to do.
func (f *Failure) write(w io.Writer) {
	clock := ""
	if !f.start.IsZero() {
		clock = f.start.Add(time.Duration(f.At)).UTC().Format(" (2006-01-02 15:04:05 UTC)")
	}
	fmt.Fprintf(w, "OUT OF MEMORY  %s  at %s%s\n", f.device(), analyze.Seconds(f.At), clock)
	fmt.Fprintf(w, "  %s\n\n", f.Causes[0].Title)
	row := func(name, f string, a ...any) { fmt.Fprintf(w, "  %-11s "+f+"\n", append([]any{name}, a...)...) }
	row("asked for", "%s, reported by %s%s", size(f.Asked), analyze.Short(f.Reporter), f.refused())
	row("by", "%s", analyze.Line(f.Line))
	if f.In != "" {
		row("", "in %s", analyze.Line(f.In))
	}
	for _, l := range f.CalledBy {
		row("", "called by %s", analyze.Line(l))
	}
	if len(f.Scope) > 0 {
		mark := ""
		if f.ScopeInferred {
			mark = tree.InferredMark
		}
		row("inside", "%s%s", analyze.Line(strings.Join(f.Scope, " > ")), mark)
	}
	row("process", "%d  %s", f.PID, analyze.Short(f.Command))
	row("outcome", "%s", f.outcome())
	if f.Count > 1 {
		row("", "the latest of %d, the first at %s", f.Count, analyze.Seconds(f.First))
	}
	fmt.Fprintf(w, "\n  why\n")
	for i, c := range f.Causes {
		fmt.Fprintf(w, "    %d. %s: %s\n", i+1, c.ID, c.Why)
	}
	f.Memory.write(w, f.Refusals > 0 && f.Memory.Free >= max(f.Asked, *f.Driver))
	f.writeHolders(w)
	f.writeGrowth(w)
	f.writePins(w)
	if len(f.Remedies) > 0 {
		fmt.Fprintf(w, "\n  what to do\n")
		for _, r := range f.Remedies {
			fmt.Fprintf(w, "    - %s\n", r)
		}
	}
	fmt.Fprintf(w, "    - see all that was live: %s\n", analyze.Line(f.LiveThen))
	for _, c := range f.Causes {
		if c.ID == Fragmentation || c.ID == Unreachable {
			fmt.Fprintf(w, "    - see the segments: %s\n", analyze.Line(f.SegsThen))
		}
	}
}

const mostCallers = 3 // that are told of the failure's line

// callers are the next lines outside the one that asked.
func (f *Failure) callers() (out []string) {
	at := len(f.Stack) - 1
	for at >= 0 && f.Stack[at] != f.Line {
		at--
	}
	for at--; at >= 0 && len(out) < mostCallers; at-- {
		out = append(out, f.Stack[at])
	}
	return out
}

func (f *Failure) refused() string {
	switch {
	case f.Refusals == 0:
		return "; the driver was not asked"
	case *f.Driver != f.Asked:
		return fmt.Sprintf("; the driver refused %s, %d time%s", size(*f.Driver), f.Refusals, analyze.Plural(f.Refusals))
	}
	return fmt.Sprintf("; the driver refused %d time%s", f.Refusals, analyze.Plural(f.Refusals))
}

func (f *Failure) outcome() string {
	end := "the trace does not say how the process ended"
	if f.End != nil {
		end = fmt.Sprintf("the process ended %s later", span(*f.End-f.At))
		if *f.Status != format.Unknown {
			end += fmt.Sprintf(" with status %d", *f.Status)
		}
	}
	switch f.Outcome {
	case Fatal:
		return "fatal (inferred): its thread allocated nothing more, and " + end
	case Survived:
		if f.After == 0 {
			return "survived (inferred): " + end
		}
		return fmt.Sprintf("survived (inferred): its thread allocated %d time%s more, and %s", f.After, analyze.Plural(f.After), end)
	}
	return "open: " + end
}

// write is where the memory was. Where the driver refused what is said to be
// free, that is said too.
func (m *Memory) write(w io.Writer, refused bool) {
	fmt.Fprintf(w, "\n  where the device's memory was\n")
	row := func(depth int, name string, n int64, words ...string) {
		if n < 0 {
			return
		}
		note := strings.Join(words, ", ")
		if note != "" {
			note = "  " + note
		}
		fmt.Fprintf(w, "    %-*s%-*s %28s%s\n", depth, "", 26-depth, name, size(n), note)
	}
	row(0, "that programs can have", m.Total)
	by := m.Reading.words()
	if m.Reading == nil {
		by = "by the driver, with its refusal"
	}
	if refused && !m.exact() {
		by += "; too much, for the driver refused less"
	}
	row(2, "free", m.Free, by)
	if m.Process >= 0 {
		row(2, "this process", m.Process, "by NVML")
	} else {
		row(2, "this process", m.Acquired, "acquired; NVML did not say")
	}
	if m.UsedLayer == "pool" {
		row(4, "live", m.Used)
		if m.Cached > 0 {
			row(4, "cached and free", m.Cached, fmt.Sprintf("largest piece %s at most", format.Bytes(m.Largest)), fmt.Sprintf("pinned by blocks %s", format.Bytes(m.Pinned)))
		} else {
			row(4, "cached and free", m.Cached)
		}
		row(4, "acquired outside the pool", m.Outside)
	} else {
		row(4, "live", m.Used, "driver layer: it has no pool")
	}
	if m.Untracked >= 0 {
		if m.Loose > 0 {
			row(4, "CUcontext, not recorded", m.Untracked, "with what stream-ordered pools took")
		} else {
			row(4, "CUcontext, not recorded", m.Untracked)
		}
	}
	if m.BeingFreed > 0 {
		row(4, "being freed", m.BeingFreed, "in calls that had not returned; counted as given back")
	}
	if m.AtMost {
		row(2, "others", m.Others, "other processes, their CUcontexts, the driver")
	} else {
		row(2, "others", m.Others, "other processes, the driver")
	}
	for _, o := range m.Recorded {
		row(4, fmt.Sprintf("pid %d", o.PID), o.Acquired, "acquired", analyze.Short(o.Command))
	}
	if m.Allocated >= 0 && (m.Allocated != m.Used || m.Reserved != m.Segments) {
		fmt.Fprintf(w, "    PyTorch's own sums: allocated %s, reserved %s\n", size(m.Allocated), size(m.Reserved))
	}
}

// words say how good a reading is.
func (r *Reading) words() string {
	if r == nil {
		return ""
	}
	when := "before"
	d := -r.Distance
	if r.Distance >= 0 {
		when, d = "after", r.Distance
	}
	s := fmt.Sprintf("by NVML %s %s", span(d), when)
	if r.Corrected != 0 {
		s += fmt.Sprintf(", corrected by the %s acquired in between", format.Bytes(r.Corrected))
	}
	return s
}

func (f *Failure) writeHolders(w io.Writer) {
	if len(f.Holders) == 0 {
		return
	}
	fmt.Fprintf(w, "\n  who held the live memory\n")
	left := f.Memory.Used
	for _, h := range f.Holders {
		fmt.Fprintf(w, "    %5.1f %%  %10s  %d block%s  %s\n", 100*h.Share, format.Bytes(h.Bytes), h.Blocks, analyze.Plural(h.Blocks), where(h.Line, h.In))
		left -= h.Bytes
	}
	if f.Wrapper != "" {
		fmt.Fprintf(w, "    nearly all has one line: --hide %s shows who called it\n", analyze.Line(analyze.Word(f.Wrapper)))
	}
	if left > 0 {
		fmt.Fprintf(w, "    %5.1f %%  %10s  other lines\n", 100*float64(left)/float64(f.Memory.Used), format.Bytes(left))
	}
}

func (f *Failure) writeGrowth(w io.Writer) {
	g := f.Growth
	switch {
	case g == nil:
		return
	case len(g.Lines) == 0:
		fmt.Fprintf(w, "\n  nothing grew steadily between %s\n", g.span())
		return
	}
	fmt.Fprintf(w, "\n  what grew between %s (%s to %s)\n", g.span(), analyze.Seconds(g.FromT), analyze.Seconds(g.ToT))
	for _, l := range g.Lines {
		each := ""
		if g.By == "step" && g.Steps() > 0 {
			each = fmt.Sprintf(", %s a step", format.Bytes(l.Bytes/g.Steps()))
		}
		fmt.Fprintf(w, "    %10s  rose at %d of %d looks%s  %s\n", "+"+format.Bytes(l.Bytes), l.Rises, l.Looks, each, where(l.Line, l.In))
	}
}

func (f *Failure) writePins(w io.Writer) {
	if len(f.Pins) == 0 || f.Memory.Total > 0 && float64(f.Memory.Pinned) < thresholds.Cached*float64(f.Memory.Total) {
		return
	}
	fmt.Fprintf(w, "\n  what pins the cached memory\n")
	for _, p := range f.Pins {
		fmt.Fprintf(w, "    %10s free in %d segment%s, kept by %d block%s of %s  %s\n", format.Bytes(p.Free), p.Segments, analyze.Plural(p.Segments), p.Blocks,
			analyze.Plural(p.Blocks), format.Bytes(p.Bytes), where(p.Line, p.In))
	}
}

// span is a time for people.
func span(ns int64) string {
	if ns >= 1e9 || ns <= -1e9 {
		return fmt.Sprintf("%.2f s", float64(ns)/1e9)
	}
	return millis(ns)
}

func millis(ns int64) string { return fmt.Sprintf("%.1f ms", float64(ns)/1e6) }
