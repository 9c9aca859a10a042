package format

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// Defs are the definitions that events refer to, by id. Their memory is
// bounded by the rows put, whatever their ids are.
//
// Texts are kept as a file can hold them: bytes that are not UTF-8 become
// U+FFFD, a text over MaxText ends with "…". Defs are for one goroutine.
type Defs struct {
	frames    idMap[Frame]
	stacks    idMap[Stack]
	names     idMap[string]
	processes map[ProcessID]Process
	devices   map[Device]DeviceRow
	apis      APINames // of the trace that the parts belong to

	view  func([]FrameID) []FrameID // see SetView
	files func(string) string       // see SetFiles
	hide  *redactor                 // a Writer's that redacts, else nil
	track bool                      // a Writer's: it is to learn what was put
	fresh []freshDef
}

// A freshDef is a definition that its writer has not seen yet.
type freshDef struct {
	table *table
	id    uint32
}

// NewDefs returns empty definitions.
func NewDefs() *Defs {
	return &Defs{processes: map[ProcessID]Process{}, devices: map[Device]DeviceRow{}}
}

// Put puts a definition or replaces the one of the same id. A frame, stack or
// name should never change: parts restate them under the same id.
func (d *Defs) PutFrame(f Frame) {
	if d.hide != nil {
		d.hide.frame(&f)
	}
	f.clean()
	if old, ok := d.frames.get(uint32(f.ID)); !ok || old != f {
		d.frames.put(uint32(f.ID), f)
		d.put(framesTable, uint32(f.ID))
	}
}

// clean makes texts fit for a text column.
func (f *Frame) clean() {
	f.File, f.Function, f.Module, f.BuildID = cleanText(f.File), cleanText(f.Function), cleanText(f.Module), cleanText(f.BuildID)
}

func (d *Defs) PutStack(s Stack) {
	if old, ok := d.stacks.get(uint32(s.ID)); !ok || old != s {
		d.stacks.put(uint32(s.ID), s)
		d.put(stacksTable, uint32(s.ID))
	}
}

func (d *Defs) PutName(id NameID, text string) {
	if d.hide != nil {
		text = d.hide.text(text, rooted)
	}
	text = cleanText(text)
	if old, ok := d.names.get(uint32(id)); !ok || old != text {
		d.names.put(uint32(id), text)
		d.put(namesTable, uint32(id))
	}
}

func (d *Defs) PutProcess(p Process) {
	if d.hide != nil {
		d.hide.process(&p)
	}
	p.Executable, p.Command, p.Python = cleanText(p.Executable), cleanText(p.Command), cleanText(p.Python)
	if old, ok := d.processes[p.ID]; !ok || old != p {
		d.processes[p.ID] = p
		d.put(processesTable, uint32(p.ID))
	}
}

func (d *Defs) PutDevice(r DeviceRow) {
	r.UUID, r.Name = cleanText(r.UUID), cleanText(r.Name)
	if old, ok := d.devices[r.ID]; !ok || old != r {
		d.devices[r.ID] = r
		d.put(devicesTable, uint32(uint16(r.ID)))
	}
}

func (d *Defs) put(t *table, id uint32) {
	if d.track {
		d.fresh = append(d.fresh, freshDef{t, id})
	}
}

// Frame, Stack, Process and Device return a definition, and whether there is one.
func (d *Defs) Frame(id FrameID) (Frame, bool) { return d.frames.get(uint32(id)) }
func (d *Defs) Stack(id StackID) (Stack, bool) { return d.stacks.get(uint32(id)) }
func (d *Defs) Process(id ProcessID) (Process, bool) {
	p, ok := d.processes[id]
	return p, ok
}
func (d *Defs) Device(id Device) (DeviceRow, bool) {
	r, ok := d.devices[id]
	return r, ok
}

// Next are ids below which frames and stacks follow one another, but for a gap here
// and there: what is found out of each can lie in a slice that is bounded by the
// rows there are.
func (d *Defs) Next() (FrameID, StackID) {
	return FrameID(d.frames.next()), StackID(d.stacks.next())
}

// Name returns a text, "" where there is none.
func (d *Defs) Name(id NameID) string {
	s, _ := d.names.get(uint32(id))
	return s
}

// HasName tells an empty text from none.
func (d *Defs) HasName(id NameID) bool {
	_, ok := d.names.get(uint32(id))
	return ok
}

// SetView sets what Walk makes of a stack's frames, outermost first, in their
// own memory or in other; nil leaves them as they were recorded.
func (d *Defs) SetView(view func([]FrameID) []FrameID) { d.view = view }

// SetFiles sets what Shown makes of a file's name; nil leaves it as it is.
func (d *Defs) SetFiles(files func(file string) string) { d.files = files }

// Shown is a frame with its file's name as people are to see it: to be printed, and
// for nothing that judges a name.
func (d *Defs) Shown(f *Frame) *Frame {
	if d.files == nil || f.File == "" {
		return f
	}
	s := *f
	s.File = d.files(f.File)
	return &s
}

// EachFrame calls frame for every one, in the order of their ids.
func (d *Defs) EachFrame(frame func(*Frame)) {
	d.frames.each(func(_ uint32, f Frame) { frame(&f) })
}

// Walk returns the frames of a stack, outermost first, in buf's memory where
// it fits, as the view has them. Where a stack on the way is not defined or leads
// back to itself it returns the frames inside of that, and false. Stack 0 has no
// frames.
func (d *Defs) Walk(id StackID, buf []FrameID) (frames []FrameID, ok bool) {
	frames, ok = d.Recorded(id, buf)
	if d.view != nil && len(frames) > 0 {
		frames = d.view(frames)
	}
	return frames, ok
}

// Recorded is Walk without a view.
func (d *Defs) Recorded(id StackID, buf []FrameID) (frames []FrameID, ok bool) {
	frames, ok = buf[:0], true
	for id != 0 {
		s, found := d.stacks.get(uint32(id))
		if !found || len(frames) >= d.stacks.rows { // longer than all stacks: a cycle
			ok = false
			break
		}
		frames = append(frames, s.Frame)
		id = s.Parent
	}
	slices.Reverse(frames)
	return frames, ok
}

// API is the name of a function or source, also of one that only a newer writer
// knew. It may hold anything: a trace claims it.
func (d *Defs) API(a API) string {
	if !a.Known() {
		if name, ok := d.apis[a]; ok {
			return name
		}
	}
	return a.String()
}

// Processes and Devices are all rows, in the order of their ids.
func (d *Defs) Processes() []Process {
	out := make([]Process, 0, len(d.processes))
	for _, p := range d.processes {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b Process) int { return cmp3(a.ID, b.ID) })
	return out
}

func (d *Defs) Devices() []DeviceRow {
	out := make([]DeviceRow, 0, len(d.devices))
	for _, r := range d.devices {
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b DeviceRow) int { return cmp3(a.ID, b.ID) })
	return out
}

// Each calls the functions for every frame, stack and name, in the order of
// their ids.
func (d *Defs) Each(frame func(Frame), stack func(Stack), name func(NameID, string)) {
	d.frames.each(func(_ uint32, f Frame) { frame(f) })
	d.stacks.each(func(_ uint32, s Stack) { stack(s) })
	d.names.each(func(id uint32, s string) { name(NameID(id), s) })
}

// loneProcess is the only process, 0 where there is none or there are several.
func (d *Defs) loneProcess() ProcessID {
	if len(d.processes) == 1 {
		for id := range d.processes {
			return id
		}
	}
	return 0
}

func cmp3[T ~uint32 | ~int16](a, b T) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// cleanText makes s fit for a text column.
func cleanText(s string) string {
	if len(s) > MaxText {
		const mark = "…"
		n := MaxText - len(mark)
		for n > 0 && !utf8.RuneStart(s[n]) {
			n--
		}
		s = s[:n] + mark
	}
	if utf8.ValidString(s) {
		return s
	}
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) > MaxText { // each bad byte became three
		return cleanText(s)
	}
	return s
}

// An idMap maps ids to rows. Ids that follow one another, as a recorder gives
// them, lie in a slice from base on; others, as a file may claim them, in a map.
type idMap[V any] struct {
	base   uint32
	dense  []V
	has    []bool
	sparse map[uint32]V
	rows   int
}

func (m *idMap[V]) get(id uint32) (V, bool) {
	if i := uint64(id) - uint64(m.base); i < uint64(len(m.has)) && m.has[i] {
		return m.dense[i], true
	}
	v, ok := m.sparse[id]
	return v, ok
}

func (m *idMap[V]) put(id uint32, v V) {
	if _, ok := m.get(id); !ok {
		m.rows++
	}
	if i := uint64(id) - uint64(m.base); i < uint64(len(m.has)) || i < 2*uint64(m.rows)+1024 {
		for i >= uint64(len(m.has)) {
			m.has = append(m.has, false)
			var zero V
			m.dense = append(m.dense, zero)
		}
		m.dense[i], m.has[i] = v, true
		delete(m.sparse, id)
		return
	}
	if m.sparse == nil {
		m.sparse = map[uint32]V{}
	}
	m.sparse[id] = v
}

// next is where the slice ends; 0 where it does not begin with the first ids.
func (m *idMap[V]) next() uint32 {
	if m.base != 0 {
		return 0
	}
	return uint32(len(m.has))
}

// each calls f for every row in the order of ids.
func (m *idMap[V]) each(f func(id uint32, v V)) {
	rest := make([]uint32, 0, len(m.sparse))
	for id := range m.sparse {
		rest = append(rest, id)
	}
	slices.Sort(rest)
	for i, ok := range m.has {
		id := m.base + uint32(i)
		for len(rest) > 0 && rest[0] <= id { // put before the slice was as long
			f(rest[0], m.sparse[rest[0]])
			rest = rest[1:]
		}
		if ok {
			f(id, m.dense[i])
		}
	}
	for _, id := range rest {
		f(id, m.sparse[id])
	}
}

// keepOnly forgets all rows but those of ids. The slice begins anew at next, from
// where on new ids come.
func keepOnly[ID ~uint32, V any](m *idMap[V], ids []ID, next uint32) {
	kept := make(map[uint32]V, len(ids))
	for _, id := range ids {
		if v, ok := m.get(uint32(id)); ok {
			kept[uint32(id)] = v
		}
	}
	*m = idMap[V]{base: next, sparse: kept, rows: len(kept)}
}
