package report

import (
	"bytes"
	"fmt"
	"path/filepath"
	"sort"
	"strings"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/timeline"
	"github.com/gpurec/gpurec/analyze/tree"
)

// mostBuckets is the finest that curves are made; a page may show them coarser.
const mostBuckets = 1024

// limits are how much of each list is shown.
type limits struct {
	traces  int
	buckets int // of a curve
	nodes   int // of a view
	moments int // of a device
	cells   int // nodes of all moments together
	rows    int // of a table
	bands   int // of a trace
}

// full is what most pages show: with it a page of one device has about 1 MB.
var full = limits{traces: 64, buckets: mostBuckets, nodes: 3000, moments: mostMoments, cells: 160_000, rows: 250, bands: 1000}

func (l limits) half() limits {
	h := func(n int) int { return max(n/2, 1) }
	return limits{h(l.traces), h(l.buckets), h(l.nodes), h(l.moments), h(l.cells), h(l.rows), h(l.bands)}
}

func (l limits) least() bool { return l == l.half() }

// page is r cut to limits.
func (r *Report) page(most limits) (*Page, error) {
	p := &Page{Completeness: r.completeness(most), Nodes: newNodes(), Views: []*View{}, Traces: []*Trace{}}
	p.Title = r.title()
	for i := range r.summary.Traces {
		if i == most.traces {
			p.Left = len(r.summary.Traces) - i
			break
		}
		t, err := r.trace(i, most)
		if err != nil {
			return nil, err
		}
		p.Traces = append(p.Traces, t)
	}
	r.views(p, most)
	p.Totals = rows(lineTotals(r.total.Trees[0].Root), most.rows)
	p.Nodes.finish()
	return p, nil
}

// completeness is what is said of it, fit to be shown.
func (r *Report) completeness(most limits) *analyze.Completeness {
	cut := func(in []string) (out []string) {
		for i, s := range in {
			if i == most.rows {
				return append(out, more(len(in)-i))
			}
			out = append(out, analyze.Cut(s, mostText))
		}
		return out
	}
	c := r.Completeness
	return &analyze.Completeness{Complete: c.Complete, Partial: cut(c.Partial), Notes: cut(c.Notes)}
}

// title is the command of the first trace, for the browser's tab.
func (r *Report) title() string {
	t := r.summary.Traces[0]
	name := strings.Join(t.Meta.Command, " ")
	if name == "" {
		name = filepath.Base(t.Path)
	}
	return analyze.Short(name)
}

func (r *Report) trace(i int, most limits) (*Trace, error) {
	t := &Trace{Path: analyze.Cut(r.summary.Traces[i].Path, mostText), Curves: []*Curve{}, Peaks: []*Peak{}}
	for _, c := range []*timeline.Report{r.used, r.acquired, r.nvml} {
		t.Curves = append(t.Curves, curves(c, i, most)...)
	}
	r.contexts(t, i, most)
	var err error
	if t.Summary, err = r.summaryOf(i, most); err != nil {
		return nil, err
	}
	if t.Devices, t.Runs, err = r.devicesOf(i, most); err != nil {
		return nil, err
	}
	if t.OOM, err = r.oomOf(i, most); err != nil {
		return nil, err
	}
	if t.OOMText, err = r.oomText(i); err != nil {
		return nil, err
	}
	if t.Leaks, err = r.leaksOf(i, most); err != nil {
		return nil, err
	}
	if err := r.peaks(t, i, most); err != nil {
		return nil, err
	}
	return t, nil
}

// oomText is the page of gpuanalyze oom, by line.
func (r *Report) oomText(i int) ([]string, error) {
	if len(r.oom.Traces[i].Failures) == 0 {
		return []string{}, nil
	}
	one := *r.oom
	one.Traces = one.Traces[i : i+1]
	var b bytes.Buffer
	if err := one.WriteText(&b, false); err != nil {
		return nil, fmt.Errorf("write what oom says: %w", err)
	}
	lines := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
	for j := range lines {
		lines[j] = analyze.Cut(lines[j], mostText)
	}
	return lines, nil
}

// curves are one trace's, coarser where the page is to be smaller.
func curves(r *timeline.Report, i int, most limits) (out []*Curve) {
	t := r.Traces[i]
	for _, s := range t.Series {
		c := &Curve{Device: s.Name, Curve: string(r.Curve), From: integer(t.From), To: integer(t.To), Max: integer(s.Max), MaxAt: integer(s.MaxAt),
			Least: s.Least, Most: s.Most}
		width := t.Width
		for len(c.Least) > most.buckets {
			c.Least, c.Most = pairs(c.Least, func(a, b int64) int64 { return min(a, b) }), pairs(c.Most, func(a, b int64) int64 { return max(a, b) })
			width *= 2
		}
		c.Width = integer(width)
		out = append(out, c)
	}
	return out
}

// pairs makes one of two neighbours.
func pairs(in numbers, f func(a, b int64) int64) numbers {
	out := make(numbers, 0, (len(in)+1)/2)
	for i := 0; i < len(in); i += 2 {
		v := in[i]
		if i+1 < len(in) {
			v = f(v, in[i+1])
		}
		out = append(out, v)
	}
	return out
}

// views are the trees of each peak, of the moments around it, in total and of
// the end.
func (r *Report) views(p *Page, most limits) {
	index := r.index()
	for _, d := range r.peak.Devices {
		i := index(d.Trace)
		if i >= len(p.Traces) {
			continue
		}
		device := d.Device
		p.Views = append(p.Views, &View{Kind: "peak", Trace: i, Device: &device, At: integer(d.At), Used: integer(d.Used), Acquired: integer(d.Acquired),
			Flame: p.Nodes.flame(d.Tree, tree.Amount{}, most.nodes)})
	}
	for kind, root := range map[string]*tree.Node{"total": r.total.Trees[0].Root, "end": r.end.Trees[0].Root} {
		p.Views = append(p.Views, &View{Kind: kind, Trace: -1, Used: integer(root.Used), Acquired: integer(root.Acquired),
			Flame: p.Nodes.flame(root, tree.Amount{}, most.nodes)})
	}
	sort.SliceStable(p.Views, func(i, j int) bool { // a map has no order
		a, b := p.Views[i], p.Views[j]
		return a.Kind > b.Kind && a.Trace < 0 && b.Trace < 0
	})
	r.momentViews(p, most)
}

func (r *Report) momentViews(p *Page, most limits) {
	count := 0
	for _, t := range r.moments {
		for _, d := range t {
			count += min(len(d.views), most.moments)
		}
	}
	nodes := min(max(most.cells/max(count, 1), 1), most.nodes)
	for i, t := range r.moments {
		if i >= len(p.Traces) {
			return
		}
		for _, d := range t {
			for _, v := range thin(d.views, most.moments) {
				device := d.device
				used, acquired := v.sum()
				p.Views = append(p.Views, &View{Kind: "moment", Trace: i, Device: &device, At: integer(v.at), Used: integer(used), Acquired: integer(acquired),
					Flame: p.Nodes.flame(&v.tree.Root, v.rest, nodes)})
			}
		}
	}
}

func (v *momentView) sum() (used, acquired int64) {
	return v.tree.Root.Used + v.rest.Used, v.tree.Root.Acquired + v.rest.Acquired
}

// thin keeps the higher of two neighbours until there are few enough.
func thin(views []momentView, most int) []momentView {
	for len(views) > most {
		kept := make([]momentView, 0, (len(views)+1)/2)
		for i := 0; i < len(views); i += 2 {
			v := views[i]
			if i+1 < len(views) {
				a, b := &views[i], &views[i+1]
				ua, _ := a.sum()
				if ub, _ := b.sum(); ub > ua {
					v = *b
				}
			}
			kept = append(kept, v)
		}
		views = kept
	}
	return views
}

// index finds a trace by the path that answers name it by where there are
// several.
func (r *Report) index() func(path string) int {
	at := map[string]int{}
	for i, t := range r.summary.Traces {
		at[t.Path] = i
	}
	return func(path string) int { return at[path] } // "" is the only one, the first
}
