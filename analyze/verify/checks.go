package verify

import (
	"fmt"
	"math"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
)

// usedIDs are the ids that a part's rows refer to, with the number of rows.
type usedIDs struct {
	stacks    map[format.StackID]int64
	names     map[format.NameID]int64
	processes map[format.ProcessID]int64
	devices   map[format.Device]int64
}

func newUsed() *usedIDs {
	return &usedIDs{map[format.StackID]int64{}, map[format.NameID]int64{}, map[format.ProcessID]int64{}, map[format.Device]int64{}}
}

// add notes what e refers to. Of a checkpoint's sums the process 0 is no
// process, but stands for all.
func (u *usedIDs) add(e *format.Event) {
	if e.Stack != 0 {
		u.stacks[e.Stack]++
	}
	if e.Name != 0 {
		u.names[e.Name]++
	}
	if e.Note != 0 {
		u.names[e.Note]++
	}
	if e.Process != 0 {
		u.processes[e.Process]++
	}
	if e.Device != format.NoDevice {
		u.devices[e.Device]++
	}
}

func (u *usedIDs) count(d *format.Defs, out *Unknown) {
	var buf []format.FrameID
	for id, rows := range u.stacks {
		frames, ok := d.Walk(id, buf)
		buf = frames
		if !ok {
			out.Stacks += rows
			continue
		}
		for _, f := range frames {
			if _, ok := d.Frame(f); !ok && f != 0 {
				out.Frames += rows
				break
			}
		}
	}
	for id, rows := range u.names {
		if !d.HasName(id) {
			out.Names += rows
		}
	}
	for id, rows := range u.processes {
		if _, ok := d.Process(id); !ok {
			out.Processes += rows
		}
	}
	for id, rows := range u.devices {
		if _, ok := d.Device(id); !ok {
			out.Devices += rows
		}
	}
}

// A lane is what is known of one thread's numbering. Lanes count the events
// made, those that were refused too, so a number that is missing is an event
// that is missing; the recorder must have said so in a Lost row before the next
// event of that thread.
type lane struct {
	numbered bool
	last     uint64
	lost     int64 // by Lost rows since last
}

type laneKey struct {
	process format.ProcessID
	thread  uint32
}

func (v *verifier) lane(e *format.Event) {
	k := laneKey{e.Process, e.Thread}
	l := v.lanes[k]
	if l == nil {
		l = &lane{}
		v.lanes[k] = l
	}
	if e.Kind == format.Lost {
		n := e.Size
		if n <= 0 { // nobody knows how many, so it covers any gap
			v.unknown = true
			n = math.MaxInt64
		} else {
			v.r.Lost = analyze.Add(v.r.Lost, n)
		}
		l.lost = analyze.Add(l.lost, n)
		return
	}
	switch {
	case e.Kind == format.ThreadBegin: // a thread takes over a lane, at any number
		l.numbered, l.last, l.lost = true, e.Seq, 0
		return
	case e.Seq == 0: // a row that the recorder made, or a text twin without numbers
		return
	case l.numbered && e.Seq > l.last:
		if missing := int64(min(e.Seq-l.last-1, math.MaxInt64)); missing > 0 {
			v.r.Gaps++
			v.r.Unaccounted = analyze.Add(v.r.Unaccounted, max(missing-l.lost, 0))
		}
	}
	l.numbered, l.last, l.lost = true, e.Seq, 0
}

// restart forgets what a gap between parts makes void.
func (v *verifier) restart() {
	v.countFrees()
	v.fold = live.New()
	v.torch = torchSums{Torch: v.torch.Torch}
	v.torch.watch(v.fold)
	v.lanes = map[laneKey]*lane{}
}

// A checkpoint is the rows at a part's begin, compared with the fold as it was
// before them.
type checkpoint struct {
	path    string
	compare bool           // the fold reaches up to this part
	want    []format.Event // the fold's own rows, from before the first of the part's
	rows    map[format.Event]int
	n       int64
	ended   bool
	after   int64 // rows that came although it had ended
}

// settled is e as far as event order alone determines it. What a checkpoint
// says of NVML depends on where samples fell between events, which rows of two
// tables do not say.
func settled(e *format.Event) (format.Event, bool) {
	c := *e
	switch {
	case c.Kind == format.LiveTotal && c.Process == 0 && c.Layer != format.LayerHost:
		if c.Layer == format.LayerNone {
			c.Size, c.Requested = format.Unknown, format.Unknown
		}
		if c.Size <= 0 && c.Requested <= 0 && c.Reserved <= 0 {
			return c, false // a device that only NVML knows
		}
	case c.Kind == format.LiveScope && c.Layer == format.LayerNone:
		c.Size, c.Requested = 0, 0
	}
	return c, true
}

func (v *verifier) checkpointRow(c *checkpoint, e *format.Event) {
	if c.ended {
		c.after++
		return
	}
	if e.Kind != format.CheckpointEnd {
		c.n++
		if c.compare {
			v.begin(c)
			if row, ok := settled(e); ok {
				c.rows[row]++
			}
		}
		return
	}
	c.ended = true
	if e.Size != c.n {
		v.fault("%s: the checkpoint has %d rows and says %d", c.path, c.n, e.Size)
	}
	if c.compare {
		v.begin(c)
		v.r.Checkpoints++
		v.compare(c)
	}
	c.rows, c.want = nil, nil
}

// begin takes the fold as it is before the checkpoint's first row, which the
// fold would believe.
func (v *verifier) begin(c *checkpoint) {
	if c.rows != nil {
		return
	}
	c.rows = map[format.Event]int{}
	c.want = v.fold.Checkpoint(v.fold.Now())
	c.want = c.want[:len(c.want)-1] // without the end, whose time is the moment of asking
}

func (v *verifier) compare(c *checkpoint) {
	var missing []format.Event
	for i := range c.want {
		row, ok := settled(&c.want[i])
		switch {
		case !ok:
		case c.rows[row] == 0:
			missing = append(missing, row)
		case c.rows[row] == 1:
			delete(c.rows, row)
		default:
			c.rows[row]--
		}
	}
	extra := 0
	for _, n := range c.rows {
		extra += n
	}
	if extra == 0 && len(missing) == 0 {
		return
	}
	v.r.Differ++
	v.fault("%s: the checkpoint is not the fold of the events before it: %d rows too many, %d missing%s", c.path, extra, len(missing), example(c.rows, missing))
}

func example(extra map[format.Event]int, missing []format.Event) string {
	s := ""
	for e := range extra {
		s += fmt.Sprintf("; it has %q", format.AppendEventText(nil, &e, nil))
		break
	}
	if len(missing) > 0 {
		s += fmt.Sprintf("; the fold has %q", format.AppendEventText(nil, &missing[0], nil))
	}
	return s
}

// Torch compares PyTorch's own sum of live bytes, which comes with each of its
// events, with the fold's. What was allocated before the recording is a
// difference that stays the same.
type Torch struct {
	Compared int64  `json:"compared"`
	Differ   int64  `json:"differ"`
	Earlier  int64  `json:"bytes_before_recording"`
	First    string `json:"first_difference,omitempty"`
}

type torchKey struct {
	process format.ProcessID
	device  format.Device
}

type torchSums struct {
	Torch
	sums map[torchKey]int64
	base map[torchKey]int64
}

func (t *torchSums) watch(s *live.State) {
	t.sums, t.base = map[torchKey]int64{}, map[torchKey]int64{}
	add := func(a *live.Allocation, sign int64) {
		if a.API.Space() == format.SpaceTorch {
			t.sums[torchKey{a.Process, a.Device}] += sign * a.Bytes()
		}
	}
	s.OnBegin = func(a *live.Allocation, _ *format.Event) { add(a, 1) }
	s.OnEnd = func(a *live.Allocation, _ *format.Event) { add(a, -1) }
}

// check compares after e is folded.
func (t *torchSums) check(e *format.Event) {
	if e.API != format.APITorch || e.Allocated < 0 || e.Device < 0 || e.Kind != format.Alloc && e.Kind != format.Free {
		return
	}
	k := torchKey{e.Process, e.Device}
	base, ok := t.base[k]
	if !ok {
		base = e.Allocated - t.sums[k]
		t.base[k] = base
		t.Earlier += base
	}
	t.Compared++
	if got := base + t.sums[k]; got != e.Allocated {
		if t.Differ++; t.Differ == 1 {
			t.First = fmt.Sprintf("the fold has %d bytes after %q", got, format.AppendEventText(nil, e, nil))
		}
	}
}

func (v *verifier) countFrees() {
	for _, p := range v.fold.Processes() {
		if p.UnknownFrees > 0 || p.LostFrees > 0 {
			v.note("process %d: %d frees of what was never seen allocated, %d allocations at a live address", p.ID, p.UnknownFrees, p.LostFrees)
		}
	}
}

// conclude says what only the whole trace shows.
func (v *verifier) conclude(m *format.Meta) {
	r := v.r
	v.countFrees()
	r.Torch = v.torch.Torch
	switch m.Ending {
	case format.EndGrowing:
		v.partial("the trace was not closed: it is still being recorded, or its recorder died")
	case format.EndFailed:
		v.partial("recording failed: %s", m.Reason)
	case format.EndRepaired:
		v.partial("%s", m.Reason)
	}
	if lost := analyze.Lost(r.Lost, v.unknown, m); lost != "" {
		v.partial("%s", lost)
	}
	if m.Stats.ClosedLanes > 0 {
		v.partial("%d lanes were closed or refused because they made no sense or were too many", m.Stats.ClosedLanes)
	}
	if r.Unaccounted > 0 {
		v.fault("%d events are missing between the numbers of their threads' events, and no Lost row counts them", r.Unaccounted)
	}
	all := len(r.Faults) == 0 && !v.broken && len(r.Parts) > 0 && r.Parts[0].Index == 0 && r.Parts[len(r.Parts)-1].Index == len(r.Parts)-1 && len(r.Parts) >= m.Parts
	if all && m.Ending == format.EndClosed && m.Stats.Lost > 0 && !v.unknown && min(m.Stats.Lost, math.MaxInt64) != uint64(r.Lost) {
		v.fault("the recorder counted %d lost events, the Lost rows %d", m.Stats.Lost, r.Lost)
	}
	r.Lost = max(r.Lost, int64(min(m.Stats.Lost, math.MaxInt64)))
	if r.Torch.Differ > 0 {
		v.note("PyTorch's own sum differs from the fold's after %d of %d events; first: %s", r.Torch.Differ, r.Torch.Compared, r.Torch.First)
	}
}
