package analyze

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
)

// Needs are what an answer wants from the pass.
type Needs struct {
	Pooled  bool // which processes have a pool, from the first event on; may cost a look at all events
	Samples bool
	Scopes  Scoping
}

// An Answer is fed one trace after another.
type Answer interface {
	Needs() Needs
	Begin(p *Pass) error                    // a trace begins; observers and Count of p.State are set here
	Event(p *Pass, e *format.Event) error   // after the fold has it; checkpoint rows too. ErrStop ends the trace early
	Sample(p *Pass, r *format.Sample) error // after the fold has it
	End(p *Pass) error                      // p.State is the state at the end of the window, p.Defs is complete
}

// An Enterer is an answer that wants to know when the window begins: before
// its first event is folded, or at the end of a trace that has none.
type Enterer interface{ Enter(p *Pass) }

// ErrStop tells the pass that an answer has seen enough of a trace.
var ErrStop = errors.New("seen enough")

// A Pass is the one over a trace that is going on.
type Pass struct {
	Trace *format.Trace
	Defs  *format.Defs
	State *live.State
	Event int64 // number of the event, checkpoint rows counted
	In    bool  // the window has begun
	past  bool  // and an event came after its end

	filter   *filter
	from, to bound
	census   *census
	joint    joint
	around   *enclosing // nil: nothing is inferred
	view     *viewer    // nil: stacks are shown as recorded
	lost     losses
	wanted   bool // the answer wanted samples
	sampled  bool // and there were some
	comp     *Completeness
	prefix   string
	thinned  bool        // the first parts are not there
	since    format.Time // of the first row that is no checkpoint's, or of its end
	begun    bool
	restated bool // the trace begins with a checkpoint
	step     func(events int)
}

// Matches reports whether e passes those fields of the query.
func (p *Pass) Matches(e *format.Event, by Fields) bool { return p.filter.matches(e, by) }

// Filtered reports whether the query has any of those fields.
func (p *Pass) Filtered(by Fields) bool { return p.filter.has&by != 0 }

// AsCuPy makes the default view show every frame of Python's, launchers and imports
// too, as CuPy's LineProfileHook does.
func (p *Pass) AsCuPy() {
	if p.view != nil {
		p.view.asCuPy = true
	}
}

// CountOnly makes sums count what passes those fields of the query only.
func (p *Pass) CountOnly(by Fields) {
	if p.Filtered(by) {
		p.State.Count = func(e *format.Event) bool { return p.Matches(e, by) }
	}
}

// Pooled reports whether a process has a pool event in the whole recording:
// what is used of it is then the pool layer. Without Needs.Pooled it is known
// only at the end of the pass.
func (p *Pass) Pooled(id format.ProcessID) bool {
	if p.State.Pooled != nil {
		return p.State.Pooled(id)
	}
	pr := p.State.Process(id)
	return pr != nil && pr.Pooled
}

// CompleteSince is where the trace begins when its first parts are not there,
// and whether they are not.
func (p *Pass) CompleteSince() (format.Time, bool) { return p.since, p.thinned && p.begun }

// Start is the first moment that is known of: the recording's start, or that of
// the checkpoint that a thinned trace or a slice begins with.
func (p *Pass) Start() format.Time {
	if p.restated {
		return p.since
	}
	return p.Trace.Meta().Monotonic
}

// Windowed reports whether the query has a From.
func (p *Pass) Windowed() bool { return p.from.set }

// Note adds to what is said beside the answer.
func (p *Pass) Note(f string, a ...any) { p.comp.note("%s"+f, append([]any{p.prefix}, a...)...) }

// Since is the time since the start of the recording.
func (p *Pass) Since(t format.Time) int64 { return int64(t - p.Trace.Meta().Monotonic) }

// Seconds prints a time since the start the way TIME reads it.
func Seconds(ns int64) string { return strconv.FormatFloat(float64(ns)/1e9, 'f', 6, 64) + "s" }

// Run opens the traces and feeds a each of them, in order. The error is about
// what makes an answer impossible; what only makes it partial is in the
// Completeness. progress, where not nil, hears after each batch how many events
// are done, of how many that the recorders counted: 0 where one did not say.
func Run(ctx context.Context, paths []string, q *Query, a Answer, progress func(done, of int64)) (*Completeness, error) {
	c := &Completeness{}
	var traces []*format.Trace
	var of int64
	counted := true
	for _, path := range paths {
		t, err := format.Open(path)
		if err != nil {
			return nil, err
		}
		traces = append(traces, t)
		n := int64(t.Meta().Stats.Events)
		of += n
		counted = counted && n > 0
	}
	if !counted {
		of = 0
	}
	if err := c.repeated(traces); err != nil {
		return nil, err
	}
	var done int64
	found := &census{q: q}
	for _, t := range traces {
		one := &Completeness{}
		p := &Pass{Trace: t, Defs: format.NewDefs(), State: live.New(), comp: one, census: found}
		p.step = func(n int) {
			if done += int64(n); progress != nil {
				progress(done, of)
			}
		}
		if err := p.run(ctx, q, a); err != nil {
			return nil, err
		}
		p.judge(one)
		c.whole = append(c.whole, len(one.Partial) == 0)
		prefix := ""
		if len(traces) > 1 {
			prefix = t.Path() + ": "
		}
		for _, s := range one.Partial {
			c.partial("%s%s", prefix, s)
		}
		for _, s := range one.Notes {
			c.note("%s%s", prefix, s)
		}
	}
	if err := found.judge(c); err != nil {
		return nil, err
	}
	c.Complete = len(c.Partial) == 0
	return c, nil
}

// An EmptyWindowError says that a window ends before it begins.
type EmptyWindowError struct{ From, To Moment }

func (e *EmptyWindowError) Error() string {
	return fmt.Sprintf("the window is empty: it begins at %s and ends before, at %s", e.From, e.To)
}

// run is the pass:
//
//  1. definitions of all parts are loaded, for filters by name and process;
//  2. what must be known beforehand is looked for;
//  3. parts are read in order, samples merged in by time: a sample stands
//     before the first event that is younger;
//  4. of the last part of a growing trace the definitions are loaded again,
//     because events may have come meanwhile; a row always comes after its
//     definitions, so they are all there then.
func (p *Pass) run(ctx context.Context, q *Query, a Answer) error {
	meta := p.Trace.Meta()
	parts := p.Trace.Parts()
	for i, part := range parts {
		if err := part.LoadDefs(p.Defs); !p.growing(i) {
			p.comp.damage(err, false)
		}
	}
	p.filter = newFilter(q, p.Defs)
	p.view = q.View.set(p.Defs)
	if q.Short {
		p.Defs.SetFiles(shortFiles(p.Defs))
	}
	p.from, p.to = q.From.bound(&meta), q.To.bound(&meta)
	scan := prescan{from: scopeMoment(q.From), to: scopeMoment(q.To)}
	needs := a.Needs()
	p.wanted = needs.Samples
	if q.Infer != InferOff && (needs.Scopes == ScopesShown || needs.Scopes == ScopesFiltered && p.Filtered(ByScope)) {
		p.around = newEnclosing(p)
		p.filter.around = p.around
	}
	if p.to.set || scan.to != nil {
		needs.Pooled = true // a window that ends early does not see the whole recording
	}
	if needs.Pooled || scan.from != nil || scan.to != nil {
		if err := scan.run(ctx, p.Trace, p.Defs, needs.Pooled); err != nil {
			return err
		}
		if needs.Pooled {
			last, pooled := format.ProcessID(0), scan.pooled[0] // several answers ask of one event's process
			p.State.Pooled = func(id format.ProcessID) bool {
				if id != last {
					last, pooled = id, scan.pooled[id]
				}
				return pooled
			}
		}
		if scan.from != nil {
			p.from = bound{set: true, event: scan.from.begin}
		}
		if scan.to != nil && scan.to.end >= 0 {
			p.to = bound{set: true, event: scan.to.end}
		}
	}
	if p.from.set && p.to.set && p.from.byTime == p.to.byTime && (p.from.time > p.to.time || p.from.event > p.to.event) {
		return &EmptyWindowError{q.From, q.To}
	}
	if err := a.Begin(p); err != nil {
		return err
	}
	stopped, whole := false, false
	for i, part := range parts {
		p.gap(parts, i)
		p.joint.begin(part.Index(), whole && parts[i-1].Index()+1 == part.Index())
		growing := p.growing(i)
		err := p.part(ctx, part, a, needs.Samples)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var failed *answerError
		if errors.As(err, &failed) {
			return failed.err
		}
		stopped, whole = err == ErrStop, err == nil
		if !stopped {
			p.comp.damage(err, growing)
		}
		if growing {
			p.comp.damage(part.LoadDefs(p.Defs), true)
		}
		if stopped {
			break
		}
	}
	if !stopped {
		p.gap(parts, len(parts))
	}
	p.census.stopped = p.census.stopped || stopped
	p.census.trace(p)
	if !p.In {
		if p.begun && p.from.set {
			p.comp.note("no event is in the window: the last is at %s", Seconds(p.Since(p.State.Now())))
		}
		p.enter(a)
	}
	if p.around != nil {
		p.around.note()
	}
	return a.End(p)
}

// growing reports whether the i-th part may still be written.
func (p *Pass) growing(i int) bool {
	return p.Trace.Meta().Ending == format.EndGrowing && i == len(p.Trace.Parts())-1
}

// gap says which parts are not there before the i-th, or after the last.
func (p *Pass) gap(parts []*format.Part, i int) {
	gap, missing := p.Trace.Missing(i)
	switch {
	case missing && len(parts) == 0:
		p.comp.partial("all its parts are missing, of which there were %d", gap.Last+1)
	case missing:
		p.comp.partial("%v", gap)
	case len(parts) == 0:
		p.comp.partial("it has no part")
	case i == 0 && parts[0].Index() > 0:
		p.thinned = true // the oldest parts are deleted on purpose; the checkpoint says what was live
	}
}

// An answerError is one that the answer gave: no damage of the trace.
type answerError struct{ err error }

func (e *answerError) Error() string { return e.err.Error() }

func (p *Pass) enter(a Answer) {
	p.In = true
	if en, ok := a.(Enterer); ok {
		en.Enter(p)
	}
}

func (p *Pass) part(ctx context.Context, part *format.Part, a Answer, samples bool) error {
	r, err := part.Events()
	if err != nil {
		return err
	}
	defer r.Close()
	merge := sampleMerge{p: p, a: a}
	if samples {
		if err := merge.open(part); err != nil {
			p.comp.damage(err, true)
		}
		defer merge.close()
	}
	for {
		batch, err := r.Next()
		if err == io.EOF || err != nil {
			if merr := merge.until(p.lastSample()); merr != nil {
				return merr
			}
			if err == io.EOF {
				return nil
			}
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		for i := range batch {
			e := &batch[i]
			if p.to.set && !e.Kind.Checkpoint() && (p.to.byTime && e.Time > p.to.time || !p.to.byTime && p.Event > p.to.event) {
				if err := merge.until(p.lastSample()); err != nil {
					return err
				}
				p.past = true
				return ErrStop
			}
			if !e.Kind.Checkpoint() {
				if err := merge.until(e.Time); err != nil {
					return err
				}
			}
			if err := p.one(a, e); err != nil {
				return err
			}
		}
		p.step(len(batch))
	}
}

// one folds an event and hands it on.
func (p *Pass) one(a Answer, e *format.Event) error {
	if !p.In && !e.Kind.Checkpoint() && (!p.from.set || p.from.byTime && e.Time >= p.from.time || !p.from.byTime && p.Event >= p.from.event) {
		p.enter(a)
	}
	if !p.begun && (!e.Kind.Checkpoint() || e.Kind == format.CheckpointEnd) {
		p.begun, p.since, p.restated = true, e.Time, e.Kind == format.CheckpointEnd
	}
	switch e.Kind {
	case format.ScopeBegin, format.LiveScope:
		p.filter.scopes.begin(e, p.Defs)
	case format.Lost:
		p.lost.add(e)
	}
	if p.filter.has&ByThread != 0 {
		p.census.event(e, p.filter)
	}
	p.joint.event(p, e)
	if p.around != nil {
		p.around.event(e)
	}
	p.State.Apply(e)
	if p.around != nil {
		p.around.folded(e)
	}
	err := a.Event(p, e)
	if e.Kind == format.ScopeEnd {
		p.filter.scopes.end(e)
	}
	p.Event++
	if err == nil || err == ErrStop {
		return err
	}
	return &answerError{err}
}

// lastSample is how far samples count when a part's events have ended.
func (p *Pass) lastSample() format.Time {
	if p.to.set && p.to.byTime {
		return p.to.time
	}
	if p.to.set {
		return p.State.Now()
	}
	return 1<<63 - 1
}

// A sampleMerge feeds a part's samples between its events.
type sampleMerge struct {
	p    *Pass
	a    Answer
	r    *format.SampleReader
	rows []format.Sample
}

func (m *sampleMerge) open(part *format.Part) (err error) {
	m.r, err = part.Samples()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (m *sampleMerge) close() {
	if m.r != nil {
		m.r.Close()
	}
}

func (m *sampleMerge) until(t format.Time) error {
	for m.r != nil {
		for len(m.rows) > 0 {
			if m.rows[0].Time > t {
				return nil
			}
			r := &m.rows[0]
			m.rows = m.rows[1:]
			m.p.sampled = true
			m.p.State.Sample(r)
			if err := m.a.Sample(m.p, r); err != nil {
				return &answerError{fmt.Errorf("a sample: %w", err)}
			}
		}
		var err error
		if m.rows, err = m.r.Next(); err != nil {
			if err != io.EOF {
				m.p.comp.damage(err, m.p.Trace.Meta().Ending == format.EndGrowing)
			}
			m.r.Close()
			m.r = nil
		}
	}
	return nil
}
