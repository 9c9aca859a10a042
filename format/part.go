package format

import (
	"fmt"
	"io"
	"path/filepath"
)

// A partWriter writes one part: its tables, and which definitions it has
// stated.
type partWriter struct {
	w      *Writer
	dir    string
	files  [len(tableOrder)]*tableFile
	rows   [len(tableOrder)]*batch
	events []Event // not yet in rows: transposed a block at a time
	left   int     // events until the next look
	frames idSet
	stacks idSet
	names  idSet
	procs  map[ProcessID]bool
	devs   map[Device]bool
	last   struct { // what the event before referred to, and so needs no look
		stack   StackID
		process ProcessID
		device  Device
		name    NameID
		note    NameID
	}
	chain []StackID
}

func partName(index int) string { return fmt.Sprintf("%05d", index) }

// openPart makes the directory and files of part w.index, definitions first:
// where there are events, there are files for what they refer to.
func (w *Writer) openPart() (*partWriter, error) {
	p := &partWriter{w: w, dir: filepath.Join(w.dir, partName(w.index)), events: make([]Event, 0, block), left: min(block, w.opt.BatchRows), procs: map[ProcessID]bool{}, devs: map[Device]bool{}}
	p.last.device = NoDevice
	if err := w.disk.Mkdir(p.dir); err != nil {
		return nil, err
	}
	for i, t := range tableOrder {
		f, err := createTable(w.disk, filepath.Join(p.dir, t.file()), t, w.enc)
		if err != nil {
			p.abandon()
			return nil, err
		}
		p.files[i], p.rows[i] = f, newBatch(t)
	}
	// Devices are few, and what a part has no event of is still an answer.
	for id := range w.defs.devices {
		p.needDevice(id)
	}
	if w.err != nil {
		p.abandon()
		return nil, w.err
	}
	return p, nil
}

func (p *partWriter) batch(t *table) *batch { return p.rows[t.order()] }

// refer states what e refers to, unless the part has.
func (p *partWriter) refer(e *Event) {
	if len(p.w.defs.fresh) > 0 {
		p.drain()
	}
	l := &p.last
	if e.Stack != l.stack {
		l.stack = e.Stack
		p.needStack(e.Stack)
	}
	if e.Process != l.process {
		l.process = e.Process
		p.needProcess(e.Process)
	}
	if e.Device != l.device {
		l.device = e.Device
		p.needDevice(e.Device)
	}
	if e.Name != l.name {
		l.name = e.Name
		p.needName(e.Name)
	}
	if e.Note != l.note {
		l.note = e.Note
		p.needName(e.Note)
	}
}

// drain states what was put since the last look, also what was stated before
// and has changed.
func (p *partWriter) drain() {
	for _, f := range p.w.defs.fresh {
		switch f.table {
		case framesTable:
			p.frames.remove(f.id)
			p.needFrame(FrameID(f.id))
		case stacksTable:
			p.stacks.remove(f.id)
			p.needStack(StackID(f.id))
		case namesTable:
			p.names.remove(f.id)
			p.needName(NameID(f.id))
		case processesTable:
			delete(p.procs, ProcessID(f.id))
			p.needProcess(ProcessID(f.id))
		case devicesTable:
			delete(p.devs, Device(f.id))
			p.needDevice(Device(f.id))
		}
	}
	p.w.defs.fresh = p.w.defs.fresh[:0]
}

// The need functions state a definition that the part lacks. One that nobody
// has put is not an error: readers count it as unknown.

func (p *partWriter) needStack(id StackID) {
	p.chain = p.chain[:0]
	for id != 0 && !p.stacks.has(uint32(id)) {
		s, ok := p.w.defs.stacks.get(uint32(id))
		if !ok {
			break
		}
		p.stacks.add(uint32(id)) // before its callers: a cycle ends here
		p.chain = append(p.chain, id)
		id = s.Parent
	}
	for i := len(p.chain) - 1; i >= 0; i-- { // callers first
		s, _ := p.w.defs.stacks.get(uint32(p.chain[i]))
		p.needFrame(s.Frame)
		addDef(p, stacksTable, s)
	}
}

func (p *partWriter) needFrame(id FrameID) {
	if id == 0 || p.frames.has(uint32(id)) {
		return
	}
	if f, ok := p.w.defs.frames.get(uint32(id)); ok {
		p.frames.add(uint32(id))
		addDef(p, framesTable, f)
	}
}

func (p *partWriter) needName(id NameID) {
	if id == 0 || p.names.has(uint32(id)) {
		return
	}
	if s, ok := p.w.defs.names.get(uint32(id)); ok {
		p.names.add(uint32(id))
		addDef(p, namesTable, nameRow{id, s})
	}
}

func (p *partWriter) needProcess(id ProcessID) {
	if r, ok := p.w.defs.processes[id]; ok && !p.procs[id] {
		p.procs[id] = true
		addDef(p, processesTable, r)
	}
}

func (p *partWriter) needDevice(id Device) {
	if r, ok := p.w.defs.devices[id]; ok && !p.devs[id] {
		p.devs[id] = true
		addDef(p, devicesTable, r)
	}
}

// addDef adds a definition. A full batch is written at once: definitions may
// always go to the disk before what needs them.
func addDef[T any](p *partWriter, t *table, row T) {
	b := p.batch(t)
	addRows(b, []T{row})
	if b.full(p.w.opt.BatchRows) && p.w.err == nil {
		if err := p.flushTable(t.order()); err != nil {
			p.w.fail(err)
		}
	}
}

// full reports whether a flush is due, and moves events to their columns.
func (p *partWriter) full() bool {
	if p.left <= 0 {
		p.transpose()
	}
	rows := p.w.opt.BatchRows
	return p.batch(eventsTable).rows >= rows || p.batch(samplesTable).rows >= rows
}

func (p *partWriter) transpose() {
	addRows(p.batch(eventsTable), p.events)
	p.events = p.events[:0]
	p.look()
}

// look says when to look at the batch again.
func (p *partWriter) look() { p.left = min(block, p.w.opt.BatchRows-p.batch(eventsTable).rows) }

func (p *partWriter) flush() error {
	p.drain()
	if p.w.err != nil {
		return p.w.err
	}
	p.transpose()
	for i := range tableOrder {
		if err := p.flushTable(i); err != nil {
			return err
		}
	}
	p.look()
	return nil
}

// flushTable writes a table's rows, in batches no larger than a reader takes.
func (p *partWriter) flushTable(i int) error {
	b := p.rows[i]
	err := p.files[i].append(b)
	b.reset()
	return err
}

func (p *partWriter) bytes() (n int64) {
	for _, f := range p.files {
		if f != nil {
			n += f.size
		}
	}
	return n
}

// close flushes and closes all tables, events last, and rewrites those that
// have many small batches.
func (p *partWriter) close() error {
	if err := p.flush(); err != nil {
		return err
	}
	for i, f := range p.files {
		if err := f.close(); err != nil {
			return err
		}
		p.files[i] = nil
		if scattered(len(f.blocks), f.rows) {
			compact(p.w.disk, f.path, p.rows[i], p.w.enc) // where it fails the table stays as it is, and is whole
		}
	}
	return nil
}

// abandon closes what is open, with a footer where the disk still takes it:
// then other tools can read the table as it lies.
func (p *partWriter) abandon() {
	for i, f := range p.files {
		if f != nil {
			f.close()
			p.files[i] = nil
		}
	}
}

// scattered reports whether a table has so many batches for its rows that
// rewriting pays: one flush a second is 86,400 a day. It costs as much as writing
// does, 140 ns an event. Measured on a training run, where rewriting leaves 2.77
// bytes an event: batches of 3,500 rows take 5.7, of 17,500 3.2, of 35,000, which
// is 50,000 events a second, 2.89; there 140 ns are a third of all that recording
// may cost, and they stay.
func scattered(batches int, rows int64) bool {
	ideal := int((rows + MaxBatchRows - 1) / MaxBatchRows)
	return batches > 4 && batches >= 2*ideal
}

// compact rewrites a closed table in full batches, beside, and renames it. The
// memory of b is used, which is empty.
func compact(disk Disk, path string, b *batch, enc *encoder) error {
	beside := path + besideSuffix
	err := rewrite(disk, path, beside, b, enc)
	if err == nil {
		err = disk.Rename(beside, path)
	}
	if err != nil {
		disk.Remove(beside)
	}
	return err
}

// rewrite copies the table at path, which must be whole, to a new file.
func rewrite(disk Disk, path, to string, b *batch, enc *encoder) error {
	r, err := openTable(path, b.table)
	if err != nil {
		return err
	}
	defer r.close()
	w, err := createTable(disk, to, b.table, enc)
	if err != nil {
		return err
	}
	for {
		in, err := r.next()
		if err == io.EOF {
			break
		}
		for from := 0; err == nil && from < in.rows; {
			// Text fills a batch early, and rows are looked at in pieces so
			// that it is noticed in time.
			to := min(from+min(MaxBatchRows-b.rows, in.rows-from), in.rows)
			if in.text() > 0 {
				to = from + 1
			}
			b.addBatch(in, from, to)
			from = to
			if b.full(MaxBatchRows) {
				err = w.append(b)
				b.reset()
			}
		}
		if err != nil {
			w.f.Close()
			return err
		}
	}
	if err := w.append(b); err != nil {
		w.f.Close()
		return err
	}
	return w.close()
}

// text is the bytes of text in b.
func (b *batch) text() (n int) {
	for i := range b.cols {
		if b.table.columns[i].cell == cellText {
			n += len(b.cols[i].data)
		}
	}
	return n
}

// An idSet is a set of ids, bounded by how many were added and not by how
// large they are: pages of 512.
type idSet struct {
	pages map[uint32]*[8]uint64
	last  *[8]uint64 // the page looked at before
	at    uint32     // its number
}

func (s *idSet) page(id uint32, fresh bool) *[8]uint64 {
	n := id / 512
	if s.last != nil && s.at == n {
		return s.last
	}
	p := s.pages[n]
	if p == nil {
		if !fresh {
			return nil
		}
		if s.pages == nil {
			s.pages = map[uint32]*[8]uint64{}
		}
		p = new([8]uint64)
		s.pages[n] = p
	}
	s.last, s.at = p, n
	return p
}

func (s *idSet) has(id uint32) bool {
	p := s.page(id, false)
	return p != nil && p[id%512/64]>>(id%64)&1 != 0
}

func (s *idSet) add(id uint32) { s.page(id, true)[id%512/64] |= 1 << (id % 64) }

func (s *idSet) remove(id uint32) {
	if p := s.page(id, false); p != nil {
		p[id%512/64] &^= 1 << (id % 64)
	}
}
