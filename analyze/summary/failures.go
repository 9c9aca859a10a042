package summary

import (
	"fmt"
	"strings"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/tree"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
)

type failureKey struct {
	process format.ProcessID
	api     format.API
	status  int32
}

// outOfMemory is CUDA_ERROR_OUT_OF_MEMORY.
const outOfMemory = 2

// follow counts what became of requests that failed.
func (a *Answer) follow(p *analyze.Pass) {
	a.refusals.OnTold = func(r *live.Refusal, e *format.Event) {
		if p.Matches(e, analyze.ByAll) || r != nil && p.Matches(&r.First, analyze.ByAll) {
			a.t.Memory.Told++
		}
	}
	a.refusals.OnServed = func(r *live.Refusal, _ *format.Event) {
		if f := a.failures[failureKey{r.First.Process, r.First.API, r.First.Status}]; f != nil && p.Matches(&r.First, analyze.ByAll) {
			a.t.Memory.Retried++
			f.Retried += r.Count
		}
	}
}

// failed counts a failed allocation. An echo is told by another event.
func (a *Answer) failed(p *analyze.Pass, e *format.Event) {
	if e.Flags&format.FlagEcho != 0 {
		return
	}
	k := failureKey{e.Process, e.API, e.Status}
	f := a.failures[k]
	if f == nil {
		f = &Failure{API: p.Defs.API(e.API), Status: e.Status, First: p.Since(e.Time), Largest: -1}
		if e.Status == outOfMemory || e.API == format.APITorchOOM { // which knows no status
			f.Why = "out of memory"
		}
		a.failures[k] = f
		a.order = append(a.order, f)
	}
	f.Count++
	n := max(e.Requested, e.Size, 0)
	if n <= f.Largest {
		return
	}
	f.Largest, f.LargestAt, f.Device, f.stack = n, p.Since(e.Time), e.Device, e.Stack
	f.scopes, f.ScopeInferred = f.scopes[:0], e.Flags&analyze.Inferred != 0
	const most = 64 // a file may claim that scopes are each other's parents
	for id := e.Scope; id != 0 && len(f.scopes) < most; {
		sc := p.State.Scope(id)
		if sc == nil {
			break
		}
		f.scopes = append(f.scopes, sc.Name)
		id = sc.Parent
	}
}

// endFailures names what was kept by number: of a growing trace definitions
// are all there only now.
func (a *Answer) endFailures(p *analyze.Pass) {
	for k, f := range a.failures {
		d, _ := p.Defs.Process(k.process)
		f.PID = d.PID
		if frames, _ := p.Defs.Walk(f.stack, nil); len(frames) > 0 {
			if frame, ok := p.Defs.Frame(frames[len(frames)-1]); ok {
				f.Line = p.Defs.Shown(&frame).String()
			}
		}
		for i := len(f.scopes) - 1; i >= 0; i-- {
			f.Scope = append(f.Scope, p.Defs.Name(f.scopes[i]))
		}
		f.LiveThen = fmt.Sprintf("gpuanalyze lines --at %s %s", analyze.Exactly(f.LargestAt), analyze.Word(p.Trace.Path()))
	}
	a.t.Failures = a.order
	a.refusals.End()
}

// words are what is said of f: how often and why, then the largest.
func (f *Failure) words() []string {
	why := f.Why
	if why == "" {
		why = fmt.Sprintf("status %d", f.Status)
	}
	largest := fmt.Sprintf("largest %s at %s", size(f.Largest), analyze.Seconds(f.LargestAt))
	if f.Device != format.NoDevice {
		largest += fmt.Sprintf(" on device %d", f.Device)
	}
	switch {
	case f.Retried == f.Count:
		why += ", and a retry worked"
	case f.Retried > 0:
		why += fmt.Sprintf(", of which %d before a retry that worked", f.Retried)
	}
	lines := []string{fmt.Sprintf("%d × %s of pid %d: %s, first at %s", f.Count, analyze.Short(f.API), f.PID, why, analyze.Seconds(f.First)), largest}
	if f.Line != "" {
		lines = append(lines, "by "+analyze.Line(f.Line))
	} else {
		lines = append(lines, "by a line that is not known")
	}
	if len(f.Scope) > 0 {
		in := "in " + analyze.Line(strings.Join(f.Scope, " / "))
		if f.ScopeInferred {
			in += tree.InferredMark
		}
		lines = append(lines, in)
	}
	return append(lines, "live then: "+analyze.Line(f.LiveThen))
}
