package live

import (
	"math"
	"slices"

	"github.com/gpurec/gpurec/format"
)

// A checkpoint is the state as rows, which Apply reads back. Rows of one kind
// come in the order in which a fresh state needs them:
//
//	Live         per process, oldest first. Of a VMM handle or imported memory: status is its
//	             references beyond the first, -1 when only mappings hold it
//	LiveMapping  directly after the Live row it maps
//	LiveTotal    sums, told apart by object: bytes ever taken in size, count in requested, peak in reserved,
//	             reached at time
//	               0  an account: process, device, layer, class
//	               1  a process over its devices, class device: layer driver or pool
//	               2  a device over its processes, class device: layer driver or pool; with layer none
//	                  the device's used peak in reserved, and NVML's latest used in size and
//	                  its peak in requested, both -1 without a sample
//	               3  a process's counts: unknown frees in size, lost frees in requested, failed
//	                  allocations in reserved, lost events in allocated, status 1 when it has ended
//	               4  the trace's: unhooked look-ups in size
//	LiveScope    per open scope and curve, in the order of their begins: layer driver, pool, none for NVML;
//	             begin value in requested, largest so far in size, reached begin at time
//	CheckpointEnd
//
// What a device holds is not said: it is the sum of the Live rows.

const (
	totalAccount = iota
	totalProcess
	totalDevice
	totalCounts
	totalTrace
)

// Checkpoint returns the state as rows, the CheckpointEnd included.
func (s *State) Checkpoint(at format.Time) []format.Event {
	if s.loading {
		s.endLoading(nil, false)
	}
	var rows []format.Event
	ps := s.Processes()
	for _, p := range ps {
		rows = s.liveRows(rows, p)
	}
	for _, p := range ps {
		rows = p.totalRows(rows)
	}
	for _, d := range s.Devices() {
		rows = d.totalRows(rows)
	}
	if s.unhooked > 0 {
		rows = append(rows, totalRow(totalTrace, 0, format.NoDevice, format.LayerNone, Curve{Total: s.unhooked}))
	}
	for _, sc := range s.Scopes() {
		for c, layer := range curveLayers {
			m := s.Measure(sc, CurveKind(c))
			e := blank(format.LiveScope)
			e.Time, e.Layer, e.Size, e.Requested = sc.Begin, layer, m.Max, m.Begin
			e.Scope, e.Parent, e.Process, e.Thread, e.Device, e.API = sc.ID, sc.Parent, sc.Process, sc.Thread, sc.Device, sc.API
			e.Flags, e.Name, e.Note, e.Stack = sc.Flags|format.FlagOpen, sc.Name, sc.Domain, sc.Stack
			if sc.Late {
				e.Status = 1
			}
			rows = append(rows, e)
		}
	}
	end := blank(format.CheckpointEnd)
	end.Time, end.Size = at, int64(len(rows))
	return append(rows, end)
}

var curveLayers = [curveKinds]format.Layer{CurveAcquired: format.LayerDriver, CurvePool: format.LayerPool, CurveNVML: format.LayerNone}

func blank(k format.Kind) format.Event {
	return format.Event{Kind: k, Duration: format.Unknown, Requested: format.Unknown, Allocated: format.Unknown,
		Reserved: format.Unknown, Device: format.NoDevice}
}

func (s *State) liveRows(rows []format.Event, p *Process) []format.Event {
	maps := map[int32][]place{}
	for at, m := range p.mappings {
		if s.allocs[m.alloc].generation == m.generation {
			maps[m.alloc] = append(maps[m.alloc], at)
		}
	}
	for i := p.first; i != none; i = s.allocs[i].next {
		a := &s.allocs[i]
		e := a.Event
		if counted(&e) {
			e.Status = a.refs - 1
		}
		rows = append(rows, e)
		at := maps[i]
		slices.SortFunc(at, place.compare)
		for _, at := range at {
			mapping := p.mappings[at]
			m := blank(format.LiveMapping)
			m.Time, m.Process, m.Thread, m.API, m.Device = a.Time, a.Process, a.Thread, mapping.api, a.Device
			m.Layer, m.Class = a.Layer, a.Class
			m.Object, m.Pool, m.Address, m.Size = a.Object, at.object, at.address, mapping.size
			rows = append(rows, m)
		}
	}
	return rows
}

// counted reports whether e has references that are counted.
func counted(e *format.Event) bool {
	return e.API.Space() == format.SpaceHandle || e.Class == format.ClassImported
}

func totalRow(what uint64, p format.ProcessID, d format.Device, l format.Layer, v Curve) format.Event {
	e := blank(format.LiveTotal)
	e.Object, e.Time, e.Process, e.Device, e.Layer = what, v.PeakAt, p, d, l
	e.Size, e.Requested, e.Reserved = v.Total, v.Count, v.Peak
	return e
}

func (p *Process) totalRows(rows []format.Event) []format.Event {
	for _, a := range p.Accounts() {
		e := totalRow(totalAccount, p.ID, a.Device, a.Layer, a.Curve)
		e.Class = a.Class
		rows = append(rows, e)
	}
	rows = append(rows, totalRow(totalProcess, p.ID, format.NoDevice, format.LayerDriver, p.acquired.Curve))
	if p.Pooled {
		rows = append(rows, totalRow(totalProcess, p.ID, format.NoDevice, format.LayerPool, p.pool.Curve))
	}
	e := totalRow(totalCounts, p.ID, format.NoDevice, format.LayerNone, Curve{Total: p.UnknownFrees, Count: p.LostFrees, Peak: p.Failed})
	e.Allocated = p.Lost
	if p.Ended {
		e.Status = 1
	}
	return append(rows, e)
}

func (d *Device) totalRows(rows []format.Event) []format.Event {
	e := totalRow(totalDevice, 0, d.ID, format.LayerNone, d.Used)
	e.Size, e.Requested = format.Unknown, format.Unknown
	if d.Sampled {
		e.Size, e.Requested = d.nvml.Now, d.NVMLPeak
	}
	return append(rows,
		totalRow(totalDevice, 0, d.ID, format.LayerDriver, d.Acquired),
		totalRow(totalDevice, 0, d.ID, format.LayerPool, d.Pool), e)
}

func (s *State) applyCheckpoint(e *format.Event) {
	if !s.loading {
		s.loading, s.rows, s.lastLive = true, 0, none
		s.epoch++
	}
	switch e.Kind {
	case format.Live:
		s.loadLive(e)
	case format.LiveMapping:
		s.loadMapping(e)
	case format.LiveTotal:
		s.loadTotal(e)
	case format.LiveScope:
		s.loadScope(e)
	case format.CheckpointEnd:
		s.now = e.Time
		s.endLoading(e, e.Size == s.rows)
		return
	}
	s.rows++
}

// endLoading leaves a checkpoint. When all its rows were there, what they do
// not mention has ended in a gap before it. Only then do sums have the values
// of one moment, so only here may a peak rise.
func (s *State) endLoading(e *format.Event, all bool) {
	if all {
		for _, sc := range s.Scopes() {
			if sc.epoch != s.epoch {
				s.closeScope(sc, e)
			}
		}
		for _, p := range s.Processes() {
			for at, m := range p.mappings {
				if m.epoch != s.epoch {
					if a := &s.allocs[m.alloc]; a.generation == m.generation {
						a.maps--
					}
					s.dropMapping(p, at)
				}
			}
			for i := p.first; i != none; {
				next := s.allocs[i].next
				if s.allocs[i].epoch != s.epoch {
					s.end(p, i, e)
				}
				i = next
			}
		}
	}
	s.loading = false
	for _, p := range s.processes {
		p.acquired.settle(s.now)
		p.pool.settle(s.now)
		for _, a := range p.accounts {
			a.settle(s.now)
		}
	}
	for _, d := range s.devices {
		d.Acquired.settle(s.now)
		d.Pool.settle(s.now)
		d.Used.settle(s.now)
		d.nvml.settle(s.now)
		d.sampledSeq = s.scopeSeq // the scopes' order was made anew
	}
	s.nvmlTotal.settle(s.now)
}

func (s *State) loadLive(e *format.Event) {
	if ignored(e) {
		return // no writer of ours says so
	}
	p := s.process(e.Process)
	handle := e.API.Space() == format.SpaceHandle
	row := *e
	row.Kind, row.Status = format.Live, 0
	i, ok := s.index.get(keyOf(e))
	if ok {
		if a := &s.allocs[i]; a.Time != e.Time || a.Seq != e.Seq || a.Size != e.Size {
			if handle && e.Status < 0 {
				ok = false // an orphan beside the new owner of its handle
			} else {
				s.end(p, i, e) // another one in its place, since the gap
				ok = false
			}
		}
	}
	if !ok && handle {
		i, ok = s.orphans[orphanKey{e.Process, e.Object, e.Time, e.Seq}]
	}
	if ok {
		s.unlink(p, i) // into the order of the rows
		s.link(p, i)
	} else {
		if handle && e.Status < 0 {
			// The handle may name newer memory already, which insert would end.
			newer, taken := s.index.get(keyOf(e))
			s.index.remove(keyOf(e))
			i = s.insert(p, &row, e)
			s.orphan(i)
			if taken {
				s.index.set(keyOf(e), newer)
			}
		} else {
			i = s.insert(p, &row, e)
		}
	}
	a := &s.allocs[i]
	a.epoch = s.epoch
	switch {
	case counted(e) && e.Status >= 0:
		if handle && a.refs <= 0 {
			s.adopt(i, e.Object)
		}
		a.refs = min(e.Status, math.MaxInt32-1) + 1
	case handle && e.Status < 0 && a.refs > 0:
		s.orphan(i)
	}
	s.lastLive = i
}

func (s *State) loadMapping(e *format.Event) {
	p := s.process(e.Process)
	i := s.lastLive
	if i == none || s.allocs[i].Process != e.Process || s.allocs[i].Object != e.Object {
		var ok bool
		if i, ok = s.index.get(key{e.Object, e.Process, format.SpaceHandle}); !ok {
			return
		}
	}
	at := placeOf(e, e.Device)
	if m, ok := p.mappings[at]; ok {
		if m.alloc == i && m.generation == s.allocs[i].generation && m.size == e.Size {
			m.epoch = s.epoch
			p.mappings[at] = m
			return
		}
		s.dropMapping(p, at)
		if a := &s.allocs[m.alloc]; a.generation == m.generation {
			a.maps--
		}
	}
	s.addMapping(p, at, e.Size, e.API, i)
}

func (s *State) loadTotal(e *format.Event) {
	sums := s.Count == nil // a checkpoint's count everything
	switch e.Object {
	case totalTrace:
		s.unhooked = e.Size
	case totalDevice:
		s.loadDeviceTotal(e, sums)
	case totalCounts:
		p := s.process(e.Process)
		p.UnknownFrees, p.LostFrees, p.Failed, p.Lost = e.Size, e.Requested, e.Reserved, max(e.Allocated, 0)
		p.Ended = e.Status == 1
	case totalProcess, totalAccount:
		p := s.process(e.Process)
		if MarksPool(e) {
			s.seesPool(p)
		}
		if !sums {
			return
		}
		c := &p.acquired.Curve
		if e.Object == totalAccount {
			c = &s.account(p, e.Device, e.Layer, e.Class).Curve
		} else if e.Layer == format.LayerPool {
			c = &p.pool.Curve
		}
		c.restore(e.Size, e.Requested, e.Reserved, e.Time, s.peaksSince)
	}
}

func (s *State) loadDeviceTotal(e *format.Event, sums bool) {
	d := s.device(e.Device)
	switch {
	case e.Layer == format.LayerDriver && sums:
		d.Acquired.restore(e.Size, e.Requested, e.Reserved, e.Time, s.peaksSince)
	case e.Layer == format.LayerPool && sums:
		d.Pool.restore(e.Size, e.Requested, e.Reserved, e.Time, s.peaksSince)
	case e.Layer == format.LayerNone:
		if sums {
			d.Used.restore(0, 0, e.Reserved, e.Time, s.peaksSince)
		}
		if e.Size >= 0 {
			if !d.Sampled {
				s.Sample(&format.Sample{Device: e.Device, Used: e.Size, PeakUsed: e.Size})
			}
			d.NVMLPeak = max(d.NVMLPeak, e.Requested)
		}
	}
}

// loadScope opens a scope, or begins its measure anew with the row's values:
// rows stand in the order of begins, so that begun one after the other they
// are in order again.
func (s *State) loadScope(e *format.Event) {
	c := CurveNVML
	switch e.Layer {
	case format.LayerDriver:
		c = CurveAcquired
	case format.LayerPool:
		c = CurvePool
	}
	sc := s.scopes[e.Scope]
	switch {
	case sc == nil:
		sc = newScope(e)
		sc.Flags &^= format.FlagOpen
		sc.Late = e.Status == 1 || s.Count != nil
		s.scopes[e.Scope] = sc
		s.startMeasure(sc)
	case sc.epoch != s.epoch:
		if s.Count == nil {
			begin := sc.begin
			max := [curveKinds]int64{}
			for c := range curveKinds {
				max[c] = s.curve(sc, c).maxSince(sc.seq)
			}
			s.stopMeasure(sc)
			s.startMeasure(sc)
			sc.begin = begin
			for c := range curveKinds {
				s.curve(sc, c).setLast(max[c])
			}
		}
	}
	sc.epoch = s.epoch
	if s.Count != nil && c != CurveNVML {
		return
	}
	sc.begin[c] = e.Requested
	s.curve(sc, c).setLast(e.Size)
}

// setLast sets the maximum of the scope that began last.
func (t *tracker) setLast(v int64) {
	if k := len(t.groups); k > 0 {
		t.groups[k-1].max = v
	}
}
