package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
)

func eventsCommand() *command {
	return &command{
		name:  "events",
		args:  "TRACE",
		short: "the trace as text, one event a line",
		long: `
Without filters it is the whole text twin, which gpuanalyze import text turns
back into the same trace: meta, definitions, then the parts' events and samples.
With filters, only the events that pass, without definitions; a Free passes
--device by what it frees.

--json prints an object for each event, with the names, stacks and pids that
the text leaves as numbers. Addresses and handles are hexadecimal texts there:
they have 64 bits, and many readers of JSON keep 53.`,
		examples: []string{
			"gpuanalyze events train.gpurec",
			"gpuanalyze events --from 1s --to 1.5s --layer pool train.gpurec",
			"gpuanalyze events --json --scope step#3 train.gpurec",
		},
		run: runEvents,
	}
}

func runEvents(ctx context.Context, stdout, stderr io.Writer, args []string) error {
	a := newAnalysis(eventsCommand(), stdout)
	q, traces, err := a.query(args)
	if err != nil {
		return err
	}
	if len(traces) != 1 {
		return usagef("one trace at a time: %d given", len(traces))
	}
	out := bufio.NewWriterSize(stdout, 64<<10)
	p := &eventPrinter{out: out}
	if a.json {
		p.json = json.NewEncoder(out)
		p.json.SetEscapeHTML(false)
	}
	filtered := false
	for _, name := range []string{"process", "device", "thread", "rank", "layer", "scope", "from", "to"} {
		filtered = filtered || a.Changed(name)
	}
	if !filtered && !a.json {
		t, err := format.Open(traces[0])
		if err != nil {
			return err
		}
		// What cannot be read the pass below says, and no other error may pass.
		if err := format.WriteText(out, t); err != nil && !ofTrace(err) {
			return err
		}
		p.silent = true
	}
	c, err := a.answer(ctx, stderr, traces, q, p)
	if err != nil {
		return err
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write events: %w", err)
	}
	return a.conclude(stderr, c)
}

// ofTrace reports whether all of err is about damage in a trace.
func ofTrace(err error) bool {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			if !ofTrace(e) {
				return false
			}
		}
		return true
	}
	var corrupt *format.CorruptError
	return errors.Is(err, format.ErrTruncated) || errors.As(err, &corrupt)
}

// An eventPrinter prints the events that pass the query.
type eventPrinter struct {
	out    *bufio.Writer
	json   *json.Encoder
	silent bool // only the completeness is asked for
	ended  format.Device
	b      []byte
	frames []format.FrameID
}

func (p *eventPrinter) Needs() analyze.Needs                       { return analyze.Needs{Samples: p.silent} }
func (p *eventPrinter) Sample(*analyze.Pass, *format.Sample) error { return nil }
func (p *eventPrinter) End(*analyze.Pass) error                    { return nil }

func (p *eventPrinter) Begin(pass *analyze.Pass) error {
	p.ended = format.NoDevice
	pass.State.OnEnd = func(a *live.Allocation, _ *format.Event) { p.ended = a.Device }
	return nil
}

func (p *eventPrinter) Event(pass *analyze.Pass, e *format.Event) error {
	ended := p.ended
	p.ended = format.NoDevice
	if p.silent || !pass.In && !(pass.Whole() && e.Kind.Checkpoint()) {
		return nil
	}
	asked := *e
	if e.Device == format.NoDevice && e.Kind.GivesBack() {
		asked.Device = ended
	}
	if !pass.Matches(&asked, analyze.ByAll) {
		return nil
	}
	if p.json != nil {
		return p.json.Encode(p.object(pass, e)) // with the newline
	}
	p.b = append(format.AppendEventText(p.b[:0], e, pass.Defs), '\n')
	_, err := p.out.Write(p.b)
	return err
}

// An eventObject is an event as JSON; what is unknown is left out.
type eventObject struct {
	Time      int64          `json:"time_ns"` // since the start of the recording
	Kind      string         `json:"kind"`
	API       string         `json:"api,omitempty"`
	Layer     string         `json:"layer,omitempty"`
	Class     string         `json:"class,omitempty"`
	Process   int32          `json:"pid,omitempty"`
	Thread    uint32         `json:"thread,omitempty"`
	Seq       uint64         `json:"seq,omitempty"`
	Device    *format.Device `json:"device,omitempty"`
	Address   string         `json:"address,omitempty"`
	Object    string         `json:"object,omitempty"`
	Size      *int64         `json:"size,omitempty"`
	Requested *int64         `json:"requested,omitempty"`
	Duration  *int64         `json:"duration_ns,omitempty"`
	Allocated *int64         `json:"allocated,omitempty"`
	Reserved  *int64         `json:"reserved,omitempty"`
	CUctx     string         `json:"cuctx,omitempty"`
	Stream    string         `json:"stream,omitempty"`
	Pool      string         `json:"pool,omitempty"`
	Scope     format.ScopeID `json:"scope,omitempty"`
	Parent    format.ScopeID `json:"parent,omitempty"`
	Name      string         `json:"name,omitempty"`
	Note      string         `json:"note,omitempty"`
	Status    int32          `json:"status,omitempty"`
	Flags     string         `json:"flags,omitempty"`
	Stack     []string       `json:"stack,omitempty"` // outermost first
}

func (p *eventPrinter) object(pass *analyze.Pass, e *format.Event) *eventObject {
	d := pass.Defs
	o := &eventObject{Time: pass.Since(e.Time), Kind: e.Kind.String(), Thread: e.Thread, Seq: e.Seq, Address: hex(e.Address), Object: hex(e.Object),
		Size: known(e.Size), Requested: known(e.Requested), Duration: known(e.Duration), Allocated: known(e.Allocated), Reserved: known(e.Reserved),
		CUctx: hex(e.CUctx), Stream: hex(e.Stream), Pool: hex(e.Pool), Scope: e.Scope, Parent: e.Parent, Name: d.Name(e.Name), Note: d.Name(e.Note), Status: e.Status}
	if e.API != format.APINone {
		o.API = d.API(e.API)
	}
	if e.Layer != format.LayerNone {
		o.Layer = e.Layer.String()
	}
	if e.Class != format.ClassNone {
		o.Class = e.Class.String()
	}
	if e.Device != format.NoDevice {
		o.Device = &e.Device
	}
	if e.Flags != 0 {
		o.Flags = e.Flags.String()
	}
	if r, ok := d.Process(e.Process); ok {
		o.Process = r.PID
	}
	if e.Stack != 0 {
		frames, ok := d.Walk(e.Stack, p.frames)
		p.frames = frames
		if !ok {
			o.Stack = append(o.Stack, "unknown")
		}
		for _, id := range frames {
			f, ok := d.Frame(id)
			if !ok {
				f = format.Frame{Kind: format.FrameLabel, Function: "unknown"}
			}
			o.Stack = append(o.Stack, f.String())
		}
	}
	return o
}

func hex(v uint64) string {
	if v == 0 {
		return ""
	}
	return fmt.Sprintf("%#x", v)
}

func known(v int64) *int64 {
	if v == format.Unknown {
		return nil
	}
	return &v
}
