package timeline

import (
	"fmt"
	"math"
	"sort"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/tree"
	"github.com/gpurec/gpurec/format"
)

// A Report is the answer.
type Report struct {
	Completeness *analyze.Completeness `json:"completeness"`
	By           By                    `json:"by"`
	Curve        Curve                 `json:"curve"`
	Traces       []*Trace              `json:"traces"`
}

// A Trace is one of them. Times are nanoseconds since its start. The i-th bucket
// begins at From + i × Width; the last ends at To.
type Trace struct {
	Path   string    `json:"path"`
	From   int64     `json:"from_ns"`
	To     int64     `json:"to_ns"`
	Width  int64     `json:"bucket_ns"`
	Series []*Series `json:"series"`
	Left   int       `json:"series_left_out,omitempty"`
}

// A Series is one curve. Max is that of all its buckets, and MaxAt when it was
// reached first.
type Series struct {
	Name     string  `json:"name"`
	Inferred bool    `json:"inferred,omitempty"` // by scope: that it was taken in it, on threads without scopes
	Max      int64   `json:"max"`
	MaxAt    int64   `json:"max_at_ns"`
	End      int64   `json:"end"`   // bytes at To
	Least    []int64 `json:"least"` // by bucket
	Most     []int64 `json:"most"`
}

const totalName = "all"

func (a *Answer) End(p *analyze.Pass) error {
	end := p.End(p.State.Now())
	if a.grid == nil { // a window in which there is nothing
		a.enter(p, end)
	}
	end = max(end, a.grid.from)
	a.grid.at(end) // may double the width
	t := &Trace{Path: p.Trace.Path(), From: p.Since(a.grid.from), To: p.Since(end), Width: int64(min(a.grid.width, math.MaxInt64)), Series: []*Series{}}
	entries := a.order[:0:0]
	for _, e := range a.order {
		if e.series.max > 0 {
			entries = append(entries, e)
		}
	}
	a.sort(entries)
	shown := 0
	for _, e := range entries {
		if e != a.total && a.many() && a.Top > 0 {
			if shown++; shown > a.Top {
				t.Left++
				continue
			}
		}
		t.Series = append(t.Series, a.seriesOf(e, end))
	}
	a.out.Traces = append(a.out.Traces, t)
	a.note(t)
	return nil
}

// many reports whether there may be more series than anybody looks at.
func (a *Answer) many() bool {
	_, line := lines[a.By]
	return line || a.By == ByScope
}

// sort puts the sum first, then devices, layers and classes in their order, and
// what has the most first of all others.
func (a *Answer) sort(es []*entry) {
	names := map[*entry]string{}
	for _, e := range es {
		names[e] = a.name(e)
	}
	sort.SliceStable(es, func(i, j int) bool {
		x, y := es[i], es[j]
		switch {
		case (x == a.total) != (y == a.total):
			return x == a.total
		case x.device != y.device:
			return x.device < y.device
		case x.layer != y.layer:
			return x.layer < y.layer
		case x.class != y.class:
			return x.class < y.class
		case x.series.max != y.series.max:
			return x.series.max > y.series.max
		}
		return names[x] < names[y]
	})
}

func (a *Answer) seriesOf(e *entry, end format.Time) *Series {
	a.grid.reach(e.series, end)
	s := &Series{Name: a.name(e), Inferred: a.By == ByScope && a.paths.Inferred(e.path), Max: e.series.max, MaxAt: a.p.Since(e.series.maxAt), End: e.series.value}
	for _, b := range e.series.buckets {
		s.Least = append(s.Least, b.min)
		s.Most = append(s.Most, b.max)
	}
	return s
}

func (a *Answer) name(e *entry) string {
	switch {
	case e == a.total:
		return totalName
	case a.By == ByDevice && e.device == format.NoDevice:
		return "device unknown"
	case a.By == ByDevice:
		return fmt.Sprintf("device %d", e.device)
	case a.By == ByLayer:
		return fmt.Sprintf("%v %v", e.layer, e.class)
	case a.By == ByClass:
		return e.class.String()
	case a.By == ByProcess:
		return tree.ProcessName(e.process, a.p.Defs)
	case a.By == ByScope:
		return a.paths.Label(e.path)
	case e.stack != 0:
		name, _ := a.line(e.stack)
		return name
	}
	return e.id.name
}

func (a *Answer) note(t *Trace) {
	if t.Left > 0 {
		a.p.Note("%d smaller series left out; --top 0 has all", t.Left)
	}
	if a.Curve == NVML && len(t.Series) == 0 {
		a.p.Note("there are no samples in this time")
	}
	if a.Curve != Used || a.By == ByLayer || a.By == ByClass {
		return
	}
	if len(t.Series) == 0 && a.p.Filtered(analyze.ByLayer) {
		a.p.Note("used bytes of a process with a pool are the pool layer's: --curve acquired has the driver layer, --by layer every one")
	}
	for _, q := range a.p.State.Processes() {
		if acq := q.Acquired(); !a.p.Pooled(q.ID) && acq.Count > 0 {
			d, _ := a.p.Defs.Process(q.ID)
			a.plain = append(a.plain, fmt.Sprint(d.PID))
		}
	}
}

// Report is the answer, after the pass.
func (a *Answer) Report(c *analyze.Completeness) *Report {
	c.UsedIsDriver(a.plain)
	a.out.Completeness = c
	return &a.out
}
