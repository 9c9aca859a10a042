package stacks

import (
	"encoding/json"
	"fmt"
	"io"
	"path"
	"slices"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
)

// The file format of https://www.speedscope.app/file-format-schema.json.
type (
	scopeFile struct {
		Schema   string         `json:"$schema"`
		Shared   scopeShared    `json:"shared"`
		Profiles []scopeProfile `json:"profiles"`
		Name     string         `json:"name"`
		Active   int            `json:"activeProfileIndex"`
		Exporter string         `json:"exporter"`
	}
	scopeShared struct {
		Frames []scopeFrame `json:"frames"`
	}
	scopeFrame struct {
		Name string `json:"name"`
		File string `json:"file,omitempty"`
		Line int32  `json:"line,omitempty"`
	}
	scopeProfile struct {
		Type    string  `json:"type"`
		Name    string  `json:"name"`
		Unit    string  `json:"unit"`
		Start   int64   `json:"startValue"`
		End     int64   `json:"endValue"`
		Samples [][]int `json:"samples"`
		Weights []int64 `json:"weights"`
	}
)

// WriteSpeedscope writes a profile for each device of each trace and each value
// that it has, the peak first.
func (a *Answer) WriteSpeedscope(w io.Writer) error {
	out := scopeFile{Schema: "https://www.speedscope.app/file-format-schema.json", Exporter: "gpuanalyze", Profiles: []scopeProfile{}, Shared: scopeShared{Frames: []scopeFrame{}}}
	for _, f := range a.frames.all {
		name := f.function
		if f.file != "" { // the line is what is looked for, and speedscope shows the name alone
			name += fmt.Sprintf(" (%s:%d)", path.Base(f.file), f.line)
		}
		out.Shared.Frames = append(out.Shared.Frames, scopeFrame{name, f.file, f.line})
	}
	for _, t := range a.traces {
		if out.Name != "" {
			out.Name += ", "
		}
		out.Name += t.name
	}
	for from := 0; from < len(a.rows); {
		to := from
		for to < len(a.rows) && a.rows[to].trace == a.rows[from].trace && a.rows[to].device == a.rows[from].device {
			to++
		}
		rows := slices.Clone(a.rows[from:to])
		slices.SortStableFunc(rows, func(x, y row) int { return slices.Compare(x.frames, y.frames) }) // what shares callers lies together
		for _, v := range []Value{PeakSpace, AcquiredPeak, InuseSpace, AcquiredInuse, AllocSpace, AcquiredAlloc, PeakObjects, InuseObjects, AllocObjects} {
			if p := profileOf(rows, v, len(a.traces) > 1); p.End > 0 {
				out.Profiles = append(out.Profiles, p)
			}
		}
		from = to
	}
	if len(out.Profiles) == 0 { // speedscope refuses a file without any
		out.Profiles = append(out.Profiles, profileOf([]row{{trace: &source{}, device: format.NoDevice}}, PeakSpace, false))
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(out)
}

func profileOf(rows []row, v Value, traces bool) scopeProfile {
	r := &rows[0]
	p := scopeProfile{Type: "sampled", Unit: "bytes", Samples: [][]int{}, Weights: []int64{}}
	if v.Unit() == "count" {
		p.Unit = "none"
	}
	p.Name = v.String() + " of " + deviceName(r.device)
	if n := r.trace.devices[r.device].Name; n != "" {
		p.Name += " (" + analyze.Printable(n) + ")"
	}
	if traces {
		p.Name = r.trace.name + ": " + p.Name
	}
	for i := range rows {
		if n := rows[i].values[v]; n > 0 {
			p.Samples = append(p.Samples, rows[i].frames)
			p.Weights = append(p.Weights, n)
			p.End += n
		}
	}
	return p
}
