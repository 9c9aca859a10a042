package stacks

import (
	"fmt"
	"io"
	"strings"

	"github.com/google/pprof/profile"

	"github.com/gpurec/gpurec/analyze"
)

// WritePprof writes a gzipped profile with all values, each sample labelled with
// its device, process, rank and, of several, trace: go tool pprof -tagfocus.
func (a *Answer) WritePprof(w io.Writer) error {
	p := &profile.Profile{DefaultSampleType: PeakSpace.String(), PeriodType: &profile.ValueType{Type: "space", Unit: "bytes"}, Period: 1}
	for v := range valueCount {
		p.SampleType = append(p.SampleType, &profile.ValueType{Type: v.String(), Unit: v.Unit()})
	}
	for _, t := range a.traces {
		p.Comments = append(p.Comments, fmt.Sprintf("%s: %s", t.name, analyze.Line(strings.Join(t.meta.Command, " "))))
		if p.TimeNanos == 0 && !t.meta.Start.IsZero() {
			p.TimeNanos = t.meta.Start.UnixNano()
		}
		p.DurationNanos = max(p.DurationNanos, int64(t.end-t.meta.Monotonic))
	}
	p.Comments = append(p.Comments, "peak_: what was live when the used bytes of a device were highest; each device has its own such moment")
	// Without a mapping pprof looks for a binary, and says that it has none.
	whole := &profile.Mapping{ID: 1, HasFunctions: true, HasFilenames: true, HasLineNumbers: true, HasInlineFrames: true}
	if len(a.traces) > 0 {
		whole.File = a.traces[0].name
	}
	p.Mapping = []*profile.Mapping{whole}
	locations := make([]*profile.Location, len(a.frames.all))
	functions := map[frame]*profile.Function{}
	for i, f := range a.frames.all {
		of := frame{function: f.function, file: f.file}
		fn := functions[of]
		if fn == nil {
			// pprof demangles what has one name for both, and <module> would be a
			// template's argument.
			fn = &profile.Function{ID: uint64(len(p.Function) + 1), Name: f.function, SystemName: f.file + ":" + f.function, Filename: f.file}
			functions[of] = fn
			p.Function = append(p.Function, fn)
		}
		locations[i] = &profile.Location{ID: uint64(i + 1), Mapping: whole, Line: []profile.Line{{Function: fn, Line: int64(f.line)}}}
	}
	p.Location = locations
	for i := range a.rows {
		p.Sample = append(p.Sample, a.rows[i].sample(locations, len(a.traces) > 1))
	}
	if err := p.CheckValid(); err != nil {
		return err
	}
	return p.Write(w)
}

func (r *row) sample(locations []*profile.Location, traces bool) *profile.Sample {
	s := &profile.Sample{Value: r.values[:], Label: map[string][]string{
		"device": {strings.TrimPrefix(deviceName(r.device), "device ")},
		"pid":    {fmt.Sprint(r.process.PID)},
	}}
	if r.process.Rank >= 0 {
		s.Label["rank"] = []string{fmt.Sprint(r.process.Rank)}
	}
	if traces {
		s.Label["trace"] = []string{r.trace.name}
	}
	for i := len(r.frames) - 1; i >= 0; i-- { // pprof has the innermost first
		s.Location = append(s.Location, locations[r.frames[i]])
	}
	return s
}
