package peak

import (
	"sort"

	"github.com/gpurec/gpurec/format"
)

// What is inferred from NVML's readings, and up to where.
const (
	// slack is how near to a driver call a reading is in doubt: it is stamped
	// after NVML's call, and its processes are read after that.
	slack = format.Time(1e6)

	// judgeAfter is how long a reading waits for the events of calls that were
	// running: an event comes when its call ends.
	judgeAfter = format.Time(1e9)

	// ContextMost is what a context may take, with all modules that are loaded
	// with it; an H200's takes 0.5 GiB.
	ContextMost = 4 << 30

	// ModuleMost is what a later step may take and still be called a module, and
	// ModulesMost what all of them may: memory that is taken again and again by
	// a function that is not recorded is none.
	ModuleMost  = 256 << 20
	ModulesMost = 2 << 30

	// mostSteps are kept of a process: the largest.
	mostSteps = 8
)

// A reading is NVML's word on a device, and the recording's at the same moment.
type reading struct {
	at                          format.Time
	used, free, reserved, total int64
	tracked                     int64
	procs                       []procReading
	apart                       bool // NVML told processes apart
}

type procReading struct {
	id      format.ProcessID
	used    int64 // NVML's; Unknown
	tracked int64
	took    bool
	streams int64
	resets  int64
}

// A Step is by how much NVML's number for a process grew beyond what events
// say, between the reading before and this one.
type Step struct {
	Bytes int64 `json:"bytes"`
	At    int64 `json:"at_ns"` // of the reading

	context bool
}

// beyond is what a process takes beyond what events say, by the rule that
// explains it.
type beyond struct {
	context  int64
	modules  int64
	streams  int64 // reserve of stream-ordered pools beyond their blocks
	odd      int64 // no rule
	settled  bool  // the context is there
	resets   int64
	nstreams int64
	steps    []Step
}

func (b *beyond) sum() int64 { return b.context + b.modules + b.streams + b.odd }

// feed takes the next number.
func (b *beyond) feed(n int64, r *procReading, at int64) {
	if r.resets != b.resets {
		*b = beyond{resets: r.resets, nstreams: r.streams}
	}
	step := n - b.sum()
	switch {
	case step == 0:
	case !b.settled && b.context+step <= ContextMost:
		b.context += step
		b.step(Step{step, at, true})
	case r.streams != b.nstreams:
		b.streams += step
	case step <= ModuleMost && step >= -ModuleMost && b.modules+step <= ModulesMost:
		b.modules += step
		b.step(Step{step, at, false})
	default:
		b.odd += step
	}
	b.nstreams = r.streams
	b.settled = b.settled || r.took
}

// step keeps the largest. The slice is replaced, never changed: snapshots hold
// it.
func (b *beyond) step(s Step) {
	steps := append(append([]Step(nil), b.steps...), s)
	if len(steps) > mostSteps {
		least := 0
		for i, s := range steps {
			if abs(s.Bytes) < abs(steps[least].Bytes) {
				least = i
			}
		}
		steps = append(steps[:least], steps[least+1:]...)
	}
	b.steps = steps
}

func abs(n int64) int64 { return max(n, -n) }

// A said is a reading that counts, with what it comes to. It is not changed.
type said struct {
	*reading
	own   []owned
	rest  int64 // other processes, and the driver's own
	apart bool  // by NVML's word; else the rest is what was there before
	known bool  // there is a rest to speak of
}

type owned struct {
	id format.ProcessID // 0: all traced processes
	beyond
}

// extra is what came since NVML last told processes apart.
func (s *said) extra() int64 {
	n := s.used - s.tracked - s.rest
	for i := range s.own {
		n -= s.own[i].sum()
	}
	return n
}

// explained reports whether rules explain all of it.
func (s *said) explained() bool {
	ok := s.known && s.extra() == 0
	for i := range s.own {
		ok = ok && s.own[i].odd == 0
	}
	return ok
}

// A ledger has the readings of one device.
type ledger struct {
	since   func(format.Time) int64
	pending []*reading
	busy    format.Time // no reading up to here counts
	procs   map[format.ProcessID]*beyond
	all     beyond // where NVML does not tell processes apart
	rest    int64
	apart   bool        // it has told
	first   format.Time // when the first traced process began
	before  int64       // used at the last reading before that
	began   bool        // there was one
	tell    func(*said)
}

func newLedger(first format.Time, since func(format.Time) int64, tell func(*said)) *ledger {
	return &ledger{first: first, since: since, busy: -1 << 62, procs: map[format.ProcessID]*beyond{}, tell: tell}
}

// sample adds a row: a device's, and after it its processes' of the same time.
func (l *ledger) sample(r *format.Sample, procs func() []procReading) {
	if r.Process == 0 {
		l.judge(r.Time - judgeAfter)
		n := &reading{at: r.Time, used: r.Used, free: r.Free, reserved: r.Reserved, total: r.Total, procs: procs()}
		for i := range n.procs {
			n.tracked += n.procs[i].tracked
		}
		if r.Time > l.busy {
			l.pending = append(l.pending, n)
		}
		return
	}
	if k := len(l.pending); k > 0 && l.pending[k-1].at == r.Time && r.ProcessUsed >= 0 {
		n := l.pending[k-1]
		n.apart = true
		for i := range n.procs {
			if n.procs[i].id == r.Process {
				n.procs[i].used = r.ProcessUsed
				return
			}
		}
		n.procs = append(n.procs, procReading{id: r.Process, used: r.ProcessUsed})
	}
}

// call says that the driver was taking or giving back memory in this time.
func (l *ledger) call(from, to format.Time) {
	l.judge(to - judgeAfter)
	for k := len(l.pending); k > 0 && l.pending[k-1].at >= from-slack; k-- {
		if l.pending[k-1].at <= to+slack {
			l.pending = append(l.pending[:k-1], l.pending[k:]...)
		}
	}
	l.busy = max(l.busy, to+slack)
}

// judge takes the readings up to a time as they are.
func (l *ledger) judge(upTo format.Time) {
	i := 0
	for ; i < len(l.pending) && l.pending[i].at <= upTo; i++ {
		l.take(l.pending[i])
	}
	l.pending = append(l.pending[:0], l.pending[i:]...)
}

func (l *ledger) take(r *reading) {
	at := l.since(r.at)
	if r.at < l.first {
		l.before, l.began = r.used, true
	}
	if r.apart {
		l.tellApart(r, at)
	}
	s := &said{reading: r, rest: l.rest, apart: l.apart, known: true}
	if l.apart {
		for id, b := range l.procs {
			s.own = append(s.own, owned{id, *b})
		}
		sort.Slice(s.own, func(i, j int) bool { return s.own[i].id < s.own[j].id })
	} else if s.rest, s.known = l.before, l.began; s.known {
		s.own = []owned{{0, l.together(r, at)}}
	}
	l.tell(s)
}

// tellApart takes NVML's numbers of the processes. What has no number any more
// has ended.
func (l *ledger) tellApart(r *reading, at int64) {
	l.apart, l.rest = true, r.used
	procs := map[format.ProcessID]*beyond{}
	for i := range r.procs {
		p := &r.procs[i]
		if p.used < 0 {
			l.rest -= p.tracked
			continue
		}
		b := l.procs[p.id]
		if b == nil {
			b = &beyond{}
		}
		procs[p.id] = b
		b.feed(p.used-p.tracked, p, at)
		l.rest -= p.used
	}
	l.procs = procs
}

// together takes all that was not there before for the traced processes'.
func (l *ledger) together(r *reading, at int64) beyond {
	var all procReading
	for i := range r.procs {
		all.took = all.took || r.procs[i].took
		all.streams += r.procs[i].streams
		all.resets += r.procs[i].resets
	}
	l.all.feed(r.used-r.tracked-l.before, &all, at)
	return l.all
}
