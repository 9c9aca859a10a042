package recorder

import (
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/recorder/ring"
)

// record turns a record into an event: the trace's ids for hashes and ordinals,
// the thread's scope, the whole seq. A gap in seq comes out as Lost before it.
func (f *fold) record(l *lane, r ring.Record, dropped uint64) {
	h := r.Head()
	if gap := uint64(h.Seq - uint32(l.fold.next)); gap > 0 {
		if l.fold.lost+gap > dropped { // the writer counts before it publishes
			f.distrust(l)
			l.fold.next = uint64(h.Seq)
		} else {
			f.lose(l, gap, format.Time(h.Time))
			l.fold.next += gap
		}
	}
	if h.Kind == format.WireAsk {
		f.tell(l, r.Scope())
		return
	}
	l.fold.next++
	switch ring.ShapeOf(h.Kind) {
	case ring.ShapeThread:
		f.threadBegin(l, r)
	case ring.ShapeScope:
		f.scopeRecord(l, r)
	default:
		f.eventRecord(l, r)
	}
}

// distrust says that a lane's seq contradicts its own counter.
func (f *fold) distrust(l *lane) {
	if !l.fold.lied {
		l.fold.lied = true
		f.stats.ClosedLanes++
		f.s.say("a lane's sequence has a gap that its writer did not count: what is missing there is unknown")
	}
}

func (f *fold) begin(l *lane, r ring.Record) *format.Event {
	h := r.Head()
	e := f.next(h.Kind, format.Time(h.Time), l.process.tables.id, l.fold.tid)
	e.Seq = l.fold.next // from 1: 0 is a row that the recorder made
	e.Layer = h.Layer
	return e
}

func (f *fold) eventRecord(l *lane, r ring.Record) {
	t := &l.process.tables
	w, call := r.Event(), r.Call()
	device := f.ordinal(t, w.Device)
	f.tellDevice(l, w.Device, device, r.Time())
	e := f.begin(l, r)
	e.API, e.Class, e.Flags, e.Device = w.API, w.Class, w.Flags, device
	e.Address, e.Scope = w.Address, l.fold.nest.innermost()
	switch w.API {
	case format.APITorch, format.APITorchOOM:
		e.Size, e.Allocated, e.Reserved = w.Size, w.A, int64(w.B)
	default:
		e.Size, e.Requested, e.Object = w.Size, w.A, w.B
	}
	if e.Kind == format.Free || e.Kind == format.FreeDone {
		e.Size, e.Requested = format.Unknown, format.Unknown // replay knows
	}
	if call != nil {
		e.Duration, e.CUctx, e.Stream, e.Pool, e.Status = call.Duration, call.CUctx, call.Stream, call.Pool, call.Status
		if e.Kind == format.AllocFailed && call.Free >= 0 {
			e.Reserved = call.Free
		}
	}
	switch {
	case w.Stack != 0:
		e.Stack = f.stackOf(l, w.Stack)
	case e.Kind == format.Alloc || e.Kind == format.AllocFailed || e.Kind == format.Import:
		e.Stack = f.threadStack(l)
	}
	if e.Kind == format.FreeFailed {
		f.state.Fill(e)
	}
	f.emit(e, false)
}

// tellDevice puts a DeviceInfo before the first event on a device of a process.
func (f *fold) tellDevice(l *lane, ordinal int16, id format.Device, at format.Time) {
	t := &l.process.tables
	if ordinal < 0 || t.device(ordinal).told {
		return
	}
	t.device(ordinal).told = true
	e := f.next(format.DeviceInfo, at, t.id, l.fold.tid)
	e.Device, e.Object = id, uint64(ordinal)
	f.emit(e, true)
}

// threadBegin is a thread's first word in a lane that another may have had.
func (f *fold) threadBegin(l *lane, r ring.Record) {
	for _, s := range l.fold.nest { // the thread that left them open has ended
		f.endScope(l, s, r.Time())
	}
	l.fold.nest = l.fold.nest[:0]
	w := r.Thread()
	l.fold.tid = uint32(w.TID)
	l.fold.name = valid(string(upToZero(w.Name[:])))
	l.fold.thread = 0
	e := f.begin(l, r)
	if l.fold.name != "" {
		e.Name = f.name(l.fold.name)
	}
	if t := &l.process.tables; t.row.Command == "" && l.fold.name != "" {
		// It had gone before /proc could be asked: the name is what is left of it.
		t.row.Command = l.fold.name
		f.page.processes = append(f.page.processes, t.row)
	}
	f.emit(e, false)
}

func (f *fold) scopeRecord(l *lane, r ring.Record) {
	t := &l.process.tables
	w := r.Scope()
	at := r.Time()
	if w.Kind == format.ScopeBegin {
		f.makeWay(l, w, at)
		if t.open >= maxOpen { // a program that never ends its scopes
			f.lost(l, 1, at)
			return
		}
	}
	e := f.begin(l, r)
	e.API, e.Flags = w.API, w.Flags
	e.Device = f.ordinal(t, w.Device)
	e.Scope = l.fold.nest.innermost()
	if w.Stack != 0 {
		e.Stack = f.stackOf(l, w.Stack)
	}
	var also []scope
	switch w.Kind {
	case format.ScopeBegin:
		e.Name, e.Note = f.nameOf(t, w.Name), f.nameOf(t, w.Domain)
		e.Parent = e.Scope
		e.Scope = f.openScope(l, w)
	case format.ScopeEnd:
		e.Scope, also = f.closeScope(l, w)
	case format.ScopeReset:
		e.Scope = t.ranges[w.Range].id
	case format.ScopeReport:
		e.Scope, e.Note = t.reported(w.Range), f.nameOf(t, w.Name)
	default: // Mark, Unhooked
		e.Name, e.Note = f.nameOf(t, w.Name), f.nameOf(t, w.Domain)
	}
	if on := f.s.opt.onScope; on != nil && (w.Kind == format.ScopeReport || w.Kind == format.ScopeEnd) {
		on(t.row.PID, w.Range, measure(f.state, e.Scope))
	}
	if w.Asks != 0 {
		f.tell(l, w)
	}
	f.emit(e, false)
	for _, s := range also {
		f.endScope(l, s, at)
	}
}

// makeWay ends what a beginning scope shows to have ended: pushes at its depth
// and deeper, whose pops were lost, or the scope that had its number before.
func (f *fold) makeWay(l *lane, w *format.WireScope, at format.Time) {
	if w.Range == 0 {
		if w.Depth >= 0 {
			for _, s := range l.fold.nest.pop(w.Domain, w.Depth) {
				f.endScope(l, s, at)
			}
		}
		return
	}
	if old, ok := l.process.tables.ranges[w.Range]; ok {
		if old.lane != nil {
			old.lane.fold.nest.remove(w.Range)
		}
		f.endScope(l, scope{id: old.id, number: w.Range}, at)
	}
}

// openScope gives a scope its id and its place.
func (f *fold) openScope(l *lane, w *format.WireScope) format.ScopeID {
	t := &l.process.tables
	t.open++
	f.scopes++
	id := f.scopes
	o := openScope{id: id}
	if w.Flags&format.FlagRange == 0 {
		o.lane = l
		l.fold.nest = append(l.fold.nest, scope{id: id, domain: w.Domain, depth: w.Depth, number: w.Range})
	}
	if w.Range != 0 {
		t.ranges[w.Range] = o
	}
	return id
}

// closeScope finds the scope that ends, 0 where its begin was lost; also are the
// pushes inside it whose pops were lost.
func (f *fold) closeScope(l *lane, w *format.WireScope) (id format.ScopeID, also []scope) {
	t := &l.process.tables
	if w.Range != 0 {
		o, ok := t.ranges[w.Range]
		if !ok {
			return 0, nil
		}
		t.close(w.Range, o.id, measure(f.state, o.id))
		t.open--
		if o.lane != nil { // perhaps another thread's
			o.lane.fold.nest.remove(w.Range)
		}
		return o.id, nil
	}
	out := l.fold.nest.pop(w.Domain, w.Depth)
	for i, s := range out {
		if s.depth == w.Depth || w.Depth < 0 {
			t.open--
			return s.id, append(out[:i:i], out[i+1:]...)
		}
	}
	return 0, out
}

// endScope writes the end of a scope whose own end is not in a lane.
func (f *fold) endScope(l *lane, s scope, at format.Time) {
	t := &l.process.tables
	t.open--
	if s.number != 0 {
		t.close(s.number, s.id, measure(f.state, s.id))
	}
	e := f.next(format.ScopeEnd, at, t.id, l.fold.tid)
	e.Scope = s.id
	f.emit(e, true)
}
