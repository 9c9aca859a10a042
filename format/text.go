package format

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The text twin: a trace as lines, for people, diffs and tests. What stands
// in a trace stands there exactly; a word that begins with '#' begins a comment.
//
//	gpurec 1
//	meta command="python" command="train.py" start=2026-11-30T10:00:00Z start_monotonic=1000
//	device 0 uuid="GPU-0" name="H200" total=150754820096 nvml=0
//	process 1 pid=4711 command="python train.py"
//	frame 1 python "/app/main.py" 42 "<module>"
//	stack 10 0 1                       # id, the caller's, frame
//	name 3 "forward"
//	part
//	1000 ScopeBegin thread=7 api=scope scope=1 name=3
//	1200 Alloc thread=7 api=cupy address=0x7f00 object=0x55 size=1024 requested=1000 stack=10
//	sample 1300 device=0 total=100 used=10 free=90 reserved=0
//	part
//	2000 CheckpointEnd size=0
//
// A definition is `device ID`, `process ID`, `frame ID KIND FILE LINE FUNCTION`,
// `stack ID PARENT FRAME` or `name ID TEXT`, with the rest as key=value; before
// them, `api NUMBER NAME` names a function of a newer writer, which ours lacks. An
// event is `TIME KIND` with its columns. `part` begins the next part, `part 7`
// part 7; lines before the first one belong to part 0. Texts are quoted as in
// Go; one without a space or quote needs no quotes.
//
// What is left out has its default: 0; -1 for duration, size, requested,
// allocated, reserved, device, begin, end, status of a process, rank, nvml;
// layer and class of the event's api; the process where exactly one is
// defined; peak_used equal to used and api 2 of a sample; ending=closed of the
// meta, where "growing" stands for a recording that nobody closed. A name or
// note may be a quoted text instead of an id.

// textHead is the first line.
const textHead = "gpurec"

// WriteText writes the text twin of all of t. A part that cannot be read to
// its end is written as far as it can; the errors come joined, at the end.
func WriteText(w io.Writer, t *Trace) error {
	out := bufio.NewWriterSize(w, 64<<10)
	var errs []error
	defs := NewDefs()
	for _, p := range t.Parts() {
		errs = append(errs, p.LoadDefs(defs))
	}
	b := fmt.Appendf(nil, "%s %d\n", textHead, Version)
	meta := t.meta
	if n := len(t.parts); n > 0 && meta.Parts <= t.parts[n-1].index+1 {
		meta.Parts = 0 // the part lines say it
	}
	b = append(appendMetaText(b, &meta), '\n')
	b = appendAPIsText(b, meta.APIs)
	b = appendDefsText(b, defs)
	if _, err := out.Write(b); err != nil {
		return fmt.Errorf("write text: %w", err)
	}
	next := 0
	for _, p := range t.Parts() {
		b = append(b[:0], "part"...)
		if p.index != next {
			b = strconv.AppendInt(append(b, ' '), int64(p.index), 10)
		}
		next = p.index + 1
		out.Write(append(b, '\n'))
		perr, werr := writePartText(out, p, defs)
		if werr != nil {
			return fmt.Errorf("write text: %w", werr)
		}
		errs = append(errs, perr)
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write text: %w", err)
	}
	return errors.Join(errs...)
}

func writePartText(out *bufio.Writer, p *Part, defs *Defs) (perr, werr error) {
	var b []byte
	events, eerr := p.Events()
	if eerr == nil {
		defer events.Close()
		for {
			var rows []Event
			if rows, eerr = events.Next(); eerr != nil {
				break
			}
			for i := range rows {
				b = append(AppendEventText(b[:0], &rows[i], defs), '\n')
				if _, err := out.Write(b); err != nil {
					return nil, err
				}
			}
		}
	}
	samples, serr := p.Samples()
	if serr == nil {
		defer samples.Close()
		for {
			var rows []Sample
			if rows, serr = samples.Next(); serr != nil {
				break
			}
			for i := range rows {
				b = append(appendSampleText(b[:0], &rows[i]), '\n')
				if _, err := out.Write(b); err != nil {
					return nil, err
				}
			}
		}
	}
	if eerr == io.EOF {
		eerr = nil
	}
	if serr == io.EOF {
		serr = nil
	}
	return errors.Join(eerr, serr), nil
}

func appendDefsText(b []byte, d *Defs) []byte {
	for _, r := range d.Devices() {
		l := line{b: strconv.AppendInt(append(b, "device "...), int64(r.ID), 10)}
		l.text("uuid", r.UUID)
		l.text("name", r.Name)
		l.int("total", r.Total, 0)
		l.int("nvml", int64(r.NVML), Unknown)
		b = append(l.b, '\n')
	}
	for _, p := range d.Processes() {
		l := line{b: strconv.AppendUint(append(b, "process "...), uint64(p.ID), 10)}
		l.int("pid", int64(p.PID), 0)
		l.int("parent", int64(p.Parent), 0)
		l.uint("start_time", p.StartTime)
		l.hex("image", p.Image)
		l.int("begin", int64(p.Begin), Unknown)
		l.int("end", int64(p.End), Unknown)
		l.int("status", int64(p.Status), Unknown)
		l.int("rank", int64(p.Rank), Unknown)
		l.text("executable", p.Executable)
		l.text("command", p.Command)
		l.text("python", p.Python)
		b = append(l.b, '\n')
	}
	d.frames.each(func(_ uint32, f Frame) {
		b = fmt.Appendf(b, "frame %d %s ", f.ID, f.Kind)
		b = strconv.AppendQuote(b, f.File)
		b = fmt.Appendf(b, " %d ", f.Line)
		l := line{b: strconv.AppendQuote(b, f.Function)}
		l.text("module", f.Module)
		l.text("build_id", f.BuildID)
		l.hex("address", f.Address)
		b = append(l.b, '\n')
	})
	d.stacks.each(func(_ uint32, s Stack) {
		b = fmt.Appendf(b, "stack %d %d %d\n", s.ID, s.Parent, s.Frame)
	})
	d.names.each(func(id uint32, s string) {
		b = strconv.AppendQuote(fmt.Appendf(b, "name %d ", id), s)
		b = append(b, '\n')
	})
	return b
}

func appendMetaText(b []byte, m *Meta) []byte {
	l := line{b: append(b, "meta"...)}
	l.text("trace_id", m.TraceID)
	l.text("tool", m.Tool)
	l.text("host", m.Host)
	for _, s := range m.Command {
		l.key("command")
		l.b = strconv.AppendQuote(l.b, s)
	}
	for _, s := range m.Options {
		l.key("option")
		l.b = strconv.AppendQuote(l.b, s)
	}
	if !m.Start.IsZero() {
		l.key("start")
		l.b = m.Start.AppendFormat(l.b, time.RFC3339Nano)
	}
	l.int("start_monotonic", int64(m.Monotonic), 0)
	l.uint("start_tsc", m.TSC)
	l.text("driver", m.Driver)
	l.text("nvml", m.NVML)
	l.text("no_samples", m.NoSamples)
	for _, n := range m.Notes {
		l.text("note", n)
	}
	for _, j := range m.Jobs {
		l.text("job", fmt.Sprintf("%d %d %d %d %s", j.PID, j.StartTime, j.LocalRank, j.WorldSize, j.ID))
	}
	if m.Simulated {
		l.key("simulated")
		l.b = append(l.b, "true"...)
	}
	switch m.Ending {
	case EndGrowing:
		l.text("ending", "growing")
	case EndClosed:
	default:
		l.text("ending", string(m.Ending))
	}
	l.text("reason", m.Reason)
	if m.Status != nil {
		l.key("status")
		l.b = strconv.AppendInt(l.b, int64(*m.Status), 10)
	}
	l.int("end_monotonic", int64(m.End), 0)
	l.int("parts", int64(m.Parts), 0)
	l.uint("events", m.Stats.Events)
	l.uint("lost", m.Stats.Lost)
	l.uint("closed_lanes", m.Stats.ClosedLanes)
	l.uint("late", m.Stats.Late)
	l.uint("unresolved", m.Stats.Unresolved)
	l.uint("lanes", m.Stats.Lanes)
	l.uint("absent", m.Stats.Absent)
	l.uint("unwritten", m.Stats.Unwritten)
	l.int("waited_ns", m.Stats.Waited, 0)
	l.int("cpu_ns", m.Stats.CPUNanos, 0)
	l.int("written_bytes", m.Stats.Written, 0)
	l.int("peak_rss_bytes", m.Stats.PeakMemory, 0)
	return l.b
}

// appendAPIsText says the names of functions that our list lacks.
func appendAPIsText(b []byte, names APINames) []byte {
	for _, a := range slices.Sorted(maps.Keys(names)) {
		b = strconv.AppendQuote(fmt.Appendf(b, "api %d ", a), names[a])
		b = append(b, '\n')
	}
	return b
}

// AppendEventText appends e as one line of the text twin, without newline.
// With d it leaves out the process where that is the only one.
func AppendEventText(b []byte, e *Event, d *Defs) []byte {
	info := e.API.Info()
	l := line{b: strconv.AppendInt(b, int64(e.Time), 10)}
	l.b = append(append(l.b, ' '), e.Kind.String()...)
	l.int("duration", e.Duration, Unknown)
	implied := ProcessID(0)
	several := false
	if d != nil {
		implied, several = d.loneProcess(), len(d.processes) > 1
	}
	if e.Process != implied || several {
		l.key("process")
		l.b = strconv.AppendUint(l.b, uint64(e.Process), 10)
	}
	l.uint("thread", uint64(e.Thread))
	l.uint("seq", e.Seq)
	switch {
	case e.API == APINone:
	case e.API.Known():
		l.word("api", e.API.String())
	case d != nil:
		l.text("api", d.API(e.API))
	default:
		l.text("api", e.API.String())
	}
	if e.Layer != info.Layer {
		l.word("layer", e.Layer.String())
	}
	if e.Class != info.Class {
		l.word("class", e.Class.String())
	}
	l.int("device", int64(e.Device), int64(NoDevice))
	l.hex("cuctx", e.CUctx)
	l.hex("address", e.Address)
	l.hex("object", e.Object)
	l.int("size", e.Size, Unknown)
	l.int("requested", e.Requested, Unknown)
	l.int("allocated", e.Allocated, Unknown)
	l.int("reserved", e.Reserved, Unknown)
	l.hex("stream", e.Stream)
	l.hex("pool", e.Pool)
	l.uint("stack", uint64(e.Stack))
	l.uint("scope", uint64(e.Scope))
	l.uint("parent", uint64(e.Parent))
	l.uint("name", uint64(e.Name))
	l.uint("note", uint64(e.Note))
	l.int("status", int64(e.Status), 0)
	if e.Flags != 0 {
		l.word("flags", e.Flags.String())
	}
	return l.b
}

func appendSampleText(b []byte, s *Sample) []byte {
	l := line{b: strconv.AppendInt(append(b, "sample "...), int64(s.Time), 10)}
	l.int("device", int64(s.Device), int64(NoDevice))
	l.uint("process", uint64(s.Process))
	l.int("total", s.Total, 0)
	l.int("used", s.Used, 0)
	l.int("free", s.Free, 0)
	l.int("reserved", s.Reserved, Unknown)
	l.int("process_used", s.ProcessUsed, Unknown)
	l.int("peak_used", s.PeakUsed, s.Used)
	l.int("api", int64(s.API), 2)
	return l.b
}

// A line is text being made of key=value, each left out at its default.
type line struct{ b []byte }

func (l *line) key(k string) { l.b = append(append(append(l.b, ' '), k...), '=') }

func (l *line) int(k string, v, without int64) {
	if v != without {
		l.key(k)
		l.b = strconv.AppendInt(l.b, v, 10)
	}
}

func (l *line) uint(k string, v uint64) {
	if v != 0 {
		l.key(k)
		l.b = strconv.AppendUint(l.b, v, 10)
	}
}

func (l *line) hex(k string, v uint64) {
	if v != 0 {
		l.key(k)
		l.b = strconv.AppendUint(append(l.b, "0x"...), v, 16)
	}
}

func (l *line) text(k, v string) {
	if v != "" {
		l.key(k)
		l.b = strconv.AppendQuote(l.b, v)
	}
}

func (l *line) word(k, v string) {
	l.key(k)
	l.b = append(l.b, v...)
}

// String is the flags' names joined by '|', unknown bits as a number.
func (f Flags) String() string {
	if f == 0 {
		return "0"
	}
	var s []string
	for rest := f & flagMask; rest != 0; rest &= rest - 1 {
		s = append(s, flagNames[bits.TrailingZeros16(uint16(rest))])
	}
	if rest := f &^ flagMask; rest != 0 {
		s = append(s, fmt.Sprintf("%#x", uint16(rest)))
	}
	return strings.Join(s, "|")
}

// ParseFlags is the inverse of Flags.String.
func ParseFlags(s string) (f Flags, err error) {
	for _, w := range strings.Split(s, "|") {
		if i := slices.Index(flagNames[:], w); i >= 0 {
			f |= 1 << i
		} else if n, err := strconv.ParseUint(w, 0, 16); err == nil {
			f |= Flags(n)
		} else {
			return 0, fmt.Errorf("unknown flag %q", w)
		}
	}
	return f, nil
}
