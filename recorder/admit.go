package recorder

import (
	"fmt"
	"syscall"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/recorder/ring"
)

// accept takes in newcomers until there are none, and reports whether there were.
func (d *drain) accept() (any bool) {
	for d.listener.fd >= 0 {
		conn, err := accept(d.listener.fd)
		if err == syscall.EINTR || err == syscall.ECONNABORTED {
			continue
		}
		if err != nil {
			if err != syscall.EAGAIN {
				d.complain(fmt.Sprintf("a lane could not be accepted: %v", err))
			}
			break
		}
		if len(d.waiting) >= format.MaxLanes {
			d.greet()
		}
		if len(d.waiting) >= format.MaxLanes { // nobody of ours connects and stays silent
			syscall.Close(d.waiting[0])
			d.waiting = d.waiting[1:]
		}
		d.waiting, any = append(d.waiting, conn), true
		// The hello may be on its way still; without lanes nothing else would end
		// the pause before the lane is full. Closing conn ends the watch.
		if err := d.poller.watch(conn); err != nil {
			d.complain(err.Error())
		}
	}
	d.greet()
	return any
}

// greet reads the hellos of newcomers. A connection whose hello has not come yet
// is looked at again in the next turn: its first event is younger than this look.
func (d *drain) greet() {
	d.waiting = keep(d.waiting, func(conn int) bool {
		n, err := receive(conn)
		switch err {
		case errNotYet:
			return true
		case errAsks: // it has woken the loop, and a lane says the rest
			syscall.Close(conn)
			return false
		case nil:
			err = d.admit(n)
		}
		if err != nil {
			d.complain(err.Error())
			if n != nil {
				d.out.refused++
			}
		}
		syscall.Close(conn)
		return false
	})
}

// admit gives a newcomer its lane, and its process if it is the first.
func (d *drain) admit(n *newcomer) error {
	h := &n.hello
	key := processKey{n.pid, h.StartTime, h.Image}
	p := d.processes[key]
	if p == nil {
		p = d.adopt(key, n)
	}
	if n.pidfd >= 0 && n.pidfd != p.pidfd {
		syscall.Close(n.pidfd)
	}
	count := len(n.rings)
	if len(p.lanes)+count > format.MaxLanes || p.bytes+uint64(count)*h.Capacity > format.MaxLaneBytes || len(d.lanes)+count > maxLanes {
		for _, r := range n.rings {
			r.Close()
		}
		return fmt.Errorf("process %d announced more lanes than one may have; its events there are not recorded", n.pid)
	}
	if h.Python != 0 {
		p.row.Python = pythonVersion(h.Python)
	}
	for _, r := range n.rings {
		r.Attend(d.s.onFull, uint64(d.s.opt.WaitBudget))
		l := &lane{id: d.nextLane, process: p, ring: r, bound: format.Time(h.Monotonic)}
		l.fold.tid = h.TID
		l.fold.row = p.row
		l.fold.first = p.births == 0
		d.nextLane++
		p.births++
		p.lanes = append(p.lanes, l)
		p.bytes += h.Capacity
		d.lanes = append(d.lanes, l)
		d.out.born = append(d.out.born, l)
	}
	return nil
}

// adopt enters a process. One with the same pid and start time was this process
// before it called exec, which ended that image.
func (d *drain) adopt(key processKey, n *newcomer) *process {
	for k, old := range d.processes {
		if k.pid == key.pid && k.start == key.start {
			d.replaced(old, format.Time(n.hello.Monotonic))
		}
	}
	p := &process{key: key, pidfd: n.pidfd, status: format.Unknown, seen: min(format.Time(n.hello.Monotonic), ring.Now())}
	p.row = format.Process{PID: key.pid, Parent: format.Unknown, StartTime: key.start, Image: key.image, Rank: format.Unknown,
		Begin: format.Time(n.hello.Monotonic), End: format.Unknown, Status: format.Unknown}
	if job, ok := describe(&p.row); ok {
		d.s.mu.Lock()
		if len(d.s.jobs) < mostJobs {
			d.s.jobs = append(d.s.jobs, job)
		}
		d.s.mu.Unlock()
	}
	if p.row.Command == "" { // gone already; a fork's other processes are the same program
		for k, o := range d.processes {
			if k.image == key.image && o.row.Command != "" {
				p.row.Executable, p.row.Command, p.row.Rank = o.row.Executable, o.row.Command, o.row.Rank
				break
			}
		}
	}
	d.processes[key] = p
	if p.pidfd >= 0 {
		if err := d.poller.watch(p.pidfd); err != nil {
			syscall.Close(p.pidfd)
			p.pidfd = -1
		} else {
			d.byPidfd[int32(p.pidfd)] = p
		}
	}
	return p
}
