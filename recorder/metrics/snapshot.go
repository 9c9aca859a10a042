package metrics

import (
	"context"
	"errors"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
	"github.com/gpurec/gpurec/recorder"
)

// Bounds of what is shown: a node has 16 devices, or 56 instances of MIG. A
// process may make ordinals up, and a job may start any number of workers.
const (
	mostDevices   = 128
	mostProcesses = 512
	mostUses      = 1024 // devices of processes
)

// A snapshot is what is shown, of one moment.
type snapshot struct {
	recording bool // else all that follows is zero
	stats     format.Stats
	running   int // processes

	told, retried, undecided int64 // requests for memory that were refused

	devices   []deviceState
	processes []processState
	uses      []use
	left      int // rows beyond the bounds
}

type deviceState struct {
	format.DeviceRow
	live.Device
	used live.Curve
}

type processState struct {
	row                format.Process
	lost, failed, live int64
}

// A use is what one process has on one device.
type use struct {
	process, device int // indexes in the snapshot
	used            format.Layer
	driver, pool    live.Curve
}

// usedCurve is at the layer that says what is used of the process.
func (u *use) usedCurve() live.Curve {
	if u.used == format.LayerPool {
		return u.pool
	}
	return u.driver
}

// take asks the session. Of one that has ended nothing is known.
func take(ctx context.Context, s *recorder.Session) (*snapshot, error) {
	made := make(chan *snapshot, 1) // the fold may come to it after ctx has ended
	err := s.View(ctx, func(v *recorder.View) { made <- look(v) })
	if errors.Is(err, recorder.ErrEnded) {
		return &snapshot{}, nil
	}
	if err != nil {
		return nil, err
	}
	return <-made, nil
}

// look copies what is shown. The fold waits for it.
func look(v *recorder.View) *snapshot {
	s := &snapshot{recording: true, stats: v.Stats()}
	s.told, s.retried, s.undecided = v.Refused()
	index := map[format.Device]int{}
	for _, d := range v.Devices() {
		row, ok := v.DeviceRow(d.ID)
		if !ok {
			continue // events of no device
		}
		if len(s.devices) == mostDevices {
			s.left++
			continue
		}
		index[d.ID] = len(s.devices)
		s.devices = append(s.devices, deviceState{DeviceRow: row, Device: *d, used: v.DeviceUsed(d)})
	}
	for _, p := range v.Processes() {
		row, ok := v.Running(p.ID)
		if !ok {
			continue
		}
		s.running++
		if p.Acquired().Count == 0 && p.Pool().Count == 0 && p.Failed == 0 && p.Lost == 0 {
			continue
		}
		if len(s.processes) == mostProcesses {
			s.left++
			continue
		}
		s.processes = append(s.processes, processState{row, p.Lost, p.Failed, p.LiveCount})
		s.look(v, p, index)
	}
	return s
}

// look copies what a process has, the last one of s, on each device.
func (s *snapshot) look(v *recorder.View, p *live.Process, index map[format.Device]int) {
	_, used := v.Used(p)
	var last *use
	for _, a := range p.Accounts() { // by device
		device, ok := index[a.Device]
		if !ok || a.Class != format.ClassDevice || a.Layer != format.LayerDriver && a.Layer != format.LayerPool {
			continue
		}
		if last == nil || last.device != device {
			if len(s.uses) == mostUses {
				s.left++
				return
			}
			s.uses = append(s.uses, use{process: len(s.processes) - 1, device: device, used: used})
			last = &s.uses[len(s.uses)-1]
		}
		if a.Layer == format.LayerPool {
			last.pool = a.Curve
		} else {
			last.driver = a.Curve
		}
	}
}
