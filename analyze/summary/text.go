package summary

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
)

// WriteText writes r for people: sizes as people read them and exact beside.
func (r *Report) WriteText(w io.Writer) error {
	b := bufio.NewWriter(w)
	for i, t := range r.Traces {
		if i > 0 {
			fmt.Fprintln(b)
		}
		t.write(b)
	}
	return b.Flush()
}

func (t *Trace) write(w io.Writer) {
	m := &t.Meta
	row := func(name, f string, a ...any) { fmt.Fprintf(w, "%-12s "+f+"\n", append([]any{name}, a...)...) }
	row("trace", "%s", analyze.Line(t.Path))
	row("command", "%s", analyze.Short(strings.Join(m.Command, " ")))
	row("recorded", "%s, %s", whenWhere(m), how(m))
	for _, n := range m.Notes {
		row("note", "%s", analyze.Short(n))
	}
	if t.First != nil {
		row("events", "%d in %d part%s, from %s to %s", t.Events, t.Parts, analyze.Plural(int64(t.Parts)), analyze.Seconds(*t.First), analyze.Seconds(*t.Last))
	} else {
		row("events", "none")
	}
	if lost := m.Stats.Lost; t.window && lost > uint64(t.Lost) {
		row("lost", "%d event%s in the window, %d in the recording", t.Lost, analyze.Plural(t.Lost), lost)
	} else {
		row("lost", "%d event%s", t.Lost, analyze.Plural(t.Lost))
	}
	row("odd frees", "%s", oddFrees(t.Unknown, t.Unseen))
	counts := func(name string, cs []Count) {
		var s []string
		for _, c := range cs {
			s = append(s, fmt.Sprintf("%s %d", analyze.Short(c.Name), c.Events))
		}
		if len(s) > 0 {
			row(name, "%s", strings.Join(s, ", "))
		}
	}
	counts("kinds", t.Kinds)
	counts("layers", t.Layers)
	counts("apis", t.APIs)
	var unhooked, remedies []string
	for _, u := range t.Unhooked {
		unhooked = append(unhooked, analyze.Short(u.Symbol))
		if u.Remedy != "" && !slices.Contains(remedies, u.Remedy) {
			remedies = append(remedies, u.Remedy)
		}
	}
	if len(unhooked) > 0 {
		row("unhooked", "%s: looked up, may allocate, not recorded", strings.Join(unhooked, ", "))
	}
	for _, s := range remedies {
		row("", "%s", s)
	}
	row("contexts", "%d", t.Scopes)
	switch {
	case t.Samples > 0:
		row("samples", "%d", t.Samples)
	case t.NoSamples != "":
		row("samples", "none: %s", analyze.Short(t.NoSamples))
	default:
		row("samples", "none")
	}
	if s := m.Stats; s.Lanes > 0 || s.CPUNanos > 0 {
		row("recorder", "%d lanes, %d closed, %d events late, %d stacks unresolved", s.Lanes, s.ClosedLanes, s.Late, s.Unresolved)
	}
	if c := t.Cost; c != nil {
		row("its cost", "%s", c)
	}
	if len(t.Failures) == 0 {
		row("failed", "no allocation failed")
	}
	if m := t.Memory; m.Told+m.Retried > 0 {
		row("oom", "%v: gpuanalyze oom says more", m)
	}
	for _, f := range t.Failures {
		for i, words := range f.words() {
			name := ""
			if i == 0 {
				name = "failed"
			}
			row(name, "%s", words)
		}
	}
	for _, d := range t.Devices {
		t.writeDevice(w, d)
	}
	for _, p := range t.Processes {
		p.write(w)
	}
}

func (t *Trace) writeDevice(w io.Writer, d *Device) {
	name := strconv.Itoa(int(d.Device))
	if d.Device == format.NoDevice {
		name = "unknown"
	}
	fmt.Fprintf(w, "\ndevice %s  %s  %s", name, analyze.Short(d.Name), analyze.Short(d.UUID))
	if d.Total >= 0 {
		fmt.Fprintf(w, "  total %s", size(d.Total))
	}
	fmt.Fprintf(w, "\n  peak used      %v\n  peak acquired  %v\n", d.Used, d.Acquired)
	if d.NVML != nil {
		fmt.Fprintf(w, "  peak NVML      %v, sampled, all processes\n", *d.NVML)
	}
}

func (p *Process) write(w io.Writer) {
	fmt.Fprintf(w, "\nprocess %d", p.PID)
	if p.Rank != nil {
		fmt.Fprintf(w, "  rank %d", *p.Rank)
		if p.WorldSize != nil {
			fmt.Fprintf(w, " of %d", *p.WorldSize)
		}
		if p.LocalRank != nil {
			fmt.Fprintf(w, ", local rank %d", *p.LocalRank)
		}
		if p.Job != "" {
			fmt.Fprintf(w, ", job %s", analyze.Short(p.Job))
		}
	}
	fmt.Fprintf(w, "  %s\n", analyze.Short(p.Command))
	begin, end, live := "?", "the end of the trace", "live at end    "
	if p.Outlives {
		end, live = "after the window", "live at the window's end  "
	}
	if p.Begin != nil {
		begin = analyze.Seconds(*p.Begin)
	}
	if p.End != nil {
		end = analyze.Seconds(*p.End)
		if p.Status != nil {
			end += fmt.Sprintf(" with status %d", *p.Status)
		}
	}
	fmt.Fprintf(w, "  from %s to %s, %d event%s on %d thread%s\n", begin, end, p.Events, analyze.Plural(p.Events), len(p.Threads), analyze.Plural(int64(len(p.Threads))))
	fmt.Fprintf(w, "  peak used      %v (%s layer)\n  peak acquired  %v\n  %s%s\n", p.Used, p.UsedLayer, p.Acquired, live, size(p.LiveAtEnd))
	for _, s := range p.Sums {
		on := fmt.Sprintf("device %d", s.Device)
		if s.Device == format.NoDevice {
			on = "no device"
		}
		fmt.Fprintf(w, "  %s %s, %s: %d taken, %s in all, peak %s\n", s.Layer, s.Class, on, s.Count, size(s.Total), size(s.Peak))
	}
	const most = 16 // a thread pool's threads are not what a summary is read for; --json has all
	for i, t := range p.Threads {
		if i == most {
			fmt.Fprintf(w, "  and %d threads more\n", len(p.Threads)-most)
			break
		}
		name := analyze.Short(t.Name)
		if name != "" {
			name = " " + name
		}
		lost := ""
		if t.Lost > 0 {
			lost = fmt.Sprintf(", %d lost", t.Lost)
		}
		fmt.Fprintf(w, "  thread %d%s: %d event%s%s\n", t.TID, name, t.Events, analyze.Plural(t.Events), lost)
	}
}

// oddFrees says which frees do not fit what was seen taken.
func oddFrees(unknown, unseen int64) string {
	if unknown+unseen == 0 {
		return "none"
	}
	var s []string
	if unknown > 0 {
		s = append(s, fmt.Sprintf("%d of memory that was not seen taken", unknown))
	}
	if unseen > 0 {
		s = append(s, fmt.Sprintf("%d not seen, of memory that was then handed out again", unseen))
	}
	return strings.Join(s, ", ")
}

func (c *Cost) String() string {
	var s []string
	per := func(total int64, unit string) string {
		if c.Events == 0 {
			return ""
		}
		return fmt.Sprintf(" (%.*f %s an event)", map[bool]int{true: 1, false: 0}[unit == "B"], float64(total)/float64(c.Events), unit)
	}
	if c.CPU > 0 {
		s = append(s, time.Duration(c.CPU).Round(time.Millisecond).String()+" CPU"+per(c.CPU, "ns"))
	}
	if c.Written > 0 {
		s = append(s, format.Bytes(c.Written)+" written"+per(c.Written, "B"))
	}
	if c.Memory > 0 {
		s = append(s, format.Bytes(c.Memory)+" memory at most")
	}
	if c.Waited > 0 {
		s = append(s, "threads waited "+time.Duration(c.Waited).Round(time.Microsecond).String())
	}
	return strings.Join(s, ", ")
}

// whenWhere leaves out what a trace does not say.
func whenWhere(m *format.Meta) string {
	s := "at an unknown time"
	if !m.Start.IsZero() {
		s = m.Start.UTC().Format(time.RFC3339)
	}
	if m.Host != "" {
		s += " on " + analyze.Short(m.Host)
	}
	if m.Simulated {
		s += ", simulated GPU"
	}
	if m.Driver != "" {
		s += ", driver " + analyze.Short(m.Driver)
	}
	return s
}

func how(m *format.Meta) string {
	s := "still being recorded, or its recorder died"
	switch m.Ending {
	case format.EndClosed:
		s = "closed in good order"
	case format.EndRepaired:
		s = "repaired"
	case format.EndFailed:
		s = "failed: " + analyze.Short(m.Reason)
	}
	if m.Status != nil {
		s += fmt.Sprintf(", exit status %d", *m.Status)
	}
	return s
}

func (m OutOfMemory) String() string {
	told := fmt.Sprintf("out of memory %d time%s", m.Told, analyze.Plural(m.Told))
	retried := fmt.Sprintf("%d time%s the driver refused and a retry worked", m.Retried, analyze.Plural(m.Retried))
	switch {
	case m.Retried == 0:
		return told
	case m.Told == 0:
		return "never out of memory, but " + retried
	}
	return told + ", and " + retried
}

func (p Peak) String() string {
	if p.Bytes == 0 {
		return size(0)
	}
	return size(p.Bytes) + " at " + analyze.Seconds(p.At)
}

// size is for people and exact.
func size(n int64) string {
	if n > -1024 && n < 1024 {
		return format.Bytes(n)
	}
	return fmt.Sprintf("%s (%d)", format.Bytes(n), n)
}
