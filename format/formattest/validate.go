package formattest

import (
	"fmt"
	"io"
	"testing"

	"github.com/gpurec/gpurec/format"
)

// Validate holds that a trace keeps the rules of Check.
func Validate(t testing.TB, tr *format.Trace) {
	t.Helper()
	events, faults := Check(tr)
	for _, f := range faults {
		t.Error(f)
	}
	if events == 0 && len(faults) == 0 {
		t.Logf("%s has no events: only its tables were validated", tr.Path())
	}
}

// maxFaults is how many faults are listed; the rest are counted.
const maxFaults = 20

// Check reads all of a trace and says which rules of the format it breaks:
//
//  1. every table can be read, and of a trace that has ended to its footer;
//  2. parts after the first begin with a checkpoint, which ends with the number
//     of its rows, and checkpoint rows stand nowhere else;
//  3. what a row refers to is defined in its own part;
//  4. a kind's columns make sense: what is taken has a size, what failed a
//     status, a scope an id and a name, a lost row a count;
//  5. a scope ends, is reset and reports only while it is open;
//  6. the events of a thread are numbered without gaps, but for as many as the
//     Lost rows before say; the recorder's own rows have no number;
//  7. trace.json counts as many lost events as the Lost rows.
//
// What a checkpoint says is the fold's to judge, and whether a free has its
// alloc: both are legal to miss.
func Check(tr *format.Trace) (events int, faults []string) {
	c := checker{tr: tr, lanes: map[lane]*numbering{}, scopes: map[format.ScopeID]bool{}}
	for i, p := range tr.Parts() {
		c.part = p
		gap := i > 0 && p.Index() != tr.Parts()[i-1].Index()+1
		if i == 0 && p.Index() > 0 || gap { // parts were deleted: nothing is known of before
			c.lanes, c.scopes = map[lane]*numbering{}, nil
		}
		c.checkPart()
	}
	if m := tr.Meta(); m.Ending == format.EndClosed && c.whole() && m.Stats.Events > 0 && m.Stats.Lost != c.lost {
		c.fault("trace.json says %d lost, the Lost rows say %d", m.Stats.Lost, c.lost)
	}
	if c.more > 0 {
		c.faults = append(c.faults, fmt.Sprintf("and %d more faults", c.more))
	}
	return c.events, c.faults
}

type checker struct {
	tr     *format.Trace
	part   *format.Part
	row    int
	defs   *format.Defs
	lanes  map[lane]*numbering
	scopes map[format.ScopeID]bool // open ones; nil where deleted parts hide them
	lost   uint64
	events int
	faults []string
	more   int
	frames []format.FrameID
}

// A numbering is where a thread's numbers are.
type numbering struct {
	last uint64
	lost uint64 // what Lost rows say is missing before the next
}

func (c *checker) fault(f string, args ...any) {
	if len(c.faults) >= maxFaults {
		c.more++
		return
	}
	c.faults = append(c.faults, fmt.Sprintf(f, args...))
}

// at reports a fault of the current row.
func (c *checker) at(e *format.Event, f string, args ...any) {
	c.fault("part %d, row %d: %s: %s", c.part.Index(), c.row, format.AppendEventText(nil, e, c.defs), fmt.Sprintf(f, args...))
}

// whole reports whether no part was deleted.
func (c *checker) whole() bool {
	for i, p := range c.tr.Parts() {
		if p.Index() != i {
			return false
		}
	}
	return true
}

// ended reports whether the current part is closed for sure.
func (c *checker) ended() bool {
	parts := c.tr.Parts()
	return c.tr.Meta().Ending == format.EndClosed || c.part != parts[len(parts)-1]
}

func (c *checker) readError(err error) {
	if err != io.EOF && c.ended() {
		c.fault("part %d: %v", c.part.Index(), err)
	}
}

func (c *checker) checkPart() {
	c.defs, c.row = format.NewDefs(), 0
	if err := c.part.LoadDefs(c.defs); err != nil {
		c.readError(err)
	}
	if c.part.Index() > 0 && c.scopes != nil {
		clear(c.scopes) // the checkpoint says which are open
	}
	events, err := c.part.Events()
	if err != nil {
		c.readError(err)
		return
	}
	defer events.Close()
	where := begins
	for {
		batch, err := events.Next()
		if err != nil {
			c.readError(err)
			break
		}
		for i := range batch {
			e := &batch[i]
			where = c.place(e, where)
			if !e.Kind.Checkpoint() {
				c.events++
				c.numbers(e)
			}
			c.refers(e)
			c.columns(e)
			c.row++
		}
	}
	if where == inside && c.ended() {
		c.fault("part %d: its checkpoint has no end", c.part.Index())
	}
	if where == begins && c.part.Index() > 0 && c.ended() {
		c.fault("part %d: it has not even a checkpoint", c.part.Index())
	}
	c.samples()
}

// A place is where in a part a row is, as to its checkpoint.
type place int

const (
	begins place = iota
	inside
	after
)

// place judges where e stands, and says where the next row will.
func (c *checker) place(e *format.Event, where place) place {
	switch {
	case !e.Kind.Checkpoint():
		if where == inside || where == begins && c.part.Index() > 0 {
			c.at(e, "the part begins without a checkpoint, or it has no end")
		}
		return after
	case where == after:
		c.at(e, "a checkpoint's row outside of one")
		return after
	case e.Kind == format.CheckpointEnd:
		if e.Size != int64(c.row) {
			c.at(e, "the checkpoint has %d rows", c.row)
		}
		return after
	}
	if e.Kind == format.LiveScope && c.scopes != nil {
		c.scopes[e.Scope] = true
	}
	return inside
}

func (c *checker) refers(e *format.Event) {
	if frames, ok := c.defs.Walk(e.Stack, c.frames); !ok {
		c.at(e, "its stack is not defined in the part, or a caller of it")
	} else {
		c.frames = frames
		for _, f := range frames {
			if _, ok := c.defs.Frame(f); !ok {
				c.at(e, "frame %d of its stack is not defined in the part", f)
			}
		}
	}
	if _, ok := c.defs.Process(e.Process); !ok && e.Process != 0 {
		c.at(e, "its process is not defined in the part")
	}
	if _, ok := c.defs.Device(e.Device); !ok && e.Device != format.NoDevice {
		c.at(e, "its device is not defined in the part")
	}
	for _, n := range []format.NameID{e.Name, e.Note} {
		if n != 0 && !c.defs.HasName(n) {
			c.at(e, "name %d is not defined in the part", n)
		}
	}
}

func (c *checker) columns(e *format.Event) {
	switch e.Kind {
	case format.Alloc, format.Live:
		if e.Size < 0 {
			c.at(e, "what is taken has no size")
		}
		if e.Status != 0 && e.Kind == format.Alloc {
			c.at(e, "an Alloc with a status has failed")
		}
	case format.AllocFailed:
		if e.Address != 0 {
			c.at(e, "an alloc that failed has an address")
		}
		if e.Status == 0 && e.API.Info().Hook {
			c.at(e, "a driver's alloc that failed has no status")
		}
	case format.ScopeBegin:
		if e.Scope == 0 || e.Name == 0 {
			c.at(e, "a scope without id or name")
		}
		if c.scopes != nil {
			if c.scopes[e.Scope] {
				c.at(e, "the scope is open")
			}
			c.scopes[e.Scope] = true
		}
	case format.ScopeEnd, format.ScopeReset, format.ScopeReport:
		if c.scopes != nil && !c.scopes[e.Scope] {
			c.at(e, "the scope is not open")
		}
		if e.Kind == format.ScopeEnd {
			delete(c.scopes, e.Scope)
		}
	case format.Lost:
		if e.Size <= 0 {
			c.at(e, "nothing is lost")
			return
		}
		c.lost += uint64(e.Size)
	}
}

func (c *checker) numbers(e *format.Event) {
	l := lane{e.Process, e.Thread}
	n := c.lanes[l]
	if n == nil || e.Kind == format.ThreadBegin { // a new thread, or one with a number that was used before
		n = &numbering{}
		c.lanes[l] = n
	}
	switch {
	case e.Kind == format.Lost && e.Size > 0:
		n.lost += uint64(e.Size)
	case e.Seq == 0:
	case n.last == 0:
		n.last, n.lost = e.Seq, 0 // where a thread begins is its lane's to say
	case e.Seq != n.last+1+n.lost:
		c.at(e, "seq %d after %d, and %d are said to be lost between", e.Seq, n.last, n.lost)
		fallthrough
	default:
		n.last, n.lost = e.Seq, 0
	}
}

func (c *checker) samples() {
	r, err := c.part.Samples()
	if err != nil {
		c.readError(err)
		return
	}
	defer r.Close()
	for row := 0; ; {
		batch, err := r.Next()
		if err != nil {
			c.readError(err)
			return
		}
		for i := range batch {
			s := &batch[i]
			if _, ok := c.defs.Device(s.Device); !ok {
				c.fault("part %d, sample %d: device %d is not defined in the part", c.part.Index(), row, s.Device)
			}
			if _, ok := c.defs.Process(s.Process); !ok && s.Process != 0 {
				c.fault("part %d, sample %d: process %d is not defined in the part", c.part.Index(), row, s.Process)
			}
			if s.API != 1 && s.API != 2 {
				c.fault("part %d, sample %d: api %d", c.part.Index(), row, s.API)
			}
			row++
		}
	}
}
