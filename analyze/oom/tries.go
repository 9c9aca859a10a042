package oom

import (
	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
)

// outOfMemory is CUDA_ERROR_OUT_OF_MEMORY.
const outOfMemory = 2

// A thread is one that was refused memory.
type thread struct {
	try    *try
	failed *failure // the latest that it was told of
}

// A try is a request that the driver refused and of which it is not yet known
// what became:
//
//	AllocFailed … AllocFailed … Alloc of the same size    the retry worked
//	AllocFailed … AllocFailed … a pool's AllocFailed      the program was told, by the pool
//	AllocFailed … the thread does something else          the program was told, by the driver
//
// Between them stand frees of what the pool gives back. A mapped segment is made
// of many handles of one size, so that only the pool's own alloc says that the
// request was served.
type try struct {
	first    format.Event
	refusals int64
	freed    int64 // bytes given back since
	matches  bool  // the query's filters
	pic      *picture
}

// thread is the one of e where it was refused memory before, else nil.
func (a *Answer) thread(e *format.Event) *thread {
	if len(a.threads) == 0 {
		return nil
	}
	return a.threads[threadKey{e.Process, e.Thread}]
}

func (a *Answer) failed(e *format.Event) {
	if e.Flags&(format.FlagEcho|format.FlagCaptured) != 0 {
		return
	}
	switch {
	case reports(e.API):
		a.told(e)
	case e.Status != outOfMemory || e.Layer == format.LayerHost:
		a.otherwise(e)
	default:
		a.refused(e)
	}
}

// reports says whether an api is a pool's word to the program, beside the
// driver's own.
func reports(api format.API) bool {
	switch api {
	case format.APITorch, format.APITorchOOM, format.APICuPy, format.APIGoPool:
		return true
	}
	return false
}

// asked is how much an attempt was for.
func asked(e *format.Event) int64 { return max(e.Requested, e.Size, 0) }

func (a *Answer) refused(e *format.Event) {
	k := threadKey{e.Process, e.Thread}
	th := a.threads[k]
	if th == nil {
		th = &thread{}
		a.threads[k] = th
	}
	if t := th.try; t != nil && asked(&t.first) == asked(e) && t.first.Device == e.Device {
		t.refusals++
		return
	}
	a.unanswered(th)
	th.try = &try{first: *e, refusals: 1, matches: a.p.Matches(e, analyze.ByAll), pic: a.picture(e)}
}

// told is a pool's report.
func (a *Answer) told(e *format.Event) {
	k := threadKey{e.Process, e.Thread}
	th := a.threads[k]
	if th == nil {
		th = &thread{}
		a.threads[k] = th
	}
	t := th.try
	th.try = nil
	matches := a.p.Matches(e, analyze.ByAll) || t != nil && t.matches
	if !matches {
		return
	}
	a.fail(th, e, t, a.picture(e))
}

// unanswered ends a try of which no pool said anything.
func (a *Answer) unanswered(th *thread) {
	t := th.try
	th.try = nil
	if t != nil && t.matches {
		a.fail(th, &t.first, t, t.pic)
	}
}

// fail adds a failure. Without the numbers of its own moment, which cost too
// much for every one of very many, it only counts.
func (a *Answer) fail(th *thread, e *format.Event, t *try, pic *picture) {
	k := failureKey{e.Process, e.Device, e.Stack, e.API}
	f := a.failures[k]
	if f == nil {
		f = &failure{failureKey: k, out: &Failure{First: a.p.Since(e.Time), Outcome: Open}}
		a.failures[k] = f
		a.order = append(a.order, f)
	}
	if th.failed != nil && th.failed != f {
		th.failed.followed = true
	}
	f.out.Count++
	th.failed, f.followed, f.out.After = f, false, 0
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
	f.pic = pic
	out := f.out
	out.Thread, out.Device, out.At, out.Reporter = e.Thread, pic.owner.Device, a.p.Since(e.Time), e.API.String()
	out.Asked, out.Refusals, out.Driver = asked(e), 0, nil
	if t != nil {
		n := asked(&t.first)
		out.Refusals, out.Driver = t.refusals, &n
	}
	if e.API == format.APITorchOOM {
		pic.memory.Allocated, pic.memory.Reserved = e.Allocated, e.Reserved
	}
	out.Scope = pic.scope
}

// succeeded looks whether an Alloc is the retry that worked.
func (a *Answer) succeeded(e *format.Event) {
	th := a.thread(e)
	if th == nil || e.Flags&(format.FlagEcho|format.FlagCaptured) != 0 || e.Layer == format.LayerHost {
		return
	}
	if t := th.try; t != nil {
		switch {
		case t.serves(e):
			a.retried(t, e)
			th.try = nil
		case t.first.API != format.APIMemCreate:
			a.unanswered(th)
		}
	}
	if th.failed != nil && th.try == nil && th.failed.out.Thread == e.Thread {
		th.failed.out.After++
	}
}

// serves reports whether e is what the refused request was for.
func (t *try) serves(e *format.Event) bool {
	if t.first.API == format.APIMemCreate {
		return e.Layer == format.LayerPool && e.API.Space() != format.SpaceDevice
	}
	return !reports(e.API) && asked(e) == asked(&t.first) && e.Device == t.first.Device
}

// moved is a thread that does something else.
func (a *Answer) moved(e *format.Event) {
	if th := a.thread(e); th != nil && th.try != nil {
		a.unanswered(th)
	}
}

type retryKey struct {
	process format.ProcessID
	device  format.Device
	stack   format.StackID
	api     format.API
}

func (a *Answer) retried(t *try, e *format.Event) {
	if t.pic != nil {
		t.pic.over = true
	}
	if !t.matches {
		return
	}
	k := retryKey{e.Process, t.first.Device, t.first.Stack, t.first.API}
	r := a.retries[k]
	if r == nil {
		row, _ := a.p.Defs.Process(e.Process)
		s := a.site(t.first.Stack)
		r = &Retry{PID: row.PID, Device: t.first.Device, API: t.first.API.String(), Line: s.line, In: s.in, First: a.p.Since(t.first.Time)}
		a.retries[k] = r
	}
	r.Count++
	r.Last = a.p.Since(t.first.Time)
	r.Largest = max(r.Largest, asked(&t.first))
	r.Freed = analyze.Add(r.Freed, max(t.freed, 0))
	r.Took = analyze.Add(r.Took, max(int64(e.Time-t.first.Pre()), 0))
}

type otherKey struct {
	process format.ProcessID
	api     format.API
	status  int32
}

// otherwise counts what failed and is no question of the device's memory.
func (a *Answer) otherwise(e *format.Event) {
	if !a.p.Matches(e, analyze.ByAll) {
		return
	}
	k := otherKey{e.Process, e.API, e.Status}
	o := a.others[k]
	if o == nil {
		row, _ := a.p.Defs.Process(e.Process)
		o = &Other{PID: row.PID, API: e.API.String(), Status: e.Status, Host: e.Layer == format.LayerHost, First: a.p.Since(e.Time)}
		a.others[k] = o
	}
	o.Count++
}
