package recorder

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/recorder/ring"
)

// A page is what fold hands to write: definitions, then the rows that refer to
// them, then perhaps the checkpoint with which the next part begins.
type page struct {
	frames    []format.Frame
	stacks    []format.Stack
	names     []nameRow
	processes []format.Process
	devices   []format.DeviceRow

	events     []format.Event
	samples    []format.Sample
	checkpoint []format.Event
	keep       *format.Keep // of definitions, after this page; nil: all
}

type nameRow struct {
	id   format.NameID
	text string
}

func newPage() *page { return &page{events: make([]format.Event, 0, pageRows+256)} }

func (p *page) empty() bool {
	return p.keep == nil && len(p.events)+len(p.samples)+len(p.checkpoint)+len(p.frames)+len(p.stacks)+len(p.names)+len(p.processes)+len(p.devices) == 0
}

// fromLane reports whether there is an event that the recorder did not make: the
// begin of a process comes in a page before those of its first event.
func (p *page) fromLane() bool {
	return slices.ContainsFunc(p.events, func(e format.Event) bool { return e.Seq != 0 })
}

func (p *page) reset() {
	clear(p.frames) // lets go of their texts
	clear(p.names)
	*p = page{frames: p.frames[:0], stacks: p.stacks[:0], names: p.names[:0], processes: p.processes[:0], devices: p.devices[:0],
		events: p.events[:0], samples: p.samples[:0]}
}

// A spare is the pages that write has emptied. The latest is used first: it is in
// a cache still.
type spare struct {
	mu    sync.Mutex
	pages []*page
}

func (s *spare) put(p *page) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pages = append(s.pages, p)
}

func (s *spare) take() *page {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.pages) - 1
	if n < 0 {
		return newPage()
	}
	p := s.pages[n]
	s.pages[n] = nil
	s.pages = s.pages[:n]
	return p
}

// write is the goroutine that encodes and compresses. What it has is on the disk
// at most flushEvery later, so that a recorder that is killed loses that much;
// the first time soon after the first event, because short programs are killed
// too. The writer flushes by itself whenever a batch is full.
type write struct {
	s       *Session
	soon    bool // the early flush has been arranged
	waiting bool // something is not on the disk, and due is set
	due     *time.Timer
	learned chan func(*format.Meta) // by a late source
	w       *format.Writer
	part    atomic.Uint64 // for fold, which decides when a part is full: its number and bytes, see size
	err     error
	told    map[string]bool // what tight has said
	dropped uint64          // events, after a failure
}

// A part's number and size in one word, so that fold never takes the size of the
// part before for this one's: its pages may still be on their way.
const sizeBits = 40

func (w *write) grown(index int, bytes int64) {
	w.part.Store(uint64(index)<<sizeBits | uint64(min(bytes, 1<<sizeBits-1)))
}

// size is what a part has on disk, 0 while write is still at an earlier one.
func (w *write) size(index int) int64 {
	v := w.part.Load()
	if v>>sizeBits != uint64(index)&(1<<(64-sizeBits)-1) {
		return 0
	}
	return int64(v & (1<<sizeBits - 1))
}

// flushEvery, handEvery and paceMost together stay well below the second that a
// killed recorder may lose. The longer the pause, the larger the batches: at
// 50,000 events a second they need not be rewritten when the part closes.
const (
	flushEvery = 750 * time.Millisecond
	flushFirst = 20 * time.Millisecond // after the first page that has an event of a lane, itself handEvery old
)

func (w *write) run() {
	defer close(w.s.done)
	w.due = time.NewTimer(w.s.opt.flushEvery)
	defer w.due.Stop()
	for {
		select {
		case p, ok := <-w.s.pages:
			if !ok {
				return
			}
			flushes, first := w.w.Flushes(), !w.soon && p.fromLane()
			w.page(p)
			w.arrange(w.w.Flushes() != flushes, first)
		case <-w.due.C:
			w.waiting = false
			if w.err == nil {
				w.check(w.w.Flush())
			}
		case f := <-w.learned:
			if w.err == nil {
				w.check(w.w.Update(f))
			}
		}
		if w.err == nil {
			w.grown(w.w.PartIndex(), w.w.PartBytes())
			w.tooTight()
		}
	}
}

// learn changes trace.json soon: a recorder that is killed has not closed it.
func (w *write) learn(f func(*format.Meta)) { w.learned <- f }

// arrange sets the time of the next flush by the oldest row that is not on the
// disk: after a flush it is of the latest page.
func (w *write) arrange(flushed, first bool) {
	switch {
	case first:
		w.soon = true
		w.due.Reset(min(flushFirst, w.s.opt.flushEvery))
	case flushed || !w.waiting:
		w.due.Reset(w.s.opt.flushEvery)
	}
	w.waiting = true
}

// check keeps the first failure: it ends the recording, and what comes later is
// taken and dropped.
func (w *write) check(err error) {
	if err != nil && w.err == nil {
		w.err = err
		w.s.fail(fmt.Errorf("gpurec stopped recording; the program runs on: %w", err))
	}
}

func (w *write) page(p *page) {
	if w.err == nil {
		w.check(w.rows(p))
	} else {
		w.dropped += uint64(len(p.events))
	}
	p.reset()
	w.s.fold.spare.put(p)
}

func (w *write) rows(p *page) error {
	d := w.w.Defs()
	for i := range p.frames {
		d.PutFrame(p.frames[i])
	}
	for i := range p.stacks {
		d.PutStack(p.stacks[i])
	}
	for i := range p.names {
		d.PutName(p.names[i].id, p.names[i].text)
	}
	for i := range p.processes {
		d.PutProcess(p.processes[i])
	}
	for i := range p.devices {
		d.PutDevice(p.devices[i])
	}
	if err := w.w.Events(p.events); err != nil {
		return err
	}
	for i := range p.samples {
		if err := w.w.Sample(&p.samples[i]); err != nil {
			return err
		}
	}
	if p.checkpoint != nil {
		if err := w.w.Rotate(p.checkpoint); err != nil {
			return err
		}
	}
	if p.keep != nil {
		return w.w.Forget(p.keep)
	}
	return nil
}

// close writes the account of the recording into trace.json.
func (w *write) close(f func(*format.Meta)) error {
	s := w.s
	return w.w.Close(func(m *format.Meta) {
		select {
		case learn := <-w.learned:
			learn(m)
		default:
		}
		m.Stats = s.fold.stats
		m.Stats.Written, m.Stats.Unwritten = w.w.Written(), w.dropped
		m.End = ring.Now()
		if texts := append(w.tight(), s.fold.reasons...); len(texts) > 0 {
			m.Reason = strings.Join(texts, "; ")
		}
		s.mu.Lock()
		for _, r := range s.reasons {
			if m.NoSamples != "" {
				m.NoSamples += "; "
			}
			m.NoSamples += r
		}
		m.Jobs = s.jobs
		s.mu.Unlock()
		if f != nil {
			f(m)
		}
	})
}
