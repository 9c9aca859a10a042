package devices

import (
	"fmt"
	"math"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
)

// A Report is what there is to say.
type Report struct {
	Completeness *analyze.Completeness `json:"completeness"`
	Traces       []*Trace              `json:"traces"`
}

// A Trace is what there is to say of one trace, in bytes and in nanoseconds
// since the start of its recording.
type Trace struct {
	Path    string      `json:"path"`
	Source  string      `json:"source"` // of free bytes: nvml, acquired (total less acquired), none
	From    int64       `json:"from_ns"`
	To      int64       `json:"to_ns"`
	Runs    []RunRow    `json:"runs"`
	Devices []DeviceRow `json:"devices"`
}

// A RunRow is a stretch of time in which one device was the freest.
type RunRow struct {
	From   int64         `json:"from_ns"`
	To     int64         `json:"to_ns"`
	Device format.Device `json:"device"`
	At     int64         `json:"free_at_start"`
	Min    int64         `json:"free_min"`
	Max    int64         `json:"free_max"`
}

// A DeviceRow is one device. A curve that nobody knows is nil.
type DeviceRow struct {
	Device     format.Device `json:"device"`
	UUID       string        `json:"uuid,omitempty"`
	Name       string        `json:"name,omitempty"`
	NVML       *int32        `json:"nvml_index,omitempty"`
	Total      int64         `json:"total"`              // -1 unknown
	API        []int8        `json:"nvml_api,omitempty"` // versions of NVML's memory call that the samples came from
	Samples    int64         `json:"samples"`
	First      *int64        `json:"first_sample_ns,omitempty"`
	LastSample *int64        `json:"last_sample_ns,omitempty"`
	Used       *CurveRow     `json:"used,omitempty"`
	Free       *CurveRow     `json:"free,omitempty"`
	Reserved   *CurveRow     `json:"reserved,omitempty"`
	Acquired   *CurveRow     `json:"acquired,omitempty"`
	How        string        `json:"acquired_how,omitempty"` // exact, or at least: of a trace that misses events
}

// A CurveRow is what is said of one curve. Mean is weighted by time.
type CurveRow struct {
	Min   int64 `json:"min"`
	Mean  int64 `json:"mean"`
	Max   int64 `json:"max"`
	MaxAt int64 `json:"max_at_ns"`
}

// An Answer is fed by a pass.
type Answer struct {
	traces []*Trace
	*replay
}

// Report is the answer of a pass that is over.
func (a *Answer) Report(c *analyze.Completeness) *Report {
	for i, t := range a.traces {
		for j := range t.Devices {
			switch d := &t.Devices[j]; {
			case d.Acquired == nil:
			case c.Whole(i):
				d.How = "exact"
			default:
				d.How = "at least"
			}
		}
	}
	return &Report{Completeness: c, Traces: a.traces}
}

// A replay is one trace. Events and samples each come in their own order; it
// does not matter how they are merged.
type replay struct {
	p       *analyze.Pass
	from    format.Time // readings and sums up to here only say what was before; End where it is not known yet
	to      format.Time
	sampled bool     // the trace has samples of devices: free bytes are NVML's
	devices []device // by index
	history *history
	runs    []RunRow
	first   format.Time // earliest moment of any event or sample
	last    format.Time // latest
	folded  bool        // an event has come
	events  bool        // one after from has
	samples bool        // a sample after from has
	base    format.Time // where acquired curves begin, when not at from: the end of a first checkpoint
}

const (
	always = format.Time(math.MinInt64)
	never  = format.Time(math.MaxInt64)
)

type device struct {
	row                            format.DeviceRow
	in                             bool // the query wants it
	seen                           bool // somebody said something of it
	total                          int64
	used, free, reserved, acquired curve
	api                            [3]bool // by version
	samples                        int64
	firstSample, lastSample        format.Time
	live                           *live.Device
	earlier                        *format.Sample // the newest that is not after from
	acquiredBefore                 int64          // at from
}

func (a *Answer) Needs() analyze.Needs { return analyze.Needs{Samples: true} }

// Begin begins a trace. Free memory is the devices' and knows no process or
// thread: filters by those limit what acquired counts.
func (a *Answer) Begin(p *analyze.Pass) error {
	a.replay = &replay{p: p, from: always, to: never, first: never, last: always, base: always, sampled: hasSamples(p.Trace)}
	if t, known := p.From(); known {
		a.from = t
	} else if !p.Whole() {
		a.from = never // Enter makes it known
	}
	if t, known := p.To(); known {
		a.to = t
	}
	p.CountOnly(analyze.ByAll &^ analyze.ByDevice)
	a.history = newHistory(func(r Run) {
		a.runs = append(a.runs, RunRow{p.Since(r.From), p.Since(r.To), r.Device, r.At, r.Min, r.Max})
	})
	for _, r := range p.Defs.Devices() {
		if d := a.device(r.ID); d != nil {
			d.row, d.seen = r, true
			if r.Total > 0 {
				d.total = r.Total
			}
		}
	}
	return nil
}

// hasSamples looks for a reading of a device, which is in the first batch
// where there are any.
func hasSamples(t *format.Trace) bool {
	for _, part := range t.Parts() {
		r, err := part.Samples()
		if err != nil {
			continue
		}
		for {
			rows, err := r.Next()
			if err != nil {
				break
			}
			for i := range rows {
				if rows[i].Process == 0 && rows[i].Device >= 0 {
					r.Close()
					return true
				}
			}
		}
		r.Close()
	}
	return false
}

// device returns what is known of a device, nil where it takes no part.
func (a *replay) device(id format.Device) *device {
	if id < 0 {
		return nil
	}
	for int(id) >= len(a.devices) {
		next := format.Device(len(a.devices))
		a.devices = append(a.devices, device{row: format.DeviceRow{ID: next, NVML: format.Unknown}, total: format.Unknown,
			in: a.p.Matches(&format.Event{Device: next}, analyze.ByDevice)})
	}
	if d := &a.devices[id]; d.in {
		return d
	}
	return nil
}

func (a *replay) start() format.Time { return a.p.Trace.Meta().Monotonic }

func (a *replay) reach(t format.Time) { a.first, a.last = min(a.first, t), max(a.last, t) }

// Sample adds one NVML reading of a device. Readings of processes say nothing
// about free memory.
func (a *Answer) Sample(_ *analyze.Pass, r *format.Sample) error {
	a.sample(r)
	return nil
}

func (a *replay) sample(r *format.Sample) {
	d := a.device(r.Device)
	if d == nil || r.Process != 0 {
		return
	}
	d.seen = true
	if r.Total > 0 {
		d.total = r.Total
	}
	a.reach(r.Time)
	if r.Time <= a.from {
		s := *r
		d.earlier = &s
		return
	}
	a.enterSamples()
	if r.Time > a.to {
		return
	}
	within := d.samples > 0 // else the moment of its peak may lie before From
	a.read(d, r, r.Time)
	if within && r.PeakUsed >= 0 {
		d.used.reach(r.Time, r.PeakUsed)
	}
}

// enterSamples begins the time asked for with what was read before it.
func (a *replay) enterSamples() {
	if a.samples {
		return
	}
	a.samples = true
	for i := range a.devices {
		if d := &a.devices[i]; d.earlier != nil {
			a.read(d, d.earlier, a.from)
		}
	}
}

func (a *replay) read(d *device, r *format.Sample, at format.Time) {
	if d.samples++; d.samples == 1 {
		d.firstSample = r.Time
	}
	d.lastSample = r.Time
	if r.API > 0 && int(r.API) < len(d.api) {
		d.api[r.API] = true
	}
	d.used.set(at, r.Used, r.Used >= 0)
	d.reserved.set(at, r.Reserved, r.Reserved >= 0)
	if a.sampled {
		a.setFree(d, at, r.Free, r.Free >= 0)
	}
}

func (a *replay) setFree(d *device, at format.Time, free int64, known bool) {
	d.free.set(at, free, known)
	a.history.set(at, int(d.row.ID), free, known)
}

// Event adds what e changed; s has folded it.
func (a *Answer) Event(p *analyze.Pass, e *format.Event) error {
	a.event(p.State, e)
	return nil
}

func (a *replay) event(s *live.State, e *format.Event) {
	if a.from == never && a.p.In {
		a.from = e.Time
	}
	switch e.Kind {
	case format.Live, format.LiveMapping, format.LiveTotal, format.LiveScope:
		return // between them sums are those of no moment
	case format.CheckpointEnd:
		if a.first == never { // nothing came before it: the recording begins here
			a.base = e.Time
		}
		a.adopt(s)
	case format.Alloc, format.FreeFailed:
		if d := a.device(e.Device); d != nil && d.live == nil {
			a.adopt(s)
		}
	}
	a.folded = true
	a.reach(e.Time)
	if e.Time <= a.from || e.Kind == format.CheckpointEnd && !a.events {
		for i := range a.devices {
			if d := &a.devices[i]; d.live != nil {
				d.acquiredBefore = d.live.Acquired.Now
			}
		}
		return
	}
	a.enterEvents(e.Time)
	if e.Time > a.to {
		return
	}
	for i := range a.devices {
		if d := &a.devices[i]; d.live != nil && d.live.Acquired.Now != d.acquired.value {
			a.setAcquired(d, e.Time, d.live.Acquired.Now)
		}
	}
}

// adopt looks up the fold's sums of devices that it has not yet.
func (a *replay) adopt(s *live.State) {
	for _, l := range s.Devices() {
		if d := a.device(l.ID); d != nil {
			d.live, d.seen = l, true
		}
	}
}

// enterEvents begins the time asked for with what was acquired before it; t is
// the first moment in it. A recording begins with nothing acquired, or with
// what its first checkpoint says.
func (a *replay) enterEvents(t format.Time) {
	if a.events {
		return
	}
	a.events = true
	at := max(a.from, a.base)
	if at == always {
		at = min(a.start(), t)
	}
	for i := range a.devices {
		if d := &a.devices[i]; d.seen {
			a.setAcquired(d, at, d.acquiredBefore)
		}
	}
}

func (a *replay) setAcquired(d *device, at format.Time, v int64) {
	d.acquired.set(at, v, true)
	if !a.sampled && d.total > 0 {
		a.setFree(d, at, d.total-v, true)
	}
}

// End closes a trace's answer.
func (a *Answer) End(p *analyze.Pass) error {
	t := a.end(min(p.End(a.last), a.to))
	a.traces = append(a.traces, t)
	if n := t.note(); n != "" {
		p.Note("%s", n)
	}
	return nil
}

func (a *replay) end(end format.Time) *Trace {
	if a.from <= end { // what was there at From holds, although nothing may have happened since
		a.enterSamples()
		// A recording that has its first part and an event after this time had
		// nothing acquired before the first one.
		begins := !a.folded && a.p.Past() && a.p.Trace.Parts()[0].Index() == 0
		if a.base <= end && (a.folded || begins) {
			a.enterEvents(end)
		}
	}
	a.history.end(end)
	from := a.from
	if from == always {
		from = min(a.start(), a.first)
	}
	r := &Trace{Path: a.p.Trace.Path(), Source: "none", From: a.p.Since(from), To: a.p.Since(end), Runs: a.runs, Devices: []DeviceRow{}}
	if r.Runs == nil {
		r.Runs = []RunRow{}
	}
	for i := range a.devices {
		if d := &a.devices[i]; d.seen {
			r.Devices = append(r.Devices, a.row(d, end))
		}
	}
	switch {
	case a.sampled:
		r.Source = "nvml"
	case len(r.Runs) > 0:
		r.Source = "acquired"
	}
	return r
}

func (a *replay) row(d *device, end format.Time) DeviceRow {
	r := DeviceRow{Device: d.row.ID, UUID: d.row.UUID, Name: d.row.Name, Total: d.total, Samples: d.samples,
		Used: a.curve(&d.used, end), Free: a.curve(&d.free, end), Reserved: a.curve(&d.reserved, end), Acquired: a.curve(&d.acquired, end)}
	if d.row.NVML >= 0 {
		r.NVML = &d.row.NVML
	}
	for v, seen := range d.api {
		if seen {
			r.API = append(r.API, int8(v))
		}
	}
	if d.samples > 0 {
		first, last := a.p.Since(d.firstSample), a.p.Since(d.lastSample)
		r.First, r.LastSample = &first, &last
	}
	return r
}

func (a *replay) curve(c *curve, end format.Time) *CurveRow {
	if !c.seen {
		return nil
	}
	c.advance(end)
	return &CurveRow{Min: c.min, Mean: c.mean(), Max: c.max, MaxAt: a.p.Since(c.maxAt)}
}

// note says in words what the free bytes are, and what is missing from them.
func (r *Trace) note() string {
	switch r.Source {
	case "acquired":
		note := "no NVML samples: free is each device's total less what the traced processes acquired; what others hold is not seen"
		for _, d := range r.Devices {
			if d.Total < 0 {
				note += fmt.Sprintf("; device %d has no known total and takes no part", d.Device)
			}
		}
		return note
	case "none":
		return "no NVML samples and no device's total is known: nothing to say about free memory"
	}
	if len(r.Runs) == 0 {
		return "no NVML sample in this time"
	}
	note := ""
	for _, d := range r.Devices {
		if d.Samples == 0 {
			note += fmt.Sprintf("; device %d has no sample in this time", d.Device)
		} else if d.stale(r.To) {
			note += fmt.Sprintf("; device %d has no sample after %s: what it says there is old", d.Device, analyze.Seconds(*d.LastSample))
		}
	}
	if note != "" {
		note = note[2:]
	}
	return note
}

// stale reports whether d was read regularly and then, long before the end, no
// more: it was lost, or NVML was. Its free bytes stay what they were last.
func (d *DeviceRow) stale(end int64) bool {
	if d.Samples < 3 {
		return false
	}
	every := (*d.LastSample - *d.First) / (d.Samples - 1)
	return end-*d.LastSample > max(100*every, 1e9)
}
