package report

import (
	"slices"
	"sort"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/devices"
	"github.com/gpurec/gpurec/analyze/leaks"
	"github.com/gpurec/gpurec/analyze/oom"
	"github.com/gpurec/gpurec/analyze/scopes"
	"github.com/gpurec/gpurec/analyze/summary"
	"github.com/gpurec/gpurec/analyze/tree"
)

// What a card shows of lists that are long only in traces that are broken, and
// of stacks.
const (
	mostFew    = 20
	mostFrames = 40
)

func first[T any](s []T, most int) []T { return s[:min(len(s), most)] }

// rows are the largest ones, and one that sums up the others.
func rows(in []*tree.Row, most int) []*Row {
	in = append([]*tree.Row(nil), in...)
	sort.SliceStable(in, func(i, j int) bool {
		return in[i].Used > in[j].Used || in[i].Used == in[j].Used && in[i].Acquired > in[j].Acquired
	})
	out := []*Row{}
	rest := &Row{Rest: true}
	for i, r := range in {
		if i < most {
			out = append(out, &Row{Name: analyze.Cut(r.Name, mostText), Used: integer(r.Used), Acquired: integer(r.Acquired), Blocks: integer(r.Blocks), OnStack: integer(r.OnStack)})
			continue
		}
		rest.Name = more(len(in) - most)
		rest.Used += integer(r.Used)
		rest.Acquired += integer(r.Acquired)
		rest.Blocks += integer(r.Blocks)
	}
	if rest.Name != "" {
		out = append(out, rest)
	}
	return out
}

// peaks are a trace's devices at their highest moments.
func (r *Report) peaks(t *Trace, i int, most limits) error {
	index := r.index()
	for _, d := range r.peak.Devices {
		if index(d.Trace) != i {
			continue
		}
		info := *d
		info.Tree, info.Lines, info.OwnLines, info.Functions, info.Scopes, info.Sizes, info.Processes = nil, nil, nil, nil, nil, nil, nil
		info.Open = first(info.Open, mostFew)
		p := &Peak{Device: d.Device, Tables: map[string][]*Row{}}
		var err error
		if p.Info, err = exact(info); err != nil {
			return err
		}
		for by, list := range map[tree.By][]*tree.Row{tree.ByLine: d.Lines, tree.ByOwnLine: d.OwnLines, tree.ByFunction: d.Functions,
			tree.ByScope: d.Scopes, tree.BySize: d.Sizes, tree.ByProcess: d.Processes} {
			p.Tables[by.String()] = rows(list, most.rows)
		}
		t.Peaks = append(t.Peaks, p)
	}
	return nil
}

func (r *Report) summaryOf(i int, most limits) (any, error) {
	s := *r.summary.Traces[i]
	s.Meta.Command, s.Meta.Options = first(s.Meta.Command, most.rows), first(s.Meta.Options, most.rows)
	s.Meta.APIs = nil
	s.Unhooked, s.Kinds, s.Layers, s.APIs = first(s.Unhooked, most.rows), first(s.Kinds, most.rows), first(s.Layers, most.rows), first(s.APIs, most.rows)
	s.Failures = nil // the card has them
	s.Devices = first(s.Devices, most.rows)
	processes := s.Processes
	s.Processes = nil
	for _, p := range first(processes, most.rows) {
		one := *p
		one.Threads, one.Sums = first(p.Threads, mostFew), nil
		s.Processes = append(s.Processes, &one)
	}
	return exact(struct {
		*summary.Trace
		More int `json:"processes_left_out,omitempty"`
	}{&s, len(processes) - len(s.Processes)})
}

// devicesOf is a trace's history, of its runs the longest.
func (r *Report) devicesOf(i int, most limits) (any, int, error) {
	d := *r.devices.Traces[i]
	left := max(len(d.Runs)-most.rows, 0)
	if left > 0 {
		d.Runs = longest(d.Runs, most.rows, func(r devices.RunRow) int64 { return r.To - r.From }, func(a, b devices.RunRow) bool { return a.From < b.From })
	}
	d.Devices = first(d.Devices, most.rows)
	v, err := exact(d)
	return v, left, err
}

// longest are those of the largest size, in their own order.
func longest[T any](in []T, most int, size func(T) int64, less func(a, b T) bool) []T {
	in = append([]T(nil), in...)
	sort.SliceStable(in, func(i, j int) bool { return size(in[i]) > size(in[j]) })
	in = first(in, most)
	sort.SliceStable(in, func(i, j int) bool { return less(in[i], in[j]) })
	return in
}

func (r *Report) oomOf(i int, most limits) (any, error) {
	t := *r.oom.Traces[i]
	n := min(most.rows, mostFew)
	failures := t.Failures
	t.Failures = nil
	for _, f := range first(failures, n) {
		one := *f
		one.Stack = one.Stack[max(len(one.Stack)-mostFrames, 0):]
		one.Scope = first(one.Scope, mostFew)
		one.Holders, one.Pins = first(one.Holders, n), first(one.Pins, n)
		one.Memory.Recorded = first(one.Memory.Recorded, n)
		if one.Growth != nil {
			g := *one.Growth
			g.Lines = first(g.Lines, n)
			one.Growth = &g
		}
		t.Failures = append(t.Failures, &one)
	}
	retried := t.Retried
	t.Retried, t.Other = first(t.Retried, n), first(t.Other, n)
	return exact(struct {
		oom.Trace
		More        int `json:"failures_left_out,omitempty"`
		MoreRetried int `json:"retried_left_out,omitempty"`
	}{t, len(failures) - len(t.Failures), len(retried) - len(t.Retried)})
}

// leaksOf is a trace's, of each list the largest; the page's scripts know the
// rest from the sums.
func (r *Report) leaksOf(i int, most limits) (any, error) {
	type process struct {
		leaks.Process
		Growing int `json:"growing_sites"`
	}
	out := struct {
		Path      string     `json:"path"`
		Processes []*process `json:"processes"`
		More      int        `json:"processes_left_out,omitempty"`
	}{Path: r.leaks.Traces[i].Path}
	all := r.leaks.Traces[i].Processes
	n := min(most.rows, mostFew)
	for _, p := range first(all, n) {
		one := &process{*p, len(p.Growth.Growing)}
		one.Growth.Growing = shortened(p.Growth.Growing, n, func(g *leaks.Growing) { g.Site = short(g.Site) })
		one.AtEnd.Sites = shortened(p.AtEnd.Sites, n, func(h *leaks.Held) { h.Site = short(h.Site) })
		one.Temporaries.Sites = nil // the sum is enough for a page
		out.Processes = append(out.Processes, one)
	}
	out.More = len(all) - len(out.Processes)
	return exact(out)
}

// shortened are copies of the first ones, made short.
func shortened[T any](in []*T, most int, short func(*T)) (out []*T) {
	for _, v := range first(in, most) {
		c := *v
		short(&c)
		out = append(out, &c)
	}
	return out
}

func short(s leaks.Site) leaks.Site {
	s.Stack = s.Stack[max(len(s.Stack)-mostFrames, 0):]
	return s
}

// contexts are a trace's, by name and the highest single ones, and as bands.
func (r *Report) contexts(t *Trace, i int, most limits) {
	index := r.index()
	one := scopes.Report{Curve: r.scopes.Curve}
	for _, s := range r.scopes.Scopes {
		if index(s.Trace) == i {
			one.Scopes = append(one.Scopes, s)
		}
	}
	byName := one.ByName().Names
	t.Names = names(byName, most.rows)
	t.Unnamed = len(byName) - len(t.Names)
	begun := func(a, b *scopes.Scope) bool { return a.Begin < b.Begin || a.Begin == b.Begin && a.Depth < b.Depth }
	t.Bands, t.Single = []*Band{}, []*Band{}
	for _, s := range spread(one.Scopes, most.bands) {
		t.Bands = append(t.Bands, band(s))
	}
	sort.SliceStable(t.Bands, func(i, j int) bool {
		a, b := t.Bands[i], t.Bands[j]
		return a.Begin < b.Begin || a.Begin == b.Begin && a.Depth < b.Depth
	})
	for _, s := range longest(one.Scopes, most.rows, func(s *scopes.Scope) int64 { return s.Measure.Peaked }, begun) {
		t.Single = append(t.Single, band(s))
	}
	t.Unbound, t.More = len(one.Scopes)-len(t.Bands), len(one.Scopes)-len(t.Single)
}

// stretches is into how many parts the time is cut from which bands are chosen.
const stretches = 128

// spread are scopes from all of the time: of each stretch of it the longest that
// begins there, then the second longest, and so on. The longest alone would be
// those of one stretch where a program does the same for hours.
func spread(in []*scopes.Scope, most int) []*scopes.Scope {
	if len(in) <= most {
		return in
	}
	in = append([]*scopes.Scope(nil), in...)
	sort.SliceStable(in, func(i, j int) bool { return in[i].End-in[i].Begin > in[j].End-in[j].Begin })
	from, to := in[0].Begin, in[0].Begin
	for _, s := range in {
		from, to = min(from, s.Begin), max(to, s.Begin)
	}
	width := (uint64(to)-uint64(from))/stretches + 1
	var taken [stretches]int
	var ranked [][]*scopes.Scope // the first of each stretch, the second ones, …
	for _, s := range in {
		at := (uint64(s.Begin) - uint64(from)) / width
		if taken[at] < most {
			if taken[at] == len(ranked) {
				ranked = append(ranked, nil)
			}
			ranked[taken[at]] = append(ranked[taken[at]], s)
			taken[at]++
		}
	}
	return slices.Concat(ranked...)[:most]
}

func band(s *scopes.Scope) *Band {
	m := s.Measure
	return &Band{Name: analyze.Short(s.Name), N: s.N, PID: s.PID, Thread: s.Thread, Depth: min(s.Depth, mostFrames), Open: s.Open, Begin: integer(s.Begin), End: integer(s.End),
		Known: m.Known, Used: integer(m.Used), Peaked: integer(m.Peaked), Max: integer(m.Max)}
}

// names are those that peaked highest with what is around them, in their order.
func names(in []*scopes.Name, most int) []*Name {
	order := make([]int, len(in))
	for i := range order {
		order[i] = i
	}
	sort.SliceStable(order, func(i, j int) bool { return in[order[i]].Peaked > in[order[j]].Peaked })
	shown := map[int]bool{}
	for _, i := range order {
		for depth := in[i].Depth; i >= 0 && len(shown) < most; i-- {
			if in[i].Depth <= depth {
				shown[i] = true
				depth = in[i].Depth - 1
			}
		}
	}
	out := []*Name{}
	for i, n := range in {
		if shown[i] {
			out = append(out, &Name{Name: analyze.Short(n.Name), Depth: min(n.Depth, mostFrames), Count: integer(n.Count), Known: integer(n.Known),
				Used: integer(n.Used), Peaked: integer(n.Peaked), Max: integer(n.Max)})
		}
	}
	return out
}
