package recorder

import (
	"encoding/hex"
	"fmt"
	"math"
	"slices"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/recorder/ring"
)

// maxDevices bounds the device table against a process that makes ordinals up.
const maxDevices = 1024

// labels of frames that stand for no line.
const (
	labelBefore = "before recording"
	labelNative = "[native]" // the module of the cut of a merged stack's native frames
	labelCode   = "[unknown code]"
)

// A generational table forgets by generations: the lanes are told to send
// again, and what is still referred to meanwhile is found in the old half.
type generational[V any] struct {
	young, old map[uint64]V
}

func (g *generational[V]) get(k uint64) (V, bool) {
	v, ok := g.young[k]
	if !ok && g.old != nil {
		if v, ok = g.old[k]; ok {
			g.put(k, v)
		}
	}
	return v, ok
}

func (g *generational[V]) put(k uint64, v V) {
	if g.young == nil {
		g.young = map[uint64]V{}
	}
	g.young[k] = v
}

func (g *generational[V]) turn() { g.young, g.old = nil, g.young }

// A stackTable is the stacks by their hashes. Nearly every event asks for one,
// and a program's are few: near has those of late, by some bits of the hash.
type stackTable struct {
	generational[*stack]
	near [512]struct {
		hash  uint64
		stack *stack
	}
}

func (g *stackTable) get(hash uint64) (*stack, bool) {
	near := &g.near[(hash^hash>>32)%uint64(len(g.near))]
	if near.hash == hash && near.stack != nil {
		return near.stack, true
	}
	s, ok := g.generational.get(hash)
	if ok {
		near.hash, near.stack = hash, s
	}
	return s, ok
}

func (g *stackTable) turn() {
	g.generational.turn()
	clear(g.near[:])
}

// tables are what the definitions of one process say.
type tables struct {
	id      format.ProcessID
	row     format.Process
	codes   generational[*code]
	stacks  stackTable
	names   generational[format.NameID]
	modules map[uint32]module // by the process's own number; never forgotten: they are few
	devices []ownDevice       // by the process's own ordinal
	ranges  map[uint64]openScope
	closed  generational[closedScope] // by number, the latest: a program may still report what one measured, or ask
	open    int                       // scopes
	epoch   uint32
}

// An ownDevice is a device of a process.
type ownDevice struct {
	id    format.Device
	known bool // id is
	told  bool // its DeviceInfo is in the trace
}

// device is what is known of an ordinal, until the next call.
func (t *tables) device(ordinal int16) *ownDevice {
	for int(ordinal) >= len(t.devices) {
		t.devices = append(t.devices, ownDevice{})
	}
	return &t.devices[ordinal]
}

// A closedScope is one that has ended, and what it measured.
type closedScope struct {
	id format.ScopeID
	m  measured
}

// maxClosed is how many ended scopes of a process can still be reported, at least.
const maxClosed = 1024

// close forgets an open scope with a number of its own.
func (t *tables) close(number uint64, id format.ScopeID, m measured) {
	delete(t.ranges, number)
	t.closed.put(number, closedScope{id, m})
	if len(t.closed.young) >= maxClosed {
		t.closed.turn()
	}
}

// reported is the scope that a report with a number is about: open, or ended
// lately; 0 for one that is not known.
func (t *tables) reported(number uint64) format.ScopeID {
	if o, ok := t.ranges[number]; ok {
		return o.id
	}
	c, _ := t.closed.get(number)
	return c.id
}

// An openScope is where a scope with a number of its own is found again.
type openScope struct {
	id   format.ScopeID
	lane *lane // on whose nest it is; nil for a range
}

type code struct {
	file, name string
	lines      lineTable
	frames     map[int32]format.FrameID
}

// maxUnder is under how many threads' names a stack is found at once.
const maxUnder = 256

// A module is a file that native code was mapped from.
type module struct {
	path, buildID string
}

// A stack is kept as it came until an event refers to it: its code objects may
// stand behind it in the lane.
type stack struct {
	frames  []format.WireFrame
	dropped uint32
	id      format.StackID
	native  bool                              // all frames are: it stands under its thread's name,
	under   map[format.StackID]format.StackID // and has an id for each; id is 0
}

// An interner gives out the trace's ids. Each new one goes into the page that
// is being filled, and so to the file before the event that needs it. One that
// was forgotten meanwhile gets a new id: two ids may be one text, frame or stack.
type interner struct {
	frames  map[format.Frame]format.FrameID
	nodes   map[uint64]format.StackID
	names   map[string]format.NameID
	uuids   map[string]format.Device
	devices []format.DeviceRow

	stack format.StackID // the last ones given out
	frame format.FrameID
	name  format.NameID
	grown int64 // bytes of definitions taken in since the last forgetting, about
}

func newInterner() *interner {
	return &interner{
		frames: map[format.Frame]format.FrameID{},
		nodes:  map[uint64]format.StackID{},
		names:  map[string]format.NameID{},
		uuids:  map[string]format.Device{},
	}
}

// frame is the id of a frame, whose ID field is 0.
func (f *fold) frame(fr format.Frame) format.FrameID {
	id, ok := f.in.frames[fr]
	if !ok {
		f.in.frame++
		id = f.in.frame
		f.in.frames[fr] = id
		f.in.grown += frameBytes(&fr)
		fr.ID = id
		f.page.frames = append(f.page.frames, fr)
	}
	return id
}

// node is the id of a stack: a frame and the stack of its caller.
func (f *fold) node(parent format.StackID, frame format.FrameID) format.StackID {
	key := uint64(parent)<<32 | uint64(frame)
	id, ok := f.in.nodes[key]
	if !ok {
		f.in.stack++
		id = f.in.stack
		f.in.nodes[key] = id
		f.in.grown += nodeBytes
		f.page.stacks = append(f.page.stacks, format.Stack{ID: id, Parent: parent, Frame: frame})
	}
	return id
}

func (f *fold) name(s string) format.NameID {
	id, ok := f.in.names[s]
	if !ok {
		f.in.name++
		id = f.in.name
		f.in.names[s] = id
		f.in.grown += nameBytes(s)
		f.page.names = append(f.page.names, nameRow{id, s})
	}
	return id
}

// device finds or makes the row of a device. One whose UUID nobody could tell is
// a device of its own.
func (f *fold) device(row format.DeviceRow) format.Device {
	if row.UUID != "" {
		if id, ok := f.in.uuids[row.UUID]; ok {
			return id
		}
	}
	if len(f.in.devices) >= maxDevices {
		return format.NoDevice
	}
	row.ID = format.Device(len(f.in.devices))
	f.in.devices = append(f.in.devices, row)
	if row.UUID != "" {
		f.in.uuids[row.UUID] = row.ID
	}
	f.page.devices = append(f.page.devices, row)
	return row.ID
}

// define takes in a definition. It is done as soon as a record is here, before
// anything of its round is passed on: definitions have no place in the order.
func (f *fold) define(l *lane, r ring.Record) {
	t := &l.process.tables
	switch r.Kind() {
	case format.WireCode:
		d, file, name, table := r.Code()
		if _, ok := t.codes.get(d.Key); ok {
			return
		}
		t.codes.put(d.Key, &code{file: text(file, int(d.FileUnit)), name: text(name, int(d.NameUnit)),
			lines: lineTable{d.FirstLine, d.Python, append([]byte(nil), table...), d.TableBytes < d.TableTotal}})
	case format.WireStack:
		d, frames := r.Stack()
		if _, ok := t.stacks.get(d.Hash); ok {
			return
		}
		s := &stack{frames: append([]format.WireFrame(nil), frames...), dropped: d.Dropped}
		s.native = len(frames) > 0 && !slices.ContainsFunc(frames, func(w format.WireFrame) bool { return format.FrameKind(w.Kind) != format.FrameNative })
		t.stacks.put(d.Hash, s)
	case format.WireModule:
		d, id, path := r.Module()
		if _, ok := t.modules[d.Number]; ok || d.Number >= format.MaxModules {
			return
		}
		if t.modules == nil {
			t.modules = map[uint32]module{}
		}
		t.modules[d.Number] = module{valid(string(path)), hex.EncodeToString(id)}
	case format.WireName:
		d, b := r.Name()
		if _, ok := t.names.get(d.Hash); !ok {
			t.names.put(d.Hash, f.name(text(b, int(d.Unit))))
		}
	case format.WireDevice:
		f.defineDevice(t, r.Device())
	}
	f.in.grown += tableBytes + int64(len(r))
}

func (f *fold) defineDevice(t *tables, d *format.WireDeviceDef) {
	if d.Ordinal < 0 || d.Ordinal > math.MaxInt16 { // no event can name it
		return
	}
	row := format.DeviceRow{Name: text(upToZero(d.Name[:]), 0), Total: int64(min(d.Total, 1<<62)), NVML: format.Unknown}
	if d.Known == 1 {
		u := d.UUID
		row.UUID = fmt.Sprintf("GPU-%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
		if _, ok := f.in.uuids[row.UUID]; !ok { // a MIG instance has its UUID in the same bytes
			if mig := "MIG" + row.UUID[3:]; f.has(mig) {
				row.UUID = mig
			}
		}
	}
	own := t.device(int16(d.Ordinal))
	if !own.known {
		*own = ownDevice{id: f.device(row), known: true}
		return
	}
	// An event came before its device could be asked: the row it got is this
	// device's, unless the device has one already.
	if own.id == format.NoDevice || f.in.devices[own.id].UUID != "" || row.UUID == "" {
		return
	}
	if f.has(row.UUID) {
		*own = ownDevice{id: f.in.uuids[row.UUID], known: true}
		return
	}
	row.ID = own.id
	f.in.devices[own.id] = row
	f.in.uuids[row.UUID] = own.id
	f.page.devices = append(f.page.devices, row)
}

func (f *fold) has(uuid string) bool {
	_, ok := f.in.uuids[uuid]
	return ok
}

// ordinal is the trace's index of a process's device.
func (f *fold) ordinal(t *tables, ordinal int16) format.Device {
	if ordinal < 0 {
		return format.NoDevice
	}
	own := t.device(ordinal)
	if !own.known {
		own.id, own.known = f.device(format.DeviceRow{Total: format.Unknown, NVML: format.Unknown}), true
	}
	return own.id
}

// stackOf is the trace's stack of a hash that a lane's thread sent; 0 where it was
// never defined, which is counted, and the event kept.
func (f *fold) stackOf(l *lane, hash uint64) format.StackID {
	t := &l.process.tables
	s, ok := t.stacks.get(hash)
	if !ok {
		f.stats.Unresolved++
		return 0
	}
	if s.native {
		root := f.threadStack(l)
		id, ok := s.under[root]
		if !ok {
			if s.under == nil || len(s.under) >= maxUnder { // a program that names each of its threads anew
				s.under = map[format.StackID]format.StackID{}
			}
			id = f.resolve(t, root, s)
			s.under[root] = id
		}
		return id
	}
	if s.id == 0 {
		s.id = f.resolve(t, 0, s)
		s.frames = nil
	}
	return s.id
}

func (f *fold) resolve(t *tables, id format.StackID, s *stack) format.StackID {
	if s.dropped > 0 {
		cut := format.CutLabel(0) // of native stacks the hash does not tell depths apart, so that the number may be another's
		if !s.native {
			cut = format.CutLabel(s.dropped)
		}
		id = f.node(id, f.frame(format.Frame{Kind: format.FrameLabel, Function: cut}))
	}
	for i := len(s.frames) - 1; i >= 0; i-- { // they travel innermost first
		id = f.node(id, f.frameOf(t, &s.frames[i]))
	}
	return id
}

func (f *fold) frameOf(t *tables, w *format.WireFrame) format.FrameID {
	kind := format.FrameKind(min(w.Kind, 255))
	if kind == format.FrameNative && w.Instruction == 0 {
		return f.frame(format.Frame{Kind: kind, Module: labelNative, Function: format.CutLabel(0)})
	}
	if kind == format.FrameNative {
		m, ok := t.modules[uint32(w.Instruction)]
		if !ok {
			f.stats.Unresolved++
		}
		return f.frame(format.Frame{Kind: kind, Module: m.path, BuildID: m.buildID, Address: w.Code})
	}
	c, ok := t.codes.get(w.Code)
	if !ok || !kind.Valid() {
		f.stats.Unresolved++
		return f.frame(format.Frame{Kind: format.FrameLabel, Function: labelCode})
	}
	id, ok := c.frames[w.Instruction]
	if !ok {
		id = f.frame(format.Frame{Kind: kind, File: c.file, Line: max(c.lines.line(w.Instruction), 0), Function: c.name})
		if c.frames == nil {
			c.frames = map[int32]format.FrameID{}
		}
		c.frames[w.Instruction] = id
	}
	return id
}

// threadStack is the stack of a thread that had no frames of its own, and under
// which its native ones stand.
func (f *fold) threadStack(l *lane) format.StackID {
	if l.fold.thread == 0 && l.fold.name != "" {
		l.fold.thread = f.node(0, f.frame(format.Frame{Kind: format.FrameThread, Function: "[thread " + l.fold.name + "]"}))
	}
	return l.fold.thread
}

// nameOf is the trace's name of a hash, 0 for none.
func (f *fold) nameOf(t *tables, hash uint64) format.NameID {
	if hash == 0 {
		return 0
	}
	id, ok := t.names.get(hash)
	if !ok {
		f.stats.Unresolved++
	}
	return id
}

func upToZero(b []byte) []byte {
	for i, c := range b {
		if c == 0 {
			return b[:i]
		}
	}
	return b
}
