package lines

import (
	"fmt"
	"sort"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
)

// peaks find, in one pass, what was live on each device when its used bytes
// were highest. Every stack has what it holds now and what it held at the
// highest moment so far. A new highest moment copies the first into the second,
// but only for stacks that changed since the one before: each event makes one
// stack dirty, so this too costs O(1) an event.
type peaks struct {
	p       *analyze.Pass
	devices map[format.Device]*devicePeak
	touched []*devicePeak
}

type devicePeak struct {
	now, max int64
	at       format.Time
	any      bool
	touched  bool
	stacks   map[leafKey]*peakLeaf
	dirty    []*peakLeaf
	order    []*peakLeaf
}

type peakLeaf struct {
	leafKey
	used, acquired  int64 // now
	maxUsed, maxAcq int64 // at the highest moment
	dirty           bool
}

func (k *peaks) begin(p *analyze.Pass) {
	k.p, k.devices, k.touched = p, map[format.Device]*devicePeak{}, nil
	p.State.OnBegin = func(a *live.Allocation, _ *format.Event) { k.change(a, a.Bytes()) }
	p.State.OnEnd = func(a *live.Allocation, _ *format.Event) { k.change(a, -a.Bytes()) }
}

func (k *peaks) change(a *live.Allocation, n int64) {
	if !a.Counted || a.Class != format.ClassDevice || a.Layer != format.LayerPool && a.Layer != format.LayerDriver {
		return
	}
	d := k.devices[a.Device]
	if d == nil {
		d = &devicePeak{stacks: map[leafKey]*peakLeaf{}}
		k.devices[a.Device] = d
	}
	key := leafKey{a.Process, a.Stack}
	f := d.stacks[key]
	if f == nil {
		f = &peakLeaf{leafKey: key}
		d.stacks[key] = f
		d.order = append(d.order, f)
	}
	if !f.dirty {
		f.dirty = true
		d.dirty = append(d.dirty, f)
	}
	if a.Layer == format.LayerDriver {
		f.acquired += n
	}
	if (a.Layer == format.LayerPool) == k.p.Pooled(a.Process) {
		f.used += n
		d.now += n
	}
	if !d.touched {
		d.touched = true
		k.touched = append(k.touched, d)
	}
}

// event looks for a new highest moment, when e is folded and everywhere is
// what it is after it.
func (k *peaks) event(p *analyze.Pass, e *format.Event) {
	if len(k.touched) == 0 || !p.In || p.State.Loading() {
		return
	}
	for _, d := range k.touched {
		d.touched = false
		if d.now > d.max || !d.any {
			d.mark(p.State.Now())
		}
	}
	k.touched = k.touched[:0]
}

// enter begins at what is live already.
func (k *peaks) enter() {
	for _, d := range k.devices {
		d.mark(k.p.State.Now())
		d.touched = false
	}
	k.touched = k.touched[:0]
}

func (d *devicePeak) mark(at format.Time) {
	d.max, d.at, d.any = d.now, at, true
	for _, f := range d.dirty {
		f.maxUsed, f.maxAcq, f.dirty = f.used, f.acquired, false
	}
	d.dirty = d.dirty[:0]
}

func (a *Answer) endPeak(p *analyze.Pass) error {
	ids := make([]format.Device, 0, len(a.peaks.devices))
	for id := range a.peaks.devices {
		ids = append(ids, id)
	}
	sort.Slice(ids, func(i, j int) bool { return ids[i] < ids[j] })
	for _, id := range ids {
		d := a.peaks.devices[id]
		t := newTree(a.maxDepth)
		for _, f := range d.order {
			if f.maxUsed != 0 || f.maxAcq != 0 {
				t.add(&leaf{leafKey: f.leafKey, used: f.maxUsed, acquired: f.maxAcq}, p.Defs)
			}
		}
		a.sayCut(t, p)
		if t.root.Used == 0 && t.root.Acquired == 0 {
			continue
		}
		row, _ := p.Defs.Device(id)
		at := p.Since(d.at)
		out := &Tree{Device: &id, UUID: row.UUID, Time: &at}
		name := fmt.Sprintf("device %d", id)
		if id == format.NoDevice {
			name = "device unknown"
		}
		if row.Name != "" {
			name += " (" + analyze.Short(row.Name) + ")"
		}
		if a.titles {
			name = analyze.Line(p.Trace.Path()) + " " + name
		}
		out.Title = fmt.Sprintf("%s: peak of %d bytes used at %s", name, d.max, analyze.Seconds(at))
		a.trees = append(a.trees, a.finish(t, out))
	}
	a.say(p)
	return nil
}
