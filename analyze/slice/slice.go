// Package slice makes a trace of its own of a range of another: gpuanalyze
// slice. It begins with a checkpoint, like a part of a recording: what was live
// then, with its stacks, the open scopes and the latest readings of the devices.
// So an answer from it is the one that a window gives of the whole, but that what
// was live at its begin counts as its own for leaks; times stay those since the
// recording's start.
//
//	slice.go  Answer: the pass that copies
//
// What counted before the range counts no more: sums and peaks begin with it.
// Of processes that are left out nothing stays; other filters would tear frees
// from their allocations, and are refused.
package slice

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
)

// Fields are those of a query that a slice can be limited to.
const Fields = analyze.ByProcess

// An Answer copies. After its pass it must be closed, or aborted.
type Answer struct {
	dir     string
	w       *format.Writer
	events  int64
	samples int64
	lost    uint64
	from    format.Time
	meta    format.Meta

	// What was known at the begin, until it is written.
	started bool
	rows    []format.Event // a checkpoint
	before  map[sampled]format.Sample

	Redact bool // leave out command lines, the host's name, and where paths begin
}

type sampled struct {
	device  format.Device
	process format.ProcessID
}

// New returns an answer that makes the directory dir, which must not exist.
func New(dir string) *Answer { return &Answer{dir: dir} }

func (a *Answer) Needs() analyze.Needs { return analyze.Needs{Samples: true} }

func (a *Answer) Begin(p *analyze.Pass) error {
	if a.w != nil {
		return fmt.Errorf("a slice is of one trace")
	}
	if p.Filtered(analyze.ByAll &^ Fields) {
		return fmt.Errorf("a slice is limited by process, rank and time only")
	}
	p.CountOnly(Fields)
	m := p.Trace.Meta()
	m.Ending, m.Reason, m.Status, m.End, m.Parts, m.Stats = format.EndGrowing, "", nil, 0, 0, format.Stats{}
	w, err := format.Create(a.dir, m, format.WriterOptions{Redact: a.Redact})
	if err != nil {
		return err
	}
	a.w, a.before = w, map[sampled]format.Sample{}
	d := w.Defs()
	p.Defs.Each(d.PutFrame, d.PutStack, d.PutName)
	for _, r := range p.Defs.Processes() {
		if p.Matches(&format.Event{Process: r.ID}, Fields) {
			d.PutProcess(r)
		}
	}
	for _, r := range p.Defs.Devices() {
		d.PutDevice(r)
	}
	return nil
}

// Enter takes what is known at the range's begin. A range that begins with the
// trace begins as that does.
func (a *Answer) Enter(p *analyze.Pass) {
	if p.Windowed() {
		p.State.ResetPeaks()
	}
	a.from = p.State.Now()
	rows := p.State.Checkpoint(a.from)
	end := len(rows) - 1
	for _, e := range slices.Concat(rows[:end], pools(p), rows[end:]) {
		if !a.keeps(p, &e) {
			continue
		}
		if p.Windowed() {
			live.Forget(&e)
		}
		a.rows = append(a.rows, e)
	}
}

// pools are rows for the processes whose pool shows itself after the begin, and
// maybe after the end: what is used of them is the pool's from the first event on.
func pools(p *analyze.Pass) (rows []format.Event) {
	if !p.Ends() {
		return nil
	}
	for _, r := range p.Defs.Processes() {
		if q := p.State.Process(r.ID); p.Pooled(r.ID) && (q == nil || !q.Pooled) {
			rows = append(rows, live.HasPool(r.ID))
		}
	}
	return rows
}

// start writes what was known at the begin, when it is known when that was: a
// scope's is where its first event is. The devices' latest readings hold until
// the next.
func (a *Answer) start(p *analyze.Pass, at format.Time) error {
	if a.started {
		return nil
	}
	a.started = true
	if from, known := p.From(); known {
		a.from = from
	} else if p.Windowed() {
		a.from = at
	} else if a.from == 0 { // the trace begins with no checkpoint
		a.from = p.Trace.Meta().Monotonic
	}
	n := len(a.rows) - 1
	a.rows[n].Time, a.rows[n].Size = a.from, int64(n) // CheckpointEnd
	if p.Windowed() || n > 0 {                        // else there is nothing to say
		if err := a.w.Events(a.rows); err != nil {
			return err
		}
	}
	a.rows = nil
	return a.restate(a.from)
}

// restate writes what the devices' latest readings were at the begin.
func (a *Answer) restate(at format.Time) error {
	keys := slices.SortedFunc(maps.Keys(a.before), func(x, y sampled) int {
		return cmp.Or(cmp.Compare(x.device, y.device), cmp.Compare(x.process, y.process))
	})
	for _, k := range keys {
		r := a.before[k]
		r.Time, r.PeakUsed = at, r.Used
		if err := a.w.Sample(&r); err != nil {
			return err
		}
	}
	a.before = nil
	return nil
}

// keeps reports whether an event or row is of a process that is not left out.
func (a *Answer) keeps(p *analyze.Pass, e *format.Event) bool {
	return e.Process == 0 || p.Matches(e, Fields)
}

func (a *Answer) Event(p *analyze.Pass, e *format.Event) error {
	if !p.In || e.Kind.Checkpoint() || !a.keeps(p, e) {
		return nil
	}
	if err := a.start(p, e.Time); err != nil {
		return err
	}
	a.events++
	if e.Kind == format.Lost {
		a.lost += uint64(max(e.Size, 0))
	}
	return a.w.Event(e)
}

func (a *Answer) Sample(p *analyze.Pass, r *format.Sample) error {
	if r.Process != 0 && !p.Matches(&format.Event{Process: r.Process}, Fields) {
		return nil
	}
	from, known := p.From()
	var err error
	switch {
	case p.In:
		err = a.start(p, r.Time)
	case !p.Windowed():
	case known && r.Time >= from:
		err = a.restate(from)
	default:
		a.before[sampled{r.Device, r.Process}] = *r
		return nil
	}
	if err != nil {
		return err
	}
	a.samples++
	return a.w.Sample(r)
}

func (a *Answer) End(p *analyze.Pass) error {
	if err := a.start(p, p.State.Now()); err != nil {
		return err
	}
	a.meta = p.Trace.Meta()
	if p.Past() {
		a.meta.Status = nil
	}
	a.meta.End = p.End(0)
	a.meta.Reason = fmt.Sprintf("a slice of a recording, from %s to %s", analyze.Seconds(p.Since(a.from)), analyze.Seconds(p.Since(a.meta.End)))
	return nil
}

// Rows are how many events and samples were copied.
func (a *Answer) Rows() (events, samples int64) { return a.events, a.samples }

// Close finishes the trace. Where the answer is partial, so is the slice.
func (a *Answer) Close(c *analyze.Completeness) error {
	err := a.w.Close(func(m *format.Meta) {
		m.Reason, m.End, m.Status = a.meta.Reason, a.meta.End, a.meta.Status
		m.Stats = format.Stats{Events: uint64(a.events), Lost: a.lost}
		if !c.Complete {
			m.Ending = format.EndFailed
			m.Reason += ", which is " + c.String()
		}
	})
	if err != nil {
		os.RemoveAll(a.dir)
	}
	a.w = nil
	return err
}

// Abort removes what is not finished.
func (a *Answer) Abort() {
	if a.w != nil {
		a.w.Close(nil)
		os.RemoveAll(a.dir) // this call has made it
		a.w = nil
	}
}
