package lines

import (
	"fmt"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/tree"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
)

func (a *Answer) beginPeak(p *analyze.Pass) {
	var path tree.Path // of the allocation that an observer is told of
	a.peaks = tree.NewWatch(p, func(al *live.Allocation) format.Device { return al.Device },
		func(al *live.Allocation) tree.Key { return tree.Key{Process: al.Process, Stack: al.Stack, Path: path} })
	p.State.OnBegin = func(al *live.Allocation, _ *format.Event) {
		path = a.began(al)
		a.peaks.Change(al, 1)
	}
	p.State.OnEnd = func(al *live.Allocation, _ *format.Event) {
		path = a.ended(al)
		a.peaks.Change(al, -1)
	}
}

func (a *Answer) endPeak(p *analyze.Pass) error {
	less := func(a, b format.Device) bool { return a < b }
	a.peaks.Each(less, func(id format.Device, h *tree.High) {
		t := tree.Each(h.High).Into(a.newTree(), p.Defs)
		a.sayCut(t, p)
		row, _ := p.Defs.Device(id)
		at := p.Since(h.At)
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
		out.Title = fmt.Sprintf("%s: peak of %d bytes used at %s", name, h.Most.Used, analyze.Seconds(at))
		c := tree.NewCross(tree.ByOwnLine)
		if a.byScope {
			c.Add(h.High, p.Defs, a.paths)
		}
		a.trees = append(a.trees, a.finish(t, c, out))
	})
	a.say(p)
	return nil
}
