package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
)

// A trace is one read whole.
type trace struct {
	meta      format.Meta
	defs      *format.Defs
	rows      []format.Event
	truncated bool
	state     *live.State
}

func readTrace(path string) (*trace, error) {
	t, err := format.Open(path)
	if err != nil {
		return nil, err
	}
	out := &trace{meta: t.Meta(), defs: format.NewDefs(), state: live.New()}
	cut := func(err error) bool {
		out.truncated = out.truncated || errors.Is(err, format.ErrTruncated)
		return errors.Is(err, format.ErrTruncated)
	}
	for _, p := range t.Parts() {
		if err := p.LoadDefs(out.defs); err != nil && !cut(err) {
			return nil, err
		}
		r, err := p.Events()
		if cut(err) {
			continue
		} else if err != nil {
			return nil, err
		}
		for {
			b, err := r.Next()
			if err == io.EOF || cut(err) {
				break
			} else if err != nil {
				r.Close()
				return nil, err
			}
			out.rows = append(out.rows, b...)
		}
		r.Close()
	}
	for i := range out.rows {
		out.state.Apply(&out.rows[i])
	}
	return out, nil
}

// process is the trace's row of a pid, 0 if there is none. Rounds are short: no
// pid comes again.
func (t *trace) process(pid int32) format.ProcessID {
	for _, p := range t.defs.Processes() {
		if p.PID == pid {
			return p.ID
		}
	}
	return 0
}

// A finding is what the comparison of a ledger with a trace came to.
type finding struct {
	done, recorded       int // calls that are done; of these in the trace
	missing              int // calls done before the bound and not in the trace
	lost                 int64
	flight               int // calls in which threads died
	unfinished, answered int
	oldest               format.Time // end of the first call that is not in the trace's end, 0 if none
}

// against compares every thread of the ledger with the trace. Calls done until
// bound must be there, but for as many as the trace says were lost.
func (l *ledger) against(t *trace, bound format.Time) (f finding, err error) {
	id := t.process(l.pid)
	byThread := map[uint32][]format.Event{}
	unfinished := map[uint32][]format.Event{}
	for i := range t.rows {
		switch e := t.rows[i]; {
		case e.Process != id || id == 0:
		case e.Kind == format.Lost:
			f.lost += e.Size
		case e.Kind == format.Unfinished:
			unfinished[e.Thread] = append(unfinished[e.Thread], e)
		case slices.Contains([]format.Kind{format.Alloc, format.AllocFailed, format.Free, format.FreeFailed}, e.Kind):
			byThread[e.Thread] = append(byThread[e.Thread], e)
		}
	}
	known := map[uint32]bool{}
	for i := range l.threads {
		a := &l.threads[i]
		known[a.tid] = true
		if err := a.against(byThread[a.tid], unfinished[a.tid], bound, &f); err != nil {
			return f, fmt.Errorf("thread %d: %w", a.tid, err)
		}
	}
	for tid, rows := range byThread {
		if !known[tid] {
			return f, fmt.Errorf("%d events of thread %d, which the ledger does not have", len(rows), tid)
		}
	}
	if int64(f.missing) > f.lost {
		return f, fmt.Errorf("%d calls that are done are not in the trace, which says that %d are lost", f.missing, f.lost)
	}
	for _, p := range t.state.Processes() {
		// A free that the driver refuses is of an address below every block.
		if p.ID == id && f.lost == 0 && t.meta.Stats.Late == 0 && p.LostFrees != 0 {
			return f, fmt.Errorf("%d allocations at a live address: the order is not that of effect", p.LostFrees)
		}
	}
	return f, nil
}

// A step is one row that a call owes.
type step struct {
	kind    format.Kind
	address uint64
	size    int64
	call    int // index of its entry
}

func (s step) is(e *format.Event) bool {
	if s.kind != e.Kind {
		return false
	}
	switch s.kind {
	case format.Alloc:
		return (s.address == 0 || s.address == e.Address) && s.size == e.Requested
	case format.AllocFailed:
		return s.size == e.Requested
	}
	return s.address == e.Address
}

func (e *entry) steps(call int) []step {
	switch {
	case e.alloc && e.status == 0:
		return []step{{format.Alloc, e.address, e.size, call}}
	case e.alloc:
		return []step{{format.AllocFailed, 0, e.size, call}}
	case e.status == 0:
		return []step{{format.Free, e.address, 0, call}}
	}
	return []step{{format.Free, e.address, 0, call}, {format.FreeFailed, e.address, 0, call}}
}

// against goes through the rows of one thread in the trace's order: each is the
// next step of the account, or a later one, and what lies between is missing. Last
// may come what the call in flight did.
func (a *account) against(rows, unfinished []format.Event, bound format.Time, f *finding) error {
	var steps []step
	for i := range a.done {
		steps = append(steps, a.done[i].steps(i)...)
	}
	f.done += len(a.done)
	missing, late, next := map[int]bool{}, map[int]bool{}, 0 // calls: one may be several steps
	for len(rows) > 0 {
		at := slices.IndexFunc(steps[next:], func(s step) bool { return s.is(&rows[0]) })
		if at < 0 {
			break
		}
		for _, s := range steps[next : next+at] {
			missing[s.call] = true
		}
		next, rows = next+at+1, rows[1:]
	}
	for _, s := range steps[next:] {
		if end := a.done[s.call].end; end <= bound {
			missing[s.call] = true
		} else {
			if f.oldest == 0 || end < f.oldest {
				f.oldest = end
			}
			late[s.call] = true
		}
	}
	f.missing += len(missing)
	maps.Copy(late, missing)
	f.recorded += len(a.done) - len(late)
	if a.flight == nil {
		if len(rows) > 0 || len(unfinished) > 0 {
			return fmt.Errorf("%d events and %d unfinished calls beyond the last that was begun; the first is %s", len(rows), len(unfinished), name(append(rows, unfinished...)[0]))
		}
		return nil
	}
	f.flight++
	return a.flight.within(rows, unfinished, f)
}

// within accepts what the call in which a thread died may have left.
func (e *entry) within(rows, unfinished []format.Event, f *finding) error {
	var may []step
	if e.alloc {
		may = []step{{format.Alloc, 0, e.size, 0}}
	} else {
		may = []step{{format.Free, e.address, 0, 0}, {format.FreeFailed, e.address, 0, 0}}
	}
	if len(rows) > len(may) {
		return fmt.Errorf("%d events beyond the call in flight; the first is %s", len(rows)-len(may), name(rows[0]))
	}
	for i := range rows {
		if !may[i].is(&rows[i]) {
			return fmt.Errorf("%s is neither in the ledger nor the call in flight", name(rows[i]))
		}
	}
	answered := e.alloc && len(rows) == 1 || len(rows) == 2
	switch {
	case len(unfinished) == 0:
		if answered {
			f.answered++
		}
		return nil
	case len(unfinished) > 1:
		return fmt.Errorf("%d unfinished calls of one thread", len(unfinished))
	}
	u := &unfinished[0]
	if want := map[bool]format.API{true: format.APIMemAlloc, false: format.APIMemFree}[e.alloc]; u.API != want || !e.alloc && u.Address != e.address || e.alloc && u.Requested != e.size {
		return fmt.Errorf("the unfinished call is %s, the ledger says alloc=%v address=%#x size=%d", name(*u), e.alloc, e.address, e.size)
	}
	if u.Duration < 0 {
		return fmt.Errorf("the unfinished call lasted %v", time.Duration(u.Duration))
	}
	f.unfinished++
	return nil
}

func name(e format.Event) string {
	return fmt.Sprintf("%s %s address=%#x requested=%d seq=%d", e.Kind, e.API, e.Address, e.Requested, e.Seq)
}
