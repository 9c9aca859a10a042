package live

import (
	"math"

	"github.com/gpurec/gpurec/format"
)

// A State is everything the fold knows at one moment. Not safe for use by
// several goroutines at once.
//
// The fields are set before the first event or never. What an observer is
// given is valid during the call only, and it must not call Apply.
type State struct {
	// Pooled says which processes have a pool event in the whole recording, where
	// the caller has looked; nil means: as seen so far.
	Pooled func(format.ProcessID) bool

	// Count says which allocations stand in sums; nil means all. The others are
	// followed, so that their frees are known. Sums in checkpoints are then
	// not used, because they count everything.
	Count func(*format.Event) bool

	OnBegin    func(a *Allocation, e *format.Event) // e is the Alloc, Import, FreeFailed or Live row
	OnEnd      func(a *Allocation, e *format.Event) // e is what ended it: Free, Release, Unmap, Reset, ProcessEnd, an Alloc at its address, a CheckpointEnd without it
	OnScopeEnd func(sc *Scope, e *format.Event)     // e is ScopeEnd; ProcessEnd or CheckpointEnd where its end is not in the trace

	// Mappings of VMM handles that begin and end. When a process ends all it had
	// do, and are not told.
	OnMap   func(a *Allocation, address uint64, size int64)
	OnUnmap func(p format.ProcessID, address uint64)

	processes   map[format.ProcessID]*Process
	lastProcess *Process
	devices     map[format.Device]*Device
	allocs      []Allocation
	free        int32 // first unused slot, linked by next
	index       index
	orphans     map[orphanKey]int32
	ended       graveyard
	generation  uint64

	scopes    map[format.ScopeID]*Scope
	scopeSeq  uint64
	nvmlTotal tracker // over all sampled devices

	now        format.Time
	peaksSince format.Time // peaks before it are not counted
	loading    bool        // between a checkpoint's first row and its CheckpointEnd
	epoch      uint32
	rows       int64
	lastLive   int32
	unhooked   int64
	hasSample  bool
}

// New returns an empty state.
func New() *State {
	return &State{
		processes:  map[format.ProcessID]*Process{},
		devices:    map[format.Device]*Device{},
		orphans:    map[orphanKey]int32{},
		scopes:     map[format.ScopeID]*Scope{},
		free:       none,
		peaksSince: math.MinInt64,
		lastLive:   none,
	}
}

// Now is the time of the latest event.
func (s *State) Now() format.Time { return s.now }

// Loading reports whether the state is inside a checkpoint, where sums are not
// those of any moment.
func (s *State) Loading() bool { return s.loading }

// Unhooked is the number of look-ups of functions that may allocate and are
// not wrapped.
func (s *State) Unhooked() int64 { return s.unhooked }

// MarksPool reports whether e makes its process one with a pool, whose used
// bytes are those of the pool layer. A free does not: cuMemFreeAsync may free
// what cuMemAlloc took, and would turn a process without a pool into one.
func MarksPool(e *format.Event) bool {
	switch e.Kind {
	case format.Alloc, format.AllocFailed, format.Live:
		return e.Layer == format.LayerPool && !ignored(e)
	case format.LiveTotal:
		return e.Layer == format.LayerPool && (e.Object == totalAccount || e.Object == totalProcess)
	}
	return false
}

// ignored reports whether e stands for no memory of its own.
func ignored(e *format.Event) bool {
	return e.Flags&(format.FlagCaptured|format.FlagEcho) != 0 || e.API == format.APICuPyAlloc
}

// Apply folds one event. Every event of a trace goes in, in order, checkpoint
// rows too: inside a trace they repeat what is known and change nothing; at its
// begin and after a gap they set the state, and what they do not mention has
// ended in the gap.
func (s *State) Apply(e *format.Event) {
	if e.Kind.Checkpoint() {
		s.applyCheckpoint(e)
		return
	}
	if s.loading {
		s.endLoading(e, false) // a checkpoint cut short
	}
	s.now = e.Time
	switch e.Kind {
	case format.Alloc:
		if !ignored(e) {
			s.alloc(e)
		}
	case format.Free:
		if !ignored(e) {
			s.freed(e)
		}
	case format.AllocFailed:
		if !ignored(e) {
			p := s.process(e.Process)
			p.Failed++
			if e.Layer == format.LayerPool {
				s.seesPool(p)
			}
		}
	case format.FreeFailed:
		s.freeFailed(e)
	case format.Import:
		if !ignored(e) {
			s.insert(s.process(e.Process), e, e)
		}
	case format.Map:
		s.mapped(e)
	case format.Unmap:
		s.unmap(e)
	case format.Retain:
		s.retain(e)
	case format.Release:
		s.release(e)
	case format.Reset:
		s.resetDevice(e)
	case format.ProcessEnd:
		s.processEnd(e)
	case format.ScopeBegin:
		s.scopeBegin(e)
	case format.ScopeEnd:
		s.scopeEnd(e)
	case format.ScopeReset:
		s.scopeReset(e)
	case format.Lost:
		p := s.process(e.Process)
		p.Lost = add(p.Lost, max(e.Size, 0))
	case format.Unhooked:
		s.unhooked++
	case format.ProcessBegin, format.ThreadBegin:
		s.process(e.Process)
	}
}

// ResetPeaks begins the peaks of all sums anew, at what is live now. What open
// scopes have seen stays.
func (s *State) ResetPeaks() {
	s.peaksSince = s.now
	for _, p := range s.processes {
		p.acquired.resetPeak(s.now)
		p.pool.resetPeak(s.now)
		for _, a := range p.accounts {
			a.resetPeak(s.now)
		}
	}
	for _, d := range s.devices {
		d.Acquired.resetPeak(s.now)
		d.Pool.resetPeak(s.now)
		d.Used.resetPeak(s.now)
		d.NVMLPeak = d.nvml.Now
	}
}

// Sample folds one NVML reading. Samples and events are merged by the caller,
// by time: samples are a source of their own.
func (s *State) Sample(r *format.Sample) {
	if r.Process != 0 {
		return
	}
	d := s.device(r.Device)
	d.Reading = *r
	s.hasSample = true
	if !d.Sampled {
		// Nothing was known before, so the first reading stands for the time before it.
		d.Sampled = true
		d.nvml.shift(r.Used)
		d.nvml.Peak, d.NVMLPeak = r.Used, r.Used
		s.nvmlTotal.shift(r.Used)
		for _, sc := range s.scopes {
			if sc.onTotal() || sc.Device == r.Device {
				sc.begin[CurveNVML] += r.Used
			}
		}
	}
	if r.PeakUsed > d.nvml.Now {
		// The peak was somewhere since the sample before: scopes begun meanwhile may
		// not have seen it.
		d.NVMLPeak = max(d.NVMLPeak, r.PeakUsed)
		d.nvml.raise(r.PeakUsed, d.sampledSeq)
		s.nvmlTotal.raise(s.nvmlTotal.Now-d.nvml.Now+r.PeakUsed, d.sampledSeq)
	}
	n := r.Used - d.nvml.Now
	d.nvml.move(n, r.Time, false)
	s.nvmlTotal.move(n, r.Time, false)
	d.NVMLPeak = max(d.NVMLPeak, r.Used)
	d.sampledSeq = s.scopeSeq
}
