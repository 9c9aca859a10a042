package torch

import (
	"bufio"
	"io"
	"os"

	"github.com/gpurec/gpurec/analyze/segments"
	"github.com/gpurec/gpurec/format"
)

// A segment is one at the end.
type segment struct {
	*segments.Segment
	device format.Device
}

// take takes what there is.
func (a *Answer) take() {
	a.ended = true
	spans := map[segments.Owner][]segments.Span{}
	for _, p := range a.segments.Pools() {
		if p.Process == a.process {
			spans[p.Owner] = p.Spans()
		}
	}
	for owner, blocks := range a.blocks {
		for _, b := range blocks {
			if b.alone {
				spans[owner] = append(spans[owner], segments.Span{Address: b.Address, Size: b.Size, Stack: b.Stack, Time: b.Time})
			}
		}
	}
	for d := range format.Device(maxDevice(spans) + 1) {
		owner := segments.Owner{Process: a.process, Device: d}
		var blocks []segments.Block
		for _, b := range a.blocks[owner] {
			blocks = append(blocks, b.Block)
		}
		for _, s := range segments.Build(spans[owner], blocks) {
			a.final = append(a.final, segment{s, d})
		}
	}
}

func maxDevice(spans map[segments.Owner][]segments.Span) (d format.Device) {
	for o := range spans {
		d = max(d, o.Device)
	}
	return d
}

// Write writes the snapshot, after the pass.
func (a *Answer) Write(w io.Writer) error {
	out := bufio.NewWriterSize(w, 1<<16)
	p := newPickler(out, &a.next)
	out.WriteString(opProto)
	d := &device{pickle: p, stacks: map[format.StackID]uint32{}}
	var err error
	p.dict(func() {
		p.text("segments")
		l := p.list()
		for _, s := range a.final {
			a.writeSegment(l.next(), s, d)
		}
		l.end()
		p.text("device_traces")
		l = p.list()
		for _, t := range a.devices {
			l.next()
			if e := t.copyTo(out); err == nil {
				err = e
			}
		}
		l.end()
		p.text("allocator_settings")
		p.dict(func() {})
		p.text("external_annotations")
		p.list().end()
	})
	p.op(opStop)
	if err != nil {
		return err
	}
	return out.Flush()
}

// copyTo puts a device's list into the snapshot.
func (d *device) copyTo(w *bufio.Writer) error {
	if d == nil {
		return w.WriteByte(opList)
	}
	d.list.end()
	if err := d.w.Flush(); err != nil {
		return err
	}
	if _, err := d.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	_, err := io.Copy(w, d.file)
	return err
}

// Close removes what lies in temporary files.
func (a *Answer) Close() {
	for _, d := range a.devices {
		if d == nil {
			continue
		}
		d.file.Close()
		if d.left {
			os.Remove(d.file.Name())
		}
	}
	a.devices = nil
}

// smallSegment is the size of segments of PyTorch's small pool.
const smallSegment = 2 << 20

func (a *Answer) writeSegment(p *pickler, s segment, d *device) {
	kind := "large"
	if s.Size == smallSegment {
		kind = "small"
	}
	p.dict(func() {
		p.field("device", int64(s.device))
		p.field("address", int64(s.Address))
		p.field("total_size", s.Size)
		p.field("allocated_size", s.Occupied)
		p.field("active_size", s.Occupied)
		p.field("requested_size", s.Occupied)
		p.field("stream", 0)
		p.textField("segment_type", kind)
		p.text("segment_pool_id")
		p.number(0)
		p.number(0)
		p.op(opTuple2)
		p.text("is_expandable")
		p.bool(s.Mapped)
		p.text("frames")
		d.frames(s.Stack, a.p.Defs)
		p.text("blocks")
		l := p.list()
		a.eachBlock(s, func(address uint64, size, requested int64, state string, stack format.StackID) {
			p := l.next()
			p.dict(func() {
				p.field("address", int64(address))
				p.field("size", size)
				p.field("requested_size", requested)
				p.textField("state", state)
				p.text("frames")
				d.frames(stack, a.p.Defs)
			})
		})
		l.end()
	})
}

// eachBlock calls f for the blocks and holes of a segment, which follow each
// other and are all of it: readers add them up.
func (a *Answer) eachBlock(s segment, f func(address uint64, size, requested int64, state string, stack format.StackID)) {
	at, end := s.Address, s.Address+uint64(s.Size)
	hole := func(to uint64) {
		if to > at {
			f(at, int64(to-at), 0, "inactive", 0)
			at = to
		}
	}
	known := a.blocks[segments.Owner{Process: a.process, Device: s.device}]
	for _, b := range s.Blocks {
		from, to := max(b.Address, at), min(b.Address+uint64(b.Size), end) // they overlap only where events were lost
		if from >= to {
			continue
		}
		hole(from)
		f(from, int64(to-from), min(known[b.Address].requested, int64(to-from)), "active_allocated", b.Stack)
		at = to
	}
	hole(end)
}
