package analyze

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"strings"

	"github.com/gpurec/gpurec/format"
)

// Completeness says whether events are missing from what was answered, and
// what else is worth knowing. It goes with every report: on stderr, in a field
// of its JSON.
type Completeness struct {
	Complete bool     `json:"complete"`
	Partial  []string `json:"partial,omitempty"` // why events are missing
	Notes    []string `json:"notes,omitempty"`   // nothing is missing because of these

	whole []bool // by trace
}

// Whole reports whether no event is missing of the i-th trace.
func (c *Completeness) Whole(i int) bool { return i < len(c.whole) && c.whole[i] }

func (c *Completeness) partial(f string, a ...any) {
	c.add(&c.Partial, fmt.Sprintf(f, a...))
}

// UsedIsDriver notes, once for an answer, the processes whose used bytes are the
// driver layer's.
func (c *Completeness) UsedIsDriver(all []string) {
	const most = 8
	var pids []string
	for _, pid := range all { // two processes may have one
		c.add(&pids, pid)
	}
	if len(pids) == 0 {
		return
	}
	more := ""
	if len(pids) > most {
		more = fmt.Sprintf(" and %d more", len(pids)-most)
		pids = pids[:most]
	}
	c.note("of processes that use no pool, used is what they took from the driver: pid %s%s", strings.Join(pids, ", "), more)
}

func (c *Completeness) note(f string, a ...any) { c.add(&c.Notes, fmt.Sprintf(f, a...)) }

func (c *Completeness) add(to *[]string, s string) {
	if !contains(*to, s) {
		*to = append(*to, s)
	}
}

// String is "complete", or "partial: " and why.
func (c *Completeness) String() string {
	if len(c.Partial) == 0 {
		return "complete"
	}
	var s []string
	for _, p := range c.Partial {
		s = append(s, Line(p))
	}
	return "partial: " + strings.Join(s, "; ")
}

// A RepeatedError says that one trace was given twice: sums would double.
type RepeatedError struct{ Path, Again string }

func (e *RepeatedError) Error() string {
	if e.Path == e.Again {
		return fmt.Sprintf("%s is given twice", e.Path)
	}
	return fmt.Sprintf("%s and %s are one trace", e.Path, e.Again)
}

// repeated looks for traces that are there twice. Copies are noted: nobody
// knows which of them is meant.
func (c *Completeness) repeated(traces []*format.Trace) error {
	places, ids := map[string]string{}, map[string]string{}
	for _, t := range traces {
		place, err := filepath.EvalSymlinks(t.Path())
		if err == nil {
			place, err = filepath.Abs(place)
		}
		if err != nil {
			place = t.Path()
		}
		if first, ok := places[place]; ok {
			return &RepeatedError{first, t.Path()}
		}
		places[place] = t.Path()
		id := t.Meta().TraceID
		if first, ok := ids[id]; ok && id != "" {
			c.note("%s and %s have one trace id: they are copies or parts of one recording, and what is in both counts twice", first, t.Path())
		} else {
			ids[id] = t.Path()
		}
	}
	return nil
}

// damage sorts an error of reading a part. Of a trace that is still growing a
// table without its end is nothing to be said twice.
func (c *Completeness) damage(err error, growing bool) {
	if err == nil {
		return
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			c.damage(e, growing)
		}
		return
	}
	var cut *format.TruncatedError
	switch {
	case errors.As(err, &cut) && growing && cut.Left == 0:
	case errors.Is(err, fs.ErrNotExist):
		c.note("a part was deleted while it was read: %v", err)
	default:
		c.partial("%v", err)
	}
}

// losses are the events that a trace says it lost.
type losses struct {
	events  int64
	unknown bool // a row does not say how many
	threads map[scopeThread]bool
}

func (l *losses) add(e *format.Event) {
	if e.Size > 0 {
		l.events = Add(l.events, e.Size)
	} else {
		l.unknown = true
	}
	if l.threads == nil {
		l.threads = map[scopeThread]bool{}
	}
	l.threads[scopeThread{e.Process, e.Thread}] = true
}

// Lost says how many events were lost, by the rows that say so and the
// recorder's own count; "" where none was.
func Lost(rows int64, unknown bool, m *format.Meta) string {
	n := max(rows, int64(min(m.Stats.Lost, math.MaxInt64)))
	switch {
	case n == 0 && unknown:
		return "an unknown number of events lost"
	case n == 0:
		return ""
	case unknown:
		return fmt.Sprintf("at least %d event%s lost", n, Plural(n))
	}
	return fmt.Sprintf("%d event%s lost", n, Plural(n))
}

// judge says what the trace itself tells about missing events.
func (p *Pass) judge(c *Completeness) {
	m := p.Trace.Meta()
	switch m.Ending {
	case format.EndGrowing:
		c.partial("not closed: it is still being recorded, or its recorder died, and gpuanalyze repair closes it")
	case format.EndFailed:
		c.partial("the recording failed: %s", m.Reason)
	case format.EndRepaired:
		c.partial("%s", m.Reason)
	default:
		if m.Reason != "" {
			c.note("%s", m.Reason)
		}
	}
	if lost := Lost(p.lost.events, p.lost.unknown, &m); lost != "" {
		where := ""
		if n := len(p.lost.threads); n > 0 {
			where = fmt.Sprintf(" on %d thread%s", n, Plural(int64(n)))
		}
		c.partial("%s%s", lost, where)
	}
	if n := m.Stats.ClosedLanes; n > 0 {
		c.partial("%d lane%s closed or refused because they made no sense or were too many", n, Plural(int64(n)))
	}
	if n := m.Stats.Absent; n > 0 {
		who := "1 process that"
		if n > 1 {
			who = fmt.Sprintf("%d processes that", n)
		}
		c.partial("nothing is recorded of %s could make no buffer", who)
	}
	if n := m.Stats.Unwritten; n > 0 {
		c.partial("%d event%s dropped after writing had failed", n, Plural(int64(n)))
	}
	if t, ok := p.CompleteSince(); ok {
		c.note("complete since %s: its first part is %d", Seconds(p.Since(t)), p.Trace.Parts()[0].Index())
	}
	if m.Stats.Late > 0 {
		c.note("%d event%s passed on after their place in the order", m.Stats.Late, Plural(int64(m.Stats.Late)))
	}
	if m.Stats.Unresolved > 0 {
		c.note("%d stack%s without a definition", m.Stats.Unresolved, Plural(int64(m.Stats.Unresolved)))
	}
	if m.NoSamples != "" && p.wanted && !p.sampled {
		c.note("no NVML samples: %s", m.NoSamples)
	}
	var unknown, unseen int64
	for _, q := range p.State.Processes() {
		unknown += q.UnknownFrees
		unseen += q.LostFrees
	}
	if unknown > 0 {
		c.note("%d free%s of what was allocated before the recording or never seen", unknown, Plural(int64(unknown)))
	}
	if unseen > 0 {
		c.note("%d free%s not seen: the address was allocated again", unseen, Plural(int64(unseen)))
	}
	if n := p.State.Unhooked(); n > 0 {
		c.note("%d look-up%s of functions that may allocate and are not recorded: gpuanalyze summary names them", n, Plural(int64(n)))
	}
	if p.view != nil {
		p.view.judge(c)
	}
}
