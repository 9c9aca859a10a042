package recorder

import (
	"errors"
	"fmt"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/recorder/ring"
)

const (
	// margin covers the writer's store buffer: a busy word or a head that is
	// stored but not visible yet. It covers nothing else.
	margin = format.Time(time.Millisecond)

	// stuckAfter is how long a lane may be busy without publishing before it is
	// left out of the watermark: its thread was stopped or frozen in between.
	stuckAfter = format.Time(time.Second)

	maxLanes = 16 * format.MaxLanes // of all processes
)

// drain is the loop that empties the lanes. It copies and nothing else.
type drain struct {
	s         *Session
	listener  *listener
	poller    *poller
	waiting   []int // connections without a hello yet
	lanes     []*lane
	processes map[processKey]*process
	byPidfd   map[int32]*process
	current   *buffer
	events    [64]syscall.EpollEvent // of the latest look
	out       *round
	handed    format.Time // when the round before went to fold
	rounds    int64       // that have gone to it
	fullest   int         // 64ths of its lane, of what a turn found in any
	asked     bool        // in a lane, and not answered yet
	newborn   bool        // that turn took in a lane
	nextLane  int32
	laggard   *lane // the one that holds the watermark back: it is read even when the queue is full
	nextPoll  format.Time
	said      map[string]bool
}

func newDrain(s *Session, l *listener) (*drain, error) {
	d := &drain{s: s, listener: l, out: &round{}, processes: map[processKey]*process{}, byPidfd: map[int32]*process{}, said: map[string]bool{}}
	var err error
	if d.poller, err = newPoller(); err != nil {
		return nil, err
	}
	err = d.poller.watch(l.fd)
	if err == nil {
		if err = syscall.Pipe2(s.wakes[:], syscall.O_NONBLOCK|syscall.O_CLOEXEC); err == nil {
			err = d.poller.watch(s.wakes[0])
		}
	}
	if err != nil {
		d.poller.close()
		return nil, err
	}
	return d, nil
}

// run is the loop:
//
//	1 wait: a newcomer, a death or somebody who asks cuts the pause short
//	2 turn (below)
//	3 hand the round on if it is due and there is room for it; else the next
//	  turn adds to it
//
// until the session stops, and then a last time for everything that is left.
func (d *drain) run() {
	debug.SetPanicOnFault(true) // a belt: sealed and allocated pages do not fault
	pause := paceLeast
	for {
		select {
		case <-d.s.stop:
			d.finish()
			return
		default:
		}
		if d.s.failed.Load() {
			d.abandon()
			return
		}
		longest := pause
		if len(d.lanes) == 0 {
			longest = paceAlone
		}
		began, found := d.wait(longest)
		d.turn(began, found)
		asked := d.s.asked.Load() > 0 || d.asked
		if asked || d.due(began) {
			d.handOver(began)
		}
		d.s.turns.Add(1)
		pause = nextPause(pause, d.fullest, time.Duration(ring.Now()-began))
		if asked || d.newborn {
			pause = paceLeast
		}
	}
}

// due reports whether fold should get the round: it has much, or it has waited
// long enough, for fold too may wait for a later watermark.
func (d *drain) due(now format.Time) bool {
	return d.out.bytes >= handBytes || len(d.out.born) > 0 ||
		now-d.handed >= format.Time(handEvery) && (d.s.holds.Load() || d.s.unread.Load() || !d.out.empty())
}

func (d *drain) handOver(now format.Time) {
	select {
	case d.s.rounds <- d.out:
		d.out, d.handed = &round{}, now
		d.rounds++
	default:
	}
}

// wait sleeps until something comes or the pause is over. It returns what is
// there to look at, at what time or later.
func (d *drain) wait(pause time.Duration) (format.Time, []syscall.EpollEvent) {
	at, found := d.poller.wait(pause, d.events[:])
	for i := range found {
		if found[i].Fd == int32(d.s.wakes[0]) {
			var b [64]byte
			syscall.Read(d.s.wakes[0], b[:])
		}
	}
	return at, found
}

// look is what is there now.
func (d *drain) look() (format.Time, []syscall.EpollEvent) {
	return ring.Now(), d.poller.ready(d.events[:])
}

// turn is one look at everything, in the order that makes the watermark true:
//
//	1 a = now, and a look at what epoll has, both by the caller
//	2 accept and map until there is nobody: a lane that is not here yet was
//	  announced after a, so its events are younger. With that look for deaths,
//	  see meet: a process that is not seen dead was alive at a, so its end is younger
//	3 for each lane: busy, then head; copy all that is published. Idle: whatever
//	  comes next is younger than a, less the margin. Busy, or not copied whole:
//	  whatever comes next is not older than the newest record copied
//	4 until = the least of these bounds
//	5 processes that were dead before the last accept and whose lanes are empty
//	  have ended
//
// Accepting in a goroutine of its own instead of in 2 made 15 % of the events
// late when tried, a busy word set after the clock was read 241 of 72 million.
func (d *drain) turn(a format.Time, found []syscall.EpollEvent) {
	lanes := d.nextLane
	met := d.meet(found)
	d.laggard, d.fullest, d.asked, d.newborn = nil, 0, false, d.nextLane != lanes
	if d.newborn {
		d.s.late.laneCame()
	}
	for _, l := range d.lanes {
		if l.incomplete && (d.laggard == nil || l.bound < d.laggard.bound) {
			d.laggard = l
		}
	}
	until := a - margin
	for _, l := range d.lanes {
		if d.read(l, a) {
			until = min(until, l.bound)
		}
	}
	d.lanes = keep(d.lanes, func(l *lane) bool { return l.ring != nil })
	for key, p := range d.processes {
		switch {
		case !p.ended && p.pidfd >= 0:
			if met {
				p.seen = max(p.seen, a)
			}
		case !p.ended:
			until = min(until, p.seen)
		case d.empty(p):
			d.out.ended = append(d.out.ended, d.bury(p))
			delete(d.processes, key)
		}
	}
	if met {
		d.out.until = max(d.out.until, until)
	}
	d.s.alive.Store(int64(len(d.processes)))
}

// read reads one lane, and reports whether it holds the others back.
func (d *drain) read(l *lane, a format.Time) (holds bool) {
	defer func() {
		if r := recover(); r != nil {
			d.close(l, fmt.Errorf("reading it faulted: %v", r))
			holds = false
		}
	}()
	l.ring.Beat(a)
	if e := l.epoch.Load(); e != l.told {
		l.told = e
		l.ring.SetEpoch(e)
	}
	d.asked = d.asked || l.asks(a)
	busy := l.ring.Busy()
	taken, err := d.copy(l)
	if err == nil && taken > 0 && l.ring.Newest() > ring.Now()+margin {
		err = fmt.Errorf("an event of the future (%d)", l.ring.Newest())
	}
	if err != nil {
		d.close(l, err)
		return false
	}
	d.fullest = max(d.fullest, taken*64/l.ring.Capacity())
	switch {
	case l.incomplete:
		l.bound, l.busySince = max(l.bound, l.ring.Newest()), 0
		d.fullest = 64
	case !busy:
		l.bound, l.busySince = a-margin, 0
	default:
		l.bound = max(l.bound, l.ring.Newest())
		if taken > 0 || l.busySince == 0 {
			l.busySince = a
		}
		return a-l.busySince < stuckAfter
	}
	return true
}

// copy takes what a lane has published, at most a lane full in a turn so that a
// fast writer does not keep the loop to itself.
func (d *drain) copy(l *lane) (taken int, err error) {
	l.incomplete = false
	for {
		if taken >= l.ring.Capacity() {
			l.incomplete = true
			return taken, nil
		}
		b := d.room(l == d.laggard)
		if b == nil {
			l.incomplete = l.ring.Pending() != 0
			return taken, nil
		}
		n, err := l.ring.Read(b.bytes[b.used:])
		if err != nil || n == 0 {
			return taken, err
		}
		end := b.used + n
		b.refs.Add(1)
		d.out.chunks = append(d.out.chunks, chunk{l, b.bytes[b.used:end:end], b, l.ring.Dropped(), l.ring.Defines()})
		b.used = end
		d.out.bytes += n
		taken += n
	}
}

// room is a buffer with room for any record, nil when fold has too many unread.
// The laggard gets one beyond that once fold is through with every round: then
// all that it holds is younger than what this lane still has, and only reading
// that lets it go on. Before, a lane that is merely faster than fold would fill
// the memory.
func (d *drain) room(laggard bool) *buffer {
	if b := d.current; b != nil {
		if len(b.bytes)-b.used >= bufferTail {
			return b
		}
		d.current = nil
		d.s.release(b)
	}
	d.current = d.s.buffer(laggard && d.s.through.Load() == d.rounds)
	return d.current
}

// close stops reading a lane that holds nonsense. What it still had is lost, and
// said; its process may go on and its other lanes too.
func (d *drain) close(l *lane, err error) {
	var corrupt *ring.CorruptError
	if !errors.As(err, &corrupt) {
		err = fmt.Errorf("lane of process %d: %w", l.process.key.pid, err)
	}
	d.out.left = append(d.out.left, leaving{lane: l, corrupt: err})
	l.process.seen = max(l.process.seen, min(l.ring.Newest(), ring.Now()))
	d.unmap(l)
}

func (d *drain) unmap(l *lane) {
	func() {
		defer func() { _ = recover() }() // its pages may be what faulted
		l.ring.Attend(0, 0)
	}()
	p := l.process
	p.bytes -= uint64(l.ring.Capacity())
	p.lanes = keep(p.lanes, func(o *lane) bool { return o != l })
	l.mapped.Lock()
	defer l.mapped.Unlock()
	l.ring.Close()
	l.ring = nil
}

// empty reports whether everything in the lanes of a process has been copied.
func (d *drain) empty(p *process) bool {
	for _, l := range p.lanes {
		if l.incomplete {
			return false
		}
	}
	return true
}

// finish empties the lanes a last time and lets go of them. Programs may still
// run and write: a lane is read until it is found empty once. Only here may drain
// wait for fold.
func (d *drain) finish() {
	for {
		d.turn(d.look())
		open := false
		for _, l := range d.lanes {
			open = open || l.incomplete
		}
		if !open {
			break
		}
		d.s.rounds <- d.out
		d.out = &round{}
		d.rounds++
		time.Sleep(paceLeast)
	}
	for _, l := range append([]*lane(nil), d.lanes...) {
		d.out.left = append(d.out.left, leaving{lane: l, time: ring.Now(), dropped: l.ring.Dropped(), waited: l.ring.Waited()})
		d.unmap(l)
	}
	for _, p := range d.processes {
		d.forgetPidfd(p)
	}
	for _, conn := range d.waiting {
		syscall.Close(conn)
	}
	if d.current != nil {
		d.s.release(d.current)
		d.current = nil
	}
	d.out.absent = d.listener.marks()
	d.listener.close()
	d.poller.close()
	d.out.last = true
	d.s.rounds <- d.out
	close(d.s.rounds)
}

// abandon lets go of everything after a failed write: the programs find nobody
// at the socket, and full lanes that do not wait. It returns when the session
// is closed.
func (d *drain) abandon() {
	d.listener.close()
	for _, l := range append([]*lane(nil), d.lanes...) {
		d.out.left = append(d.out.left, leaving{lane: l, time: ring.Now(), dropped: l.ring.Dropped(), waited: l.ring.Waited()})
		d.unmap(l)
	}
	d.lanes = nil
	d.s.alive.Store(0)
	d.s.turns.Add(2)
	<-d.s.stop
	d.finish()
}

// complain says each thing once: a program may do the same wrong many times.
func (d *drain) complain(text string) {
	if len(d.said) < 100 && !d.said[text] {
		d.said[text] = true
		d.s.say(text)
	}
}

// keep filters a list in place.
func keep[T any](list []T, good func(T) bool) []T {
	kept := list[:0]
	for _, x := range list {
		if good(x) {
			kept = append(kept, x)
		}
	}
	clear(list[len(kept):])
	return kept
}
