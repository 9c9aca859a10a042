package peak

import (
	"math"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/segments"
	"github.com/gpurec/gpurec/analyze/tree"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
)

// An Answer is a Report in the making.
type Answer struct {
	maxDepth int
	fold     bool // recursions are one line of the tree
	traces   int
	out      Report
	plain    []string // pids without a pool, of all traces

	p            *analyze.Pass
	paths        *tree.Paths
	path         tree.Path // of the allocation that an observer is told of
	open         *openScopes
	devices      *tree.Watch[format.Device]
	owners       *tree.Watch[segments.Owner]
	then         map[format.Device]*moment
	ownThen      map[segments.Owner][]openScope
	parts        bool // asked of whole devices, which have parts
	tracker      *segments.Tracker
	physical     map[segments.Owner]*physical
	lastOwner    segments.Owner
	lastPhysical *physical
	ledgers      map[format.Device]*ledger
	latest       map[format.Device]*said
	outside      map[format.Device]*tree.Set // driver allocations that are no segments, as far as is known
	pending      map[driverKey]outsider      // those in outside
}

// driverKey is a driver allocation: by address, or by handle, and time.
type driverKey struct {
	process format.ProcessID
	value   uint64
	time    format.Time
}

type outsider struct {
	device format.Device
	key    tree.Key
	amount tree.Amount
}

// A moment is what is kept of a device's highest one beside its Set.
type moment struct {
	open    []openScope
	procs   []procParts
	tracked int64
	before  *said // the last reading that counts, up to the moment
	after   *said // the first after it
}

// procParts is what a process had of the device.
type procParts struct {
	id       format.ProcessID
	used     int64
	sums     segments.Sums
	physical physical
}

// New returns an answer for so many traces; see tree.New for the max depth.
func New(maxDepth, traces int) *Answer {
	return &Answer{maxDepth: maxDepth, traces: traces, out: Report{Devices: []*Device{}, Processes: []*Process{}}}
}

// Fold makes recursions one line of the tree, with a count.
func (a *Answer) Fold() *Answer {
	a.fold = true
	return a
}

func (a *Answer) Needs() analyze.Needs {
	return analyze.Needs{Pooled: true, Samples: true, Scopes: analyze.ScopesShown}
}

func (a *Answer) Begin(p *analyze.Pass) error {
	a.p, a.paths, a.open = p, tree.NewPaths(), newOpenScopes()
	a.then, a.ownThen = map[format.Device]*moment{}, map[segments.Owner][]openScope{}
	a.tracker, a.physical, a.ledgers = segments.New(p), map[segments.Owner]*physical{}, map[format.Device]*ledger{}
	a.latest, a.lastOwner, a.lastPhysical = map[format.Device]*said{}, segments.Owner{}, nil
	a.outside, a.pending = map[format.Device]*tree.Set{}, map[driverKey]outsider{}
	a.parts = !p.Filtered(analyze.ByAll &^ analyze.ByDevice)
	p.CountOnly(analyze.ByAll)
	key := func(al *live.Allocation) tree.Key {
		return tree.Key{Process: al.Process, Stack: al.Stack, Path: a.path, Size: tree.ClassOf(al.Size)}
	}
	a.devices = tree.NewWatch(p, func(al *live.Allocation) format.Device { return al.Device }, key)
	a.owners = tree.NewWatch(p, func(al *live.Allocation) segments.Owner {
		return segments.Owner{Process: al.Process, Device: al.Device}
	},
		func(al *live.Allocation) tree.Key { return tree.Key{} })
	a.devices.OnHigh = a.high
	a.owners.OnHigh = func(o segments.Owner, _ *tree.High) { a.ownThen[o] = a.open.now(a.ownThen[o]) }
	a.tracker.OnSegment = func(o segments.Owner, s segments.Span, object uint64) {
		k := driverKey{o.Process, s.Address, s.Time}
		if s.Mapped {
			k.value = object
		}
		a.leave(k)
	}
	p.State.OnBegin = func(al *live.Allocation, e *format.Event) { a.change(al, e, 1) }
	p.State.OnEnd = func(al *live.Allocation, e *format.Event) { a.change(al, e, -1) }
	return nil
}

// change is for the fold's observers. e is what began or ended an allocation.
func (a *Answer) change(al *live.Allocation, e *format.Event, sign int64) {
	if sign > 0 {
		a.path = a.paths.Begin(al)
	} else {
		a.path = a.paths.End(al)
	}
	a.devices.Change(al, sign)
	a.owners.Change(al, sign)
	if !a.parts || al.Class == format.ClassImported || !a.p.Matches(&al.Event, analyze.ByDevice) {
		return
	}
	a.physicalOf(segments.Owner{Process: al.Process, Device: al.Device}).change(al, sign)
	a.call(al, e)
	if !a.p.Pooled(al.Process) {
		return
	}
	if sign > 0 {
		a.enter(al)
		a.tracker.Begin(al)
	} else {
		a.tracker.End(al, e)
		a.leave(driverKeyOf(al))
	}
}

func (a *Answer) physicalOf(o segments.Owner) *physical {
	if a.lastPhysical != nil && a.lastOwner == o {
		return a.lastPhysical
	}
	ph := a.physical[o]
	if ph == nil {
		ph = &physical{}
		a.physical[o] = ph
	}
	a.lastOwner, a.lastPhysical = o, ph
	return ph
}

func driverKeyOf(al *live.Allocation) driverKey {
	k := driverKey{al.Process, al.Address, al.Time}
	if al.API.Space() == format.SpaceHandle {
		k.value = al.Object
	}
	return k
}

// enter takes a driver allocation for one outside pools, until a block lies in
// it.
func (a *Answer) enter(al *live.Allocation) {
	if !al.Counted || al.Layer != format.LayerDriver || al.Class != format.ClassDevice || al.API == format.APIPoolReserve || al.Flags&format.FlagInPool != 0 {
		return
	}
	s := a.outside[al.Device]
	if s == nil {
		s = tree.NewSet()
		a.outside[al.Device] = s
	}
	o := outsider{al.Device, tree.Key{Process: al.Process, Stack: al.Stack}, tree.Amount{Acquired: al.Bytes(), Blocks: 1}}
	s.Add(o.key, o.amount)
	a.pending[driverKeyOf(al)] = o
}

// leave ends that, also where the allocation ends.
func (a *Answer) leave(k driverKey) {
	if o, ok := a.pending[k]; ok {
		delete(a.pending, k)
		a.outside[o.device].Add(o.key, tree.Amount{Acquired: -o.amount.Acquired, Blocks: -o.amount.Blocks})
	}
}

func (a *Answer) Enter(*analyze.Pass) {
	a.devices.Enter()
	a.owners.Enter()
}

func (a *Answer) Event(p *analyze.Pass, e *format.Event) error {
	a.paths.Event(e, p.Defs)
	a.open.event(p, e, a.paths)
	if a.parts {
		a.tracker.Event(e)
		a.follow(e)
	}
	a.devices.Event()
	a.owners.Event()
	return nil
}

// deathTakes is how long before the event of its end a process may have been
// giving back what it had, without events.
const deathTakes = format.Time(100e6)

// call tells a device's readings that the driver was at work, because of what
// began or ended an allocation.
func (a *Answer) call(al *live.Allocation, e *format.Event) {
	if al.Layer == format.LayerHost || al.Layer == format.LayerPool && !isStream(al) {
		return
	}
	l := a.ledger(al.Device)
	switch {
	case e.Kind == format.ProcessEnd:
		l.call(e.Time-deathTakes, e.Time)
	case !e.Kind.Checkpoint():
		l.call(e.Pre(), e.Post())
	}
}

// follow sees what the observers do not.
func (a *Answer) follow(e *format.Event) {
	switch e.Kind {
	case format.FreeDone:
		for _, l := range a.ledgers { // it does not say which device
			l.call(e.Time-format.Time(max(e.Duration, 0)), e.Time)
		}
	case format.Reset:
		for o, ph := range a.physical {
			if o.Process == e.Process && (o.Device == e.Device || e.Device == format.NoDevice) {
				ph.resets++
				ph.took = false
			}
		}
	case format.ProcessEnd:
		for o := range a.physical {
			if o.Process == e.Process {
				delete(a.physical, o)
			}
		}
		a.lastPhysical = nil
	}
}

func (a *Answer) ledger(d format.Device) *ledger {
	l := a.ledgers[d]
	if l == nil {
		first := format.Time(math.MaxInt64)
		for _, p := range a.p.Defs.Processes() {
			if p.Begin >= 0 {
				first = min(first, p.Begin)
			}
		}
		l = newLedger(first, a.p.Since, func(s *said) { a.said(d, s) })
		a.ledgers[d] = l
	}
	return l
}

func (a *Answer) Sample(p *analyze.Pass, r *format.Sample) error {
	if a.parts {
		a.ledger(r.Device).sample(r, func() []procReading { return a.readings(r.Device) })
	}
	return nil
}

func (a *Answer) readings(d format.Device) (out []procReading) {
	for o, ph := range a.physical {
		if o.Device == d {
			out = append(out, procReading{id: o.Process, used: format.Unknown, tracked: ph.tracked(), took: ph.took, streams: ph.streams, resets: ph.resets})
		}
	}
	return out
}

// high keeps what a device's highest moment was, beside its Set.
func (a *Answer) high(d format.Device, _ *tree.High) {
	m := a.then[d]
	if m == nil {
		m = &moment{}
		a.then[d] = m
	}
	m.open = a.open.now(m.open)
	if !a.parts {
		return
	}
	m.procs, m.tracked, m.before, m.after = m.procs[:0], 0, a.latest[d], nil
	for o, ph := range a.physical {
		if o.Device != d {
			continue
		}
		c := *ph
		c.edges = nil
		used := int64(0)
		if h := a.owners.High(o); h != nil {
			used = h.Now.Used
		}
		m.procs = append(m.procs, procParts{id: o.Process, used: used, sums: a.tracker.Sums(o), physical: c})
		m.tracked += ph.tracked()
	}
	if s := a.outside[d]; s != nil {
		s.Mark()
	}
}

// near is how far from the peak a reading is looked for that rules explain.
const near = format.Time(1e9)

// said hears of a reading that counts; they come late, and in order.
func (a *Answer) said(d format.Device, s *said) {
	a.latest[d] = s
	h := a.devices.High(d)
	m := a.then[d]
	switch {
	case h == nil || m == nil:
	case s.at <= h.At:
		m.before = s
	case m.after == nil || !m.after.explained() && s.at-h.At <= near:
		m.after = s
	}
}
