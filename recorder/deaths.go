package recorder

import (
	"syscall"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/recorder/ring"
)

// When a process ended is known only from both sides: it was alive in one turn
// and dead in the next. Its memory is gone in between, and whoever takes memory
// after it may do so in between too: in a shell's loop the next process does. So
// the end is put at the earliest time there is evidence for: the last turn that
// saw it alive, or its own last record or call if that is later. A peak is then
// never made of a dead process's memory and its successor's. What two processes
// held together for less than a turn, the one at its end and the other at its
// begin, may be missing from a peak in return.

const (
	// pollDead is how often /proc is asked for processes without a pidfd, on
	// kernels before 5.3. They hold the watermark back to the last time it was.
	pollDead = format.Time(10 * time.Millisecond)

	// pollShare bounds what asking costs: a hundredth of a core.
	pollShare = 100

	// maxMeet bounds how often one turn accepts again after deaths.
	maxMeet = 8
)

// meet accepts newcomers and marks the dead, until a look finds neither. Then
// everything that the dead had announced is here, and everybody else was alive at
// that look. It is false where processes die faster than that, and then this turn
// must not move the watermark: a newcomer may be dead already, and its end older
// than what others have published.
func (d *drain) meet(found []syscall.EpollEvent) bool {
	d.greet()
	for range maxMeet {
		if !d.news(found) {
			return true
		}
		_, found = d.look()
	}
	return false
}

// news takes in what a look found: at the listener, which the kernel makes ready
// before a peer that has connected can die, and at the processes. To accept without
// looking costs more than the rest of a quiet turn: a connection is made first and
// then not used.
func (d *drain) news(found []syscall.EpollEvent) (any bool) {
	for {
		connections, hellos := false, false
		for _, e := range found {
			switch p := d.byPidfd[e.Fd]; {
			case p != nil:
				d.died(p, ring.Now())
				any = true
			case e.Fd == int32(d.listener.fd):
				connections = true
			case e.Fd != int32(d.s.wakes[0]) && e.Fd != int32(d.poller.timer):
				hellos = true
			}
		}
		// Only now: what these open gets the numbers of what they close, and a hello
		// found would be a newcomer's death.
		if connections {
			any = d.accept() || any
		}
		if hellos { // they stay in the set until they are read, and hide what is behind them
			d.greet()
			any = true
		}
		if len(found) < len(d.events) {
			break
		}
		_, found = d.look()
	}
	now := ring.Now()
	if now < d.nextPoll {
		return any
	}
	d.nextPoll = now + pollDead
	polled := false
	for _, p := range d.processes {
		switch {
		case p.pidfd >= 0 || p.ended:
			continue
		case running(p.key):
			p.seen = max(p.seen, now)
		default:
			d.died(p, ring.Now())
			any = true
		}
		polled = true
	}
	if polled {
		d.nextPoll = max(d.nextPoll, now+pollShare*(ring.Now()-now))
	}
	return any
}

func (d *drain) died(p *process, now format.Time) {
	d.forgetPidfd(p)
	if !p.ended {
		p.ended, p.found = true, now
		p.status = d.s.statusOf(p.key.pid)
	}
}

// replaced ends an image whose process announced another one at a time. When it
// called exec in the meantime is not known: its memory is shown until then. It
// may have been seen to die already, but that was the new image's death.
func (d *drain) replaced(p *process, at format.Time) {
	if !p.ended {
		p.found = ring.Now()
	}
	p.found = min(p.found, at)
	p.ended, p.seen, p.status = true, p.found, format.Unknown
	d.forgetPidfd(p)
}

func (d *drain) forgetPidfd(p *process) {
	if p.pidfd >= 0 {
		delete(d.byPidfd, int32(p.pidfd))
		syscall.Close(p.pidfd) // leaves the epoll set with it
		p.pidfd = -1
	}
}

// bury ends a process, all of whose lanes are empty: the calls it was in, its
// lanes' counters, its lanes.
func (d *drain) bury(p *process) ending {
	d.forgetPidfd(p)
	e := ending{process: p, time: min(p.seen, p.found), status: p.status}
	for _, l := range p.lanes {
		e.time = max(e.time, l.ring.Newest())
		if call, ok := l.ring.Call(); ok && format.Time(call.Since) <= p.found {
			e.time = max(e.time, format.Time(call.Since))
			e.unfinished = append(e.unfinished, unfinishedCall{l, call})
		}
	}
	for _, l := range append([]*lane(nil), p.lanes...) {
		d.out.left = append(d.out.left, leaving{lane: l, time: e.time, dropped: l.ring.Dropped(), waited: l.ring.Waited()})
		d.unmap(l)
	}
	d.lanes = keep(d.lanes, func(l *lane) bool { return l.ring != nil })
	return e
}
