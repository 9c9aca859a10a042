package scopes

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
)

// Curve is which bytes are measured.
type Curve string

const (
	Used     Curve = "used"
	Acquired Curve = "acquired"
	NVML     Curve = "nvml"
)

// ParseCurve reads the name of a curve.
func ParseCurve(s string) (Curve, error) {
	switch c := Curve(s); c {
	case Used, Acquired, NVML:
		return c, nil
	}
	return "", fmt.Errorf("curve %q is none of used, acquired, nvml", s)
}

// A Report is the answer. Scopes stand by trace, process and thread, in the
// order of their begins.
type Report struct {
	Completeness *analyze.Completeness `json:"completeness"`
	Curve        Curve                 `json:"curve"`
	Scopes       []*Scope              `json:"scopes"`

	lines []*line // fastai's, in the order of events
	procs map[process]bool
}

// A Scope is one measured block.
type Scope struct {
	Trace   string         `json:"trace,omitempty"` // where there are several
	ID      format.ScopeID `json:"id"`
	Parent  format.ScopeID `json:"parent,omitempty"`
	Name    string         `json:"name"`
	N       int            `json:"n"` // which of its name, from 1
	Domain  string         `json:"domain,omitempty"`
	Source  string         `json:"source"` // nvtx or scope
	PID     int32          `json:"pid"`
	Rank    *int32         `json:"rank,omitempty"`
	Thread  uint32         `json:"thread"`
	Device  *format.Device `json:"device,omitempty"`
	Depth   int            `json:"depth"`
	Begin   int64          `json:"begin_ns"`
	End     int64          `json:"end_ns"`         // of an open scope the last moment there is
	Open    bool           `json:"open,omitempty"` // it had not ended
	Late    bool           `json:"late,omitempty"` // begin values are those of the first row there is
	Resets  int            `json:"resets,omitempty"`
	Measure Measure        `json:"bytes"`
	Reports []*ScopeReport `json:"reports,omitempty"`

	both      [3]live.Measure // by live.CurveKind
	process   process
	hasName   bool
	trace     int
	order     int
	processID format.ProcessID
}

type process struct {
	trace int
	id    format.ProcessID
}

// A Measure is a scope on the curve, in bytes. On the curve nvml without
// samples it is unknown, and its numbers are 0.
type Measure struct {
	Known  bool  `json:"known"`
	Used   int64 `json:"used"`
	Peaked int64 `json:"peaked"`
	Begin  int64 `json:"begin"`
	End    int64 `json:"end"`
	Max    int64 `json:"max"`
}

// A ScopeReport is a place where the program printed a report of its scope.
type ScopeReport struct {
	Time       int64   `json:"time_ns"`
	Subcontext *string `json:"subcontext,omitempty"`
	Measure    Measure `json:"bytes"`

	both [3]live.Measure
}

// An Answer is a Report in the making.
type Answer struct {
	curve  Curve
	traces int

	p             *analyze.Pass
	trace         int
	rows          []*Scope // all traces'
	byID          map[format.ScopeID]*Scope
	seen          map[string]int
	known         map[format.ScopeID]bool           // open ones, rows or not
	lost          map[thread]bool                   // threads that lost events; 0 is all of its process
	only, without []string                          // domains, see Domains
	left          map[format.ScopeID]format.ScopeID // what stands around a scope that is left out, 0 where nothing does
	domains       map[string]int64                  // how many are left out of each
	plain         []string                          // pids whose used bytes are the driver layer's, of all traces
	lines         []*line
	any           bool // a sample was there
}

type thread struct {
	process format.ProcessID
	tid     uint32
}

// New returns an answer for so many traces.
func New(curve Curve, traces int) *Answer { return &Answer{curve: curve, traces: traces} }

// DefaultDomain names what has no domain of its own: the ranges of most programs,
// and gpurec's scopes. Libraries name theirs.
const DefaultDomain = "default"

// Domains limits the answer to scopes of some NVTX domains, where any are named,
// and leaves those of others out. What lies in a scope that is left out stands
// in what is around that.
func (a *Answer) Domains(only, without []string) *Answer {
	a.only, a.without = only, without
	return a
}

// takes reports whether scopes of a domain are in the answer.
func (a *Answer) takes(domain string) bool {
	if domain == "" {
		domain = DefaultDomain
	}
	return (len(a.only) == 0 || slices.Contains(a.only, domain)) && !slices.Contains(a.without, domain)
}

func (a *Answer) Needs() analyze.Needs { return analyze.Needs{Samples: a.curve == NVML} }

func (a *Answer) Begin(p *analyze.Pass) error {
	a.p = p
	a.trace++
	a.byID, a.seen, a.known = map[format.ScopeID]*Scope{}, map[string]int{}, map[format.ScopeID]bool{}
	a.lost = map[thread]bool{}
	a.left, a.domains = map[format.ScopeID]format.ScopeID{}, map[string]int64{}
	p.CountOnly(analyze.ByDevice | analyze.ByLayer)
	p.State.OnScopeEnd = func(sc *live.Scope, e *format.Event) {
		delete(a.known, sc.ID)
		if s := a.byID[sc.ID]; s != nil {
			a.freeze(s, sc, e.Time)
			s.Open = e.Kind != format.ScopeEnd
			if len(s.Reports) == 0 {
				a.lines = append(a.lines, &line{scope: s})
			}
		}
	}
	return nil
}

func (a *Answer) Sample(*analyze.Pass, *format.Sample) error {
	a.any = true
	return nil
}

func (a *Answer) Event(p *analyze.Pass, e *format.Event) error {
	switch e.Kind {
	case format.ScopeBegin, format.LiveScope:
		if a.known[e.Scope] {
			return nil
		}
		a.known[e.Scope] = true
		name := p.Defs.Name(e.Name)
		a.seen[name]++
		if (p.In || e.Kind == format.LiveScope && !p.Windowed()) && p.Matches(e, analyze.ByProcess|analyze.ByThread|analyze.ByScope) {
			a.add(p, e, name)
		}
	case format.ScopeReset:
		if s := a.byID[e.Scope]; s != nil && a.known[e.Scope] {
			s.Resets++
		}
	case format.ScopeReport:
		if s := a.byID[e.Scope]; s != nil {
			a.report(p, s, e)
		}
	case format.Lost:
		a.lost[thread{e.Process, e.Thread}] = true
	}
	return nil
}

func (a *Answer) add(p *analyze.Pass, e *format.Event, name string) {
	sc := p.State.Scope(e.Scope)
	if sc == nil {
		return
	}
	parent := e.Parent
	if around, hidden := a.left[parent]; hidden {
		parent = around
	}
	domain := p.Defs.Name(e.Note)
	if !a.takes(domain) {
		a.left[e.Scope] = parent
		a.domains[domain]++
		return
	}
	s := &Scope{ID: e.Scope, Parent: parent, Name: name, N: a.seen[name], Domain: domain, Source: p.Defs.API(e.API),
		Thread: e.Thread, Begin: p.Since(e.Time), Open: true, Late: sc.Late, hasName: e.Name != 0,
		process: process{a.trace, e.Process}, trace: a.trace, order: len(a.rows), processID: e.Process}
	if a.traces > 1 {
		s.Trace = p.Trace.Path()
	}
	if e.Device != format.NoDevice {
		d := e.Device
		s.Device = &d
	}
	if around := a.byID[parent]; around != nil && parent != 0 {
		s.Depth = around.Depth + 1
	}
	a.byID[e.Scope] = s
	a.rows = append(a.rows, s)
}

func (a *Answer) measure(sc *live.Scope) (m [3]live.Measure) {
	for c := range m {
		m[c] = a.p.State.Measure(sc, live.CurveKind(c))
	}
	return m
}

func (a *Answer) freeze(s *Scope, sc *live.Scope, at format.Time) {
	s.both = a.measure(sc)
	s.End = a.p.Since(at)
}

// report measures a scope where the program reported it. A scope that has
// ended keeps what it had then.
func (a *Answer) report(p *analyze.Pass, s *Scope, e *format.Event) {
	r := &ScopeReport{Time: p.Since(e.Time), both: s.both}
	if sc := p.State.Scope(e.Scope); sc != nil {
		r.both = a.measure(sc)
	}
	if e.Note != 0 {
		n := p.Defs.Name(e.Note)
		r.Subcontext = &n
	}
	s.Reports = append(s.Reports, r)
	a.lines = append(a.lines, &line{scope: s, report: r})
}

func (a *Answer) End(p *analyze.Pass) error {
	for _, sc := range p.State.Scopes() {
		if s := a.byID[sc.ID]; s != nil {
			a.freeze(s, sc, p.State.Now())
			if len(s.Reports) == 0 {
				a.lines = append(a.lines, &line{scope: s})
			}
		}
	}
	// Which layer is used is known only now, and definitions of a growing trace too.
	plain := map[format.ProcessID]bool{}
	for _, s := range a.rows {
		if s.trace != a.trace {
			continue
		}
		d, known := p.Defs.Process(s.processID)
		s.PID = d.PID
		if known && d.Rank >= 0 {
			rank := d.Rank
			s.Rank = &rank
		}
		kind := live.CurveNVML
		switch a.curve {
		case Acquired:
			kind = live.CurveAcquired
		case Used:
			kind = live.CurvePool
			if !p.Pooled(s.processID) {
				kind = live.CurveAcquired
				plain[s.processID] = true
			}
		}
		s.Measure = chosen(s.both[kind])
		for _, r := range s.Reports {
			r.Measure = chosen(r.both[kind])
		}
	}
	for _, d := range p.Defs.Processes() {
		if plain[d.ID] {
			a.plain = append(a.plain, fmt.Sprint(d.PID))
		}
	}
	a.noteLost(p)
	a.noteLeft(p)
	if a.curve == NVML && !a.any {
		p.Note("the curve nvml is unknown: there are no samples")
	} else if a.curve == NVML {
		p.Note("the curve nvml is sampled: a peak between two samples is kept by the sampler, its place in a scope is known up to one interval")
	}
	return nil
}

// noteLeft says what Domains has left out.
func (a *Answer) noteLeft(p *analyze.Pass) {
	var left []string
	for domain, n := range a.domains {
		if domain == "" {
			domain = DefaultDomain
		}
		left = append(left, fmt.Sprintf("%d of domain %s", n, analyze.Short(domain)))
	}
	if len(left) > 0 {
		slices.Sort(left)
		p.Note("contexts left out: %s", strings.Join(left, ", "))
	}
}

// noteLost says of which threads begins and ends may be missing.
func (a *Answer) noteLost(p *analyze.Pass) {
	const most = 8
	var on []string
	said := map[thread]bool{}
	for _, s := range a.rows {
		t := thread{s.processID, s.Thread}
		if s.trace != a.trace || said[t] || !a.lost[t] && !a.lost[thread{t.process, 0}] {
			continue
		}
		said[t] = true
		on = append(on, fmt.Sprintf("%d of pid %d", s.Thread, s.PID))
	}
	if len(on) == 0 {
		return
	}
	more := ""
	if len(on) > most {
		more = fmt.Sprintf(" and %d more", len(on)-most)
		on = on[:most]
	}
	p.Note("nesting is not reliable on thread %s%s: events were lost there, and may have been begins and ends of contexts", strings.Join(on, ", "), more)
}

func chosen(m live.Measure) Measure {
	if !m.Known {
		return Measure{}
	}
	return Measure{Known: true, Used: m.Used(), Peaked: m.Peaked(), Begin: m.Begin, End: m.End, Max: m.Max}
}

// Sampled reports whether there were samples; only after a pass on curve nvml.
func (a *Answer) Sampled() bool { return a.any }

// Report is the answer, after the pass.
func (a *Answer) Report(c *analyze.Completeness) *Report {
	c.UsedIsDriver(a.plain)
	r := &Report{Completeness: c, Curve: a.curve, Scopes: a.rows, procs: map[process]bool{}}
	if r.Scopes == nil {
		r.Scopes = []*Scope{}
	}
	r.lines = r.lines[:0]
	for _, l := range a.lines { // a scope may report after its end
		if l.report != nil || len(l.scope.Reports) == 0 {
			r.lines = append(r.lines, l)
		}
	}
	for _, s := range r.Scopes {
		r.procs[s.process] = true
	}
	sort.SliceStable(r.Scopes, func(i, j int) bool {
		a, b := r.Scopes[i], r.Scopes[j]
		switch {
		case a.trace != b.trace:
			return a.trace < b.trace
		case a.processID != b.processID:
			return a.processID < b.processID
		case a.Thread != b.Thread:
			return a.Thread < b.Thread
		}
		return a.order < b.order
	})
	return r
}
