package perfetto

import (
	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
)

// A lane is a track with a stack of open slices: an end ends the innermost. A
// thread's scopes go on its own track while they nest. NVTX's domains, its
// ranges and our scopes may overlap; what is not opened in the innermost of a
// lane goes on another, and what outlives the scope around it is begun again on
// another when that one ends.
type lane struct {
	track track
	open  []format.ScopeID
}

func (l *lane) top() format.ScopeID {
	if len(l.open) == 0 {
		return 0
	}
	return l.open[len(l.open)-1]
}

// An openScope is a slice that has begun.
type openScope struct {
	thread threadKey
	lane   *lane
	name   string
	domain string
}

// begin opens a scope, when it begins or when a checkpoint or the window does.
func (a *Answer) begin(id, parent format.ScopeID, s *openScope, at format.Time) {
	if a.scopes[id] != nil {
		return
	}
	a.scopes[id] = s
	s.lane = a.lane(s.thread, parent)
	s.lane.open = append(s.lane.open, id)
	a.slice(s, at)
}

func (a *Answer) slice(s *openScope, at format.Time) {
	a.event(s.lane.track, at, typeBegin, func(e *message) {
		e.text(eventName, s.name)
		e.text(eventCategories, "scope")
		a.note(e, "domain", s.domain)
	})
}

// lane is the one on which parent is innermost, or one where nothing is open.
func (a *Answer) lane(k threadKey, parent format.ScopeID) *lane {
	lanes := a.lanes[k]
	for _, l := range lanes {
		if parent != 0 && l.top() == parent {
			return l
		}
	}
	for _, l := range lanes {
		if len(l.open) == 0 {
			return l
		}
	}
	l := &lane{track: a.thread(k.process, k.tid)}
	if len(lanes) > 0 {
		l.track = a.newTrack(l.track, "overlapping scopes", nil)
	}
	a.lanes[k] = append(lanes, l)
	return l
}

// end closes a scope.
func (a *Answer) end(id format.ScopeID, at format.Time) {
	s := a.scopes[id]
	if s == nil {
		return
	}
	delete(a.scopes, id)
	l := s.lane
	var outlive []format.ScopeID
	for l.top() != id {
		outlive = append(outlive, l.top())
		l.open = l.open[:len(l.open)-1]
		a.event(l.track, at, typeEnd, nil)
	}
	l.open = l.open[:len(l.open)-1]
	a.event(l.track, at, typeEnd, nil)
	around := format.ScopeID(0)
	for i := len(outlive) - 1; i >= 0; i-- {
		o := a.scopes[outlive[i]]
		o.lane = a.lane(o.thread, around)
		o.lane.open = append(o.lane.open, outlive[i])
		a.slice(o, at)
		around = outlive[i]
	}
}

// endAll closes what a process had open.
func (a *Answer) endAll(process format.ProcessID, at format.Time) {
	for k, lanes := range a.lanes {
		if k.process != process {
			continue
		}
		for _, l := range lanes {
			for l.top() != 0 {
				a.end(l.top(), at)
			}
		}
	}
}

func (a *Answer) scopeOf(e *format.Event) *openScope {
	name := analyze.Line(a.p.Defs.Name(e.Name))
	if name == "" {
		name = "(no name)"
	}
	return &openScope{thread: threadKey{e.Process, e.Thread}, name: name, domain: analyze.Short(a.p.Defs.Name(e.Note))}
}

// note adds what is shown when something is clicked.
func (a *Answer) note(e *message, name, v string) {
	if v == "" {
		return
	}
	var n message
	n.text(annotationName, name)
	n.text(annotationText, v)
	e.message(eventAnnotation, n)
}

func (a *Answer) bytes(e *message, name string, v int64) {
	if v < 0 {
		return
	}
	var n message
	n.text(annotationName, name)
	n.number(annotationInt, uint64(v))
	e.message(eventAnnotation, n)
}
