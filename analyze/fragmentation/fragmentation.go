package fragmentation

import (
	"fmt"
	"sort"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/segments"
	"github.com/gpurec/gpurec/analyze/tree"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
)

// At is of which moment the segments are shown.
type At uint8

const (
	Worst  At = iota // when a pool had most bytes pinned
	End              // when a process ended, or at the end of the trace
	Moment           // at the end of the window
)

func (a At) String() string { return [...]string{"worst", "end", "time"}[a] }

// An Answer is a Report in the making.
type Answer struct {
	at    At
	pools []*Pool

	p       *analyze.Pass
	own     tree.OwnFrames
	tracker *segments.Tracker
	states  map[segments.Owner]*state
	touched []*state
	samples map[format.Device]sample // the latest
	sites   map[format.StackID]string
}

// A state is one pool's.
type state struct {
	segments.Owner
	device  *live.Device // nil until it is asked for
	now     segments.Sums
	touched bool
	history history

	// At Worst: the worst moment so far.
	any    bool
	worst  segments.Sums
	time   format.Time
	free   int64 // on the device
	spans  memory[uint64, segments.Span]
	blocks memory[blockKey, segments.Block]

	// At End: what a process had until it ended.
	dying    []segments.Block
	acquired int64
	done     bool
}

// A sample is NVML's word, and what the recorded processes had taken of the
// device then: by that it can be corrected for a later moment.
type sample struct{ free, acquired int64 }

// blockKey names a live block.
type blockKey struct {
	space format.Space
	value uint64
}

func keyOf(a *live.Allocation) blockKey {
	k := blockKey{a.API.Space(), a.Address}
	if k.space == format.SpaceCuPy || k.space == format.SpaceGo {
		k.value = a.Object
	}
	return k
}

// New returns an answer.
func New(at At) *Answer { return &Answer{at: at} }

func (a *Answer) Needs() analyze.Needs {
	return analyze.Needs{Pooled: true, Samples: true, Scopes: analyze.ScopesFiltered}
}

func (a *Answer) Begin(p *analyze.Pass) error {
	*a = Answer{at: a.at, pools: a.pools, p: p, tracker: segments.New(p), states: map[segments.Owner]*state{},
		samples: map[format.Device]sample{}, sites: map[format.StackID]string{}}
	a.tracker.OnChange = func(pool *segments.Pool) {
		s := a.state(pool.Owner)
		if s.now = pool.Sums; !s.touched {
			s.touched = true
			a.touched = append(a.touched, s)
		}
	}
	if a.at == Worst {
		a.tracker.OnBegin = func(pool *segments.Pool, sp segments.Span) { a.state(pool.Owner).spans.begin(sp.Address) }
		a.tracker.OnEnd = func(pool *segments.Pool, sp segments.Span) { a.state(pool.Owner).spans.end(sp.Address, sp) }
	}
	p.State.OnBegin = func(al *live.Allocation, _ *format.Event) {
		a.tracker.Begin(al)
		if a.at == Worst && segments.IsBlock(al) {
			a.state(ownerOf(al)).blocks.begin(keyOf(al))
		}
	}
	p.State.OnEnd = func(al *live.Allocation, e *format.Event) {
		a.tracker.End(al, e)
		switch block, dies := segments.IsBlock(al), a.at == End && e.Kind == format.ProcessEnd; {
		case block && a.at == Worst:
			a.state(ownerOf(al)).blocks.end(keyOf(al), segments.BlockOf(al))
		case block && dies:
			s := a.state(ownerOf(al))
			s.dying = append(s.dying, segments.BlockOf(al))
		case dies && al.Counted && al.Layer == format.LayerDriver && al.Class == format.ClassDevice:
			a.state(ownerOf(al)).acquired += al.Bytes()
		}
	}
	if p.Filtered(analyze.ByThread | analyze.ByLayer | analyze.ByScope) {
		p.Note("--thread, --layer and --scope leave out nothing here: a pool is a process's on a device")
	}
	return nil
}

func ownerOf(al *live.Allocation) segments.Owner {
	return segments.Owner{Process: al.Process, Device: al.Device}
}

func (a *Answer) state(o segments.Owner) *state {
	s := a.states[o]
	if s == nil {
		s = &state{Owner: o, free: format.Unknown, spans: newMemory[uint64, segments.Span](), blocks: newMemory[blockKey, segments.Block]()}
		a.states[o] = s
	}
	return s
}

func (a *Answer) Event(p *analyze.Pass, e *format.Event) error {
	if e.Kind == format.ProcessEnd {
		a.processEnd(e)
	}
	a.tracker.Event(e)
	if len(a.touched) == 0 || !p.In || p.State.Loading() {
		return nil
	}
	for _, s := range a.touched {
		s.touched = false
		s.history.set(p.State.Now(), s.now)
		if !s.any || worse(s.now, s.worst) {
			a.mark(s)
		}
	}
	a.touched = a.touched[:0]
	return nil
}

// Enter begins the window with what is there already.
func (a *Answer) Enter(p *analyze.Pass) {
	at := p.State.Now()
	if from, known := p.From(); known {
		at = max(at, from)
	}
	for _, s := range a.states {
		s.touched = false
		s.history.set(at, s.now)
		a.mark(s)
	}
	a.touched = a.touched[:0]
}

// mark makes this a pool's worst moment.
func (a *Answer) mark(s *state) {
	s.any, s.worst, s.time, s.free = true, s.now, a.p.State.Now(), a.freeOf(s)
	s.spans.mark()
	s.blocks.mark()
}

// processEnd comes before the tracker hears of it: its segments are still there.
// What the fold has already ended is in the memory of the worst moment, or dying.
func (a *Answer) processEnd(e *format.Event) {
	for _, pool := range a.tracker.Pools() {
		s := a.states[pool.Owner]
		if s == nil || pool.Process != e.Process {
			continue
		}
		switch a.at {
		case End:
			if a.p.In {
				a.show(s, e.Time, a.freeOf(s), pool.Spans(), s.dying)
			}
			s.dying, s.acquired, s.done = nil, 0, true
		case Worst:
			for _, sp := range pool.Spans() {
				s.spans.end(sp.Address, sp)
			}
		}
	}
}

// freeOf is what is free on a pool's device now.
func (a *Answer) freeOf(s *state) int64 {
	r, ok := a.samples[s.Device]
	if !ok {
		return format.Unknown
	}
	if s.device == nil {
		s.device = a.device(s.Device)
	}
	return max(r.free-(acquired(s.device)+s.acquired-r.acquired), 0)
}

func (a *Answer) Sample(_ *analyze.Pass, r *format.Sample) error {
	if r.Process == 0 {
		a.samples[r.Device] = sample{r.Free, acquired(a.device(r.Device))}
	}
	return nil
}

// device is the fold's, nil where nobody has had memory on it.
func (a *Answer) device(id format.Device) *live.Device {
	for _, d := range a.p.State.Devices() {
		if d.ID == id {
			return d
		}
	}
	return nil
}

func acquired(d *live.Device) int64 {
	if d == nil {
		return 0
	}
	return d.Acquired.Now
}

func (a *Answer) End(p *analyze.Pass) error {
	order := make([]*state, 0, len(a.states))
	for _, s := range a.states {
		order = append(order, s)
	}
	sort.Slice(order, func(i, j int) bool { return order[i].Less(order[j].Owner) })
	for _, s := range order {
		spans, blocks := a.now(s)
		switch {
		case a.at == Worst && s.any:
			a.show(s, s.time, s.free, spans, blocks)
		case a.at != Worst && !s.done:
			a.show(s, p.End(p.State.Now()), a.freeOf(s), spans, blocks)
		}
	}
	return nil
}

// now is what a pool has, at the worst moment or at the end.
func (a *Answer) now(s *state) (spans []segments.Span, blocks []segments.Block) {
	for _, pool := range a.tracker.Pools() {
		if pool.Owner != s.Owner {
			continue
		}
		for _, sp := range pool.Spans() {
			if a.at != Worst || s.spans.was(sp.Address) {
				spans = append(spans, sp)
			}
		}
	}
	a.p.State.Each(func(al *live.Allocation) bool {
		if ownerOf(al) == s.Owner && segments.IsBlock(al) && (a.at != Worst || s.blocks.was(keyOf(al))) {
			blocks = append(blocks, segments.BlockOf(al))
		}
		return true
	})
	for _, sp := range s.spans.ended {
		spans = append(spans, sp)
	}
	for _, b := range s.blocks.ended {
		blocks = append(blocks, b)
	}
	return spans, blocks
}

// show adds a pool to the report.
func (a *Answer) show(s *state, at format.Time, free int64, spans []segments.Span, blocks []segments.Block) {
	p := a.p
	if len(spans) == 0 || p.Filtered(analyze.ByProcess|analyze.ByDevice) && !p.Matches(&format.Event{Process: s.Process, Device: s.Device}, analyze.ByProcess|analyze.ByDevice) {
		return
	}
	row, _ := p.Defs.Process(s.Process)
	dev, _ := p.Defs.Device(s.Device)
	out := &Pool{Trace: p.Trace.Path(), PID: row.PID, Command: row.Command, Device: s.Device, UUID: dev.UUID, Name: dev.Name, Time: p.Since(at), DeviceFree: free,
		Pins: []Pin{}, History: s.history.report(p, at)}
	layout := segments.Build(spans, blocks)
	sums := segments.Total(layout)
	out.Bytes, out.Occupied, out.Free, out.Pinned, out.Whole = sums.Segments, sums.Occupied, sums.Cached(), sums.Pinned, sums.Whole()
	out.Share, out.Largest, out.Loose = part(sums.Pinned, sums.Segments), segments.Largest(layout), -sums.Occupied
	for i := range blocks {
		out.Loose += blocks[i].Size
	}
	out.Loose = max(out.Loose, 0)
	for _, pin := range segments.Pins(layout, func(b *segments.Block) string { return a.site(b.Stack) }) {
		out.Pins = append(out.Pins, Pin{pin.Of, pin.Blocks, pin.Bytes, pin.Segments, pin.Free, pin.Alone})
	}
	for _, seg := range layout {
		out.Segments = append(out.Segments, a.segment(seg))
	}
	sort.SliceStable(out.Segments, func(i, j int) bool {
		x, y := out.Segments[i], out.Segments[j]
		if x.Pinned != y.Pinned {
			return x.Pinned > y.Pinned
		}
		return x.Bytes-x.Occupied > y.Bytes-y.Occupied
	})
	a.pools = append(a.pools, out)
}

func (a *Answer) segment(s *segments.Segment) *Segment {
	out := &Segment{Address: fmt.Sprintf("%#x", s.Address), Bytes: s.Size, Pieces: s.Pieces(), Line: a.site(s.Stack), Occupied: s.Occupied, Pinned: s.Pinned,
		Largest: s.Largest, Blocks: len(s.Blocks), Intervals: []Interval{}}
	holes := s.Holes
	hole := func() {
		out.Intervals = append(out.Intervals, Interval{int64(holes[0].Address - s.Address), holes[0].Size, ""})
		holes = holes[1:]
	}
	for i := range s.Blocks {
		b := &s.Blocks[i]
		for len(holes) > 0 && holes[0].Address < b.Address {
			hole()
		}
		out.Intervals = append(out.Intervals, Interval{int64(b.Address - s.Address), b.Size, a.site(b.Stack)})
	}
	for len(holes) > 0 {
		hole()
	}
	return out
}

// site is the line that a stack is best known by.
func (a *Answer) site(stack format.StackID) string {
	s, ok := a.sites[stack]
	if !ok {
		s = tree.NoLineName
		if f, known := a.own.Of(stack, a.p.Defs); known && stack != 0 {
			s = a.p.Defs.Shown(&f).String()
			a.sites[stack] = s
		}
	}
	return s
}

func part(n, of int64) float64 {
	if of == 0 {
		return 0
	}
	return float64(n) / float64(of)
}

// report is the history up to a pool's end.
func (h *history) report(p *analyze.Pass, at format.Time) []Stretch {
	if h.width == 0 {
		return []Stretch{}
	}
	h.reach(p.State.Now())
	out := make([]Stretch, 0, len(h.stretches))
	for i, s := range h.stretches {
		from := h.from + format.Time(i)*h.width
		out = append(out, Stretch{From: p.Since(from), To: p.Since(min(from+h.width, max(p.State.Now(), from))), Time: p.Since(s.at), Bytes: s.most.Segments,
			Free: s.most.Cached(), Pinned: s.most.Pinned, Share: part(s.most.Pinned, s.most.Segments), Least: s.least})
	}
	return out
}

// Report is the answer, after the pass.
func (a *Answer) Report(c *analyze.Completeness) *Report {
	r := &Report{Completeness: c, At: a.at.String(), Pools: a.pools}
	if r.Pools == nil {
		r.Pools = []*Pool{}
	}
	return r
}
