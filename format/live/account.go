package live

import (
	"sort"

	"github.com/gpurec/gpurec/format"
)

// A Process is what the fold knows of one process.
type Process struct {
	ID           format.ProcessID
	Pooled       bool // it had a pool event so far
	Ended        bool
	UnknownFrees int64 // frees of what was never seen allocated, which the driver did not refuse: they change nothing
	LostFrees    int64 // allocations at a live address: the older one ended unseen
	Failed       int64 // failed allocations
	Lost         int64 // events lost
	LiveCount    int64 // allocations live now, those in no sum included

	acquired tracker // driver layer, class device, all devices
	pool     tracker // pool layer, class device, all devices
	accounts map[accountKey]*Account
	last     [4]*Account // per layer, the account of the event before

	first, latest int32 // the live list, oldest first
	mappings      map[place]mapping
	unmapped      []unmapped   // by the Unmap before, in case it is refused
	reset         []Allocation // by the Reset before, in case it is refused
	resetMaps     []unmapped
}

// Acquired is the process's driver layer, class device, over all devices.
func (p *Process) Acquired() Curve { return p.acquired.Curve }

// Pool is the process's pool layer, class device, over all devices.
func (p *Process) Pool() Curve { return p.pool.Curve }

// Accounts returns the sums of p by device, layer and class, in that order.
func (p *Process) Accounts() []*Account {
	as := make([]*Account, 0, len(p.accounts))
	for _, a := range p.accounts {
		as = append(as, a)
	}
	sort.Slice(as, func(i, j int) bool {
		a, b := as[i], as[j]
		if a.Device != b.Device {
			return a.Device < b.Device
		}
		if a.Layer != b.Layer {
			return a.Layer < b.Layer
		}
		return a.Class < b.Class
	})
	return as
}

// An Account is the sum of one process, device, layer and class.
type Account struct {
	Device format.Device
	Layer  format.Layer
	Class  format.Class
	Curve

	device *Device
}

type accountKey struct {
	device format.Device
	layer  format.Layer
	class  format.Class
}

// A Device is the sum of all processes on one device, class device, beside
// what NVML said.
type Device struct {
	ID       format.Device
	Acquired Curve // driver layer
	Pool     Curve // pool layer
	Used     Curve // pool layer of the processes that have pool events, driver layer of the others

	Sampled    bool // NVML said something; what follows is meaningless before
	NVMLPeak   int64
	Reading    format.Sample // the latest
	nvml       tracker
	sampledSeq uint64 // scopes begun when the latest sample was folded
}

// NVML is the device's latest used bytes in NVML's words.
func (d *Device) NVML() int64 { return d.nvml.Now }

func (s *State) process(id format.ProcessID) *Process {
	if p := s.lastProcess; p != nil && p.ID == id {
		return p
	}
	p := s.processes[id]
	if p == nil {
		p = &Process{ID: id, accounts: map[accountKey]*Account{}, first: none, latest: none}
		s.processes[id] = p
	}
	s.lastProcess = p
	return p
}

func (s *State) device(id format.Device) *Device {
	d := s.devices[id]
	if d == nil {
		d = &Device{ID: id}
		s.devices[id] = d
	}
	return d
}

func (s *State) account(p *Process, device format.Device, layer format.Layer, class format.Class) *Account {
	last := &p.last[layer&3]
	if a := *last; a != nil && a.Device == device && a.Layer == layer && a.Class == class {
		return a
	}
	k := accountKey{device, layer, class}
	a := p.accounts[k]
	if a == nil {
		a = &Account{Device: device, Layer: layer, Class: class, device: s.device(device)}
		p.accounts[k] = a
	}
	*last = a
	return a
}

// usesPool says which layer is used of p: known for the whole recording when
// the caller has looked, else by what has been seen so far.
func (s *State) usesPool(p *Process) bool {
	if s.Pooled != nil {
		return s.Pooled(p.ID)
	}
	return p.Pooled
}

// Used is the curve of bytes in use of p, and the layer it was read at.
func (s *State) Used(p *Process) (Curve, format.Layer) {
	if s.usesPool(p) {
		return p.pool.Curve, format.LayerPool
	}
	return p.acquired.Curve, format.LayerDriver
}

// DeviceUsed is the curve of bytes in use on d over all processes. Where some
// of them have a pool and others none, and State.Pooled did not say so
// beforehand, what a process held before its first pool event counts too.
func (s *State) DeviceUsed(d *Device) Curve {
	pooled, plain := false, false
	for _, p := range s.processes {
		for k := range p.accounts {
			if k.device == d.ID && k.class == format.ClassDevice && (k.layer == format.LayerPool || k.layer == format.LayerDriver) {
				if s.usesPool(p) {
					pooled = true
				} else {
					plain = true
				}
				break
			}
		}
	}
	switch {
	case pooled && !plain:
		return d.Pool
	case plain && !pooled:
		return d.Acquired
	}
	return d.Used
}

// seesPool marks p as a process with a pool. What it holds at the driver layer
// leaves its devices' used sums, unless the caller knew beforehand.
func (s *State) seesPool(p *Process) {
	if p.Pooled {
		return
	}
	p.Pooled = true
	if s.Pooled != nil {
		return
	}
	for _, a := range p.accounts {
		if a.Layer == format.LayerDriver && a.Class == format.ClassDevice {
			a.device.Used.Now -= a.Now
		}
	}
}

// take counts a as taken, once in its life.
func (s *State) take(p *Process, device format.Device, layer format.Layer, class format.Class, n int64) {
	a := s.account(p, device, layer, class)
	a.take(n)
	if class != format.ClassDevice {
		return
	}
	switch layer {
	case format.LayerDriver:
		p.acquired.take(n)
		a.device.Acquired.take(n)
	case format.LayerPool:
		p.pool.take(n)
		a.device.Pool.take(n)
	}
}

// move changes every sum that a stands in by n.
func (s *State) move(p *Process, a *Allocation, n int64) {
	acc := s.account(p, a.Device, a.Layer, a.Class)
	acc.move(n, s.now, s.loading)
	if a.Class != format.ClassDevice {
		return
	}
	d := acc.device
	switch a.Layer {
	case format.LayerDriver:
		p.acquired.move(n, s.now, s.loading)
		d.Acquired.move(n, s.now, s.loading)
		if !s.usesPool(p) {
			d.Used.move(n, s.now, s.loading)
		}
	case format.LayerPool:
		p.pool.move(n, s.now, s.loading)
		d.Pool.move(n, s.now, s.loading)
		if s.usesPool(p) {
			d.Used.move(n, s.now, s.loading)
		}
	}
}

// Processes returns what is known of every process, in id order.
func (s *State) Processes() []*Process {
	ps := make([]*Process, 0, len(s.processes))
	for _, p := range s.processes {
		ps = append(ps, p)
	}
	sort.Slice(ps, func(i, j int) bool { return ps[i].ID < ps[j].ID })
	return ps
}

// Process returns what is known of one process, nil before its first event.
func (s *State) Process(id format.ProcessID) *Process { return s.processes[id] }

// Devices returns every device with an event or a sample, in id order;
// format.NoDevice comes first where some event had none.
func (s *State) Devices() []*Device {
	ds := make([]*Device, 0, len(s.devices))
	for _, d := range s.devices {
		ds = append(ds, d)
	}
	sort.Slice(ds, func(i, j int) bool { return ds[i].ID < ds[j].ID })
	return ds
}
