// Package summary answers what a trace is: what was recorded when, where and of
// whom, how much of it there is, what each device and process came to, and
// what went wrong: gpuanalyze summary.
//
//	report.go   Report: what is said
//	summary.go  Answer: how it comes together
//	failures.go failed allocations
//	text.go     the Report as text
//
// All numbers are those of the window. Without one, totals of memory are the
// recording's, where its first parts are not there too.
package summary

import (
	"math"
	"sort"
	"strings"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
)

// An Answer is a Report in the making.
type Answer struct {
	traces []*Trace

	t        *Trace
	kinds    [256]int64
	layers   [256]int64
	apis     map[format.API]int64
	threads  map[threadKey]*thread
	last     *thread
	procs    map[format.ProcessID]*process
	failures map[failureKey]*Failure
	refusals live.Refusals
	order    []*Failure
	symbols  map[format.NameID]int64
	nvml     map[format.Device]*Peak
	lost     int64
	from     format.Time // the window's begin, where there is one
	before   before
}

// before is what had been counted when the window began.
type before struct {
	processes map[format.ProcessID]live.Process
	accounts  map[*live.Account]live.Curve
}

type threadKey struct {
	process format.ProcessID
	tid     uint32
}

type thread struct {
	threadKey
	name   format.NameID
	events int64
	lost   int64
}

type process struct {
	end    *format.Time
	status int32
	live   int64 // used, just before its end
}

const (
	always = format.Time(math.MinInt64)
	never  = format.Time(math.MaxInt64)
)

// New returns an answer.
func New() *Answer { return &Answer{} }

func (a *Answer) Needs() analyze.Needs {
	return analyze.Needs{Pooled: true, Samples: true, Scopes: analyze.ScopesShown}
}

func (a *Answer) Begin(p *analyze.Pass) error {
	traces := a.traces
	*a = Answer{traces: traces, apis: map[format.API]int64{}, threads: map[threadKey]*thread{}, procs: map[format.ProcessID]*process{},
		failures: map[failureKey]*Failure{}, symbols: map[format.NameID]int64{}, nvml: map[format.Device]*Peak{}, from: always}
	a.t = &Trace{Path: p.Trace.Path(), Meta: p.Trace.Meta(), Parts: len(p.Trace.Parts())}
	a.traces = append(a.traces, a.t)
	p.CountOnly(analyze.ByAll)
	a.follow(p)
	p.State.OnEnd = func(al *live.Allocation, e *format.Event) {
		if e.Kind == format.ProcessEnd && al.Counted && al.Class == format.ClassDevice && al.Layer == usedLayer(p, al.Process) {
			a.process(al.Process).live += al.Bytes()
		}
	}
	return nil
}

// peakOf is the peak of c. What was highest when the window began was so at
// its begin.
func (a *Answer) peakOf(p *analyze.Pass, c live.Curve) Peak {
	if c.Peak == 0 {
		return Peak{}
	}
	return Peak{c.Peak, p.Since(max(c.PeakAt, a.from))}
}

func usedLayer(p *analyze.Pass, id format.ProcessID) format.Layer {
	if p.Pooled(id) {
		return format.LayerPool
	}
	return format.LayerDriver
}

// Enter makes peaks and counts those of the window.
func (a *Answer) Enter(p *analyze.Pass) {
	if !p.Windowed() {
		return
	}
	p.State.ResetPeaks()
	a.from = never
	if t, known := p.From(); known {
		a.from = t
	}
	a.before = before{map[format.ProcessID]live.Process{}, map[*live.Account]live.Curve{}}
	for _, q := range p.State.Processes() {
		a.before.processes[q.ID] = live.Process{UnknownFrees: q.UnknownFrees, LostFrees: q.LostFrees, Failed: q.Failed}
		for _, acc := range q.Accounts() {
			a.before.accounts[acc] = acc.Curve
		}
	}
}

func (a *Answer) Event(p *analyze.Pass, e *format.Event) error {
	if e.Kind == format.ProcessEnd { // before the window too: when it ended is no count
		q := a.process(e.Process)
		q.end, q.status = new(format.Time), e.Status
		*q.end = e.Time
	}
	if e.Kind.Checkpoint() || !p.In {
		return nil
	}
	a.refusals.Event(e)
	if a.from == never { // a scope's begin
		a.from = e.Time
	}
	if !p.Matches(e, analyze.ByAll) {
		return nil
	}
	t := a.t
	t.Events++
	at := p.Since(e.Time)
	if t.First == nil {
		t.First, t.Last = new(int64), new(int64)
		*t.First, *t.Last = at, at
	}
	*t.First, *t.Last = min(*t.First, at), max(*t.Last, at)
	a.kinds[e.Kind]++
	if e.Layer != format.LayerNone {
		a.layers[e.Layer]++
	}
	if e.API != format.APINone {
		a.apis[e.API]++
	}
	th := a.thread(e)
	th.events++
	switch e.Kind {
	case format.ThreadBegin:
		th.name = e.Name
	case format.ScopeBegin:
		t.Scopes++
	case format.Lost:
		a.lost = analyze.Add(a.lost, max(e.Size, 0))
		th.lost = analyze.Add(th.lost, max(e.Size, 0))
	case format.Unhooked:
		a.symbols[e.Name]++
	case format.AllocFailed:
		a.failed(p, e)
	}
	return nil
}

func (a *Answer) process(id format.ProcessID) *process {
	q := a.procs[id]
	if q == nil {
		q = &process{}
		a.procs[id] = q
	}
	return q
}

func (a *Answer) thread(e *format.Event) *thread {
	k := threadKey{e.Process, e.Thread}
	if a.last != nil && a.last.threadKey == k {
		return a.last
	}
	t := a.threads[k]
	if t == nil {
		t = &thread{threadKey: k}
		a.threads[k] = t
	}
	a.last = t
	return t
}

func (a *Answer) Sample(p *analyze.Pass, r *format.Sample) error {
	if p.Windowed() && !p.In {
		if from, known := p.From(); !known || r.Time < from {
			return nil
		}
	}
	a.t.Samples++
	if r.Process != 0 {
		return nil
	}
	v := max(r.Used, r.PeakUsed)
	if pk := a.nvml[r.Device]; pk == nil || v > pk.Bytes {
		a.nvml[r.Device] = &Peak{v, p.Since(r.Time)}
	}
	return nil
}

func (a *Answer) End(p *analyze.Pass) error {
	t := a.t
	if a.from == never { // the window ends before the scope begins
		a.from = p.State.Now()
	}
	for k, n := range a.kinds {
		if n > 0 {
			t.Kinds = append(t.Kinds, Count{format.Kind(k).String(), n})
		}
	}
	for l, n := range a.layers {
		if n > 0 {
			t.Layers = append(t.Layers, Count{format.Layer(l).String(), n})
		}
	}
	for api, n := range a.apis {
		t.APIs = append(t.APIs, Count{p.Defs.API(api), n})
	}
	sort.Slice(t.APIs, func(i, j int) bool {
		if t.APIs[i].Events != t.APIs[j].Events {
			return t.APIs[i].Events > t.APIs[j].Events
		}
		return t.APIs[i].Name < t.APIs[j].Name
	})
	for name, n := range a.symbols {
		u := Unhooked{Symbol: p.Defs.Name(name), Lookups: n}
		if strings.HasSuffix(u.Symbol, format.Deepbound) {
			u.Remedy = "gpurec run --deepbind records libraries that are opened with RTLD_DEEPBIND"
		}
		t.Unhooked = append(t.Unhooked, u)
	}
	sort.Slice(t.Unhooked, func(i, j int) bool { return t.Unhooked[i].Symbol < t.Unhooked[j].Symbol })
	t.Lost = a.lost
	if t.window = p.Windowed() || p.Ends(); !t.window { // when the others were lost the recorder's count does not say
		t.Lost = max(t.Lost, int64(min(t.Meta.Stats.Lost, math.MaxInt64)))
	}
	if t.Samples == 0 {
		t.NoSamples = t.Meta.NoSamples
	}
	if s := t.Meta.Stats; s.CPUNanos > 0 || s.Written > 0 {
		t.Cost = &Cost{s.Events, s.CPUNanos, s.Written, s.Waited, s.PeakMemory}
	}
	a.endDevices(p)
	a.endProcesses(p)
	a.endFailures(p)
	return nil
}

func (a *Answer) endDevices(p *analyze.Pass) {
	seen := map[format.Device]bool{}
	add := func(id format.Device) *Device {
		row, ok := p.Defs.Device(id)
		d := &Device{Device: id, UUID: row.UUID, Name: row.Name, Total: row.Total, NVML: a.nvml[id]}
		if !ok {
			d.Total = format.Unknown
		}
		a.t.Devices = append(a.t.Devices, d)
		seen[id] = true
		return d
	}
	for _, d := range p.State.Devices() {
		used := p.State.DeviceUsed(d)
		if d.ID == format.NoDevice && used.Peak == 0 && d.Acquired.Peak == 0 {
			continue
		}
		if p.Filtered(analyze.ByDevice) && !p.Matches(&format.Event{Device: d.ID}, analyze.ByDevice) {
			continue
		}
		out := add(d.ID)
		out.Used = a.peakOf(p, used)
		out.Acquired = a.peakOf(p, d.Acquired)
	}
	for _, row := range p.Defs.Devices() { // there, and nobody took memory on it
		if !seen[row.ID] && (!p.Filtered(analyze.ByDevice) || p.Matches(&format.Event{Device: row.ID}, analyze.ByDevice)) {
			add(row.ID)
		}
	}
	sort.Slice(a.t.Devices, func(i, j int) bool { return a.t.Devices[i].Device < a.t.Devices[j].Device })
}

func (a *Answer) endProcesses(p *analyze.Pass) {
	byProcess := map[format.ProcessID][]*thread{}
	for _, t := range a.threads {
		byProcess[t.process] = append(byProcess[t.process], t)
	}
	ids := map[format.ProcessID]bool{}
	for _, d := range p.Defs.Processes() {
		ids[d.ID] = true
	}
	for _, q := range p.State.Processes() {
		if q.ID != 0 || len(byProcess[0]) > 0 {
			ids[q.ID] = true
		}
	}
	order := make([]format.ProcessID, 0, len(ids))
	for id := range ids {
		if !p.Filtered(analyze.ByProcess) || p.Matches(&format.Event{Process: id}, analyze.ByProcess) {
			order = append(order, id)
		}
	}
	sort.Slice(order, func(i, j int) bool { return order[i] < order[j] })
	for _, id := range order {
		q := a.endProcess(p, id, byProcess[id])
		if p.Filtered(analyze.ByAll) && q.Events == 0 && len(q.Sums) == 0 {
			continue
		}
		a.t.Processes = append(a.t.Processes, q)
	}
}

func (a *Answer) endProcess(p *analyze.Pass, id format.ProcessID, threads []*thread) *Process {
	d, known := p.Defs.Process(id)
	out := &Process{PID: d.PID, Parent: d.Parent, Command: d.Command, Python: d.Python, UsedLayer: usedLayer(p, id).String()}
	since := func(t format.Time) *int64 { v := p.Since(t); return &v }
	if known && d.Rank >= 0 {
		out.Rank = &d.Rank
	}
	if j, ok := p.Trace.Meta().JobOf(&d); ok && known {
		out.LocalRank, out.WorldSize, out.Job = analyze.Given(j.LocalRank), analyze.Given(j.WorldSize), j.ID
	}
	if known && d.Begin >= 0 {
		out.Begin = since(d.Begin)
	}
	mine := a.process(id)
	switch {
	case mine.end != nil:
		out.End, out.Status = since(*mine.end), &mine.status
	case known && d.End >= 0:
		out.End, out.Status = since(d.End), &d.Status
	}
	if out.Status != nil && *out.Status == format.Unknown {
		out.Status = nil
	}
	sort.Slice(threads, func(i, j int) bool { return threads[i].tid < threads[j].tid })
	for _, t := range threads {
		out.Events += t.events
		if t.tid != 0 { // the recorder's own rows about a process have no thread
			out.Threads = append(out.Threads, Thread{t.tid, p.Defs.Name(t.name), t.events, t.lost})
		}
	}
	q := p.State.Process(id)
	if q == nil {
		return out
	}
	was := a.before.processes[id]
	a.t.Unknown += q.UnknownFrees - was.UnknownFrees
	a.t.Unseen += q.LostFrees - was.LostFrees
	used, _ := p.State.Used(q)
	acquired := q.Acquired()
	out.Used, out.Acquired = a.peakOf(p, used), a.peakOf(p, acquired)
	out.Failed = q.Failed - was.Failed
	out.LiveAtEnd = mine.live
	if mine.end == nil {
		out.LiveAtEnd, out.Outlives = used.Now, p.Ends()
	}
	for _, s := range q.Accounts() {
		was := a.before.accounts[s]
		count, total := max(s.Count-was.Count, 0), max(s.Total-was.Total, 0) // a checkpoint after a gap may set less
		if count > 0 || s.Peak > 0 {
			out.Sums = append(out.Sums, &Sum{s.Device, s.Layer.String(), s.Class.String(), count, total, s.Peak, s.Now})
		}
	}
	return out
}

// Report is the answer, after the pass.
func (a *Answer) Report(c *analyze.Completeness) *Report {
	return &Report{Completeness: c, Traces: a.traces}
}
