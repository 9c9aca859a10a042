package perfetto

import (
	"fmt"
	"strings"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
)

// A track is a number of ours; 0 is none.
type track uint64

// tracks are those of one trace.
type tracks struct {
	processes map[format.ProcessID]track
	plain     map[format.ProcessID]bool // its pid is another's already
	threads   map[threadKey]track
	devices   map[format.Device]track
	counters  map[counterKey]track
}

type threadKey struct {
	process format.ProcessID
	tid     uint32
}

// counterKey is a counter of a process on a device, or of a device.
type counterKey struct {
	process format.ProcessID
	device  format.Device
	name    string
}

func newTracks() tracks {
	return tracks{map[format.ProcessID]track{}, map[format.ProcessID]bool{}, map[threadKey]track{}, map[format.Device]track{}, map[counterKey]track{}}
}

// newTrack describes a track; more adds to its descriptor.
func (a *Answer) newTrack(parent track, name string, more func(*message)) track {
	a.lastTrack++
	a.describe(a.lastTrack, parent, name, more)
	return a.lastTrack
}

func (a *Answer) describe(t, parent track, name string, more func(*message)) {
	d := a.sub.clear()
	d.number(trackUUID, uint64(t))
	if parent != 0 {
		d.number(trackParent, uint64(parent))
	}
	if name != "" {
		d.text(trackName, name)
	}
	if more != nil {
		more(d)
	}
	p := a.packet.clear()
	p.message(packetTrack, *d)
	a.write()
}

// process is the track of a process. Perfetto knows processes by their pid:
// where another has it already, of another trace or another time, it is a track
// like any other.
func (a *Answer) process(id format.ProcessID) track {
	if t, ok := a.tracks.processes[id]; ok {
		return t
	}
	row, _ := a.p.Defs.Process(id)
	name := fmt.Sprintf("pid %d", row.PID)
	if row.Rank >= 0 {
		name += fmt.Sprintf(" rank %d", row.Rank)
	}
	if a.several {
		name += " of " + a.name
	}
	command := analyze.Line(row.Command)
	plain := a.pids[row.PID]
	a.pids[row.PID], a.tracks.plain[id] = true, plain
	var t track
	if plain {
		t = a.newTrack(0, name+" "+command, nil)
	} else {
		t = a.newTrack(0, "", func(d *message) {
			var p message
			p.number(processPID, uint64(row.PID))
			p.text(processName, strings.TrimSpace(name+" "+command))
			for _, w := range strings.Fields(command) {
				p.text(processCommand, w)
			}
			d.message(trackProcess, p)
		})
	}
	a.tracks.processes[id] = t
	return t
}

func (a *Answer) thread(id format.ProcessID, tid uint32) track {
	k := threadKey{id, tid}
	t, ok := a.tracks.threads[k]
	if !ok {
		parent := a.process(id)
		a.lastTrack++
		t = a.lastTrack
		a.tracks.threads[k] = t
		a.nameThread(k, t, parent, "")
	}
	return t
}

// nameThread describes a thread, again when its name is known.
func (a *Answer) nameThread(k threadKey, t, parent track, name string) {
	if a.tracks.plain[k.process] {
		a.describe(t, parent, strings.TrimSpace(fmt.Sprintf("thread %d %s", k.tid, name)), nil)
		return
	}
	row, _ := a.p.Defs.Process(k.process)
	a.describe(t, parent, "", func(d *message) {
		var m message
		m.number(threadPID, uint64(row.PID))
		m.number(threadTID, uint64(k.tid))
		if name != "" {
			m.text(threadName, name)
		}
		d.message(trackThread, m)
	})
}

func (a *Answer) device(id format.Device) track {
	if t, ok := a.tracks.devices[id]; ok {
		return t
	}
	row, _ := a.p.Defs.Device(id)
	name := deviceName(id)
	for _, s := range []string{row.Name, row.UUID} {
		if s != "" {
			name += " " + analyze.Short(s)
		}
	}
	if a.several {
		name += " of " + a.name
	}
	t := a.newTrack(0, name, nil)
	a.tracks.devices[id] = t
	return t
}

func deviceName(id format.Device) string {
	if id == format.NoDevice {
		return "device unknown"
	}
	return fmt.Sprintf("device %d", id)
}

// counter writes a value of a counter; process 0 is the device's own.
func (a *Answer) counter(process format.ProcessID, device format.Device, name string, at format.Time, v int64) {
	k := counterKey{process, device, name}
	t, ok := a.tracks.counters[k]
	if !ok {
		parent, shown := track(0), deviceName(device)+" "+name
		if process == 0 {
			parent = a.device(device)
		} else {
			parent = a.process(process)
		}
		t = a.newTrack(parent, shown, func(d *message) {
			var c message
			c.number(counterUnit, unitBytes)
			d.message(trackCounter, c)
		})
		a.tracks.counters[k] = t
	}
	a.event(t, at, typeCounter, func(e *message) { e.number(eventCounter, uint64(v)) })
}
