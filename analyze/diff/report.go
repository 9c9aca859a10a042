package diff

import (
	"slices"
	"sort"
	"strconv"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/tree"
	"github.com/gpurec/gpurec/format"
)

// A Report is the answer. It holds what differs; without a difference its lists
// are empty.
type Report struct {
	Completeness *analyze.Completeness `json:"completeness"`
	Curve        string                `json:"curve"` // used, or the layers asked for
	A            End                   `json:"a"`
	B            End                   `json:"b"`
	Devices      []*Device             `json:"devices"` // that either took memory of
	Lines        []*Row                `json:"lines"`   // the program's own; the largest change at the peak first
	Functions    []*Row                `json:"functions"`
	Scopes       []*ScopeRow           `json:"scopes"`
	Gate         *Gate                 `json:"gate,omitempty"`
}

// An End is one side as a whole.
type End struct {
	Path  string  `json:"path"`
	Range string  `json:"range,omitempty"` // as it was asked for
	Bytes Measure `json:"bytes"`
}

// A Measure is bytes of one thing. Lines' and functions' AtPeak add up to the
// whole's Peak.
type Measure struct {
	AtPeak  int64 `json:"at_peak"` // held when the side's sum over processes and devices was highest
	Peak    int64 `json:"peak"`    // its own highest
	End     int64 `json:"end"`     // live at the end: of the range, or just before a process ended
	Taken   int64 `json:"taken"`   // in all, nothing subtracted
	Count   int64 `json:"count"`   // allocations
	Largest int64 `json:"largest"` // of them
}

// A Device is a device on both sides: of the same UUID, or else of the same
// place among the others.
type Device struct {
	A        format.Device `json:"a"`
	B        format.Device `json:"b"`
	SameUUID bool          `json:"same_uuid"`
	Bytes    [2]Measure    `json:"bytes"` // a, b
}

// A Row is a line or a function on both sides. What is on one side only has no
// name on the other.
type Row struct {
	A     string     `json:"a,omitempty"` // file:line:function, file:function
	B     string     `json:"b,omitempty"`
	Moved bool       `json:"moved,omitempty"` // the names differ: inferred
	Bytes [2]Measure `json:"bytes"`
}

// A ScopeRow is a path of scopes on both sides.
type ScopeRow struct {
	Name   string   `json:"name"`
	Scopes [2]Scope `json:"bytes"`
}

// A Scope is all scopes of one path of names, on the process's curve.
type Scope struct {
	Count  int64 `json:"count"`
	Used   int64 `json:"used"`   // sum
	Peaked int64 `json:"peaked"` // most
	Max    int64 `json:"max"`    // most
}

// Compare puts two sides beside each other, after their passes.
func Compare(a, b *Side, c *analyze.Completeness) *Report {
	a.UsedIsDriver(c)
	b.UsedIsDriver(c)
	r := &Report{Completeness: c, Curve: "used", A: End{Path: a.path, Bytes: a.total.Measure}, B: End{Path: b.path, Bytes: b.total.Measure},
		Devices: devices(a, b), Lines: []*Row{}, Functions: []*Row{}, Scopes: []*ScopeRow{}}
	functions := matchFunctions(a.functions, b.functions)
	r.Functions = rows(functions, (*row).functionName)
	r.Lines = rows(matchLines(functions, a.lines, b.lines), (*row).lineName)
	r.scopes(a.scopes, b.scopes)
	return r
}

// Same reports whether nothing differs.
func (r *Report) Same() bool {
	for _, d := range r.Devices {
		if d.Bytes[0] != d.Bytes[1] {
			return false
		}
	}
	return r.A.Bytes == r.B.Bytes && len(r.Lines)+len(r.Functions)+len(r.Scopes) == 0
}

func (r *row) functionName() string {
	return tree.FunctionOf(&format.Frame{Kind: r.function.kind, File: r.shown, Function: r.function.function})
}

func (r *row) lineName() string {
	return (&format.Frame{Kind: r.function.kind, File: r.shown, Line: r.line, Function: r.function.function}).String()
}

// rows are the pairs that differ, in their order.
func rows(pairs []pair, name func(*row) string) []*Row {
	out := []*Row{}
	for _, p := range pairs {
		o := &Row{Moved: p.moved}
		if p.a != nil {
			o.A, o.Bytes[0] = name(p.a), p.a.Measure
		}
		if p.b != nil {
			o.B, o.Bytes[1] = name(p.b), p.b.Measure
		}
		if o.Bytes[0] != o.Bytes[1] {
			out = append(out, o)
		}
	}
	sort.Slice(out, func(i, j int) bool {
		a, b := out[i], out[j]
		if d := farther(a.Bytes, b.Bytes); d != 0 {
			return d > 0
		}
		return a.B+a.A < b.B+b.A
	})
	return out
}

// farther compares how far two pairs of measures are apart.
func farther(x, y [2]Measure) int64 {
	for _, f := range []func(*Measure) int64{
		func(m *Measure) int64 { return m.AtPeak }, func(m *Measure) int64 { return m.Peak }, func(m *Measure) int64 { return m.End },
		func(m *Measure) int64 { return m.Taken }, func(m *Measure) int64 { return m.Count },
	} {
		if d := apart(f(&x[0]), f(&x[1])) - apart(f(&y[0]), f(&y[1])); d != 0 {
			return d
		}
	}
	return 0
}

func apart(a, b int64) int64 { return max(a-b, b-a) }

func (r *Report) scopes(a, b map[string]*Scope) {
	add := func(name string, x, y *Scope) {
		s := &ScopeRow{Name: name}
		if x != nil {
			s.Scopes[0] = *x
		}
		if y != nil {
			s.Scopes[1] = *y
		}
		if s.Scopes[0] != s.Scopes[1] {
			r.Scopes = append(r.Scopes, s)
		}
	}
	for name, x := range a {
		add(name, x, b[name])
	}
	for name, y := range b {
		if a[name] == nil {
			add(name, nil, y)
		}
	}
	sort.Slice(r.Scopes, func(i, j int) bool {
		x, y := r.Scopes[i], r.Scopes[j]
		for _, f := range []func(*Scope) int64{func(s *Scope) int64 { return s.Max }, func(s *Scope) int64 { return s.Peaked }, func(s *Scope) int64 { return s.Used }} {
			if d := apart(f(&x.Scopes[0]), f(&x.Scopes[1])) - apart(f(&y.Scopes[0]), f(&y.Scopes[1])); d != 0 {
				return d > 0
			}
		}
		return x.Name < y.Name
	})
}

// devices puts devices together: first those of one UUID, then what is left in
// order. Memory of an unknown device is not that of another's only device.
func devices(a, b *Side) []*Device {
	idsA, rest := a.deviceIDs(), b.deviceIDs()
	other := map[format.Device]format.Device{} // of A to B
	match := func(fits func(i, j format.Device) bool) {
		for _, i := range idsA {
			if _, has := other[i]; has {
				continue
			}
			if k := slices.IndexFunc(rest, func(j format.Device) bool { return fits(i, j) }); k >= 0 {
				other[i] = rest[k]
				rest = slices.Delete(rest, k, k+1)
			}
		}
	}
	sameUUID := func(i, j format.Device) bool {
		x, _ := a.p.Defs.Device(i)
		y, _ := b.p.Defs.Device(j)
		return x.UUID != "" && x.UUID == y.UUID
	}
	match(sameUUID)
	match(func(i, j format.Device) bool { return (i == format.NoDevice) == (j == format.NoDevice) })
	out := []*Device{}
	for _, i := range idsA {
		d := &Device{A: i, B: format.NoDevice, Bytes: [2]Measure{a.devices[i].Measure}}
		if j, has := other[i]; has {
			d.B, d.SameUUID, d.Bytes[1] = j, sameUUID(i, j), b.devices[j].Measure
		}
		out = append(out, d)
	}
	for _, j := range rest {
		out = append(out, &Device{A: format.NoDevice, B: j, Bytes: [2]Measure{1: b.devices[j].Measure}})
	}
	return out
}

// deviceIDs are the devices that something was taken of, in order.
func (s *Side) deviceIDs() (ids []format.Device) {
	for id, c := range s.devices {
		if c.Peak > 0 || c.Count > 0 {
			ids = append(ids, id)
		}
	}
	sort.Slice(ids, func(i, j int) bool { return ids[i] < ids[j] })
	return ids
}

func deviceName(id format.Device) string {
	if id == format.NoDevice {
		return "unknown"
	}
	return strconv.Itoa(int(id))
}
