package leaks

import (
	"fmt"
	"math"
	"time"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/tree"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
)

// By is what makes two allocations one site's.
type By string

const (
	ByStack    By = "stack"
	ByLine     By = "line"     // the innermost line of the program's own code
	ByFunction By = "function" // the function of that line
)

// ParseBy reads the name of a By.
func ParseBy(s string) (By, error) {
	switch b := By(s); b {
	case ByStack, ByLine, ByFunction:
		return b, nil
	}
	return "", fmt.Errorf("%q is none of stack, line, function", s)
}

// TemporaryEvents is within how many events of its thread a temporary is freed.
const TemporaryEvents = 10

// Options are what a question may say beyond its window and filters.
type Options struct {
	By              By     // "" is ByStack
	Per             string // the scope whose turns are the stretches; "" chooses one
	TemporaryEvents int64  // 0: only TemporaryTime counts
	TemporaryTime   time.Duration
	Suppressions    *Suppressions
}

// An Answer is a Report in the making.
type Answer struct {
	opt    Options
	traces []*Trace

	p     *analyze.Pass
	procs map[format.ProcessID]*process
	order []*process
	last  *process
	names map[format.StackID]named // by line and function
	own   tree.OwnFrames
	from  format.Time
	plain []string // pids without a pool, of all traces
}

// A process is what is known of one.
type process struct {
	id    format.ProcessID
	time  clock
	turns []*clock // of scopes, at most mostTurns
	begun map[string]bool
	sites map[siteKey]*site
	order []*site
	last  *site
	ended bool
	past  bool // before the window
	until format.Time
	taken int64 // allocations in the window
}

// mostTurns is how many scopes' turns are followed in a process until it is
// known which of them are the best measure.
const mostTurns = 3

type siteKey struct {
	stack format.StackID // by stack, and of a stack that is not defined yet
	named
	layer format.Layer
	class format.Class
}

// named is what a stack is called by line and function. A line may be reached by
// stacks of which only some are suppressed: it is two sites then.
type named struct {
	name       string
	suppressed int // by that line of the file
}

type site struct {
	siteKey
	held           int64
	count          int64 // taken in the window
	temporary      count
	end            count
	oldest, newest format.Time // of end
	floors         [1 + mostTurns]*floors
}

type count struct{ n, bytes, most int64 }

func (c *count) add(n int64) {
	c.n++
	c.bytes = analyze.Add(c.bytes, n)
	c.most = max(c.most, n)
}

// New returns an answer.
func New(opt Options) *Answer {
	if opt.By == "" {
		opt.By = ByStack
	}
	return &Answer{opt: opt}
}

func (a *Answer) Needs() analyze.Needs {
	return analyze.Needs{Pooled: true, Scopes: analyze.ScopesFiltered}
}

func (a *Answer) Begin(p *analyze.Pass) error {
	a.p, a.procs, a.order, a.last = p, map[format.ProcessID]*process{}, nil, nil
	a.names = map[format.StackID]named{}
	p.CountOnly(analyze.ByAll)
	p.State.OnBegin, p.State.OnEnd = a.begin, a.end
	p.State.OnScopeEnd = a.turnEnds
	a.from = math.MinInt64
	if t, known := p.From(); known {
		a.from = t
	} else if p.Windowed() {
		a.from = math.MaxInt64 // until the scope begins
	}
	return nil
}

func (a *Answer) Sample(*analyze.Pass, *format.Sample) error { return nil }

func (a *Answer) process(id format.ProcessID) *process {
	if a.last != nil && a.last.id == id {
		return a.last
	}
	pr := a.procs[id]
	if pr == nil {
		pr = &process{id: id, begun: map[string]bool{}, sites: map[siteKey]*site{}}
		a.procs[id] = pr
		a.order = append(a.order, pr)
	}
	a.last = pr
	return pr
}

// looked reports whether an allocation is one of those that are looked at.
func (a *Answer) looked(al *live.Allocation) bool {
	if !al.Counted {
		return false
	}
	return al.Layer != format.LayerDriver || al.Class != format.ClassDevice || a.p.Filtered(analyze.ByLayer) || !a.p.Pooled(al.Process)
}

func (a *Answer) begin(al *live.Allocation, e *format.Event) {
	if !a.looked(al) {
		return
	}
	pr := a.process(al.Process)
	s := a.site(pr, al)
	a.change(pr, s, al.Bytes(), e)
	if a.p.In && e.Kind == format.Alloc {
		s.count++
		pr.taken++
	}
}

func (a *Answer) end(al *live.Allocation, e *format.Event) {
	if !a.looked(al) {
		return
	}
	pr := a.process(al.Process)
	s := a.site(pr, al)
	if e.Kind == format.ProcessEnd { // its floors stay what they were
		if a.p.In {
			a.left(s, al)
		}
		return
	}
	a.change(pr, s, -al.Bytes(), e)
	if a.p.In && e.Kind == format.Free && al.Time >= a.from && a.temporary(al, e) {
		s.temporary.add(al.Bytes())
	}
}

// temporary reports whether e gives back almost at once. Between two events of
// one thread their numbers say how many there were.
func (a *Answer) temporary(al *live.Allocation, e *format.Event) bool {
	if a.opt.TemporaryTime > 0 && e.Time-al.Time <= format.Time(a.opt.TemporaryTime) {
		return true
	}
	return al.Thread == e.Thread && al.Seq > 0 && e.Seq > al.Seq && e.Seq-al.Seq <= uint64(a.opt.TemporaryEvents)
}

// left counts what is live at the end, and was taken in the window.
func (a *Answer) left(s *site, al *live.Allocation) {
	if al.Time < a.from {
		return
	}
	if s.end.n == 0 {
		s.oldest, s.newest = al.Time, al.Time
	}
	s.oldest, s.newest = min(s.oldest, al.Time), max(s.newest, al.Time)
	s.end.add(al.Bytes())
}

func (a *Answer) site(pr *process, al *live.Allocation) *site {
	k := siteKey{layer: al.Layer, class: al.Class}
	if a.opt.By == ByStack {
		k.stack = al.Stack
	} else if k.named = a.name(al.Stack); k.name == "" {
		k.stack = al.Stack
	}
	if pr.last != nil && pr.last.siteKey == k {
		return pr.last
	}
	s := pr.sites[k]
	if s == nil {
		s = &site{siteKey: k}
		pr.sites[k] = s
		pr.order = append(pr.order, s)
	}
	pr.last = s
	return s
}

// name is what a stack's site is called, "" where the stack is not defined, or
// not yet.
func (a *Answer) name(stack format.StackID) named {
	n, known := a.names[stack]
	if !known {
		f, ok := a.own.Of(stack, a.p.Defs)
		if !ok {
			return named{}
		}
		shown := a.p.Defs.Shown(&f)
		n = named{shown.String(), a.opt.Suppressions.of(a.p.Defs, stack)}
		if a.opt.By == ByFunction {
			n.name = tree.FunctionOf(shown)
		}
		a.names[stack] = n
	}
	return n
}

// suppressed is the line of the file that suppresses a site, 0 where none does.
func (a *Answer) suppressed(s *site) int {
	if s.name != "" {
		return s.suppressed
	}
	return a.opt.Suppressions.of(a.p.Defs, s.stack)
}

// change moves what a site holds, and its floors with it.
func (a *Answer) change(pr *process, s *site, n int64, e *format.Event) {
	before := s.held
	s.held += n
	if !a.p.In || a.p.State.Loading() {
		return
	}
	if a.opt.Per == "" {
		if e.Kind == format.Alloc {
			pr.time.tell(e.Time)
		}
		s.floor(0, &pr.time, before)
	}
	for i, c := range pr.turns {
		s.floor(1+i, c, before)
	}
}

func (s *site) floor(i int, c *clock, before int64) {
	if s.floors[i] == nil {
		s.floors[i] = &floors{}
	}
	s.floors[i].change(c, before, s.held)
}

func (a *Answer) Event(p *analyze.Pass, e *format.Event) error {
	if e.Kind.Checkpoint() {
		return nil
	}
	if !p.In {
		if pr := a.procs[e.Process]; pr != nil && e.Kind == format.ProcessEnd {
			pr.past = true
		}
		return nil
	}
	if a.from == math.MaxInt64 {
		a.from = e.Time
	}
	switch e.Kind {
	case format.ScopeBegin:
		a.turnBegins(p, e)
	case format.ProcessEnd:
		if pr := a.procs[e.Process]; pr != nil {
			a.stop(pr, e.Time)
			pr.ended = true
		}
	}
	return nil
}
