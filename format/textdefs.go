package format

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The lines of a text twin that say what a trace is and what its events refer to.

func (p *textParser) readMeta(a *args) error {
	m := &p.meta
	for a.next() {
		switch a.key {
		case "trace_id":
			m.TraceID = a.text()
		case "tool":
			m.Tool = a.text()
		case "host":
			m.Host = a.text()
		case "command":
			m.Command = append(m.Command, a.text())
		case "option":
			m.Options = append(m.Options, a.text())
		case "start":
			t, err := time.Parse(time.RFC3339Nano, a.text())
			if err == nil {
				_, err = t.MarshalJSON() // trace.json holds it, or does not
			}
			if err != nil {
				a.fail(fmt.Errorf("start: %.40q is no RFC 3339 instant that JSON can hold", a.text()))
			}
			m.Start = t
		case "start_monotonic":
			m.Monotonic = Time(a.int(64))
		case "start_tsc":
			m.TSC = a.uint(64)
		case "driver":
			m.Driver = a.text()
		case "nvml":
			m.NVML = a.text()
		case "no_samples":
			m.NoSamples = a.text()
		case "note":
			m.Notes = append(m.Notes, a.text())
		case "job":
			j, err := parseJob(a.text())
			if err != nil {
				a.fail(fmt.Errorf("job: %w", err))
			}
			m.Jobs = append(m.Jobs, j)
		case "parts":
			m.Parts = int(a.int(32))
		case "simulated":
			b, err := strconv.ParseBool(a.text())
			if err != nil {
				a.fail(fmt.Errorf("simulated: %.40q is neither true nor false", a.text()))
			}
			m.Simulated = b
		case "ending":
			switch s := Ending(a.text()); s {
			case "growing":
				m.Ending = EndGrowing
			case EndClosed, EndRepaired, EndFailed:
				m.Ending = s
			default:
				a.fail(fmt.Errorf("unknown ending %q", s))
			}
		case "reason":
			m.Reason = a.text()
		case "status":
			n := int(a.int(32))
			m.Status = &n
		case "end_monotonic":
			m.End = Time(a.int(64))
		case "events":
			m.Stats.Events = a.uint(64)
		case "lost":
			m.Stats.Lost = a.uint(64)
		case "closed_lanes":
			m.Stats.ClosedLanes = a.uint(64)
		case "late":
			m.Stats.Late = a.uint(64)
		case "unresolved":
			m.Stats.Unresolved = a.uint(64)
		case "lanes":
			m.Stats.Lanes = a.uint(64)
		case "absent":
			m.Stats.Absent = a.uint(64)
		case "unwritten":
			m.Stats.Unwritten = a.uint(64)
		case "waited_ns":
			m.Stats.Waited = a.int(64)
		case "cpu_ns":
			m.Stats.CPUNanos = a.int(64)
		case "written_bytes":
			m.Stats.Written = a.int(64)
		case "peak_rss_bytes":
			m.Stats.PeakMemory = a.int(64)
		default:
			a.unknown("meta")
		}
	}
	return a.err
}

// readAPI reads the name of a function. trace.json has it from the start on.
func (p *textParser) readAPI(a *args) error {
	n, name := API(a.uintWord("number", 16)), a.textWord("name")
	if err := a.end(); err != nil {
		return err
	}
	if p.w != nil {
		return errors.New("api stands before the first part")
	}
	if p.meta.APIs == nil {
		p.meta.APIs = APINames{}
	}
	if old, ok := p.meta.APIs[n]; ok && old != name {
		return fmt.Errorf("api %d is defined twice, differently", n)
	}
	if !n.Known() {
		p.apis[name] = n
	}
	return p.meta.APIs.add(n, name) // refuses a name that stands twice
}

func (p *textParser) readDef(what string, a *args) error {
	id := a.uintWord("id", 32)
	if what == "device" && (id > 1<<15-1) {
		a.fail(fmt.Errorf("device %d is over %d", id, 1<<15-1))
	}
	if what != "device" && id == 0 {
		a.fail(errors.New("id 0 stands for none"))
	}
	switch what {
	case "device":
		r := DeviceRow{ID: Device(id), NVML: Unknown}
		for a.next() {
			switch a.key {
			case "uuid":
				r.UUID = a.text()
			case "name":
				r.Name = a.text()
			case "total":
				r.Total = a.int(64)
			case "nvml":
				r.NVML = int32(a.int(32))
			default:
				a.unknown(what)
			}
		}
		p.put(func(d *Defs) { d.PutDevice(r) })
	case "process":
		r := Process{ID: ProcessID(id), Begin: Unknown, End: Unknown, Status: Unknown, Rank: Unknown}
		for a.next() {
			switch a.key {
			case "pid":
				r.PID = int32(a.int(32))
			case "parent":
				r.Parent = int32(a.int(32))
			case "start_time":
				r.StartTime = a.uint(64)
			case "image":
				r.Image = a.uint(64)
			case "begin":
				r.Begin = Time(a.int(64))
			case "end":
				r.End = Time(a.int(64))
			case "status":
				r.Status = int32(a.int(32))
			case "rank":
				r.Rank = int32(a.int(32))
			case "executable":
				r.Executable = a.text()
			case "command":
				r.Command = a.text()
			case "python":
				r.Python = a.text()
			default:
				a.unknown(what)
			}
		}
		p.put(func(d *Defs) { d.PutProcess(r) })
	case "frame":
		r := Frame{ID: FrameID(id)}
		var err error
		if r.Kind, err = ParseFrameKind(a.word("kind")); err != nil {
			a.fail(err)
		}
		r.File = a.textWord("file")
		r.Line = int32(a.intWord("line", 32))
		r.Function = a.textWord("function")
		for a.next() {
			switch a.key {
			case "module":
				r.Module = a.text()
			case "build_id":
				r.BuildID = a.text()
			case "address":
				r.Address = a.uint(64)
			default:
				a.unknown(what)
			}
		}
		if old, ok := p.known.Frame(r.ID); ok && old != r {
			a.fail(fmt.Errorf("frame %d is defined twice, differently", id))
		}
		p.put(func(d *Defs) { d.PutFrame(r) })
	case "stack":
		r := Stack{ID: StackID(id), Parent: StackID(a.uintWord("parent", 32)), Frame: FrameID(a.uintWord("frame", 32))}
		if old, ok := p.known.Stack(r.ID); ok && old != r {
			a.fail(fmt.Errorf("stack %d is defined twice, differently", id))
		}
		p.put(func(d *Defs) { d.PutStack(r) })
	case "name":
		s := a.textWord("text")
		if p.known.HasName(NameID(id)) && p.known.Name(NameID(id)) != s {
			a.fail(fmt.Errorf("name %d is defined twice, differently", id))
		}
		if _, ok := p.names[s]; !ok {
			p.names[s] = NameID(id)
		}
		p.put(func(d *Defs) { d.PutName(NameID(id), s) })
	}
	return a.end()
}

// parseJob reads "PID START LOCAL_RANK WORLD_SIZE ID"; the ID may be empty and may
// have blanks.
func parseJob(text string) (j Job, err error) {
	words := strings.SplitN(text, " ", 5)
	if len(words) < 5 {
		return j, fmt.Errorf("%.40q is not PID START LOCAL_RANK WORLD_SIZE ID", text)
	}
	number := func(word string) int32 {
		n, e := strconv.ParseInt(word, 10, 32)
		if e != nil {
			err = fmt.Errorf("%.40q is no number of 32 bits", word)
		}
		return int32(n)
	}
	j.PID, j.LocalRank, j.WorldSize, j.ID = number(words[0]), number(words[2]), number(words[3]), words[4]
	start, e := strconv.ParseUint(words[1], 10, 64)
	if e != nil {
		err = fmt.Errorf("%.40q is no start time", words[1])
	}
	j.StartTime = start
	return j, err
}
