package stats

import (
	"math/bits"
	"strings"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/tree"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
)

// What memory is for is inferred in two steps. The phase in which it was taken
// is read from the names around it: of scopes, then of the stack. How long it
// stayed says the rest: whether the process had begun to take memory in another
// phase when it was given back.
//
//	phase      stayed                        is
//	forward    into another phase            activations
//	backward   into another phase            gradients
//	optimizer  into another phase            optimizer state
//	outside    into another phase, and for   weights
//	           at least half of the run
//	outside    else                          inputs and other
//	any other  no                            temporary

type phase uint8

const (
	outside phase = iota
	forward
	backward
	optimizer
	phaseCount
)

func (p phase) String() string {
	return [...]string{"outside", "forward", "backward", "optimizer"}[p]
}

type kind uint8

const (
	weights kind = iota
	gradients
	optimizerState
	activations
	temporary
	other
	kindCount
)

func (k kind) String() string {
	return [...]string{"weights", "gradients", "optimizer state", "activations", "temporary", "inputs and other"}[k]
}

// phaseOfName reads a scope's name.
func phaseOfName(s string) (phase, bool) {
	s = strings.ToLower(s)
	for _, w := range []struct {
		word string
		is   phase
	}{{"backward", backward}, {"forward", forward}, {"optim", optimizer}} {
		if strings.Contains(s, w.word) {
			return w.is, true
		}
	}
	return outside, false
}

// phaseOfFrame reads a frame of PyTorch's, or a function called forward.
func phaseOfFrame(f *format.Frame) (phase, bool) {
	switch {
	case f.Kind == format.FrameThread && strings.HasPrefix(f.Function, "[thread pt_autograd"), strings.Contains(f.File, "/torch/autograd/"):
		return backward, true
	case strings.Contains(f.File, "/torch/optim/"):
		return optimizer, true
	case f.Function == "forward":
		return forward, true
	}
	return outside, false
}

type phaseKey struct {
	path  tree.Path
	stack format.StackID
}

// phaseOf is the innermost name that says something: of the scopes, else of the
// stack.
func (a *Answer) phaseOf(k phaseKey) phase {
	ph, known := a.phases[k]
	if known {
		return ph
	}
	defer func() { a.phases[k] = ph }()
	names := a.paths.Names(k.path)
	for i := len(names) - 1; i >= 0; i-- {
		if is, ok := phaseOfName(names[i]); ok {
			ph = is
			return ph
		}
	}
	a.ids, _ = a.p.Defs.Walk(k.stack, a.ids[:0])
	for i := len(a.ids) - 1; i >= 0; i-- {
		if is, ok := a.phaseOfFrame(a.ids[i]); ok {
			ph = is
			return ph
		}
	}
	return ph
}

// phaseOfFrame is what a frame says, looked at once; 1 stands for nothing, and what is more for 2 less.
func (a *Answer) phaseOfFrame(id format.FrameID) (phase, bool) {
	said := a.said.At(id)
	if said == 0 {
		f, known := a.p.Defs.Frame(id)
		said = 1
		if is, ok := phaseOfFrame(&f); ok {
			said = 2 + is
		}
		if known {
			next, _ := a.p.Defs.Next()
			a.said.Put(id, said, next)
		}
	}
	return max(said, 2) - 2, said > 1
}

// kinds are what is known of a process's memory by use.
type kinds struct {
	now       phase       // of the latest allocation
	since     format.Time // which it has been
	first     format.Time // of what was taken
	end       format.Time // of what was given back, or of the window
	any       bool
	seen      [phaseCount]bool
	sums      [kindCount]use
	live, top [phaseCount]int64 // by phase, now and at the peak
	sum, peak int64
	peakAt    format.Time
	touched   bool
}

// A use is one kind's.
type use struct {
	count, bytes int64
	held         product
}

// A product is bytes times nanoseconds, which need more than 64 bits.
type product struct{ high, low uint64 }

func (p *product) add(b product) {
	low, carry := bits.Add64(p.low, b.low, 0)
	p.high, p.low = p.high+b.high+carry, low
}

func (p *product) sub(b product) {
	low, borrow := bits.Sub64(p.low, b.low, 0)
	p.high, p.low = p.high-b.high-borrow, low
}

func (k *kinds) taken(ph phase, now format.Time) {
	if !k.any {
		k.any, k.first, k.now, k.since = true, now, ph, now
	}
	if ph != k.now {
		k.now, k.since = ph, now
	}
	k.seen[ph] = true
}

// change moves what is live of a phase.
func (k *kinds) change(ph phase, n int64) {
	k.live[ph] += n
	k.sum += n
	k.touched = true
}

// settle looks for a new peak, when an event is folded as a whole.
func (k *kinds) settle(at format.Time) {
	if k.touched && k.sum > k.peak {
		k.peak, k.peakAt, k.top = k.sum, at, k.live
	}
	k.touched = false
}

// given says what an allocation was for, when it is given back, or at the end, and
// what it adds there.
func (k *kinds) given(ph phase, al *live.Allocation, now format.Time) (*use, product) {
	stayed := al.Time < k.since
	is := temporary
	switch {
	case ph == outside && stayed && (now-al.Time) >= (now-k.first)/2:
		is = weights
	case ph == outside:
		is = other
	case !stayed:
	case ph == forward:
		is = activations
	case ph == backward:
		is = gradients
	case ph == optimizer:
		is = optimizerState
	}
	k.end = max(k.end, now)
	u := &k.sums[is]
	u.count++
	u.bytes = analyze.Add(u.bytes, al.Bytes())
	high, low := bits.Mul64(uint64(al.Bytes()), uint64(max(now-max(al.Time, k.first), 0)))
	u.held.add(product{high, low})
	return u, product{high, low}
}

// mean is the average of bytes live over a time.
func (u *use) mean(over format.Time) int64 {
	if over <= 0 || u.held.high >= uint64(over) {
		return 0
	}
	q, _ := bits.Div64(u.held.high, u.held.low, uint64(over))
	return int64(q)
}

// report says k, where there is a phase at all.
func (k *kinds) report(since func(format.Time) int64) Kinds {
	out := Kinds{Kinds: []*Kind{}, AtPeak: []*Phase{}, Peak: k.peak, PeakAt: since(k.peakAt)}
	if k.peak == 0 {
		out.PeakAt = 0
	}
	if !k.seen[forward] && !k.seen[backward] && !k.seen[optimizer] {
		out.Unknown = "no scope, file or function is named like a forward pass, a backward pass or an optimizer"
		return out
	}
	for i := range k.sums {
		u := &k.sums[i]
		out.Kinds = append(out.Kinds, &Kind{kind(i).String(), u.count, u.bytes, u.mean(k.end - k.first)})
	}
	for i, n := range k.top {
		out.AtPeak = append(out.AtPeak, &Phase{phase(i).String(), n})
	}
	return out
}
