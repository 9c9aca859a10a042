package peak

import (
	"math"
	"sort"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/segments"
	"github.com/gpurec/gpurec/analyze/tree"
	"github.com/gpurec/gpurec/format"
)

// A Report is the answer. Times are nanoseconds since the start of a trace.
type Report struct {
	Completeness *analyze.Completeness `json:"completeness"`
	Devices      []*Device             `json:"devices"`
	Processes    []*Process            `json:"processes"`

	depth int
}

// Depth is that of the deepest line of all trees.
func (r *Report) Depth() int { return r.depth }

// A Device is one at the highest moment of its used bytes. Rows of each list add
// up to Used, Acquired and Blocks.
type Device struct {
	Trace     string        `json:"trace,omitempty"` // where there are several
	Device    format.Device `json:"device"`          // -1 unknown
	UUID      string        `json:"uuid,omitempty"`
	Name      string        `json:"name,omitempty"`
	Total     int64         `json:"total"` // -1 unknown
	At        int64         `json:"at_ns"`
	Used      int64         `json:"used"`
	Acquired  int64         `json:"acquired"`
	Blocks    int64         `json:"blocks"`
	Open      []Scope       `json:"open_scopes"`
	Parts     *Parts        `json:"parts,omitempty"` // nil without a reading that counts, or with filters
	Lines     []*tree.Row   `json:"lines"`
	OwnLines  []*tree.Row   `json:"own_lines"`
	Functions []*tree.Row   `json:"functions"`
	Scopes    []*tree.Row   `json:"scopes"`
	Sizes     []*tree.Row   `json:"sizes"`
	Processes []*tree.Row   `json:"processes"`
	Tree      *tree.Node    `json:"tree"`
}

// A Process is one process on one device, at the highest moment of its own used
// bytes there.
type Process struct {
	Trace     string        `json:"trace,omitempty"`
	PID       int32         `json:"pid"`
	Rank      *int32        `json:"rank,omitempty"`
	Command   string        `json:"command"`
	Device    format.Device `json:"device"`
	At        int64         `json:"at_ns"`
	Used      int64         `json:"used"`
	Acquired  int64         `json:"acquired"`
	Blocks    int64         `json:"blocks"`
	UsedLayer string        `json:"used_layer"`
	Open      []Scope       `json:"open_scopes"`
}

func (a *Answer) End(p *analyze.Pass) error {
	for _, l := range a.ledgers {
		l.judge(math.MaxInt64)
	}
	trace := ""
	if a.traces > 1 {
		trace = p.Trace.Path()
	}
	a.devices.Each(func(a, b format.Device) bool { return a < b }, func(id format.Device, h *tree.High) {
		a.out.Devices = append(a.out.Devices, a.device(trace, id, h))
	})
	a.owners.Each(func(a, b segments.Owner) bool { return a.Less(b) }, func(o segments.Owner, h *tree.High) {
		a.out.Processes = append(a.out.Processes, a.process(trace, o, h))
	})
	for _, q := range p.State.Processes() {
		if acq := q.Acquired(); !p.Pooled(q.ID) && acq.Count > 0 {
			d, _ := p.Defs.Process(q.ID)
			a.plain = append(a.plain, itoa(d.PID))
		}
	}
	if !a.parts {
		p.Note("no parts: NVML counts whole devices, and this is what one process, thread, layer or scope has")
	}
	return nil
}

func (a *Answer) device(trace string, id format.Device, h *tree.High) *Device {
	defs, m := a.p.Defs, a.then[id]
	row, ok := defs.Device(id)
	if !ok {
		row.Total = format.Unknown
	}
	d := &Device{Trace: trace, Device: id, UUID: row.UUID, Name: row.Name, Total: row.Total, At: a.p.Since(h.At),
		Used: h.Most.Used, Acquired: h.Most.Acquired, Blocks: h.Most.Blocks}
	each := tree.Each(h.High)
	holds := map[format.ProcessID]bool{}
	each(func(k tree.Key, _ tree.Amount) { holds[k.Process] = true })
	d.Open = a.scopes(m.open, holds)
	for by, to := range map[tree.By]*[]*tree.Row{tree.ByLine: &d.Lines, tree.ByOwnLine: &d.OwnLines, tree.ByFunction: &d.Functions,
		tree.ByScope: &d.Scopes, tree.BySize: &d.Sizes, tree.ByProcess: &d.Processes} {
		*to = each.Flat(by, defs, a.paths)
	}
	t := tree.New(a.maxDepth)
	if a.fold {
		t.Fold()
	}
	each.Into(t, defs)
	d.Tree = &t.Root
	a.out.depth = max(a.out.depth, t.Depth)
	if t.Cut > 0 {
		a.p.Note("%d stack%s deeper than %d lines: what is below is in the last line shown", t.Cut, analyze.Plural(int64(t.Cut)), tree.MostDeep)
	}
	if a.parts && id != format.NoDevice {
		if d.Parts = a.partsOf(id, m, h.At); d.Parts == nil {
			a.p.Note("no parts of device %d: there is no NVML reading away from driver calls", id)
		}
	}
	return d
}

func (a *Answer) process(trace string, o segments.Owner, h *tree.High) *Process {
	d, known := a.p.Defs.Process(o.Process)
	out := &Process{Trace: trace, PID: d.PID, Command: d.Command, Device: o.Device, At: a.p.Since(h.At), Used: h.Most.Used, Acquired: h.Most.Acquired,
		Blocks: h.Most.Blocks, UsedLayer: format.LayerDriver.String(), Open: a.scopes(a.ownThen[o], map[format.ProcessID]bool{o.Process: true})}
	if a.p.Pooled(o.Process) {
		out.UsedLayer = format.LayerPool.String()
	}
	if known && d.Rank >= 0 {
		out.Rank = &d.Rank
	}
	return out
}

// scopes are the innermost of open, of processes that hold something.
func (a *Answer) scopes(open []openScope, holds map[format.ProcessID]bool) []Scope {
	return innermost(open, a.paths, a.p.Defs, func(id format.ProcessID) bool { return holds[id] })
}

// Report is the answer, after the pass.
func (a *Answer) Report(c *analyze.Completeness) *Report {
	c.UsedIsDriver(a.plain)
	a.out.Completeness = c
	sort.SliceStable(a.out.Processes, func(i, j int) bool { return a.out.Processes[i].Trace < a.out.Processes[j].Trace })
	return &a.out
}
