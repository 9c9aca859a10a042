package tree

import (
	"strings"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
)

// A Path is the names of open scopes, outermost first. 0 is no scope.
type Path int32

// Paths says in which scopes memory was taken. A scope is known by its id while
// it is open and while memory that was taken in it is held; what remains of it
// is its path of names, so a job of a million steps has a few paths. A scope
// that held memory before its begin was seen, as a first checkpoint's rows may,
// has a path of its own, which is named when the begin comes.
//
//	answer.Event:  paths.Event(e, p.Defs)
//	OnBegin:       path := paths.Begin(a)
//	OnEnd:         path := paths.End(a)
type Paths struct {
	nodes  []pathNode
	index  map[pathNode]Path
	scopes map[format.ScopeID]*scope
	gone   []format.ScopeID // ring: scopes that nothing refers to; a refused free may yet
	next   int
}

type pathNode struct {
	parent   Path
	name     string
	inferred bool // it is its parent, as what was inferred: see analyze.Inferred
}

type scope struct {
	path    Path
	process format.ProcessID
	refs    int64 // live allocations, and 1 while it is open
	begun   bool
	open    bool
	gone    int // times it stands in the ring
}

// fewGone is the fold's own memory of what was freed last.
const fewGone = 1 << 12

// NewPaths returns Paths of one trace.
func NewPaths() *Paths {
	return &Paths{nodes: make([]pathNode, 1), index: map[pathNode]Path{}, scopes: map[format.ScopeID]*scope{}}
}

// Event follows begins and ends of scopes.
func (ps *Paths) Event(e *format.Event, defs *format.Defs) {
	switch e.Kind {
	case format.ScopeBegin, format.LiveScope:
		ps.begin(e, defs.Name(e.Name))
	case format.ScopeEnd:
		if s := ps.scopes[e.Scope]; s != nil {
			ps.close(e.Scope, s)
		}
	case format.ProcessEnd:
		for id, s := range ps.scopes {
			if s.process == e.Process {
				ps.close(id, s)
			}
		}
	}
}

func (ps *Paths) begin(e *format.Event, name string) {
	s := ps.scopes[e.Scope]
	if s != nil && s.begun {
		return // an id begins once; a checkpoint names it again
	}
	if name == "" {
		name = "(no name)"
	}
	node := pathNode{name: name}
	if parent := ps.scopes[e.Parent]; parent != nil && e.Parent != 0 {
		node.parent = parent.path
	}
	if s == nil {
		s = &scope{path: ps.child(node), process: e.Process}
		ps.scopes[e.Scope] = s
	} else {
		ps.name(s.path, node)
	}
	s.begun, s.open = true, true
	s.refs++
}

// mostNested is how deep a path gets: what is opened below is in its last scope.
const mostNested = 100

func (ps *Paths) child(n pathNode) Path {
	if at, ok := ps.index[n]; ok {
		return at
	}
	if n.parent != 0 && len(ps.Names(n.parent)) >= mostNested {
		return n.parent
	}
	at := ps.node(n)
	ps.index[n] = at
	return at
}

func (ps *Paths) node(n pathNode) Path {
	ps.nodes = append(ps.nodes, n)
	return Path(len(ps.nodes) - 1)
}

// name says what a path is that nobody knew. A file may claim that a scope lies
// in itself: then it lies in none.
func (ps *Paths) name(at Path, n pathNode) {
	for up, depth := n.parent, 0; up != 0; up, depth = ps.nodes[up].parent, depth+1 {
		if up == at || depth == mostNested {
			n.parent = 0
			break
		}
	}
	ps.nodes[at] = n
}

func (ps *Paths) close(id format.ScopeID, s *scope) {
	if s.open {
		s.open = false
		ps.drop(id, s)
	}
}

func (ps *Paths) drop(id format.ScopeID, s *scope) {
	if s.refs--; s.refs > 0 {
		return
	}
	s.gone++
	if len(ps.gone) < fewGone {
		ps.gone = append(ps.gone, id)
		return
	}
	old := ps.gone[ps.next]
	ps.gone[ps.next] = id
	ps.next = (ps.next + 1) % fewGone
	if o := ps.scopes[old]; o != nil {
		if o.gone--; o.refs <= 0 && o.gone <= 0 {
			delete(ps.scopes, old)
		}
	}
}

// Begin is the path of an allocation that begins to be live, End of one that
// ceases to be.
func (ps *Paths) Begin(a *live.Allocation) Path {
	if a.Scope == 0 {
		return 0
	}
	s := ps.scopes[a.Scope]
	if s == nil {
		s = &scope{path: ps.node(pathNode{name: "[scope unknown]"}), process: a.Process}
		ps.scopes[a.Scope] = s
	}
	s.refs++
	return ps.Taken(&a.Event)
}

// Taken is the path of what an event takes, as long as its scope is known.
func (ps *Paths) Taken(e *format.Event) Path {
	at := ps.Of(e.Scope)
	if at == 0 || e.Flags&analyze.Inferred == 0 {
		return at
	}
	n := pathNode{parent: at, inferred: true}
	in, ok := ps.index[n]
	if !ok {
		in = ps.node(n)
		ps.index[n] = in
	}
	return in
}

func (ps *Paths) End(a *live.Allocation) Path {
	if a.Scope == 0 {
		return 0
	}
	at := ps.Taken(&a.Event)
	ps.drop(a.Scope, ps.scopes[a.Scope])
	return at
}

// Of is the path of a scope, as long as it is known.
func (ps *Paths) Of(id format.ScopeID) Path {
	if s := ps.scopes[id]; s != nil && id != 0 {
		return s.path
	}
	return 0
}

// Names are the names of a path, outermost first.
func (ps *Paths) Names(p Path) []string {
	if p == 0 {
		return nil
	}
	n := ps.nodes[p]
	if n.inferred {
		return ps.Names(n.parent)
	}
	return append(ps.Names(n.parent), n.name)
}

// Inferred reports whether that these are the scopes was inferred.
func (ps *Paths) Inferred(p Path) bool { return ps.nodes[p].inferred }

// InferredMark stands after what was inferred.
const InferredMark = " (inferred)"

// Label is a path on one line.
func (ps *Paths) Label(p Path) string {
	if p == 0 {
		return "[no scope]"
	}
	label := strings.Join(ps.Names(p), " > ")
	if ps.Inferred(p) {
		label += InferredMark
	}
	return label
}
