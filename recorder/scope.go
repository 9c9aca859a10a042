package recorder

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/recorder/ring"
)

// A Curve is what a scope measures.
type Curve uint8

const (
	CurveUsed     Curve = iota // bytes the pool handed out; the driver layer's where the program has no pool
	CurveAcquired              // bytes taken from the driver
	CurveNVML                  // NVML's used bytes, all processes together; needs a Source
)

func (c Curve) String() string {
	switch c {
	case CurveUsed:
		return "used"
	case CurveAcquired:
		return "acquired"
	case CurveNVML:
		return "nvml"
	}
	return fmt.Sprintf("curve(%d)", uint8(c))
}

// A Scope measures a block: how much memory it left behind, and how much more
// it needed on the way. It is fastai's GPUMemTrace, with its texts, over events
// instead of samples:
//
//	s := rec.Scope("forward")
//	defer s.Exit() // △Used Peaked MB:    100    150 (forward: exit)
//
// Scopes nest and overlap freely, each with its own peak, on any goroutines.
// The numbers are the recorder's own fold of the trace at that event, so that an
// analysis of the file gives the same ones. Reading them waits for the fold, a
// few milliseconds; it empties no cache.
//
// A Scope's methods may be called from any goroutine.
type Scope struct {
	r      *Recorder
	name   string
	named  bool
	device int16 // NVML's curve is this device's, all devices' with NoDevice

	mu       sync.Mutex
	curve    Curve
	out      io.Writer
	quiet    bool
	noExit   bool
	number   uint64 // in the trace, of the latest Start
	running  bool
	stopped  Data // as the latest Stop froze it
	stopping error
	latest   Data // of the latest report
}

// Scope makes a scope and starts it. Its name is printed in each report, and
// an empty one is a name too: " ()".
func (r *Recorder) Scope(name string) *Scope {
	return r.scope(&Scope{name: name, named: true, device: int16(format.NoDevice)})
}

// AnonymousScope makes a scope without a name and starts it.
func (r *Recorder) AnonymousScope() *Scope { return r.scope(&Scope{device: int16(format.NoDevice)}) }

// ScopeOn is a Scope whose NVML curve is that of one device of this program,
// whichever is current on whatever thread; the other curves are the process's.
func (r *Recorder) ScopeOn(device int, name string) *Scope {
	return r.scope(&Scope{name: name, named: true, device: ordinal(device)})
}

func (r *Recorder) scope(s *Scope) *Scope {
	s.r, s.out = r, os.Stdout
	s.Start()
	return s
}

// Do runs f in a scope of its own and reports at its end, also when f panics.
// It is fastai's decorator gpu_mem_trace.
func (r *Recorder) Do(name string, f func()) {
	s := r.Scope(name)
	defer s.Exit()
	f()
}

// Measure chooses the curve; without it, CurveUsed. Data frozen by Stop stays.
func (s *Scope) Measure(c Curve) *Scope {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.curve = c
	return s
}

// Output chooses where reports go; without it, os.Stdout.
func (s *Scope) Output(w io.Writer) *Scope {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out = w
	return s
}

// Silent turns reports off, or on again. A silent report measures nothing.
func (s *Scope) Silent(silent bool) *Scope {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.quiet = silent
	return s
}

// OnExitReport says whether Exit reports; without it, it does.
func (s *Scope) OnExitReport(report bool) *Scope {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noExit = !report
	return s
}

// Start begins the measurement. On a running scope it is a Reset: there is one
// measurement a scope, however often it is started.
func (s *Scope) Start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running {
		s.send(format.ScopeReset)
		return
	}
	s.number = s.r.number()
	s.running, s.stopping = true, nil
	s.send(format.ScopeBegin)
}

// Reset begins the measurement anew: begin value and peak start here. A stopped
// scope keeps what it has.
func (s *Scope) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reset()
}

func (s *Scope) reset() {
	if s.running {
		s.send(format.ScopeReset)
	}
}

// Stop ends the measurement and freezes its data, whatever happens later. A
// second Stop changes nothing.
func (s *Scope) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stop()
}

func (s *Scope) stop() error {
	if !s.running {
		return s.stopping
	}
	s.stopped, s.stopping = s.ask(format.ScopeEnd)
	s.running = false
	return s.stopping
}

// Data is what the scope measured up to now, or up to its Stop.
func (s *Scope) Data() (Data, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running {
		return s.stopped, s.stopping
	}
	return s.now()
}

// Report prints a line, with at most one note:
//
//	△Used Peaked MB:    100    150 (name: note)
func (s *Scope) Report(note ...string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.report(note)
}

// ReportAndReset reports and begins anew. A silent scope begins anew all the
// same, a stopped one does not.
func (s *Scope) ReportAndReset(note ...string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.report(note)
	s.reset()
	return err
}

// Exit ends the scope as the end of a with block ends fastai's: it stops, and
// reports under the note "exit". Use it with defer.
func (s *Scope) Exit() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.noExit || s.quiet {
		return s.stop()
	}
	// The report's event comes first: it belongs to a scope that is open.
	err := s.report([]string{"exit"})
	return errors.Join(err, s.stop())
}

// String is a report without its context; of a scope that cannot be measured
// any more, why.
func (s *Scope) String() string {
	d, err := s.Data()
	if err != nil {
		return err.Error()
	}
	return d.String()
}

func (s *Scope) report(note []string) error {
	if s.quiet {
		return nil
	}
	note = note[:min(len(note), 1)]
	d, err := s.stopped, s.stopping
	if s.running {
		d, err = s.ask(format.ScopeReport, note...)
	} else {
		s.send(format.ScopeReport, note...)
	}
	if err != nil {
		return err
	}
	s.latest = d
	_, err = fmt.Fprintln(s.out, d.String()+under(s.name, s.named, note)+d.missing())
	return err
}

// send publishes an event of the scope.
func (s *Scope) send(kind format.Kind, note ...string) error {
	w := format.WireScope{API: format.APIScope, Device: s.device, Flags: format.FlagRange, Range: s.number}
	w.Kind = kind
	defs := s.r.device(s.device, nil)
	name := func(text string) uint64 {
		d := ring.DefineName(text)
		defs = append(defs, d)
		return d.Key
	}
	switch {
	case kind == format.ScopeBegin:
		if s.named {
			w.Name = name(s.name)
		}
		stack := s.r.stacks.caller()
		w.Stack = stack.key
		defs = append(defs, stack.definitions...)
	case len(note) > 0:
		w.Name = name(note[0])
	}
	if err := s.r.lane.Scope(&w, defs...); err != nil {
		return fmt.Errorf("scope %q: %s: %w", s.name, kind, err)
	}
	return nil
}

// ask publishes an event of the scope and waits for what the fold saw at it.
func (s *Scope) ask(kind format.Kind, note ...string) (Data, error) {
	defer s.r.session.hurry()()
	answer := s.r.expect(s.number)
	if err := s.send(kind, note...); err != nil {
		s.r.forget(s.number)
		return Data{}, err
	}
	select {
	case m := <-answer:
		return s.data(m)
	case <-s.r.session.folded:
	case <-s.r.session.broken:
	}
	select { // the fold may have come to it last
	case m := <-answer:
		return s.data(m)
	default:
		s.r.forget(s.number)
		return Data{}, fmt.Errorf("scope %q: %w", s.name, ErrEnded)
	}
}

// now is what the fold sees once all that was published has reached it.
func (s *Scope) now() (Data, error) {
	var m measured
	err := s.r.session.View(context.Background(), func(v *View) {
		if id, ok := v.Scope(os.Getpid(), s.number); ok {
			m = measure(v.State, id)
		}
	})
	if err != nil {
		return Data{}, fmt.Errorf("scope %q: %w", s.name, err)
	}
	return s.data(m)
}

func (s *Scope) data(m measured) (Data, error) {
	if !m.open {
		return Data{}, fmt.Errorf("scope %q: its begin is not in the trace: %w", s.name, ring.ErrDropped)
	}
	c := m.curves[s.curve]
	if !c.Known {
		return Data{}, fmt.Errorf("scope %q: nothing is known of the %s curve: there was no reading", s.name, s.curve)
	}
	return Data{Begin: c.Begin, End: c.End, Max: c.Max, Lost: m.lost}, nil
}
