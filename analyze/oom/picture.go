package oom

import (
	"sort"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/segments"
	"github.com/gpurec/gpurec/analyze/tree"
	"github.com/gpurec/gpurec/format"
)

// A picture is what was held when memory ran out.
type picture struct {
	owner  segments.Owner
	at     format.Time
	memory Memory // but for what readings say

	scope    []string
	inferred bool // the scope
	holders  []Holder
	growth   *Growth
	pins     []Pin
	mapped   bool // the pool has mapped segments
	asked    bool // the process's driver calls are recorded: some were seen
	lost     bool // events of the process are missing

	near    near
	freeing map[threadKey]freeCall
	over    bool // replaced by a later one, or of no failure
}

const (
	looksPerEvent = 64      // at allocations, that pictures may cost
	looksAtFirst  = 1 << 20 // however few events there are
	mostHolders   = 10
	mostPins      = 5
	mostScopes    = 64 // a file may claim that scopes are each other's parents
)

// picture is a look, unless too much was spent on looks: a program may fail at
// every second request for ever, and a look costs as much as there is live.
func (a *Answer) picture(e *format.Event) *picture {
	if a.work > looksPerEvent*a.events+looksAtFirst {
		return nil
	}
	return a.look(e)
}

// look takes what is there now:
//
//  1. the sums of the process, and of its pool;
//  2. its layout, for the largest hole and what pins the others;
//  3. who holds how much, and what grew;
//  4. what is about to change: NVML's last readings, and frees that go on.
func (a *Answer) look(e *format.Event) *picture {
	o := a.owner(e)
	pic := &picture{owner: o, at: e.Time, freeing: map[threadKey]freeCall{}}
	h := a.holding(o)
	layout := a.segments.Layout(o)
	sums := segments.Total(layout)
	layer := format.LayerDriver
	if a.p.Pooled(o.Process) {
		layer = format.LayerPool
	}
	pic.memory = Memory{Total: format.Unknown, Free: format.Unknown, Process: format.Unknown, Untracked: format.Unknown, Others: format.Unknown,
		Allocated: format.Unknown, Reserved: format.Unknown, Acquired: h.now.Acquired, Used: h.now.Used, UsedLayer: layer.String(),
		Segments: sums.Segments, Cached: sums.Cached(), Pinned: sums.Pinned, Outside: max(h.now.Acquired-sums.Segments, 0)}
	if layer == format.LayerPool {
		pic.memory.Loose = max(h.now.Used-sums.Occupied, 0)
	}
	if p := a.p.State.Process(o.Process); p != nil {
		pic.asked, pic.lost = p.Acquired().Count > 0, p.Lost > 0
	}
	for _, p := range a.p.State.Processes() {
		a.work += p.LiveCount
	}
	pic.memory.Largest = segments.Largest(layout)
	for _, s := range layout {
		pic.mapped = pic.mapped || s.Mapped
	}
	for _, p := range segments.Pins(layout, func(b *segments.Block) site { return a.site(b.Stack) }) {
		if len(pic.pins) < mostPins {
			pic.pins = append(pic.pins, Pin{p.Of.line, p.Of.in, p.Blocks, p.Bytes, p.Segments, p.Free, p.Alone})
		}
	}
	pic.holders = a.holders(h)
	pic.growth = a.growth(h, o.Process)
	a.work += int64(len(h.stacks)) * int64(1+len(h.bySteps.snaps)+len(h.byCount.snaps))
	pic.scope, pic.inferred = a.openScopes(e.Scope), e.Flags&analyze.Inferred != 0
	a.near(pic)
	for k, f := range a.freeing {
		if f.device == o.Device && k != keyOf(e) {
			pic.freeing[k] = f
		}
	}
	a.wait(pic)
	return pic
}

// owner is whose memory a failure is about. An event may not know its device;
// where the process has memory on one only, it is that.
func (a *Answer) owner(e *format.Event) segments.Owner {
	o := segments.Owner{Process: e.Process, Device: e.Device}
	if e.Device != format.NoDevice {
		return o
	}
	var only []segments.Owner
	for k := range a.holdings {
		if k.Process == e.Process && k.Device != format.NoDevice {
			only = append(only, k)
		}
	}
	if len(only) == 1 {
		return only[0]
	}
	return o
}

// A site is what people call a stack: the innermost line of the program's own
// code, and the innermost of all where that is another.
type site struct{ line, in string }

func (a *Answer) site(stack format.StackID) site {
	s, ok := a.sites[stack]
	if ok {
		return s
	}
	own, known := a.own.Of(stack, a.p.Defs)
	if stack == 0 || !known {
		return site{line: tree.NoLineName} // of a growing trace, its definition may still come
	}
	s.line = a.p.Defs.Shown(&own).String()
	frames, _ := a.p.Defs.Walk(stack, nil)
	for i := len(frames) - 1; i >= 0; i-- {
		if fr, ok := a.p.Defs.Frame(frames[i]); ok && tree.IsLine(fr.Kind) {
			if in := a.p.Defs.Shown(&fr).String(); in != s.line {
				s.in = in
			}
			break
		}
	}
	a.sites[stack] = s
	return s
}

func (a *Answer) holders(h *holding) []Holder {
	sums := map[site]*Holder{}
	for stack, n := range h.stacks {
		if n.Used == 0 && n.Blocks == 0 {
			continue
		}
		s := a.site(stack)
		r := sums[s]
		if r == nil {
			r = &Holder{Line: s.line, In: s.in}
			sums[s] = r
		}
		r.Bytes += n.Used
		r.Blocks += n.Blocks
		r.stacks++
	}
	out := make([]Holder, 0, len(sums))
	for _, r := range sums {
		r.Share = float64(r.Bytes) / float64(max(h.now.Used, 1))
		out = append(out, *r)
	}
	sort.Slice(out, func(i, j int) bool {
		x, y := out[i], out[j]
		if x.Bytes != y.Bytes {
			return x.Bytes > y.Bytes
		}
		return x.Line+x.In < y.Line+y.In
	})
	return out[:min(len(out), mostHolders)]
}

// openScopes are the names of a thread's open scopes, outermost first.
func (a *Answer) openScopes(id format.ScopeID) (names []string) {
	for id != 0 && len(names) < mostScopes {
		sc := a.p.State.Scope(id)
		if sc == nil {
			break
		}
		names = append(names, a.p.Defs.Name(sc.Name))
		id = sc.Parent
	}
	for i, j := 0, len(names)-1; i < j; i, j = i+1, j-1 {
		names[i], names[j] = names[j], names[i]
	}
	return names
}
