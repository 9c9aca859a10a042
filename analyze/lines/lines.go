package lines

import (
	"fmt"
	"sort"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/tree"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
)

// At says of what the tree is.
type At uint8

const (
	Total  At = iota // all that was ever taken: CuPy's reading
	Peak             // live when used bytes of a device were highest in the window
	End              // live when a process ended, or at the end of the trace
	Moment           // live at the end of the window
)

func (a At) String() string { return [...]string{"total", "peak", "end", "time"}[a] }

// CuPyDomain is the domain of the scopes that our CuPy hook opens.
const CuPyDomain = "cupy"

// A Report is the answer.
type Report struct {
	Completeness *analyze.Completeness `json:"completeness"`
	At           string                `json:"at"`
	Trees        []*Tree               `json:"trees"`
	NoLine       NoLine                `json:"without_line"`

	depth int
}

// Depth is that of the deepest line; the root has 0.
func (r *Report) Depth() int { return r.depth }

// A Tree is the lines of all traces, or of one device of one trace at its peak.
type Tree struct {
	Title    string         `json:"title,omitempty"`
	Device   *format.Device `json:"device,omitempty"`
	UUID     string         `json:"uuid,omitempty"`
	Time     *int64         `json:"time_ns,omitempty"` // of the peak, since the start
	Used     int64          `json:"used"`
	Acquired int64          `json:"acquired"`
	Root     *tree.Node     `json:"tree,omitempty"`

	ByScope []*tree.CrossRow `json:"by_scope,omitempty"` // in place of the tree: own lines by scopes
}

// NoLine is how much of the trees' bytes no line is known for, and for how much of
// that at least a function is: native code without debug information.
type NoLine struct {
	Used          int64   `json:"used"`
	UsedShare     float64 `json:"used_share"` // of all used bytes; 0 where there are none
	Acquired      int64   `json:"acquired"`
	AcquiredShare float64 `json:"acquired_share"`
	NamedUsed     int64   `json:"named_used,omitempty"`
	NamedAcquired int64   `json:"named_acquired,omitempty"`
	Unresolved    int     `json:"unresolved_stacks,omitempty"` // stacks whose definition is not in the trace
}

// An Answer is a Report in the making.
type Answer struct {
	at       At
	maxDepth int
	titles   bool // several traces
	byScope  bool
	fold     bool // recursions are one line

	p      *analyze.Pass
	sums   leaves // of the trace
	cupy   map[format.ScopeID]scopeThread
	inCuPy map[scopeThread]int
	other  map[format.Class]int64
	peaks  *tree.Watch[format.Device]
	paths  *tree.Paths // of the trace, where lines are asked for by scope; else nil
	cross  *tree.Cross // of all traces, for all but Peak

	plain   []string   // pids without a pool, of all traces
	all     *tree.Tree // of all traces, for all but Peak
	trees   []*Tree
	noLine  NoLine
	used    int64
	acq     int64
	depth   int
	sources map[string]bool
}

type scopeThread struct {
	process format.ProcessID
	thread  uint32
}

// New returns an answer for so many traces. A max depth over 0 keeps the root
// and the outermost lines: the root is depth 1.
func New(at At, maxDepth, traces int) *Answer {
	return &Answer{at: at, maxDepth: maxDepth, titles: traces > 1, all: tree.New(maxDepth)}
}

// Fold makes recursions one line with a count: what people read, and not CuPy's.
func (a *Answer) Fold() *Answer {
	a.fold = true
	a.all = a.newTree()
	return a
}

// newTree is one of lines; where they are asked for by scope, of what they add up to.
func (a *Answer) newTree() *tree.Tree {
	t := tree.New(a.maxDepth)
	if a.byScope {
		t = tree.NewTotals()
	}
	if a.fold {
		t.Fold()
	}
	return t
}

// ByScope asks for own lines by the scopes in which they took memory, in place of
// the tree.
func (a *Answer) ByScope() *Answer {
	a.byScope, a.cross = true, tree.NewCross(tree.ByOwnLine)
	a.all = a.newTree()
	return a
}

func (a *Answer) Needs() analyze.Needs {
	n := analyze.Needs{Pooled: a.at == Peak, Scopes: analyze.ScopesFiltered}
	if a.byScope {
		n.Scopes = analyze.ScopesShown
	}
	return n
}

func (a *Answer) Begin(p *analyze.Pass) error {
	a.p, a.sums = p, newLeaves()
	a.cupy, a.inCuPy = map[format.ScopeID]scopeThread{}, map[scopeThread]int{}
	a.other = map[format.Class]int64{}
	if a.byScope {
		a.paths = tree.NewPaths()
	}
	if a.at == Total {
		return nil
	}
	p.CountOnly(analyze.ByAll)
	switch a.at {
	case Peak:
		a.beginPeak(p)
	default:
		p.State.OnBegin = func(al *live.Allocation, _ *format.Event) { a.began(al) }
		p.State.OnEnd = func(al *live.Allocation, e *format.Event) {
			path := a.ended(al)
			if a.at == End && e.Kind == format.ProcessEnd && p.In {
				a.addLive(al, path)
			}
		}
	}
	return nil
}

// began and ended are the path of an allocation that begins or ceases to be live;
// 0 where nobody asks.
func (a *Answer) began(al *live.Allocation) tree.Path {
	if a.paths == nil {
		return 0
	}
	return a.paths.Begin(al)
}

func (a *Answer) ended(al *live.Allocation) tree.Path {
	if a.paths == nil {
		return 0
	}
	return a.paths.End(al)
}

// taken is the path of what is live, or of an attempt.
func (a *Answer) taken(e *format.Event) tree.Path {
	if a.paths == nil {
		return 0
	}
	return a.paths.Taken(e)
}

func (a *Answer) Enter(p *analyze.Pass) {
	if a.at == Peak {
		a.peaks.Enter()
	}
}

func (a *Answer) Sample(*analyze.Pass, *format.Sample) error { return nil }

func (a *Answer) Event(p *analyze.Pass, e *format.Event) error {
	if a.paths != nil {
		a.paths.Event(e, p.Defs)
	}
	switch {
	case a.at == Peak:
		a.peaks.Event()
	case a.at == Total:
		a.total(p, e)
	}
	return nil
}

// total counts an attempt. CuPy counts before it tries, so a failure counts
// like a success, and each try of the driver counts.
func (a *Answer) total(p *analyze.Pass, e *format.Event) {
	switch e.Kind {
	case format.Alloc, format.AllocFailed:
	case format.ScopeBegin, format.LiveScope:
		if p.Filtered(analyze.ByScope) && p.Matches(e, analyze.ByScope) && p.Defs.Name(e.Note) == CuPyDomain {
			if _, known := a.cupy[e.Scope]; !known {
				t := scopeThread{e.Process, e.Thread}
				a.cupy[e.Scope] = t
				a.inCuPy[t]++
			}
		}
		return
	case format.ScopeEnd:
		if t, ok := a.cupy[e.Scope]; ok {
			delete(a.cupy, e.Scope)
			a.inCuPy[t]--
		}
		return
	default:
		return
	}
	if !p.In || e.Flags&format.FlagCaptured != 0 || !p.Matches(e, analyze.ByAll) {
		return
	}
	if e.API == format.APICuPy || e.API == format.APICuPyAlloc {
		p.AsCuPy()
	}
	n, path := attempted(e), a.taken(e)
	if a.inCuPy[scopeThread{e.Process, e.Thread}] > 0 {
		switch e.API {
		case format.APICuPy:
			a.sums.at(e.Process, e.Stack, path).used += n
		case format.APICuPyAlloc:
			a.sums.at(e.Process, e.Stack, path).acquired += n
		}
		return
	}
	if e.Flags&(format.FlagEcho|format.FlagNested) != 0 || e.API == format.APICuPyAlloc {
		return
	}
	if e.Class != format.ClassDevice {
		a.other[e.Class] += n
		return
	}
	switch e.Layer {
	case format.LayerPool:
		a.sums.at(e.Process, e.Stack, path).pool += n
	case format.LayerDriver:
		a.sums.at(e.Process, e.Stack, path).driver += n
	}
}

// attempted is what an attempt asked for, rounded where its layer rounds; a
// failed one may know only what was requested.
func attempted(e *format.Event) int64 {
	if e.Size > 0 || e.Kind != format.AllocFailed {
		return max(e.Size, 0)
	}
	return max(e.Requested, 0)
}

// addLive counts an allocation that was live.
func (a *Answer) addLive(al *live.Allocation, path tree.Path) {
	if !al.Counted {
		return
	}
	if al.Class != format.ClassDevice {
		a.other[al.Class] += al.Bytes()
		return
	}
	switch al.Layer {
	case format.LayerPool:
		a.sums.at(al.Process, al.Stack, path).pool += al.Bytes()
	case format.LayerDriver:
		a.sums.at(al.Process, al.Stack, path).driver += al.Bytes()
	}
}

func (a *Answer) End(p *analyze.Pass) error {
	switch a.at {
	case Peak:
		return a.endPeak(p)
	case End, Moment:
		p.State.Each(func(al *live.Allocation) bool { a.addLive(al, a.taken(&al.Event)); return true })
	}
	for _, f := range a.sums.order {
		choose(p, f)
		a.all.Add(f.stack, tree.Amount{Used: f.used, Acquired: f.acquired}, p.Defs)
	}
	if a.byScope {
		a.cross.Add(a.sums.each, p.Defs, a.paths)
	}
	a.sayCut(a.all, p)
	a.say(p)
	return nil
}

// choose says which layer a leaf's used bytes are. In CuPy's own scopes there
// is no choice.
func choose(p *analyze.Pass, f *leaf) {
	f.acquired += f.driver
	if p.Pooled(f.process) {
		f.used += f.pool
	} else {
		f.used += f.driver
	}
	f.pool, f.driver = 0, 0
}

func (a *Answer) sayCut(t *tree.Tree, p *analyze.Pass) {
	if t.Cut > 0 {
		p.Note("%d stack%s deeper than %d lines: what is below is in the last line shown", t.Cut, analyze.Plural(int64(t.Cut)), tree.MostDeep)
	}
	t.Cut = 0
}

// say notes what the numbers are and what they leave out.
func (a *Answer) say(p *analyze.Pass) {
	for _, pr := range p.State.Processes() {
		if acq := pr.Acquired(); !p.Pooled(pr.ID) && acq.Count > 0 {
			d, _ := p.Defs.Process(pr.ID)
			a.plain = append(a.plain, fmt.Sprint(d.PID))
		}
	}
	if a.at == Total && p.Filtered(analyze.ByScope) && len(a.other) == 0 && len(a.sums.order) == 0 {
		p.Note("nothing was taken there")
	}
	classes := make([]format.Class, 0, len(a.other))
	for c := range a.other {
		classes = append(classes, c)
	}
	sort.Slice(classes, func(i, j int) bool { return classes[i] < classes[j] })
	for _, c := range classes {
		if n := a.other[c]; n > 0 {
			p.Note("not in these sums: %d bytes of class %v", n, c)
		}
	}
	if t, ok := p.CompleteSince(); ok && a.at == Total {
		p.Note("totals count since %s", analyze.Seconds(p.Since(t)))
	}
}

// Report is the answer, after the pass.
func (a *Answer) Report(c *analyze.Completeness) *Report {
	c.UsedIsDriver(a.plain)
	r := &Report{Completeness: c, At: a.at.String(), Trees: a.trees}
	if a.at != Peak {
		r.Trees = []*Tree{a.finish(a.all, a.cross, &Tree{})}
	}
	if r.Trees == nil { // nothing was live at any moment
		r.Trees = []*Tree{a.finish(tree.New(a.maxDepth), a.cross, &Tree{})}
	}
	r.NoLine, r.depth = a.noLine, a.depth
	r.NoLine.UsedShare, r.NoLine.AcquiredShare = share(a.noLine.Used, a.used), share(a.noLine.Acquired, a.acq)
	return r
}

// finish takes over what a tree, or its lines by scope, have come to.
func (a *Answer) finish(t *tree.Tree, c *tree.Cross, out *Tree) *Tree {
	if a.at != Total {
		t.Root.Sort()
	}
	out.Used, out.Acquired = t.Root.Used, t.Root.Acquired
	if a.byScope {
		out.ByScope = c.Rows()
	} else {
		out.Root = &t.Root
	}
	a.noLine.Used += t.NoLine.Used
	a.noLine.Acquired += t.NoLine.Acquired
	a.noLine.NamedUsed += t.Named.Used
	a.noLine.NamedAcquired += t.Named.Acquired
	a.noLine.Unresolved += t.Unknown
	a.used += t.Root.Used
	a.acq += t.Root.Acquired
	a.depth = max(a.depth, t.Depth)
	return out
}

func share(part, of int64) float64 {
	if of == 0 {
		return 0
	}
	return float64(part) / float64(of)
}

// Words says NoLine for people; "" where every byte has a line.
func (n *NoLine) Words() string {
	if n.Used == 0 && n.Acquired == 0 {
		return ""
	}
	s := fmt.Sprintf("no line is known for %d bytes used (%.1f %%) and %d acquired (%.1f %%)", n.Used, 100*n.UsedShare, n.Acquired, 100*n.AcquiredShare)
	if n.NamedUsed > 0 || n.NamedAcquired > 0 {
		s += fmt.Sprintf("; the function is, for %d and %d of them", n.NamedUsed, n.NamedAcquired)
	}
	if n.Unresolved > 0 {
		s += fmt.Sprintf("; %d stacks have no definition", n.Unresolved)
	}
	return s
}
