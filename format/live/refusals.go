package live

import (
	"cmp"
	"slices"

	"github.com/gpurec/gpurec/format"
)

// Refusals tell what became of requests for device memory that the driver
// refused. Every event of a trace goes in, in order; beside the State, which does
// not need them.
//
//	AllocFailed … AllocFailed … Alloc of the same size    a retry worked: OnServed
//	AllocFailed … AllocFailed … a pool's AllocFailed      the program was told, by its pool: OnTold
//	AllocFailed … the thread does something else          the program was told, by the driver: OnTold
//	              a pool's AllocFailed                    the pool did not ask the driver: OnTold
//
// Between them stand frees, of what the pool gives back. A mapped segment is
// made of many handles of one size, of which some may be had and the request
// still fail: there only the pool's own alloc says that it was served.
//
// A request is told of once, however often the driver refused it. What the
// fields are given is valid during the call only.
type Refusals struct {
	OnRefused func(r *Refusal)                  // the first time
	OnServed  func(r *Refusal, e *format.Event) // e is the Alloc that worked
	OnTold    func(r *Refusal, e *format.Event) // e is the pool's report, or r.First; r is nil where the driver was not asked

	open map[refusalKey]*Refusal
}

// A Refusal is one request of one thread.
type Refusal struct {
	First format.Event
	Count int64 // how often the driver refused it
	Free  int64 // device bytes that were free at the latest, Unknown where the hook did not say
}

type refusalKey struct {
	process format.ProcessID
	thread  uint32
}

// outOfMemory is CUDA_ERROR_OUT_OF_MEMORY.
const outOfMemory = 2

// Reports says whether an api is an allocator's above the driver: its word to
// the program.
func Reports(api format.API) bool {
	switch api {
	case format.APITorch, format.APITorchOOM, format.APICuPy, format.APIGoPool:
		return true
	}
	return false
}

// OutOfMemory reports whether a failed allocation is a matter of the device's
// memory: not of the host's, and not of a bad argument. Pools give no reason.
func OutOfMemory(e *format.Event) bool {
	return Reports(e.API) || e.Status == outOfMemory && e.Layer != format.LayerHost
}

// Asked is how many bytes an attempt was for; a failed one may know only one of
// the two numbers.
func Asked(e *format.Event) int64 { return max(e.Requested, e.Size, 0) }

// Open is the request of e's thread that was refused and is not yet told of.
func (s *Refusals) Open(e *format.Event) *Refusal {
	if len(s.open) == 0 {
		return nil
	}
	return s.open[refusalKey{e.Process, e.Thread}]
}

// Undecided is how many requests were refused and are not yet told of: a retry
// may still work.
func (s *Refusals) Undecided() int { return len(s.open) }

// Event follows one event.
func (s *Refusals) Event(e *format.Event) {
	switch e.Kind {
	case format.AllocFailed:
		s.failed(e)
	case format.Alloc:
		s.succeeded(e)
	case format.ScopeBegin, format.ScopeEnd, format.Mark:
		if r := s.Open(e); r != nil {
			s.alone(e, r)
		}
	case format.ProcessEnd:
		s.end(func(k refusalKey) bool { return k.process == e.Process })
	}
}

// End is the end of what there is to know: what is open was the driver's word.
func (s *Refusals) End() { s.end(func(refusalKey) bool { return true }) }

// end ends those of some threads, in their order.
func (s *Refusals) end(which func(refusalKey) bool) {
	var keys []refusalKey
	for k := range s.open {
		if which(k) {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b refusalKey) int {
		return cmp.Or(cmp.Compare(a.process, b.process), cmp.Compare(a.thread, b.thread))
	})
	for _, k := range keys {
		r := s.open[k]
		s.alone(&r.First, r)
	}
}

func (s *Refusals) failed(e *format.Event) {
	if ignored(e) || !OutOfMemory(e) {
		return
	}
	k, r := refusalKey{e.Process, e.Thread}, s.Open(e)
	if Reports(e.API) {
		delete(s.open, k)
		s.told(r, e)
		return
	}
	free := int64(format.Unknown)
	if e.Layer == format.LayerDriver {
		free = e.Reserved
	}
	if r != nil && Asked(&r.First) == Asked(e) && r.First.Device == e.Device {
		r.Count++
		r.Free = free
		return
	}
	if r != nil {
		s.alone(e, r)
	}
	r = &Refusal{First: *e, Count: 1, Free: free}
	if s.open == nil {
		s.open = map[refusalKey]*Refusal{}
	}
	s.open[k] = r
	if s.OnRefused != nil {
		s.OnRefused(r)
	}
}

// alone ends a request of which no pool said anything.
func (s *Refusals) alone(of *format.Event, r *Refusal) {
	delete(s.open, refusalKey{of.Process, of.Thread})
	s.told(r, &r.First)
}

func (s *Refusals) told(r *Refusal, e *format.Event) {
	if s.OnTold != nil {
		s.OnTold(r, e)
	}
}

func (s *Refusals) succeeded(e *format.Event) {
	r := s.Open(e)
	if r == nil || ignored(e) || e.Layer == format.LayerHost {
		return
	}
	switch mapped := r.First.API == format.APIMemCreate; {
	case mapped && Reports(e.API), !mapped && !Reports(e.API) && Asked(e) == Asked(&r.First) && e.Device == r.First.Device:
		delete(s.open, refusalKey{e.Process, e.Thread})
		if s.OnServed != nil {
			s.OnServed(r, e)
		}
	case !mapped:
		s.alone(e, r)
	}
}
