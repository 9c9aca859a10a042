package torch

import (
	"bufio"
	"errors"
	"fmt"
	"os"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/segments"
	"github.com/gpurec/gpurec/analyze/tree"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
)

// An Answer is a snapshot in the making.
type Answer struct {
	p        *analyze.Pass
	process  format.ProcessID // the one; 0 until it is known
	pool     bool             // it has one
	segments *segments.Tracker
	blocks   map[segments.Owner]map[uint64]block
	refusals live.Refusals
	devices  []*device
	next     uint32 // number of pickle's memo
	ended    bool   // the process is over, and what it had is in final
	entries  int64
	final    []segment
	failed   error
}

// A block is live. It lies in its own segment where none is known.
type block struct {
	segments.Block
	requested int64
	alone     bool
}

// A device is its entries so far, in a file of their own.
type device struct {
	file   *os.File
	left   bool // it has a name still
	w      *bufio.Writer
	pickle *pickler
	list   *list
	stacks map[format.StackID]uint32
}

// New returns an answer.
func New() *Answer { return &Answer{blocks: map[segments.Owner]map[uint64]block{}} }

// Entries is how many were written.
func (a *Answer) Entries() int64 { return a.entries }

func (a *Answer) Needs() analyze.Needs {
	return analyze.Needs{Pooled: true, Scopes: analyze.ScopesFiltered}
}

func (a *Answer) Begin(p *analyze.Pass) error {
	if a.p != nil {
		return errors.New("a snapshot is of one trace: export each to a file of its own")
	}
	a.p, a.segments = p, segments.New(p)
	if err := a.choose(); err != nil {
		return err
	}
	p.CountOnly(analyze.ByAll)
	a.segments.OnBegin = func(o *segments.Pool, s segments.Span) { a.segment(o, s, "segment_alloc", "segment_map") }
	a.segments.OnEnd = func(o *segments.Pool, s segments.Span) { a.segment(o, s, "segment_free", "segment_unmap") }
	p.State.OnBegin = func(al *live.Allocation, _ *format.Event) { a.begin(al) }
	p.State.OnEnd = func(al *live.Allocation, e *format.Event) { a.end(al, e) }
	a.refusals.OnTold = a.refused
	return nil
}

// choose finds the process: the only one with a pool. Where none has, it is the
// first that takes memory.
func (a *Answer) choose() error {
	var pids string
	for _, pr := range a.p.Defs.Processes() {
		if !a.p.Pooled(pr.ID) || !a.p.Matches(&format.Event{Process: pr.ID}, analyze.ByProcess) {
			continue
		}
		pids += fmt.Sprintf(" %d", pr.PID)
		if a.pool {
			return fmt.Errorf("a snapshot is of one process, and these have a pool: pids%s; --process says which", pids)
		}
		a.process, a.pool = pr.ID, true
	}
	return nil
}

// ours reports whether an event or allocation is of the process.
func (a *Answer) ours(id format.ProcessID) bool {
	if a.process == 0 {
		a.process = id
	}
	if a.process != id && !a.pool && a.failed == nil {
		one, _ := a.p.Defs.Process(a.process)
		other, _ := a.p.Defs.Process(id)
		a.failed = fmt.Errorf("a snapshot is of one process, and these took memory: pids %d and %d; --process says which", one.PID, other.PID)
	}
	return a.process == id
}

// isBlock reports whether an allocation is a block of the snapshot.
func (a *Answer) isBlock(al *live.Allocation) bool {
	n, ok := tree.AmountOf(a.p, al)
	return ok && n.Blocks > 0 && al.Size > 0 && a.ours(al.Process)
}

func (a *Answer) begin(al *live.Allocation) {
	owner := segments.Owner{Process: al.Process, Device: al.Device}
	was := a.segments.Sums(owner).Occupied
	a.segments.Begin(al)
	if !a.isBlock(al) {
		return
	}
	b := block{Block: segments.BlockOf(al), requested: al.Requested}
	if b.requested < 0 {
		b.requested = al.Size
	}
	b.alone = a.segments.Sums(owner).Occupied-was < al.Size
	if a.blocks[owner] == nil {
		a.blocks[owner] = map[uint64]block{}
	}
	a.blocks[owner][al.Address] = b
	if b.alone {
		a.entry(al.Device, "segment_alloc", al.Address, al.Size, al.Stack)
	}
	a.entry(al.Device, "alloc", al.Address, al.Size, al.Stack)
}

func (a *Answer) end(al *live.Allocation, e *format.Event) {
	if a.isBlock(al) && e.Kind != format.ProcessEnd {
		owner := segments.Owner{Process: al.Process, Device: al.Device}
		b := a.blocks[owner][al.Address]
		delete(a.blocks[owner], al.Address)
		for _, action := range []string{"free_requested", "free_completed"} {
			a.entry(al.Device, action, al.Address, al.Size, e.Stack)
		}
		if b.alone {
			a.entry(al.Device, "segment_free", al.Address, al.Size, e.Stack)
		}
	}
	a.segments.End(al, e)
}

func (a *Answer) segment(o *segments.Pool, s segments.Span, plain, mapped string) {
	action := plain
	if s.Mapped {
		action = mapped
	}
	if !a.ended && a.ours(o.Process) {
		a.entry(o.Device, action, s.Address, s.Size, s.Stack)
	}
}

// refused is what PyTorch calls oom: the program was told.
func (a *Answer) refused(r *live.Refusal, e *format.Event) {
	if !a.p.Matches(e, analyze.ByAll) || a.process != 0 && a.process != e.Process {
		return
	}
	free := int64(0)
	if r != nil {
		free = max(r.Free, 0)
	}
	a.write(e.Device, "oom", e.Stack, func(p *pickler) {
		p.field("device_free", free)
		p.field("size", live.Asked(e))
	})
}

func (a *Answer) entry(d format.Device, action string, address uint64, size int64, stack format.StackID) {
	a.write(d, action, stack, func(p *pickler) {
		p.field("addr", int64(address))
		p.field("size", size)
	})
}

// write adds an entry to a device's list. What happened before the window, or
// was there when the recording began, is none.
func (a *Answer) write(d format.Device, action string, stack format.StackID, more func(*pickler)) {
	if !a.p.In || a.p.State.Loading() || a.failed != nil {
		return
	}
	t := a.device(max(d, 0))
	if t == nil {
		return
	}
	a.entries++
	p := t.list.next()
	p.dict(func() {
		p.textField("action", action)
		more(p)
		p.field("stream", 0)
		p.field("time_us", a.micros(a.p.State.Now()))
		p.text("frames")
		t.frames(stack, a.p.Defs)
	})
}

func (a *Answer) micros(at format.Time) int64 {
	m := a.p.Trace.Meta()
	since := int64(at-m.Monotonic) / 1000
	if m.Start.IsZero() {
		return since
	}
	return m.Start.UnixMicro() + since
}

func (a *Answer) device(d format.Device) *device {
	for int(d) >= len(a.devices) {
		a.devices = append(a.devices, nil)
	}
	if a.devices[d] == nil {
		f, err := os.CreateTemp("", "gpuanalyze-*.pickle")
		if err != nil {
			a.failed = err
			return nil
		}
		left := os.Remove(f.Name()) != nil // Windows keeps the names of open files
		t := &device{file: f, left: left, w: bufio.NewWriterSize(f, 1<<16), stacks: map[format.StackID]uint32{}}
		t.pickle = newPickler(t.w, &a.next)
		t.list = t.pickle.list()
		a.devices[d] = t
	}
	return a.devices[d]
}

// frames writes a stack, innermost first, once.
func (d *device) frames(stack format.StackID, defs *format.Defs) {
	if n, ok := d.stacks[stack]; ok {
		d.pickle.op4(opGet, n)
		return
	}
	l := d.pickle.list()
	frames, _ := defs.Walk(stack, nil)
	for i := len(frames) - 1; i >= 0; i-- {
		fr, ok := defs.Frame(frames[i])
		if !ok {
			fr.Function = "unknown"
		}
		p := l.next()
		p.dict(func() {
			p.textField("filename", fr.Source())
			p.field("line", int64(fr.Line))
			p.textField("name", fr.Name())
		})
	}
	l.end()
	d.stacks[stack] = d.pickle.put()
}

func (a *Answer) Event(p *analyze.Pass, e *format.Event) error {
	if p.In || e.Kind != format.AllocFailed {
		a.refusals.Event(e)
	}
	if e.Kind == format.ProcessEnd && p.In && e.Process == a.process && !a.ended {
		a.take()
	}
	a.segments.Event(e)
	return a.failed
}

func (a *Answer) Sample(*analyze.Pass, *format.Sample) error { return nil }

func (a *Answer) End(*analyze.Pass) error {
	a.refusals.End()
	if !a.ended {
		a.take()
	}
	return a.failed
}
