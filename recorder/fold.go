package recorder

import (
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
	"github.com/gpurec/gpurec/recorder/ring"
)

// pageRows is how many events gather before write gets them: each page wakes a
// thread, and a few of them stay in a cache.
const pageRows = 4096

// An ask is a View that waits until everything before at is folded.
type ask struct {
	at   format.Time
	f    func(*View)
	done chan struct{}
}

// fold is the goroutine that orders, interns and folds. It owns everything here
// but the channels.
type fold struct {
	s     *Session
	in    *interner
	state *live.State
	order order
	lanes []*lane
	page  *page
	spare spare

	until  format.Time // the watermark
	last   format.Time // of the latest event
	read   format.Time // of the latest reading
	asks   []ask
	stats  format.Stats
	scopes format.ScopeID // the last one given out
	nextID format.ProcessID
	rows   map[format.ProcessID]*process
	byPID  map[int32]*process // the latest of a pid
	source *lane              // readings, as a lane of their own
	knows  bool               // the devices of the late source
	waited bool               // for them
	top    [4]holders         // by layer

	forgot     format.Time // when fold forgot last
	remembered int64       // bytes of definitions then, about

	reasons []string // why processes are not in the trace

	refusals      live.Refusals
	told, retried int64 // requests for memory that failed, and that a retry got

	part        int
	partBegan   format.Time
	sinceRotate int64 // events and samples since the part began
	checkpoint  int64 // rows of the last one
}

func newFold(s *Session) *fold {
	f := &fold{
		s:     s,
		in:    newInterner(),
		state: live.New(),
		page:  newPage(),
		rows:  map[format.ProcessID]*process{},
		byPID: map[int32]*process{},
		// Readings come after all lanes at equal times.
		source:    &lane{id: 1<<31 - 1},
		partBegan: ring.Now(),
	}
	f.watch()
	if ended := s.opt.ScopeEnded; ended != nil {
		f.state.OnScopeEnd = func(sc *live.Scope, e *format.Event) { ended(&View{f.state, f}, sc, e) }
	}
	// The first node is format.StackBeforeRecording.
	f.node(0, f.frame(format.Frame{Kind: format.FrameLabel, Function: labelBefore}))
	for _, src := range s.opt.Sources {
		for _, d := range src.Devices() {
			f.device(d)
		}
	}
	return f
}

// know takes in the devices of the late source, once they are known; before the
// first lane they are waited for.
func (f *fold) know(lanes bool) {
	late := f.s.late
	if late == nil || f.knows {
		return
	}
	if lanes && !f.waited {
		late.await(false)
		f.waited = true
	}
	select {
	case <-late.known:
		f.knows = true
		for _, d := range late.rows {
			f.device(d)
		}
	default:
	}
}

// run is fold's loop:
//
//	1 take a round: readings, new lanes, definitions, records, ends
//	2 merge what lies before its watermark, and pass it on one by one
//	3 hand the page on
//	4 answer Views whose time has come
//
// It waits for write when write is behind. Then drain finds no room and leaves
// the records in their lanes, which count what they refuse.
func (f *fold) run() {
	defer close(f.s.folded)
	defer close(f.s.pages)
	for {
		select {
		case a := <-f.s.asks:
			f.asks = append(f.asks, a)
		case r, ok := <-f.s.rounds:
			if !ok {
				return
			}
			f.round(r)
			f.s.through.Add(1)
		}
		f.s.holds.Store(f.order.peek() != nil || len(f.asks) > 0)
	}
}

func (f *fold) round(r *round) {
	f.know(len(r.born) > 0)
	for _, reading := range f.s.takeReadings() {
		f.order.add(f.source, piece{kind: pieceReading, time: reading.Time, read: reading})
	}
	f.stats.ClosedLanes += uint64(r.refused)
	f.miss(r.absent)
	for _, l := range r.born {
		f.born(l)
	}
	for i := range r.chunks {
		f.chunk(&r.chunks[i])
	}
	for i := range r.left {
		f.left(&r.left[i])
	}
	for i := range r.ended {
		f.ended(&r.ended[i])
	}
	f.until = max(f.until, r.until)
	if r.last {
		f.until = 1<<63 - 1
	}
	f.merge()
	f.lanes = keep(f.lanes, func(l *lane) bool { return !l.fold.gone || len(l.fold.queue) > 0 })
	f.handOver()
	f.answer()
}

// miss takes note of processes that could make no lane, of which nothing is
// recorded, not even what was lost.
func (f *fold) miss(why []syscall.Errno) {
	f.stats.Absent += uint64(len(why))
	slices.Sort(why)
	for len(why) > 0 {
		n := 1
		for n < len(why) && why[n] == why[0] {
			n++
		}
		who := "a process"
		if n > 1 {
			who = fmt.Sprintf("%d processes", n)
		}
		text := fmt.Sprintf("%s could make no buffer and is not recorded: %v", who, why[0])
		f.s.say(text)
		f.reasons = append(f.reasons, text)
		why = why[n:]
	}
}

func (f *fold) born(l *lane) {
	f.stats.Lanes++
	f.lanes = append(f.lanes, l)
	l.epoch.Store(l.process.tables.epoch)
	if l.fold.first {
		f.order.add(l, piece{kind: pieceBegin, time: l.fold.row.Begin})
	} else if t := &l.process.tables; t.id != 0 && t.row.Python == "" && l.fold.row.Python != "" {
		t.row.Python = l.fold.row.Python
		f.page.processes = append(f.page.processes, t.row)
	}
}

// chunk takes in records: definitions at once, the others in the lane's queue.
func (f *fold) chunk(c *chunk) {
	if c.defines {
		for r, rest := ring.Next(c.records); r != nil; r, rest = ring.Next(rest) {
			if r.Definition() {
				f.define(c.lane, r)
			}
		}
	}
	p := piece{records: skipDefinitions(c.records), buffer: c.buffer, dropped: c.dropped}
	if len(p.records) == 0 {
		f.s.release(c.buffer)
		return
	}
	f.order.add(c.lane, p)
}

// skipDefinitions leaves an event at the head of a piece.
func skipDefinitions(b []byte) []byte {
	for {
		r, rest := ring.Next(b)
		if r == nil || !r.Definition() {
			return b
		}
		b = rest
	}
}

// mostWaited is the longest that is believed of a lane: a year.
const mostWaited = 365 * 24 * time.Hour

// left ends a lane. What its counter has beyond the gaps seen stands after its
// last event: a thread that was refused and then was silent.
func (f *fold) left(v *leaving) {
	l := v.lane
	l.fold.gone = true
	f.stats.Waited += int64(min(v.waited, uint64(mostWaited)))
	if v.corrupt != nil {
		f.stats.ClosedLanes++
		f.s.say(v.corrupt.Error() + ": closed, its further events are lost")
		return
	}
	f.order.add(l, piece{kind: pieceLeft, time: v.time, dropped: v.dropped})
}

// ended ends a process: behind everything in all its lanes.
func (f *fold) ended(e *ending) {
	var last *lane
	for _, l := range f.lanes {
		if l.process == e.process {
			last = l
		}
	}
	if last == nil { // its lanes were closed and are forgotten
		last = &lane{id: 1<<31 - 2, process: e.process}
		last.fold.gone = true
	}
	f.order.add(last, piece{kind: pieceEnd, time: e.time, end: e})
}

// merge passes on what lies before the watermark. Strictly before: an event at
// the watermark's very time may still have a sibling in another lane that gives
// memory back and must go first.
func (f *fold) merge() {
	for {
		h := f.order.peek()
		if h == nil || h.time >= f.until && f.until != 1<<63-1 {
			return
		}
		f.pass(h.lane, f.order.others(f.until))
		f.order.advance()
	}
}

// pass passes on the head of a lane, and what follows it there before the others'
// heads, and takes it off the queue.
func (f *fold) pass(l *lane, others format.Time) {
	q := &l.fold
	p := &q.queue[q.head]
	switch p.kind {
	case pieceRecords:
		for {
			r, rest := ring.Next(p.records)
			f.record(l, r, p.dropped)
			if len(f.page.events) >= pageRows {
				f.handOver()
			}
			if p.records = skipDefinitions(rest); len(p.records) == 0 {
				break
			}
			if ring.Record(p.records).Time() >= others {
				return
			}
		}
		f.s.release(p.buffer)
	case pieceBegin:
		f.processBegin(l)
	case pieceLeft:
		if p.dropped > q.lost {
			f.lose(l, p.dropped-q.lost, f.last)
		}
	case pieceEnd:
		f.processEnd(l, p.end)
	case pieceReading:
		f.reading(p.read)
	}
	*p = piece{}
	if q.head++; q.head > 64 && q.head*2 > len(q.queue) {
		q.queue = append(q.queue[:0], q.queue[q.head:]...)
		q.head = 0
	}
}

// next is a row in the page, empty but for what is not zero when unknown.
func (f *fold) next(kind format.Kind, at format.Time, p format.ProcessID, thread uint32) *format.Event {
	f.page.events = append(f.page.events, blank)
	e := &f.page.events[len(f.page.events)-1]
	e.Kind, e.Time, e.Process, e.Thread = kind, at, p, thread
	return e
}

// blank is an event of which nothing is known.
var blank = format.Event{Duration: format.Unknown, Size: format.Unknown, Requested: format.Unknown,
	Allocated: format.Unknown, Reserved: format.Unknown, Device: format.NoDevice}

// emit folds a finished row. own is one that the recorder made, whose time may
// lie before the others' without anything being late.
func (f *fold) emit(e *format.Event, own bool) {
	if e.Time < f.last && !own {
		f.stats.Late++
	}
	f.last = max(f.last, e.Time)
	f.stats.Events++
	f.sinceRotate++
	f.state.Apply(e)
	f.refusals.Event(e)
}

// lose accounts for records that the writer refused.
func (f *fold) lose(l *lane, n uint64, at format.Time) {
	l.fold.lost += n
	f.lost(l, n, at)
}

func (f *fold) lost(l *lane, n uint64, at format.Time) {
	f.stats.Lost += n
	e := f.next(format.Lost, at, l.process.tables.id, l.fold.tid)
	e.Size = int64(min(n, 1<<62))
	f.emit(e, true)
}

func (f *fold) processBegin(l *lane) {
	p := l.process
	f.nextID++
	t := &p.tables
	t.id, t.row = f.nextID, l.fold.row
	t.row.ID = t.id
	t.ranges = map[uint64]openScope{}
	f.rows[t.id] = p
	f.byPID[p.key.pid] = p
	f.page.processes = append(f.page.processes, t.row)
	f.emit(f.next(format.ProcessBegin, t.row.Begin, t.id, l.fold.tid), true)
}

func (f *fold) processEnd(l *lane, e *ending) {
	t := &e.process.tables
	for _, u := range e.unfinished {
		tid, scope := u.lane.fold.tid, u.lane.fold.nest.innermost()
		if u.call.TID != 0 && u.call.TID != tid { // its first event: nothing says yet that the lane is its own
			tid, scope = u.call.TID, 0
		}
		row := f.next(format.Unfinished, e.time, t.id, tid)
		row.Duration = int64(e.time - format.Time(u.call.Since))
		row.API, row.Address, row.Requested = u.call.API, u.call.Address, u.call.Size
		info := u.call.API.Info()
		row.Layer, row.Class = info.Layer, info.Class
		row.Device = f.ordinal(t, u.call.Device)
		if u.call.Stack != 0 {
			row.Stack = f.stackOf(u.lane, u.call.Stack)
		}
		row.Scope = scope
		f.emit(row, true)
	}
	row := f.next(format.ProcessEnd, e.time, t.id, 0)
	row.Status = e.status
	f.emit(row, true)
	t.row.End, t.row.Status = e.time, e.status
	f.page.processes = append(f.page.processes, t.row)
	delete(f.rows, t.id)
	if f.byPID[e.process.key.pid] == e.process {
		delete(f.byPID, e.process.key.pid)
	}
	*t = tables{id: t.id}
}

func (f *fold) reading(r *format.Reading) {
	id, ok := f.in.uuids[r.UUID]
	if !ok {
		id = f.device(format.DeviceRow{UUID: r.UUID, Total: r.Total, NVML: format.Unknown})
	}
	row := format.Sample{Time: r.Time, Device: id, Total: r.Total, Used: r.Used, Free: r.Free, Reserved: r.Reserved,
		ProcessUsed: format.Unknown, PeakUsed: r.PeakUsed, API: r.API}
	f.sample(row)
	for _, p := range r.Processes {
		owner := f.byPID[p.PID]
		if owner == nil || p.Used < 0 {
			continue // another program's, or unknown
		}
		row.Process, row.ProcessUsed = owner.tables.id, p.Used
		f.sample(row)
	}
}

func (f *fold) sample(row format.Sample) {
	f.read = max(f.read, row.Time)
	f.sinceRotate++
	f.page.samples = append(f.page.samples, row)
	f.state.Sample(&row)
}

// handOver gives write what has gathered, and decides whether a new part begins.
func (f *fold) handOver() {
	if f.rotationDue() {
		f.page.checkpoint = f.state.Checkpoint(max(f.last, f.read))
		f.checkpoint = int64(len(f.page.checkpoint))
		f.sinceRotate, f.partBegan = 0, ring.Now()
		f.part++
	}
	if f.forgetting() {
		f.page.keep = f.forget()
	}
	if f.page.empty() {
		return
	}
	f.s.pages <- f.page
	f.page = f.spare.take()
}

// fewRows is of a checkpoint that costs no more than the files of its part.
const fewRows = 64

// rotationDue: a part is full or old, and its events are worth a checkpoint:
// four times the rows of the last one, or a trace of many live blocks and few
// events would consist of checkpoints; a few rows are no matter. Where parts must fit a bound, a quarter
// of the rows has to do.
func (f *fold) rotationDue() bool {
	o := &f.s.opt
	size := f.s.write.size(f.part)
	full := o.RotateSize > 0 && size >= o.RotateSize
	old := o.RotateEvery > 0 && time.Duration(ring.Now()-f.partBegan) >= o.RotateEvery
	worth := 4 * f.checkpoint
	if f.checkpoint < fewRows {
		worth = 1
	}
	if o.partMost > 0 && size >= o.partMost {
		full, worth = true, f.checkpoint/4
	}
	return (full || old) && f.sinceRotate > 0 && f.sinceRotate >= worth
}

// answer calls the Views whose past is complete.
func (f *fold) answer() {
	f.asks = keep(f.asks, func(a ask) bool {
		if a.at >= f.until {
			return true
		}
		a.f(&View{f.state, f})
		close(a.done)
		return false
	})
}

func (f *fold) scopeOf(pid int, number uint64) (format.ScopeID, bool) {
	if p := f.byPID[int32(pid)]; p != nil {
		o, ok := p.tables.ranges[number]
		return o.id, ok
	}
	return 0, false
}

func (f *fold) deviceOf(pid, ordinal int) format.Device {
	if p := f.byPID[int32(pid)]; p != nil {
		if own := p.tables.devices; ordinal >= 0 && ordinal < len(own) && own[ordinal].known {
			return own[ordinal].id
		}
	}
	return format.NoDevice
}
