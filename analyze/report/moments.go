package report

import (
	"math"
	"sort"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/tree"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
)

// mostMoments is how many of a device are kept: enough to follow a run by, and
// few enough for a page.
const mostMoments = 512

// mostCells bounds what is kept of a moment: stacks, the largest first.
const mostCells = 1000

// moments keeps what was live at the highest moment of each stretch of time,
// for each device. Stretches are as long as the recording divided by
// mostMoments; where its end is not known they double when there are too many.
// A stretch in which nothing changed has no moment: what was live is what the
// one before ended with, and where that is not its highest, it has one.
type moments struct {
	p       *analyze.Pass
	traces  [][]*deviceMoments
	devices map[format.Device]*deviceMoments
	order   []*deviceMoments
	touched []*deviceMoments
	from    format.Time
	width   uint64 // a file may claim any time: differences have all 64 bits
}

// deviceMoments are those of one device.
type deviceMoments struct {
	device  format.Device
	set     *tree.Set
	now     tree.Amount
	high    tree.Amount // when the set was marked last
	at      format.Time
	stretch uint64 // which one that is in
	touched bool
	open    bool
	shots   []shot
	views   []momentView
}

// A shot is what was live at a moment.
type shot struct {
	stretch uint64
	at      format.Time
	sum     tree.Amount
	cells   []shotCell
	rest    tree.Amount // of stacks that are not in cells
}

type shotCell struct {
	stack  format.StackID
	amount tree.Amount
}

// A momentView is a shot as lines.
type momentView struct {
	at   int64
	tree *tree.Tree
	rest tree.Amount
}

func (m *moments) Needs() analyze.Needs {
	return analyze.Needs{Pooled: true, Scopes: analyze.ScopesFiltered}
}

func (m *moments) Begin(p *analyze.Pass) error {
	*m = moments{p: p, traces: m.traces, devices: map[format.Device]*deviceMoments{}}
	p.CountOnly(analyze.ByAll)
	p.State.OnBegin = func(al *live.Allocation, e *format.Event) { m.change(al, e, 1) }
	p.State.OnEnd = func(al *live.Allocation, e *format.Event) { m.change(al, e, -1) }
	return nil
}

func (m *moments) Sample(*analyze.Pass, *format.Sample) error { return nil }

func (m *moments) change(al *live.Allocation, e *format.Event, sign int64) {
	n, ok := tree.AmountOf(m.p, al)
	if !ok {
		return
	}
	d := m.devices[al.Device]
	if d == nil {
		d = &deviceMoments{device: al.Device, set: tree.NewSet()}
		m.devices[al.Device] = d
		m.order = append(m.order, d)
		if m.width > 0 {
			m.begin(d, m.from)
		}
	}
	if d.open && !e.Kind.Checkpoint() {
		m.reach(d, e.Time)
	}
	n = tree.Amount{Used: sign * n.Used, Acquired: sign * n.Acquired, Blocks: sign * n.Blocks}
	d.set.Add(tree.Key{Stack: al.Stack}, n)
	d.now = tree.Amount{Used: d.now.Used + n.Used, Acquired: d.now.Acquired + n.Acquired, Blocks: d.now.Blocks + n.Blocks}
	if !d.touched {
		d.touched = true
		m.touched = append(m.touched, d)
	}
}

// higher is by used bytes, and by acquired ones where there are no others.
func higher(a, b tree.Amount) bool {
	return a.Used > b.Used || a.Used == 0 && b.Used == 0 && a.Acquired > b.Acquired
}

func (m *moments) Event(p *analyze.Pass, e *format.Event) error {
	if p.In && m.width == 0 {
		m.enter(p.State.Now())
	}
	if m.width == 0 || len(m.touched) == 0 || p.State.Loading() {
		return nil
	}
	for _, d := range m.touched {
		d.touched = false
		if higher(d.now, d.high) {
			d.mark(p.State.Now())
		}
	}
	m.touched = m.touched[:0]
	return nil
}

// Enter begins where the window does; a scope's begins with its first event.
func (m *moments) Enter(p *analyze.Pass) {
	if _, known := p.From(); known || !p.Windowed() {
		m.enter(p.State.Now())
	}
}

func (m *moments) enter(now format.Time) {
	m.from = m.p.Start()
	if t, known := m.p.From(); known {
		m.from = max(m.from, t)
	} else if m.p.Windowed() {
		m.from = now
	}
	to := m.p.Trace.Meta().End
	if t, known := m.p.To(); known && (to == 0 || t < to) {
		to = t
	}
	m.width = 1e6
	if to > m.from {
		m.width = (uint64(to)-uint64(m.from))/mostMoments + 1
	}
	for _, d := range m.order {
		m.begin(d, max(m.from, now))
	}
}

func (m *moments) begin(d *deviceMoments, at format.Time) {
	d.open, d.stretch, d.touched = true, m.stretch(at), false
	d.mark(at)
}

func (m *moments) stretch(t format.Time) uint64 {
	if t <= m.from {
		return 0
	}
	return (uint64(t) - uint64(m.from)) / m.width
}

// start is where a stretch begins.
func (m *moments) start(stretch uint64) format.Time {
	return format.Time(uint64(m.from) + stretch*m.width)
}

func (d *deviceMoments) mark(at format.Time) {
	d.set.Mark()
	d.high, d.at = d.now, at
}

// reach ends the stretches before a moment, as long as nothing has changed at
// it yet.
func (m *moments) reach(d *deviceMoments, t format.Time) {
	s := m.stretch(t)
	if s <= d.stretch {
		return
	}
	d.keep()
	if s > d.stretch+1 && d.now != d.high {
		d.stretch++
		d.mark(m.start(d.stretch))
		d.keep()
	}
	for len(d.shots) > mostMoments {
		m.double()
	}
	d.stretch = m.stretch(t)
	d.mark(max(d.at, m.start(d.stretch)))
}

// keep makes the moment that is marked a shot.
func (d *deviceMoments) keep() {
	s := shot{stretch: d.stretch, at: d.at, sum: d.high}
	d.set.High(func(k tree.Key, a tree.Amount) { s.cells = append(s.cells, shotCell{k.Stack, a}) })
	sort.SliceStable(s.cells, func(i, j int) bool { return higher(s.cells[i].amount, s.cells[j].amount) })
	if len(s.cells) > mostCells {
		for _, c := range s.cells[mostCells:] {
			s.rest.Used += c.amount.Used
			s.rest.Acquired += c.amount.Acquired
			s.rest.Blocks += c.amount.Blocks
		}
		s.cells = append([]shotCell(nil), s.cells[:mostCells]...)
	}
	d.shots = append(d.shots, s)
}

// double makes stretches twice as long: of two that become one the higher
// moment stays.
func (m *moments) double() {
	m.width = min(m.width, math.MaxUint64/2) * 2
	for _, d := range m.order {
		kept := d.shots[:0]
		for _, s := range d.shots {
			s.stretch /= 2
			if n := len(kept); n > 0 && kept[n-1].stretch == s.stretch {
				if higher(s.sum, kept[n-1].sum) {
					kept[n-1] = s
				}
				continue
			}
			kept = append(kept, s)
		}
		d.shots = kept
		d.stretch /= 2
	}
}

func (m *moments) End(p *analyze.Pass) error {
	last := tree.New(0)
	for _, d := range m.order {
		if !d.open {
			continue
		}
		d.keep()
		for _, s := range d.shots {
			each := tree.Each(func(f func(tree.Key, tree.Amount)) {
				for _, c := range s.cells {
					f(tree.Key{Stack: c.stack}, c.amount)
				}
			})
			last = each.Into(tree.New(0).Like(last), p.Defs)
			d.views = append(d.views, momentView{at: p.Since(s.at), tree: last, rest: s.rest})
		}
		d.shots, d.set = nil, nil
	}
	sort.Slice(m.order, func(i, j int) bool { return m.order[i].device < m.order[j].device })
	m.traces = append(m.traces, m.order)
	return nil
}
