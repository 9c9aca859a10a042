package perfetto

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"path/filepath"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/tree"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
)

// An Answer is written as the pass goes.
type Answer struct {
	w       *bufio.Writer
	several bool // traces
	packets int64
	pids    map[int32]bool

	p         *analyze.Pass
	name      string
	start     int64 // wall clock at mono
	mono      format.Time
	shared    bool // several processes: devices have sums of their own
	lastTrack track
	latest    []format.Time // by track
	tracks    tracks
	sums      map[sumKey]*sum
	changed   []sumKey
	scopes    map[format.ScopeID]*openScope
	lanes     map[threadKey][]*lane
	refusals  live.Refusals

	out, packet, sub message // memory that is used again
}

// sumKey is a process on a device; process 0 is all of them.
type sumKey struct {
	process format.ProcessID
	device  format.Device
}

type sum struct {
	now, shown tree.Amount
	any        bool // shown
	touched    bool
}

// New returns an answer that writes to w, for so many traces.
func New(w io.Writer, traces int) *Answer {
	return &Answer{w: bufio.NewWriterSize(w, 1<<16), several: traces > 1, pids: map[int32]bool{}}
}

// Packets is how many were written.
func (a *Answer) Packets() int64 { return a.packets }

// Close writes what is left.
func (a *Answer) Close() error { return a.w.Flush() }

func (a *Answer) Needs() analyze.Needs {
	return analyze.Needs{Pooled: true, Samples: true, Scopes: analyze.ScopesFiltered}
}

func (a *Answer) Begin(p *analyze.Pass) error {
	m := p.Trace.Meta()
	a.p, a.mono, a.start = p, m.Monotonic, 0
	if !m.Start.IsZero() {
		a.start = m.Start.UnixNano()
	}
	a.name = p.Trace.Path()
	if abs, err := filepath.Abs(a.name); err == nil {
		a.name = abs
	}
	a.name = analyze.Short(filepath.Base(a.name))
	a.tracks, a.sums, a.changed = newTracks(), map[sumKey]*sum{}, nil
	a.scopes, a.lanes, a.refusals = map[format.ScopeID]*openScope{}, map[threadKey][]*lane{}, live.Refusals{}
	a.latest = make([]format.Time, a.lastTrack+1)
	a.shared = len(p.Defs.Processes()) > 1
	if a.packets == 0 {
		a.clocks()
	}
	p.CountOnly(analyze.ByAll)
	p.State.OnBegin = func(al *live.Allocation, _ *format.Event) { a.change(al, 1) }
	p.State.OnEnd = func(al *live.Allocation, _ *format.Event) { a.change(al, -1) }
	a.refusals.OnTold = func(r *live.Refusal, e *format.Event) { a.refused(r, e, "out of memory") }
	a.refusals.OnServed = func(r *live.Refusal, _ *format.Event) { a.refused(r, &r.First, "out of memory, retried") }
	return a.err()
}

// clocks says that the timestamps are the wall clock's.
func (a *Answer) clocks() {
	var all message
	for _, id := range []uint64{clockBoottime, clockRealtime} {
		var c message
		c.number(clockID, id)
		c.number(clockTimestamp, uint64(a.start))
		all.message(clocksClock, c)
	}
	p := a.packet.clear()
	p.number(packetTimestamp, uint64(a.start))
	p.message(packetClocks, all)
	a.write()
}

func (a *Answer) change(al *live.Allocation, sign int64) {
	n, ok := tree.AmountOf(a.p, al)
	if !ok {
		return
	}
	a.touch(sumKey{al.Process, al.Device}, n, sign)
	if a.shared {
		a.touch(sumKey{0, al.Device}, n, sign)
	}
}

func (a *Answer) touch(k sumKey, n tree.Amount, sign int64) {
	s := a.sums[k]
	if s == nil {
		s = &sum{}
		a.sums[k] = s
	}
	s.now.Used += sign * n.Used
	s.now.Acquired += sign * n.Acquired
	if !s.touched {
		s.touched = true
		a.changed = append(a.changed, k)
	}
}

// show writes the counters that changed.
func (a *Answer) show(at format.Time) {
	for _, k := range a.changed {
		s := a.sums[k]
		s.touched = false
		if !s.any || s.now.Used != s.shown.Used {
			a.counter(k.process, k.device, "used", at, s.now.Used)
		}
		if !s.any || s.now.Acquired != s.shown.Acquired {
			a.counter(k.process, k.device, "acquired", at, s.now.Acquired)
		}
		s.shown, s.any = s.now, true
	}
	a.changed = a.changed[:0]
}

// Enter is where the window begins: with what is live and open.
func (a *Answer) Enter(p *analyze.Pass) {
	at := max(p.State.Now(), a.mono)
	if from, known := p.From(); known {
		at = max(at, from)
	}
	if !p.State.Loading() {
		a.show(at)
	}
	for _, sc := range p.State.Scopes() { // outermost first: in the order of their begins
		if p.Windowed() {
			a.openAt(sc, at)
		} else {
			a.openAt(sc, max(sc.Begin, a.mono))
		}
	}
}

func (a *Answer) openAt(sc *live.Scope, at format.Time) {
	e := format.Event{Process: sc.Process, Thread: sc.Thread, Name: sc.Name, Note: sc.Domain, Scope: sc.ID, Kind: format.ScopeBegin}
	if a.p.Matches(&e, analyze.ByProcess|analyze.ByThread|analyze.ByScope) {
		a.begin(sc.ID, sc.Parent, a.scopeOf(&e), at)
	}
}

// Event draws what e changed; the fold has it.
func (a *Answer) Event(p *analyze.Pass, e *format.Event) error {
	if p.In || e.Kind != format.AllocFailed {
		a.refusals.Event(e)
	}
	if !p.In || p.State.Loading() {
		return nil
	}
	if len(a.changed) > 0 {
		a.show(p.State.Now())
	}
	if p.Matches(e, analyze.ByProcess|analyze.ByThread|analyze.ByScope) {
		a.draw(p, e)
	}
	return a.err()
}

func (a *Answer) draw(p *analyze.Pass, e *format.Event) {
	switch e.Kind {
	case format.CheckpointEnd:
		for _, sc := range p.State.Scopes() {
			a.openAt(sc, max(sc.Begin, a.mono))
		}
	case format.ScopeBegin:
		a.begin(e.Scope, e.Parent, a.scopeOf(e), e.Time)
	case format.ScopeEnd:
		a.end(e.Scope, e.Time)
	case format.ProcessEnd:
		a.endAll(e.Process, e.Time)
	case format.ThreadBegin:
		k := threadKey{e.Process, e.Thread}
		a.nameThread(k, a.thread(e.Process, e.Thread), a.process(e.Process), analyze.Short(p.Defs.Name(e.Name)))
	case format.Mark:
		a.event(a.thread(e.Process, e.Thread), e.Time, typeInstant, func(m *message) {
			m.text(eventName, analyze.Line(p.Defs.Name(e.Name)))
			m.text(eventCategories, "mark")
		})
	}
}

// refused draws a request that was refused.
func (a *Answer) refused(r *live.Refusal, e *format.Event, what string) {
	asked := e
	if r != nil {
		asked = &r.First
	}
	if !a.p.Matches(e, analyze.ByAll) && !a.p.Matches(asked, analyze.ByAll) {
		return
	}
	line, _ := tree.NewNames(tree.ByOwnLine, a.p.Defs).Of(e.Stack)
	a.event(a.thread(e.Process, e.Thread), e.Time, typeInstant, func(m *message) {
		m.text(eventName, fmt.Sprintf("%s: %d bytes", what, live.Asked(e)))
		m.text(eventCategories, "oom")
		a.bytes(m, "asked", live.Asked(e))
		if r != nil {
			a.bytes(m, "free", r.Free)
			a.bytes(m, "refusals", r.Count)
		}
		a.note(m, "line", analyze.Line(line))
		a.note(m, "reporter", a.p.Defs.API(e.API))
	})
}

// Sample draws NVML's reading of a device.
func (a *Answer) Sample(p *analyze.Pass, s *format.Sample) error {
	from, known := p.From()
	switch {
	case s.Process != 0, known && s.Time < from, !known && !p.In && !p.Whole():
		return nil
	case !p.Matches(&format.Event{Device: s.Device}, analyze.ByDevice):
		return nil
	}
	if s.Used >= 0 {
		a.counter(0, s.Device, "NVML used", s.Time, s.Used)
	}
	if s.Free >= 0 {
		a.counter(0, s.Device, "NVML free", s.Time, s.Free)
	}
	return a.err()
}

// End closes what is open where the trace ends.
func (a *Answer) End(p *analyze.Pass) error {
	a.refusals.End()
	at := p.End(p.State.Now())
	for _, pr := range p.State.Processes() {
		a.endAll(pr.ID, at)
	}
	return a.err()
}

// event writes one event on a track. Readers sort by time, and what is true is
// the order of effect: a time that steps back is taken as the one before it.
func (a *Answer) event(t track, at format.Time, kind uint64, more func(*message)) {
	for int(t) >= len(a.latest) {
		a.latest = append(a.latest, math.MinInt64)
	}
	at = max(at, a.latest[t])
	a.latest[t] = at
	e := a.sub.clear()
	e.number(eventType, kind)
	e.number(eventTrack, uint64(t))
	if more != nil {
		more(e)
	}
	p := a.packet.clear()
	p.number(packetTimestamp, uint64(max(a.start+int64(at-a.mono), 0)))
	p.message(packetTrackEvent, *e)
	a.write()
}

// write writes the packet. An error stays in the writer, until it is asked for.
func (a *Answer) write() {
	a.packet.number(packetSequence, 1)
	if a.packets == 0 {
		a.packet.number(packetFlags, 1) // the sequence begins
	}
	a.packets++
	o := a.out.clear()
	o.message(tracePacket, a.packet)
	a.w.Write(*o)
}

func (a *Answer) err() error {
	_, err := a.w.Write(nil)
	return err
}
