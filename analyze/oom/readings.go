package oom

import (
	"slices"

	"github.com/gpurec/gpurec/format"
)

// NVML is asked every few milliseconds, and memory runs out in between. What the
// recorded processes take from the driver is known to the byte, so a reading is
// good for another moment when it is corrected by that; of the readings before
// and after a failure the one with the smaller correction is used. What other
// processes did in between is not seen.

// readings are the latest of one device.
type readings struct {
	device    *reading
	processes map[format.ProcessID]*reading
}

// A reading is what NVML said, and what the trace knew to be acquired then.
type reading struct {
	format.Sample
	acquired int64 // on the device by all recorded processes; in a process's row by it
}

// near is what was read around a moment, of the device and of the process.
type near struct {
	device, process struct{ before, after *reading }
	acquired        map[format.ProcessID]int64 // at the moment
}

func (n *near) sum() (sum int64) {
	for _, v := range n.acquired {
		sum += v
	}
	return sum
}

// acquired is what the recorded processes have of a device now.
func (a *Answer) acquired(d format.Device) map[format.ProcessID]int64 {
	out := map[format.ProcessID]int64{}
	for o, h := range a.holdings {
		if o.Device == d && h.now.Acquired != 0 {
			out[o.Process] = h.now.Acquired
		}
	}
	return out
}

func (a *Answer) near(pic *picture) {
	pic.near.acquired = a.acquired(pic.owner.Device)
	if r := a.readings[pic.owner.Device]; r != nil {
		pic.near.device.before = r.device
		pic.near.process.before = r.processes[pic.owner.Process]
	}
}

// wait keeps a picture until it has what comes after it.
func (a *Answer) wait(pic *picture) {
	a.waiting = slices.DeleteFunc(a.waiting, func(w *picture) bool {
		return w.over || w.near.device.after != nil && w.near.process.after != nil && w.near.device.after.Time < a.p.State.Now()
	})
	a.waiting = append(a.waiting, pic)
}

func (a *Answer) read(s *format.Sample) {
	r := a.readings[s.Device]
	if r == nil {
		r = &readings{processes: map[format.ProcessID]*reading{}}
		a.readings[s.Device] = r
	}
	got := &reading{Sample: *s}
	acquired := a.acquired(s.Device)
	if s.Process != 0 {
		if s.ProcessUsed < 0 {
			return
		}
		got.acquired = acquired[s.Process]
		r.processes[s.Process] = got
	} else {
		for _, v := range acquired {
			got.acquired += v
		}
		r.device = got
	}
	for _, w := range a.waiting {
		if w.owner.Device != s.Device || w.over || s.Time < w.at {
			continue
		}
		switch n := &w.near; {
		case s.Process == 0 && n.device.after == nil:
			n.device.after = got
		case s.Process == w.owner.Process && n.process.after == nil:
			n.process.after = got
		}
	}
}

// settle is the picture's memory with what NVML said.
func (pic *picture) settle() Memory {
	m, n := pic.memory, &pic.near
	now := n.sum()
	r := closer(n.device.before, n.device.after, now, pic.at)
	if r == nil {
		return m
	}
	taken := now - r.acquired // since the reading; less than 0 where it comes after
	m.Total = r.Total - max(r.Reserved, 0)
	if m.Free < 0 { // else the driver said it with its refusal
		m.Free = max(r.Free-taken, 0)
		m.Reading = &Reading{Distance: int64(r.Time - pic.at), Corrected: taken}
	}
	m.Free = min(m.Free, m.Total)
	used := m.Total - m.Free
	if p := closer(n.process.before, n.process.after, m.Acquired, pic.at); p != nil {
		m.Process = max(p.ProcessUsed+m.Acquired-p.acquired, 0)
		m.Untracked = m.Process - m.Acquired
		m.Others = max(used-m.Process, 0)
	} else {
		m.Others, m.AtMost = max(used-m.Acquired, 0), true
	}
	return m
}

// closer is the reading that needs the smaller correction, or as small a one from
// nearer by; nil where there is none.
func closer(x, y *reading, acquired int64, at format.Time) *reading {
	if x == nil || y == nil {
		if x == nil {
			return y
		}
		return x
	}
	dx, dy := distance(acquired, x.acquired), distance(acquired, y.acquired)
	if dx == dy {
		dx, dy = distance(int64(at), int64(x.Time)), distance(int64(at), int64(y.Time))
	}
	if dx <= dy {
		return x
	}
	return y
}

func distance(a, b int64) int64 { return max(a-b, b-a) }
