package oom

import (
	"fmt"
	"sort"
	"strings"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/tree"
	"github.com/gpurec/gpurec/format"
)

// Thresholds are shares of what programs can have of the device (Memory.Total),
// where they say no other. They are in every report.
type Thresholds struct {
	Huge         float64 `json:"huge_request"`   // a request is a cause of its own from here on
	Held         float64 `json:"held"`           // used bytes
	Others       float64 `json:"others"`         // other processes' bytes
	Untracked    float64 `json:"untracked"`      // the process's bytes that no recorded call took, Context left out
	Cached       float64 `json:"cached"`         // free in the pool: a cause before live memory
	Fragmented   float64 `json:"fragmented"`     // free in the pool: a cause before live memory that grew from step to step
	LimitSlack   float64 `json:"limit_slack"`    // more free than asked for, and refused
	GrowingShare float64 `json:"growing_share"`  // of used bytes, that a line must have grown by
	GrowingRises float64 `json:"growing_rises"`  // of the looks at it, that a line must have risen between
	GrownShare   float64 `json:"grown_headline"` // of used bytes, that all growing lines must have grown by to be a headline
	Context      int64   `json:"context"`        // bytes that a process's CUcontext and modules may have: no cause
	GranularityB int64   `json:"granularity"`    // bytes to which PyTorch rounds what it asks of the driver
}

var thresholds = Thresholds{
	Huge:         0.25,
	Held:         0.25,
	Others:       0.10,
	Untracked:    0.10,
	Cached:       0.05,
	Fragmented:   0.20,
	LimitSlack:   0.05,
	GrowingShare: 0.05,
	GrowingRises: 0.80,
	GrownShare:   0.25,
	Context:      1536 << 20,
	GranularityB: 20 << 20,
}

// A Cause is one reason, and the bytes that it stands for.
type Cause struct {
	ID    string `json:"cause"`
	Title string `json:"title"`
	Bytes int64  `json:"bytes"`
	Why   string `json:"why"` // the numbers, and the threshold that they reach
}

// The causes, by ID.
const (
	OwnLimit      = "own-limit" // the pool refused without asking the driver
	LargerThanGPU = "larger-than-device"
	KeptTensors   = "kept-tensors"   // live memory fills the device, and it grew from step to step
	GrowingMemory = "growing-memory" // the same, and there are no steps: it may be all of one
	LiveMemory    = "live-memory"    // live memory fills the device
	HugeRequest   = "huge-request"
	Fragmentation = "fragmentation" // enough is cached and free, in pieces that are too small
	Unreachable   = "unreachable-cache"
	OtherProcess  = "other-process"
	UntrackedUse  = "untracked-use"
	DeviceLimit   = "limit-below-device" // the driver refused though the device had enough
	NoCause       = "unknown"
)

// causes derives the causes and what to do about them. Those that need no
// comparison come first, then the one that stands for most bytes. Two go before
// larger ones: see before.
func (f *failure) causes(p *analyze.Pass) {
	c := judge{Failure: f.out, m: &f.out.Memory, pic: f.pic, lost: f.pic.lost || p.Trace.Meta().Stats.Lost > 0}
	f.out.Holders, f.out.Growth, f.out.Pins = f.pic.holders, f.pic.growth, f.pic.pins
	if h := f.out.Holders; len(h) > 0 && h[0].Share > nearlyAll && h[0].stacks > 1 {
		f.out.Wrapper = h[0].Line
	}
	for o, n := range f.pic.near.acquired {
		if o != f.process {
			row, _ := p.Defs.Process(o)
			c.m.Recorded = append(c.m.Recorded, Neighbour{row.PID, row.Command, n})
		}
	}
	sort.Slice(c.m.Recorded, func(i, j int) bool { return c.m.Recorded[i].PID < c.m.Recorded[j].PID })
	c.certain()
	sure := len(c.found)
	c.live()
	c.others()
	c.cached()
	c.untracked()
	weighed := c.found[sure:]
	sort.SliceStable(weighed, func(i, j int) bool { return weighed[i].Bytes > weighed[j].Bytes })
	c.promote(sure, Fragmentation)
	c.huge()
	c.promote(sure, HugeRequest)
	if len(c.found) == 0 {
		c.add(NoCause, "no cause reaches its threshold", 0, "%s", c.unknown())
	}
	f.out.Causes = c.found
	f.out.Remedies = c.remedies()
}

// A judge looks at one failure. Bytes are -1 where they are not known.
type judge struct {
	*Failure
	m     *Memory
	pic   *picture
	lost  bool
	found []Cause
}

func (c *judge) add(id, title string, bytes int64, why string, args ...any) {
	c.found = append(c.found, Cause{id, title, bytes, fmt.Sprintf(why, args...)})
}

func (c *judge) has(ids ...string) bool {
	for _, f := range c.found {
		for _, id := range ids {
			if f.ID == id {
				return true
			}
		}
	}
	return false
}

// reaches reports whether n is that share of the device.
func (c *judge) reaches(n int64, share float64) bool {
	return c.m.Total > 0 && float64(n) >= share*float64(c.m.Total)
}

// need is what the request took from the device: the pool may ask for more than
// it was asked for.
func (c *judge) need() int64 {
	if c.Driver != nil && !c.pic.mapped {
		return max(c.Asked, *c.Driver)
	}
	return c.Asked
}

// missing is what the device lacked, 0 where that is not known.
func (c *judge) missing() int64 {
	if c.m.Free < 0 {
		return 0
	}
	return max(c.need()-c.m.Free, 0)
}

// enough reports whether the request would have fitted with n more bytes free.
func (c *judge) enough(n int64) bool { return c.m.Free >= 0 && c.m.Free+n >= c.need() }

// exact reports whether Free is of the moment itself: the driver's word, or a
// sample since which, or until which, nothing was taken or given back. Another's
// correction leaves out what no event tells, such as a new context.
func (m *Memory) exact() bool {
	return m.Free >= 0 && (m.Reading == nil || m.Reading.Corrected == 0)
}

func (m *Memory) free() string {
	if m.exact() {
		return size(m.Free)
	}
	return "about " + size(m.Free)
}

// certain are the causes that need no comparison: who refused says them.
func (c *judge) certain() {
	switch {
	case c.Refusals == 0 && c.pic.asked:
		reserved := c.m.Segments
		if c.m.Reserved >= 0 {
			reserved = c.m.Reserved
		}
		words := ""
		if c.m.Free >= c.Asked {
			words = fmt.Sprintf(", and the device had %s free", c.m.free())
		}
		if c.lost {
			words += ". Events are missing, so that a refusal by the driver may be too"
		}
		c.add(OwnLimit, "the pool's own limit: it refused without asking the driver", reserved,
			"the driver was not asked%s. The pool had taken %s, so its limit (inferred) is at least that and less than about %s",
			words, size(reserved), format.Bytes(reserved+max(c.Asked, thresholds.GranularityB)))
	case c.m.Total > 0 && c.need() > c.m.Total:
		c.add(LargerThanGPU, "one request is larger than the device", c.need(), "it asks for %s, and programs can have %s of this device, all of it free",
			size(c.need()), size(c.m.Total))
	case c.Refusals > 0 && c.enough(0) && c.m.exact() && c.reaches(c.m.Free-c.need(), thresholds.LimitSlack):
		c.add(DeviceLimit, "a limit below the device: the driver refused what the device had", c.m.Free,
			"%s was free, more than asked for by %s of the device (threshold %s). Which limit it is the events do not say",
			size(c.m.Free), percent(c.m.Free-c.need(), c.m.Total), share(thresholds.LimitSlack))
	}
}

// live is memory that the program itself holds.
func (c *judge) live() {
	if c.reaches(c.m.Used, thresholds.Held) {
		fills := fmt.Sprintf("live memory is %s, %s of the device (threshold %s)", size(c.m.Used), percent(c.m.Used, c.m.Total), share(thresholds.Held))
		if !c.growing("the device was full", fills) {
			c.add(LiveMemory, "live memory has "+percent(c.m.Used, c.m.Total)+" of the device", c.m.Used, "%s", fills)
		}
		return
	}
	if c.has(OwnLimit) && c.found[0].Bytes > 0 && 2*c.m.Used >= c.found[0].Bytes { // under a limit of its own
		fills := fmt.Sprintf("live memory is %s, %s of what the pool had taken (threshold 50 %%)", size(c.m.Used), percent(c.m.Used, c.found[0].Bytes))
		if !c.growing("the limit was reached", fills) {
			c.add(LiveMemory, "live memory fills what the limit allows", c.m.Used, "%s", fills)
		}
	}
}

// growing adds the cause of live memory that grew until something, if it did.
func (c *judge) growing(until, fills string) bool {
	g := c.pic.growth
	if g == nil || float64(g.Bytes()) < thresholds.GrownShare*float64(c.m.Used) {
		return false
	}
	grew := fmt.Sprintf("%s; %s of it came between %s (threshold %s of live memory), from lines that rose at %s of %d looks or more", fills,
		size(g.Bytes()), g.span(), share(thresholds.GrownShare), share(thresholds.GrowingRises), g.Lines[0].Looks)
	if g.By == "step" {
		c.add(KeptTensors, "memory that the program keeps: it grew from step to step until "+until, c.m.Used, "%s", grew)
	} else {
		c.add(GrowingMemory, "live memory grew steadily until "+until+": it is kept, or all of one step", c.m.Used,
			"%s. No scope came again often enough to tell steps apart", grew)
	}
	return true
}

// span is from where to where a growth was looked at.
func (g *Growth) span() string {
	if g.By == "step" {
		return fmt.Sprintf("%q %d and %d", analyze.Short(g.Scope), g.From, g.To)
	}
	return fmt.Sprintf("allocation %d and %d", g.From, g.To)
}

func (c *judge) others() {
	n, at := c.elsewhere()
	if !c.reaches(n, thresholds.Others) || c.has(OwnLimit, LargerThanGPU) || !c.enough(n) {
		return
	}
	c.add(OtherProcess, "other processes have the device's memory", n, "they have %s%s, %s of the device (threshold %s), and without them the request would have fitted",
		size(n), at, percent(n, c.m.Total), share(thresholds.Others))
}

// elsewhere is what other processes have for certain. Where NVML did not say what
// this process itself has, its context is among the others' bytes.
func (c *judge) elsewhere() (n int64, words string) {
	if c.m.Others < 0 || !c.m.AtMost {
		return c.m.Others, ""
	}
	known := int64(0)
	for _, o := range c.m.Recorded {
		known += o.Acquired
	}
	return known + max(c.m.Others-known-thresholds.Context, 0), " at least (NVML did not say what this process itself has: " + format.Bytes(thresholds.Context) + " of the rest may be its CUcontext)"
}

// cached is memory that the pool has and the request could not use.
func (c *judge) cached() {
	n := c.m.Cached
	switch {
	case n <= 0 || c.has(LargerThanGPU):
	case n >= c.Asked || c.enough(n) && !c.has(OwnLimit) && c.reaches(n, thresholds.Cached):
		if c.m.Largest >= c.Asked {
			c.add(Unreachable, "the pool had a free piece that is large enough, and did not use it", n,
				"%s are cached and free, the largest piece has %s; which stream or private pool it belongs to is not recorded", size(n), size(c.m.Largest))
			return
		}
		with := ""
		if n < c.Asked {
			with = fmt.Sprintf(", with what the device had free enough for it; %s of the device (threshold %s)", percent(n, c.m.Total), share(thresholds.Cached))
		}
		c.add(Fragmentation, "fragmentation: enough is cached and free, in pieces that are too small", n,
			"%s are cached and free%s; the largest piece has %s at most, and %s are in segments that a block keeps from being given back",
			size(n), with, size(c.m.Largest), size(c.m.Pinned))
	}
}

// untracked leaves out what is live in pools whose reserve is not recorded, and what
// every process's CUcontext and modules have: on a small device, as a MIG slice is,
// that is a large share, and nothing that the program could give back.
func (c *judge) untracked() {
	n := c.m.Untracked - c.m.Loose - thresholds.Context
	if n > 0 && c.reaches(n, thresholds.Untracked) && c.enough(n) && !c.has(OwnLimit, LargerThanGPU) {
		c.add(UntrackedUse, "this process has memory that no recorded call took", n,
			"by NVML it has %s more than is known of it, %s of the device (threshold %s), the %s left out that CUcontext and modules may have: stream-ordered pools' reserve, functions that are not recorded",
			size(n), percent(n, c.m.Total), share(thresholds.Untracked), format.Bytes(thresholds.Context))
	}
}

// huge is a request that is large itself.
func (c *judge) huge() {
	if n := c.need(); !c.has(LargerThanGPU) && c.reaches(n, thresholds.Huge) {
		c.add(HugeRequest, "one huge request", n, "it asks for %s, %s of the device (threshold %s)", size(n), percent(n, c.m.Total), share(thresholds.Huge))
	}
}

// promote moves a cause before those that it goes before.
func (c *judge) promote(sure int, id string) {
	for at := sure + 1; at < len(c.found); at++ {
		for i := at; i > sure && c.found[i].ID == id && c.before(c.found[i], c.found[i-1]); i-- {
			c.found[i-1], c.found[i] = c.found[i], c.found[i-1]
		}
	}
}

// before reports whether a cause is more of one than another. Live memory is
// what a program needs: where enough is cached, or one request is larger than
// what any line holds, these are what is unusual. Where live memory grew from
// step to step, that is unusual too, and only a large cache goes before it.
func (c *judge) before(cause, other Cause) bool {
	live := other.ID == LiveMemory || other.ID == GrowingMemory
	switch {
	case cause.ID == Fragmentation && live:
		return c.m.Cached >= c.Asked && c.reaches(c.m.Cached, thresholds.Cached)
	case cause.ID == Fragmentation && other.ID == KeptTensors:
		return c.m.Cached >= c.Asked && c.reaches(c.m.Cached, thresholds.Fragmented)
	case cause.ID == HugeRequest && live:
		return len(c.pic.holders) == 0 || cause.Bytes >= c.pic.holders[0].Bytes
	case cause.ID == HugeRequest && other.ID == KeptTensors:
		return false
	}
	return cause.Bytes > other.Bytes
}

func (c *judge) unknown() string {
	var not []string
	if c.m.Free < 0 {
		not = append(not, "there are no NVML samples of this device, so its free memory and other processes are not known")
	}
	if c.m.Total <= 0 {
		not = append(not, "the device's size is not known")
	}
	if c.lost {
		not = append(not, "events are missing")
	}
	if n := c.m.Untracked - c.m.Loose; n > 0 && c.reaches(n, thresholds.Untracked) {
		not = append(not, fmt.Sprintf("%s, %s of the device, may all be this process's CUcontext and modules", size(n), percent(n, c.m.Total)))
	}
	if len(not) == 0 {
		return "the numbers below are all there is"
	}
	return strings.Join(not, "; ")
}

func size(n int64) string { return tree.Size(n) }

func share(f float64) string { return fmt.Sprintf("%.0f %%", 100*f) }

func percent(n, of int64) string {
	if of <= 0 {
		return "?"
	}
	return fmt.Sprintf("%.1f %%", 100*float64(n)/float64(of))
}
