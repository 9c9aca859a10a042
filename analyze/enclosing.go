package analyze

import (
	"fmt"
	"strings"

	"github.com/gpurec/gpurec/format"
)

// PyTorch runs a backward pass on threads of its own, which have no scopes,
// while the thread that asked for it waits in one. So for what a thread without
// scopes takes, the scope that encloses it is inferred:
//
//  1. the thread has opened none so far, and is not its process's first: one
//     that opens scopes says itself in which it is;
//  2. exactly one other thread of the process has scopes open. With several it
//     is not known whose work this is: then it is in none, and counted;
//  3. it is in the innermost of that thread's, which is the one begun last.
//
// Only scopes that lie on a thread's stack and have no NVTX domain are asked: the
// ranges of start/end pairs hold no events of their own thread either, and those
// with a domain are mostly a library's, as cuBLAS opens them on PyTorch's threads.
//
// A thread that works for nobody is taken for a helper all the same, which is why
// it is called inferred wherever it is shown. It is not in the files: of what was
// live before a trace that begins with a checkpoint nothing is inferred.

// Inferred marks an event, and what is live of it, whose Scope the thread had not
// open itself. It is of no file: events have it during a pass, and only if the
// answer asked for it by Needs.
const Inferred format.Flags = 1 << 15

// Infer says what becomes of the scopes that are inferred.
type Infer uint8

const (
	InferMark  Infer = iota // they are shown, marked
	InferOff                // there are none
	InferScope              // and a query's scopes hold what lies in them by inference
)

var inferNames = []string{"mark", "off", "scope"}

func (i Infer) String() string { return inferNames[i] }

// ParseInfer reads an Infer's name.
func ParseInfer(s string) (Infer, error) {
	for i, name := range inferNames {
		if s == name {
			return Infer(i), nil
		}
	}
	return 0, fmt.Errorf("%q is none of %s", s, strings.Join(inferNames, ", "))
}

// Scoping is what an answer does with the scopes that events are in.
type Scoping uint8

const (
	ScopesUnused   Scoping = iota
	ScopesFiltered         // its events are filtered by scope, if the query names some
	ScopesShown            // it says in which scope memory was taken
)

// enclosing follows which scopes are open on which threads.
type enclosing struct {
	p         *Pass
	threads   map[format.ScopeID]scopeThread // of the open ones
	processes map[format.ProcessID]map[uint32][]format.ScopeID
	opened    map[scopeThread]bool // those that ever opened one

	ambiguous, outside takes
}

// takes are allocations and their bytes.
type takes struct{ count, pool, driver int64 }

func (t *takes) add(e *format.Event) {
	t.count++
	switch e.Layer {
	case format.LayerPool:
		t.pool = Add(t.pool, max(e.Size, 0))
	case format.LayerDriver:
		t.driver = Add(t.driver, max(e.Size, 0))
	}
}

func (t *takes) String() string {
	return fmt.Sprintf("%d allocation%s of %d bytes from pools and %d from the driver", t.count, Plural(t.count), t.pool, t.driver)
}

func newEnclosing(p *Pass) *enclosing {
	return &enclosing{p: p, threads: map[format.ScopeID]scopeThread{}, processes: map[format.ProcessID]map[uint32][]format.ScopeID{},
		opened: map[scopeThread]bool{}}
}

// event is for every event before the fold has it.
func (n *enclosing) event(e *format.Event) {
	e.Flags &^= Inferred
	switch e.Kind {
	case format.Alloc, format.AllocFailed, format.Free:
		n.infer(e)
	case format.ScopeBegin, format.LiveScope:
		n.begin(e)
	case format.ScopeEnd:
		n.end(e.Scope)
	case format.ThreadBegin:
		if t := (scopeThread{e.Process, e.Thread}); len(n.processes[t.process][t.thread]) == 0 {
			delete(n.opened, t) // thread ids are used again
		}
	case format.ProcessEnd:
		n.forget(func(id format.ScopeID) bool { return n.threads[id].process == e.Process })
		for t := range n.opened {
			if t.process == e.Process {
				delete(n.opened, t)
			}
		}
	}
}

// folded is for every event that the fold has: behind a gap between parts a
// checkpoint says what is open.
func (n *enclosing) folded(e *format.Event) {
	if e.Kind == format.CheckpointEnd {
		n.forget(func(id format.ScopeID) bool { return n.p.State.Scope(id) == nil })
	}
}

func (n *enclosing) begin(e *format.Event) {
	if _, known := n.threads[e.Scope]; known || e.Flags&format.FlagRange != 0 || n.p.Defs.Name(e.Note) != "" {
		return
	}
	t := scopeThread{e.Process, e.Thread}
	n.threads[e.Scope], n.opened[t] = t, true
	open := n.processes[t.process]
	if open == nil {
		open = map[uint32][]format.ScopeID{}
		n.processes[t.process] = open
	}
	open[t.thread] = append(open[t.thread], e.Scope)
}

// end takes a scope off its thread's stack. It is the last but for scopes that
// overlap.
func (n *enclosing) end(id format.ScopeID) {
	t, known := n.threads[id]
	if !known {
		return
	}
	delete(n.threads, id)
	open := n.processes[t.process]
	stack := open[t.thread]
	for i := len(stack) - 1; i >= 0; i-- {
		if stack[i] == id {
			stack = append(stack[:i], stack[i+1:]...)
			break
		}
	}
	if open[t.thread] = stack; len(stack) == 0 {
		delete(open, t.thread)
	}
	if len(open) == 0 {
		delete(n.processes, t.process)
	}
}

func (n *enclosing) forget(gone func(format.ScopeID) bool) {
	for id := range n.threads {
		if gone(id) {
			n.end(id)
		}
	}
}

// infer gives an event its Scope.
func (n *enclosing) infer(e *format.Event) {
	open := n.processes[e.Process]
	if e.Scope != 0 || len(open) == 0 || n.opened[scopeThread{e.Process, e.Thread}] || n.first(e) {
		return
	}
	if len(open) > 1 {
		if n.counts(e) && n.p.Matches(e, ByAll&^ByScope) {
			n.ambiguous.add(e)
		}
		return
	}
	for _, stack := range open {
		e.Scope = stack[len(stack)-1]
	}
	e.Flags |= Inferred
	if n.counts(e) && n.p.Filtered(ByScope) && n.p.filter.q.Infer == InferMark && n.holds(e) && n.p.Matches(e, ByAll&^ByScope) {
		n.outside.add(e)
	}
}

// first reports whether a process's first thread made an event.
func (n *enclosing) first(e *format.Event) bool {
	pr, known := n.p.Defs.Process(e.Process)
	return known && pr.PID == int32(e.Thread)
}

func (n *enclosing) counts(e *format.Event) bool {
	return n.p.In && e.Kind == format.Alloc && e.Flags&(format.FlagCaptured|format.FlagEcho|format.FlagNested) == 0
}

// holds reports whether the scope that was inferred is in one that the query
// names.
func (n *enclosing) holds(e *format.Event) bool {
	t, known := n.threads[e.Scope]
	return known && n.p.filter.scopes.open[t] > 0
}

// note says what is not known, and what the query's scopes leave out.
func (n *enclosing) note() {
	if n.ambiguous.count > 0 {
		n.p.Note("%v, of threads without a scope, are in none: several threads had scopes open, and it is not known for which they worked", &n.ambiguous)
	}
	if n.outside.count > 0 {
		n.p.Note("not in it: %v, of threads without a scope, taken while the scope's thread was in it (inferred); --infer scope counts them", &n.outside)
	}
}
