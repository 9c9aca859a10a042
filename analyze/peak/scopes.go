package peak

import (
	"container/list"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/tree"
	"github.com/gpurec/gpurec/format"
)

// A Scope is one that was open at the peak, with those around it.
type Scope struct {
	PID    int32          `json:"pid"`
	Thread uint32         `json:"thread"`
	ID     format.ScopeID `json:"id"`
	Path   []string       `json:"path"` // names, outermost first
	N      int            `json:"n"`    // which of its name, from 1

	process format.ProcessID
}

// mostOpen bounds what is kept of the open scopes at a peak.
const mostOpen = 64

// openScopes are the open ones, in the order of their begins. The fold has
// them too, in no order that could be had in a step.
type openScopes struct {
	list *list.List // of *openScope
	by   map[format.ScopeID]*list.Element
	seen map[format.NameID]int
}

type openScope struct {
	id, parent format.ScopeID
	process    format.ProcessID
	thread     uint32
	path       tree.Path
	n          int
}

func newOpenScopes() *openScopes {
	return &openScopes{list: list.New(), by: map[format.ScopeID]*list.Element{}, seen: map[format.NameID]int{}}
}

// event follows e; paths has it already.
func (o *openScopes) event(p *analyze.Pass, e *format.Event, paths *tree.Paths) {
	switch e.Kind {
	case format.ScopeBegin, format.LiveScope:
		if o.by[e.Scope] != nil || p.State.Scope(e.Scope) == nil {
			return
		}
		o.seen[e.Name]++
		o.by[e.Scope] = o.list.PushBack(&openScope{id: e.Scope, parent: e.Parent, process: e.Process, thread: e.Thread, path: paths.Of(e.Scope), n: o.seen[e.Name]})
	case format.ScopeEnd:
		o.remove(e.Scope)
	case format.ProcessEnd:
		for el := o.list.Front(); el != nil; {
			s := el.Value.(*openScope)
			el = el.Next()
			if s.process == e.Process {
				o.remove(s.id)
			}
		}
	}
}

func (o *openScopes) remove(id format.ScopeID) {
	if el := o.by[id]; el != nil {
		o.list.Remove(el)
		delete(o.by, id)
	}
}

// now puts the open scopes into buf: the first mostOpen.
func (o *openScopes) now(buf []openScope) []openScope {
	buf = buf[:0]
	for el := o.list.Front(); el != nil && len(buf) < mostOpen; el = el.Next() {
		buf = append(buf, *el.Value.(*openScope))
	}
	return buf
}

// innermost are those of open that are around no other of them.
func innermost(open []openScope, paths *tree.Paths, defs *format.Defs, want func(format.ProcessID) bool) []Scope {
	around := map[format.ScopeID]bool{}
	for _, s := range open {
		around[s.parent] = true
	}
	out := []Scope{}
	for _, s := range open {
		if !around[s.id] && want(s.process) {
			d, _ := defs.Process(s.process)
			out = append(out, Scope{PID: d.PID, Thread: s.thread, ID: s.id, Path: paths.Names(s.path), N: s.n, process: s.process})
		}
	}
	return out
}
