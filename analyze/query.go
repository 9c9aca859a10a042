package analyze

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gpurec/gpurec/format"
)

// A Query is what every answer can be limited to. Empty fields limit nothing;
// several values of one field are alternatives.
type Query struct {
	Processes []int32  // pids
	Devices   []string // index in the trace, or UUID or its beginning
	Threads   []uint32
	Ranks     []int32
	Layers    []format.Layer
	Scopes    []ScopeRef
	From, To  Moment
	Infer     Infer
	View      View // of stacks; it limits nothing
	Short     bool // names of files as people see them: see shortFiles
}

// A ScopeRef names scopes: by id, or by name and which of that name, counted
// from 1 in the order of their begins; 0 is all of them.
type ScopeRef struct {
	ID   format.ScopeID
	Name string
	N    int
}

// ParseScope reads ID, NAME or NAME#N. A name that is a number is written with
// its #N.
func ParseScope(s string) (ScopeRef, error) {
	if id, err := strconv.ParseUint(s, 10, 64); err == nil && id > 0 {
		return ScopeRef{ID: format.ScopeID(id)}, nil
	}
	if i := strings.LastIndexByte(s, '#'); i >= 0 {
		if n, err := strconv.Atoi(s[i+1:]); err == nil {
			if n < 1 {
				return ScopeRef{}, fmt.Errorf("scope %q: the first of a name is #1", s)
			}
			return ScopeRef{Name: s[:i], N: n}, nil
		}
	}
	if s == "" {
		return ScopeRef{}, fmt.Errorf("a scope is an ID, a NAME or NAME#N")
	}
	return ScopeRef{Name: s}, nil
}

func (r ScopeRef) String() string {
	switch {
	case r.ID != 0:
		return strconv.FormatUint(uint64(r.ID), 10)
	case r.N != 0:
		return r.Name + "#" + strconv.Itoa(r.N)
	}
	return r.Name
}

// A Moment is a place in a trace. The zero Moment is none.
type Moment struct {
	kind   momentKind
	offset time.Duration
	wall   time.Time
	scope  ScopeRef
}

type momentKind uint8

const (
	momentNone momentKind = iota
	momentOffset
	momentWall
	momentScope
)

// ParseMoment reads a TIME: 12.5s since the start of the recording, an RFC 3339
// instant, or scope:NAME#3, which is where that scope begins as --from, and
// where it ends as --to and --at.
func ParseMoment(s string) (Moment, error) {
	if name, ok := strings.CutPrefix(s, "scope:"); ok {
		r, err := ParseScope(name)
		if err != nil {
			return Moment{}, err
		}
		if r.ID == 0 && r.N == 0 {
			r.N = 1
		}
		return Moment{kind: momentScope, scope: r}, nil
	}
	if d, err := time.ParseDuration(s); err == nil {
		return Moment{kind: momentOffset, offset: d}, nil
	}
	if t, err := time.Parse(time.RFC3339Nano, s); err == nil {
		return Moment{kind: momentWall, wall: t}, nil
	}
	return Moment{}, fmt.Errorf("time %q is neither 12.5s since the start, nor an RFC 3339 instant, nor scope:NAME#3", s)
}

// String is m as ParseMoment reads it.
func (m Moment) String() string {
	switch m.kind {
	case momentOffset:
		return m.offset.String()
	case momentWall:
		return m.wall.Format(time.RFC3339Nano)
	case momentScope:
		return "scope:" + m.scope.String()
	}
	return ""
}

// IsZero reports whether m is no moment.
func (m Moment) IsZero() bool { return m.kind == momentNone }

// A bound is a Moment in one trace: a time, or the number of an event.
type bound struct {
	set    bool
	byTime bool
	time   format.Time
	event  int64
}

func (m Moment) bound(meta *format.Meta) bound {
	switch m.kind {
	case momentOffset:
		return bound{set: true, byTime: true, time: meta.Monotonic + format.Time(m.offset)}
	case momentWall:
		return bound{set: true, byTime: true, time: meta.Monotonic + format.Time(m.wall.Sub(meta.Start))}
	}
	return bound{}
}

// Fields are the fields of a Query that an answer applies.
type Fields uint8

const (
	ByProcess Fields = 1 << iota // pid and rank
	ByDevice
	ByThread
	ByLayer
	ByScope
	ByAll = ByProcess | ByDevice | ByThread | ByLayer | ByScope
)

func (q *Query) fields() (f Fields) {
	if len(q.Processes)+len(q.Ranks) > 0 {
		f |= ByProcess
	}
	if len(q.Devices) > 0 {
		f |= ByDevice
	}
	if len(q.Threads) > 0 {
		f |= ByThread
	}
	if len(q.Layers) > 0 {
		f |= ByLayer
	}
	if len(q.Scopes) > 0 {
		f |= ByScope
	}
	return f
}

// A filter is a Query in one trace.
type filter struct {
	q         *Query
	has       Fields
	defs      *format.Defs
	processes map[format.ProcessID]bool
	devices   map[format.Device]bool
	scopes    scopeFinder
	around    *enclosing // where events are Inferred
}

func newFilter(q *Query, defs *format.Defs) *filter {
	return &filter{q: q, has: q.fields(), defs: defs, processes: map[format.ProcessID]bool{}, devices: map[format.Device]bool{},
		scopes: newScopeFinder(q.Scopes)}
}

// matches reports whether e passes the given fields that the query has.
func (f *filter) matches(e *format.Event, by Fields) bool {
	by &= f.has
	if by == 0 {
		return true
	}
	return (by&ByProcess == 0 || f.process(e.Process)) &&
		(by&ByThread == 0 || contains(f.q.Threads, e.Thread)) &&
		(by&ByLayer == 0 || contains(f.q.Layers, e.Layer)) &&
		(by&ByDevice == 0 || f.device(e.Device)) &&
		(by&ByScope == 0 || f.scopes.holds(e) || f.inferred(e))
}

// inferred reports whether e is in a wanted scope by inference, and that counts.
func (f *filter) inferred(e *format.Event) bool {
	return e.Flags&Inferred != 0 && f.q.Infer == InferScope && f.around.holds(e)
}

func contains[T comparable](s []T, v T) bool {
	for _, x := range s {
		if x == v {
			return true
		}
	}
	return false
}

func (f *filter) process(id format.ProcessID) bool {
	ok, known := f.processes[id]
	if !known {
		p, defined := f.defs.Process(id)
		if !defined {
			return false // asked again: its row may come with the next part
		}
		ok = (len(f.q.Processes) == 0 || contains(f.q.Processes, p.PID)) && (len(f.q.Ranks) == 0 || contains(f.q.Ranks, p.Rank))
		f.processes[id] = ok
	}
	return ok
}

func (f *filter) device(id format.Device) bool {
	ok, known := f.devices[id]
	if !known {
		d, defined := f.defs.Device(id)
		for _, want := range f.q.Devices {
			ok = ok || deviceIs(want, id, d.UUID)
		}
		if defined || ok {
			f.devices[id] = ok
		}
	}
	return ok
}

// deviceIs reports whether want names a device: its index, or its UUID or the
// beginning of that.
func deviceIs(want string, id format.Device, uuid string) bool {
	n, err := strconv.Atoi(want)
	return err == nil && n == int(id) || err != nil && want != "" && uuid != "" && strings.HasPrefix(uuid, want)
}

// A scopeFinder follows which of the wanted scopes are open. A scope holds
// what its own thread does between its begin and its end.
type scopeFinder struct {
	refs    []ScopeRef
	seen    []int  // of each ref's name so far
	hit     []bool // each ref that was found
	names   tally  // of all scopes
	open    map[scopeThread]int
	matched map[format.ScopeID]scopeThread // every one found, for rows that name it
	live    map[format.ScopeID]bool        // open scopes; true for those found
}

type scopeThread struct {
	process format.ProcessID
	thread  uint32
}

func newScopeFinder(refs []ScopeRef) scopeFinder {
	return scopeFinder{refs: refs, seen: make([]int, len(refs)), hit: make([]bool, len(refs)), open: map[scopeThread]int{},
		matched: map[format.ScopeID]scopeThread{}, live: map[format.ScopeID]bool{}}
}

// begin and end follow the scopes. In a pass begin goes before the event is
// looked at and end after it, so that both belong to the scope. A checkpoint
// names open scopes again.
func (s *scopeFinder) begin(e *format.Event, defs *format.Defs) {
	if len(s.refs) == 0 {
		return
	}
	if _, known := s.live[e.Scope]; known {
		return
	}
	found, name := false, defs.Name(e.Name)
	if !s.names.more {
		s.names.add(Short(name))
	}
	for i, r := range s.refs {
		hit := r.ID != 0 && r.ID == e.Scope
		if r.ID == 0 && name == r.Name {
			s.seen[i]++
			hit = r.N == 0 || r.N == s.seen[i]
		}
		s.hit[i] = s.hit[i] || hit
		found = found || hit
	}
	s.live[e.Scope] = found
	if found {
		t := scopeThread{e.Process, e.Thread}
		s.matched[e.Scope] = t
		s.open[t]++
	}
}

func (s *scopeFinder) end(e *format.Event) {
	if s.live[e.Scope] {
		t := s.matched[e.Scope]
		if s.open[t]--; s.open[t] == 0 {
			delete(s.open, t)
		}
	}
	delete(s.live, e.Scope)
}

func (s *scopeFinder) holds(e *format.Event) bool {
	switch e.Kind {
	case format.Live:
		_, ok := s.matched[e.Scope]
		return ok
	case format.ScopeBegin, format.ScopeEnd, format.ScopeReset, format.ScopeReport:
		_, ok := s.matched[e.Scope]
		return ok
	}
	return s.open[scopeThread{e.Process, e.Thread}] > 0
}
