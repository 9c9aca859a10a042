package oom

import (
	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
)

// A try is what is kept of a request while it is not known what becomes of it:
// see live.Refusals.
type try struct {
	freed   int64 // bytes given back since
	matches bool  // the query's filters
	pic     *picture
}

func (a *Answer) follow() {
	a.refusals.OnRefused = func(r *live.Refusal) {
		a.tries[keyOf(&r.First)] = &try{matches: a.p.Matches(&r.First, analyze.ByAll), pic: a.picture(&r.First)}
	}
	a.refusals.OnServed = func(r *live.Refusal, e *format.Event) {
		if t := a.taken(e); t.matches {
			a.retried(r, t, e)
		}
	}
	a.refusals.OnTold = func(r *live.Refusal, e *format.Event) {
		t := a.taken(e)
		switch {
		case r == nil:
			if a.p.Matches(e, analyze.ByAll) {
				a.fail(nil, e, a.picture(e))
			}
		case e == &r.First:
			if t.matches {
				a.fail(r, e, t.pic)
			}
		case t.matches || a.p.Matches(e, analyze.ByAll):
			a.fail(r, e, a.picture(e))
		}
	}
}

func keyOf(e *format.Event) threadKey { return threadKey{e.Process, e.Thread} }

// taken is the try of a thread, which is over.
func (a *Answer) taken(e *format.Event) *try {
	t := a.tries[keyOf(e)]
	if t == nil {
		return &try{}
	}
	delete(a.tries, keyOf(e))
	if t.pic != nil {
		t.pic.over = true // unless it becomes a failure's
	}
	return t
}

// failed is what failed for another reason than the device's memory.
func (a *Answer) failed(e *format.Event) {
	if live.OutOfMemory(e) || e.Flags&(format.FlagEcho|format.FlagCaptured) != 0 || !a.p.Matches(e, analyze.ByAll) {
		return
	}
	k := otherKey{e.Process, e.API, e.Status}
	o := a.others[k]
	if o == nil {
		row, _ := a.p.Defs.Process(e.Process)
		o = &Other{PID: row.PID, API: a.p.Defs.API(e.API), Status: e.Status, Host: e.Layer == format.LayerHost, First: a.p.Since(e.Time)}
		a.others[k] = o
	}
	o.Count++
}

type otherKey struct {
	process format.ProcessID
	api     format.API
	status  int32
}

// fail adds a failure. Without the numbers of its own moment, which cost too
// much for every one of very many, it only counts.
func (a *Answer) fail(r *live.Refusal, e *format.Event, pic *picture) {
	k := failureKey{e.Process, e.Device, e.Stack, e.API}
	f := a.failures[k]
	if f == nil {
		f = &failure{failureKey: k, out: &Failure{First: a.p.Since(e.Time), Outcome: Open}}
		a.failures[k] = f
		a.order = append(a.order, f)
	}
	if before := a.threads[keyOf(e)]; before != nil && before != f {
		before.followed = true
	}
	f.out.Count++
	a.threads[keyOf(e)], f.followed, f.out.After = f, false, 0
	if pic == nil && f.pic != nil {
		a.t.Skipped++
		return
	}
	if pic == nil { // the first of its kind is always looked at
		pic = a.look(e)
	}
	if f.pic != nil {
		f.pic.over = true
	}
	f.pic, pic.over = pic, false
	out := f.out
	out.Thread, out.Device, out.At, out.Reporter = e.Thread, pic.owner.Device, a.p.Since(e.Time), a.p.Defs.API(e.API)
	out.Asked, out.Refusals, out.Driver = live.Asked(e), 0, nil
	if r != nil {
		n := live.Asked(&r.First)
		out.Refusals, out.Driver = r.Count, &n
		pic.memory.Free = r.Free
	}
	if e.API == format.APITorchOOM {
		pic.memory.Allocated, pic.memory.Reserved = e.Allocated, e.Reserved
	}
	out.Scope, out.ScopeInferred = pic.scope, pic.inferred
}

// succeeded counts what a thread got after it had failed.
func (a *Answer) succeeded(e *format.Event) {
	if len(a.threads) == 0 || e.Flags&(format.FlagEcho|format.FlagCaptured) != 0 || e.Layer == format.LayerHost {
		return
	}
	if f := a.threads[keyOf(e)]; f != nil && f.out.Thread == e.Thread && a.refusals.Open(e) == nil {
		f.out.After++
	}
}

type retryKey struct {
	process format.ProcessID
	device  format.Device
	stack   format.StackID
	api     format.API
}

func (a *Answer) retried(refusal *live.Refusal, t *try, e *format.Event) {
	first := &refusal.First
	k := retryKey{e.Process, first.Device, first.Stack, first.API}
	r := a.retries[k]
	if r == nil {
		row, _ := a.p.Defs.Process(e.Process)
		s := a.site(first.Stack)
		r = &Retry{PID: row.PID, Device: first.Device, API: a.p.Defs.API(first.API), Line: s.line, In: s.in, First: a.p.Since(first.Time)}
		a.retries[k] = r
	}
	r.Count++
	r.Last = a.p.Since(first.Time)
	r.Largest = max(r.Largest, live.Asked(first))
	r.Freed = analyze.Add(r.Freed, max(t.freed, 0))
	r.Took = analyze.Add(r.Took, max(int64(e.Time-first.Pre()), 0))
}
