package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/gpurec/gpurec/format"
)

// A stream is a recorded training run (testdata/h200/train.gpurec, or its copy
// in the kit), repeated as often as wanted: real sizes, addresses, stacks,
// scopes and distances in time, and each repetition ends with nothing live.
type stream struct {
	defs   *format.Defs
	events []format.Event
	length format.Time    // from one repetition's begin to the next one's
	scopes format.ScopeID // above every scope's id
	seqs   uint64
}

// evidence is where the training trace lies.
func evidence(root string) string {
	return filepath.Join(root, "testdata", "h200", "train.gpurec")
}

// key is how an allocation of the training run is found again by its free.
type key struct {
	layer   format.Layer
	address uint64
	object  uint64
}

func openStream(root string) (*stream, error) {
	t, err := format.Open(evidence(root))
	if err != nil {
		return nil, err
	}
	s := &stream{defs: format.NewDefs()}
	live := map[key]format.Event{}
	for _, p := range t.Parts() {
		if err := p.LoadDefs(s.defs); err != nil {
			return nil, err
		}
		r, err := p.Events()
		if err != nil {
			return nil, err
		}
		for {
			rows, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				r.Close()
				return nil, err
			}
			for _, e := range rows {
				k := key{e.Layer, e.Address, 0}
				switch e.Kind {
				case format.Alloc:
					live[k] = e
				case format.Free:
					delete(live, k)
				case format.ScopeBegin, format.ScopeEnd, format.Mark:
				default:
					continue // once a process, not once a step
				}
				s.scopes = max(s.scopes, e.Scope+1)
				s.seqs = max(s.seqs, e.Seq+1)
				s.events = append(s.events, e)
			}
		}
		r.Close()
	}
	if len(s.events) == 0 {
		return nil, errors.New("the training trace has no events")
	}
	last := s.events[len(s.events)-1].Time
	for _, e := range live { // what the process's end gave back
		last += 1000
		free := format.Event{Kind: format.Free, Layer: e.Layer, Class: e.Class, Time: last, Address: e.Address, Object: e.Object, Size: format.Unknown, Requested: format.Unknown,
			Allocated: format.Unknown, Reserved: format.Unknown, Duration: format.Unknown, Process: e.Process, Thread: e.Thread, Device: e.Device, API: e.API, Stack: e.Stack, Seq: s.seqs}
		if e.API == format.APIMemAlloc {
			free.API = format.APIMemFree
		}
		s.seqs++
		s.events = append(s.events, free)
	}
	s.length = last - s.events[0].Time + 1000
	return s, nil
}

// each calls f with the events of so many repetitions, each at its own time.
func (s *stream) each(n int, f func(*format.Event) error) error {
	for i := range n {
		shift, scopes := format.Time(i)*s.length, format.ScopeID(i)*s.scopes
		for k := range s.events {
			e := s.events[k]
			e.Time += shift
			e.Seq += uint64(i) * s.seqs
			if e.Scope != 0 {
				e.Scope += scopes
			}
			if e.Parent != 0 {
				e.Parent += scopes
			}
			if err := f(&e); err != nil {
				return err
			}
		}
	}
	return nil
}

// write makes a closed trace of at least so many events.
func (s *stream) write(dir string, events int) (int, error) {
	w, err := format.Create(dir, format.Meta{Tool: "benchmarks"}, format.WriterOptions{})
	if err != nil {
		return 0, err
	}
	s.copyDefs(w.Defs())
	n := 0
	if err := s.each((events+len(s.events)-1)/len(s.events), func(e *format.Event) error { n++; return w.Event(e) }); err != nil {
		return 0, fmt.Errorf("write %s: %w", dir, err)
	}
	return n, w.Close(nil)
}

func (s *stream) copyDefs(to *format.Defs) {
	s.defs.Each(to.PutFrame, to.PutStack, to.PutName)
	for _, p := range s.defs.Processes() {
		to.PutProcess(p)
	}
	for _, d := range s.defs.Devices() {
		to.PutDevice(d)
	}
}
