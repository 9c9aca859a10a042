package recorder

import (
	"runtime/debug"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
)

// A traced thread asks for what a scope has measured by a record in its own lane,
// among its events, and waits for the answer in that lane's header:
//
//	1 the thread publishes a WireAsk, or a report or an end that asks, stores its
//	  time in Asked, and wakes drain by a connection that says nothing else
//	2 drain sees Asked, makes turns of the least pause and hands each to fold
//	3 fold comes to the record when all that was published before it is folded,
//	  and answers by a copy of a few words and a wake-up
//	4 the thread goes on, at the latest after format.AnswerWait
//
// So the answer is what a replay of the trace finds at that record. It needs no
// descriptor, no table of who waits, and no check of who asks: the lane's owner
// was checked at its birth, a scope's number means something only within the
// process, and nobody is waited for. What an asker who never stops costs is turns
// of the least pause, as a thread that fills its lane does.

// asks reports whether the lane's thread waits for an answer at the time of a turn.
func (l *lane) asks(a format.Time) bool {
	asked := l.ring.Asked()
	if asked == 0 || int64(asked) == l.answered.Load() {
		return false
	}
	age := a - asked // of a question asked since the turn began it is negative
	return age > -margin && age < format.AnswerWait
}

// tell answers a record that asks.
func (f *fold) tell(l *lane, w *format.WireScope) {
	t := &l.process.tables
	a := format.WireAnswer{Asked: w.Time}
	closed, ok := t.closed.get(w.Range)
	m := closed.m
	if o, open := t.ranges[w.Range]; open {
		m, ok = measure(f.state, o.id), true
	}
	if p := f.state.Process(t.id); p != nil {
		a.Lost = uint64(p.Lost)
		a.State = format.AnswerDriver
		if p.Pooled {
			a.State = format.AnswerPool
			m.curves[CurveUsed] = m.pool // also of a scope that ended before the pool's first event
		}
	}
	if !ok || !m.open {
		a.State = format.AnswerUnknown
	}
	for i, c := range m.curves {
		a.Begin[i], a.End[i], a.Max[i] = c.Begin, c.End, c.Max
		if c.Known {
			a.Known |= 1 << i
		}
	}
	l.answer(&a)
}

// answer writes into the lane, unless drain has let go of it.
func (l *lane) answer(a *format.WireAnswer) {
	l.mapped.Lock()
	defer l.mapped.Unlock()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // a belt, as in drain.run
	defer func() { _ = recover() }()
	if l.ring != nil {
		l.ring.Answer(a)
	}
	l.answered.Store(int64(a.Asked))
}

// measured is what the fold saw of a scope at one of its events.
type measured struct {
	open   bool            // the fold knows it; false where its begin was lost
	curves [3]live.Measure // by Curve
	pool   live.Measure    // used, of a process with a pool
	lost   int64           // events of its process so far
}

// measure reads a scope from the fold.
func measure(state *live.State, id format.ScopeID) measured {
	sc := state.Scope(id)
	if sc == nil {
		return measured{}
	}
	return measured{
		open: true,
		curves: [3]live.Measure{
			CurveUsed:     state.Measure(sc, state.UsedCurve(sc)),
			CurveAcquired: state.Measure(sc, live.CurveAcquired),
			CurveNVML:     state.Measure(sc, live.CurveNVML),
		},
		pool: state.Measure(sc, live.CurvePool),
		lost: state.Process(sc.Process).Lost,
	}
}
