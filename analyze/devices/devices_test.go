package devices

import (
	"bytes"
	"context"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/formattest"
)

// answer is the report of a text twin, between two moments of TIME's syntax.
func answer(t *testing.T, text string, q analyze.Query, window ...string) *Trace {
	t.Helper()
	r := report(t, text, q, window...)
	if len(r.Traces) != 1 {
		t.Fatalf("%d answers of one trace", len(r.Traces))
	}
	return r.Traces[0]
}

func report(t *testing.T, text string, q analyze.Query, window ...string) *Report {
	t.Helper()
	for i, s := range window {
		m, err := analyze.ParseMoment(s)
		if err != nil && s != "" {
			t.Fatal(err)
		}
		if i == 0 {
			q.From = m
		} else {
			q.To = m
		}
	}
	var a Answer
	c, err := analyze.Run(context.Background(), []string{formattest.Text(t, text).Path()}, &q, &a, nil)
	if err != nil {
		t.Fatal(err)
	}
	return a.Report(c)
}

// Two devices of 1000 bytes. Free bytes, by hand:
//
//	t      0    1    2    3    4    5    6 s
//	dev 0     900  500  500  700       700
//	dev 1     800  800  500  600  900  100
//
// At 3 s both have 500: a tie, and the lower index wins although device 1 had
// it before. Device 1 is freest from 2 to 3 and from 5 to 6.
const twoDevices = `
meta start_monotonic=10000000000 end_monotonic=18000000000
device 0 uuid="GPU-a" name="H200" total=1000 nvml=1
device 1 uuid="GPU-b" name="H200" total=1000 nvml=0
process 1 pid=7
sample 11000000000 device=0 total=1000 used=90 free=900 reserved=10
sample 11000000000 device=1 total=1000 used=190 free=800 reserved=10
sample 12000000000 device=0 total=1000 used=490 free=500 reserved=10 peak_used=600
sample 13000000000 device=1 total=1000 used=490 free=500 reserved=10
sample 14000000000 device=0 total=1000 used=290 free=700 reserved=10
sample 14000000000 device=1 total=1000 used=390 free=600 reserved=10
sample 14500000000 device=1 process=1 process_used=77
sample 15000000000 device=1 total=1000 used=90 free=900 reserved=10
sample 16000000000 device=1 total=1000 used=890 free=100 reserved=10
11500000000 Alloc api=cuMemAlloc_v2 device=0 address=0x100 size=300 requested=300
11600000000 Alloc api=cuMemAlloc_v2 device=0 address=0x200 size=100 requested=100
11700000000 Free api=cuMemFree_v2 address=0x100
13500000000 Alloc api=cuMemAlloc_v2 device=1 address=0x300 size=64 requested=64
`

const s = 1000000000

func TestTwoDevicesAndATie(t *testing.T) {
	r := answer(t, twoDevices, analyze.Query{})
	want := []RunRow{
		{1 * s, 2 * s, 0, 900, 900, 900},
		{2 * s, 3 * s, 1, 800, 800, 800},
		{3 * s, 5 * s, 0, 500, 500, 700},
		{5 * s, 6 * s, 1, 900, 900, 900},
		{6 * s, 8 * s, 0, 700, 700, 700},
	}
	if !reflect.DeepEqual(r.Runs, want) {
		t.Errorf("runs\n%v, want\n%v", r.Runs, want)
	}
	if r.Source != "nvml" || r.From != 0 || r.To != 8*s {
		t.Errorf("source %q, %d to %d", r.Source, r.From, r.To)
	}
	// Device 0 is known for 7 s: 1 s at 900, 2 s at 500, 4 s at 700.
	if got, want := r.Devices[0].Free, (&CurveRow{500, (900 + 2*500 + 4*700) / 7, 900, 1 * s}); !reflect.DeepEqual(got, want) {
		t.Errorf("free of device 0: %v, want %v", got, want)
	}
	if got, want := r.Devices[0].Used, (&CurveRow{90, (90 + 2*490 + 4*290) / 7, 600, 2 * s}); !reflect.DeepEqual(got, want) {
		t.Errorf("used of device 0: %v, want %v: the peak between samples counts", got, want)
	}
	// Acquired is known for all 8 s: 0 for 1.5 s, 300, 400 for 0.1 s each, then 100 for 6.3 s.
	if got, want := r.Devices[0].Acquired, (&CurveRow{0, (300 + 400 + 63*100) / 80, 400, 1600000000}); !reflect.DeepEqual(got, want) {
		t.Errorf("acquired of device 0: %v, want %v", got, want)
	}
	if d := r.Devices[1]; d.Samples != 5 || *d.LastSample != 6*s || !reflect.DeepEqual(d.API, []int8{2}) || *d.NVML != 0 || d.UUID != "GPU-b" {
		t.Errorf("device 1: %+v", d)
	}
}

func TestText(t *testing.T) {
	const want = `freest device over time (free bytes, as NVML sampled them)

       from         to  device  free at start  min  max
  1.000000s  2.000000s       0            900  900  900
  2.000000s  3.000000s       1            800  800  800
  3.000000s  5.000000s       0            500  500  700
  5.000000s  6.000000s       1            900  900  900
  6.000000s  8.000000s       0            700  700  700

device 0  H200  GPU-a  nvml 1  total 1000
3 samples, the last at 4.000000s, NVML's memory call v2
     bytes  min  mean  max     max at
      used   90   318  600  2.000000s  sampled
      free  500   671  900  1.000000s  sampled
  reserved   10    10   10  1.000000s  sampled
  acquired    0    87  400  1.600000s  exact

device 1  H200  GPU-b  nvml 0  total 1000
5 samples, the last at 6.000000s, NVML's memory call v2
     bytes  min  mean  max     max at
      used   90   447  890  6.000000s  sampled
      free  100   542  900  5.000000s  sampled
  reserved   10    10   10  1.000000s  sampled
  acquired    0    36   64  3.500000s  exact
`
	var b bytes.Buffer
	if err := report(t, twoDevices, analyze.Query{}).WriteText(&b); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, l := range strings.Split(b.String(), "\n") {
		lines = append(lines, strings.TrimRight(l, " "))
	}
	if got := strings.Join(lines, "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestFilters(t *testing.T) {
	text := strings.Replace(twoDevices, "\n13500000000", "\nname 1 \"step\"\n12200000000 ScopeBegin api=scope scope=4 name=1\n13500000000", 1) +
		"13600000000 ScopeEnd api=scope scope=4\n"
	for _, row := range []struct {
		name     string
		query    analyze.Query
		window   []string
		runs     []RunRow
		acquired []CurveRow // of the devices there are
	}{
		{"from inside a run", analyze.Query{}, []string{"2.5s"},
			[]RunRow{{2500000000, 3 * s, 1, 800, 800, 800}, {3 * s, 5 * s, 0, 500, 500, 700}, {5 * s, 6 * s, 1, 900, 900, 900}, {6 * s, 8 * s, 0, 700, 700, 700}},
			[]CurveRow{{100, 100, 100, 2500000000}, {0, 64 * 45 / 55, 64, 3500000000}}},
		{"to inside a run", analyze.Query{}, []string{"", "2.5s"},
			[]RunRow{{1 * s, 2 * s, 0, 900, 900, 900}, {2 * s, 2500000000, 1, 800, 800, 800}},
			[]CurveRow{{0, (300 + 400 + 8*100) / 25, 400, 1600000000}, {0, 0, 0, 0}}},
		{"one moment", analyze.Query{}, []string{"3s", "3s"}, []RunRow{{3 * s, 3 * s, 0, 500, 500, 500}}, []CurveRow{{100, 100, 100, 3 * s}, {0, 0, 0, 3 * s}}},
		{"after the last sample and event", analyze.Query{}, []string{"7s"}, []RunRow{{7 * s, 8 * s, 0, 700, 700, 700}},
			[]CurveRow{{100, 100, 100, 7 * s}, {64, 64, 64, 7 * s}}},
		{"before the first sample", analyze.Query{}, []string{"", "0.5s"}, []RunRow{}, []CurveRow{{0, 0, 0, 0}, {0, 0, 0, 0}}},
		{"before the first event", analyze.Query{}, []string{"0.2s", "1.2s"}, []RunRow{{1 * s, 1200000000, 0, 900, 900, 900}},
			[]CurveRow{{0, 0, 0, 200000000}, {0, 0, 0, 200000000}}},
		{"a scope", analyze.Query{}, []string{"scope:step", "scope:step"},
			[]RunRow{{2200000000, 3 * s, 1, 800, 800, 800}, {3 * s, 3600000000, 0, 500, 500, 500}},
			[]CurveRow{{100, 100, 100, 2200000000}, {0, 64 / 14, 64, 3500000000}}},
		{"one device, by index", analyze.Query{Devices: []string{"1"}}, nil, []RunRow{{1 * s, 8 * s, 1, 800, 100, 900}}, []CurveRow{{0, 36, 64, 3500000000}}},
		{"one device, by UUID", analyze.Query{Devices: []string{"GPU-b"}}, nil, []RunRow{{1 * s, 8 * s, 1, 800, 100, 900}}, []CurveRow{{0, 36, 64, 3500000000}}},
		{"another layer", analyze.Query{Layers: []format.Layer{format.LayerHost}}, []string{"7s"}, []RunRow{{7 * s, 8 * s, 0, 700, 700, 700}},
			[]CurveRow{{0, 0, 0, 7 * s}, {0, 0, 0, 7 * s}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := answer(t, text, row.query, row.window...)
			if !reflect.DeepEqual(r.Runs, row.runs) {
				t.Errorf("runs %v, want %v", r.Runs, row.runs)
			}
			for i, d := range r.Devices {
				if i >= len(row.acquired) && row.acquired != nil {
					t.Errorf("device %d is there", d.Device)
				} else if row.acquired != nil && (d.Acquired == nil || *d.Acquired != row.acquired[i]) {
					t.Errorf("acquired of device %d: %v, want %v", d.Device, d.Acquired, row.acquired[i])
				}
			}
		})
	}
}

func TestSources(t *testing.T) {
	const events = `
1000 Alloc api=cuMemAlloc_v2 device=0 address=0x100 size=600
2000 Alloc api=cuMemAlloc_v2 device=1 address=0x200 size=700
3000 Free api=cuMemFree_v2 address=0x100
4000 Mark
`
	const lost = "sample 10000000 device=0 total=9 used=1 free=8\nsample 20000000 device=0 total=9 used=1 free=8\nsample 30000000 device=0 total=9 used=1 free=8"
	for _, row := range []struct {
		name, text, source, note string
		runs                     []RunRow
	}{
		{"no samples, totals known: total less acquired", "device 0 total=1000\ndevice 1 total=900\nprocess 1" + events,
			"acquired", "no NVML samples: free is each device's total less what the traced processes acquired; what others hold is not seen",
			[]RunRow{{0, 1000, 0, 1000, 1000, 1000}, {1000, 2000, 1, 900, 900, 900}, {2000, 4000, 0, 400, 400, 1000}}},
		{"no samples, one total unknown", "device 0 total=1000\ndevice 1\nprocess 1" + events,
			"acquired", "no NVML samples: free is each device's total less what the traced processes acquired; what others hold is not seen; device 1 has no known total and takes no part",
			[]RunRow{{0, 4000, 0, 1000, 400, 1000}}},
		{"no samples, no totals", "process 1" + events,
			"none", "no NVML samples and no device's total is known: nothing to say about free memory", []RunRow{}},
		{"samples and no event", "device 0 total=9\nsample 5 device=0 total=9 used=1 free=8 reserved=-1 api=1",
			"nvml", "", []RunRow{{5, 5, 0, 8, 8, 8}}},
		{"a device without samples", "device 0 total=9\ndevice 1 total=9\nsample 5 device=1 total=9 used=1 free=8",
			"nvml", "device 0 has no sample in this time", []RunRow{{5, 5, 1, 8, 8, 8}}},
		{"a device that was lost", "meta end_monotonic=9000000000\ndevice 0\n" + lost, "nvml", "device 0 has no sample after 0.030000s: what it says there is old",
			[]RunRow{{10000000, 9000000000, 0, 8, 8, 8}}},
		{"nothing at all", "meta end_monotonic=5", "none", "no NVML samples and no device's total is known: nothing to say about free memory", []RunRow{}},
		{"begins with a checkpoint", "device 0 total=1000\nprocess 1\n500 Live api=cuMemAlloc_v2 device=0 address=0x100 size=600\n900 CheckpointEnd size=1\n1000 Free api=cuMemFree_v2 address=0x100\n1400 Mark",
			"acquired", "no NVML samples: free is each device's total less what the traced processes acquired; what others hold is not seen",
			[]RunRow{{900, 1400, 0, 400, 400, 1000}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			all := report(t, row.text, analyze.Query{})
			r, notes := all.Traces[0], strings.Join(all.Completeness.Notes, "\n")
			if r.Source != row.source || !strings.Contains(notes, row.note) || !reflect.DeepEqual(r.Runs, row.runs) {
				t.Errorf("source %q, notes %q, runs %v; want %q, %q, %v", r.Source, notes, r.Runs, row.source, row.note, row.runs)
			}
		})
	}
}

// Case C1: NVML's four numbers stay apart, and its version is said.
func TestMemoryCallVersions(t *testing.T) {
	all := report(t, `device 0 total=100
sample 1 device=0 total=100 used=40 free=60 reserved=-1 api=1
sample 2 device=0 total=100 used=30 free=60 reserved=10 api=2`, analyze.Query{})
	d := all.Traces[0].Devices[0]
	if d.Reserved == nil || *d.Reserved != (CurveRow{10, 10, 10, 2}) || d.Used.Max != 40 || !reflect.DeepEqual(d.API, []int8{1, 2}) {
		t.Errorf("%+v, reserved %v, used %v", d, d.Reserved, d.Used)
	}
	var b strings.Builder
	if err := all.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "v1 (used contains reserved) and v2") {
		t.Errorf("the text does not say which call it was:\n%s", b.String())
	}
	v1 := answer(t, "device 0 total=100\nsample 1 device=0 total=100 used=40 free=60 reserved=-1 api=1", analyze.Query{})
	if v1.Devices[0].Reserved != nil {
		t.Errorf("reserved of memory call v1 is %v, want unknown", v1.Devices[0].Reserved)
	}
}

// What the first parts said is deleted: nobody knows what was acquired before
// the checkpoint, and from it on a curve is known.
func TestWindowAtACheckpoint(t *testing.T) {
	const thinned = `device 0 total=1000
process 1
part 3
500 Live api=cuMemAlloc_v2 device=0 address=0x100 size=600
900 CheckpointEnd size=1
1000 Free api=cuMemFree_v2 address=0x100
1400 Mark
`
	for _, row := range []struct {
		name, from, to string
		acquired       *CurveRow
	}{
		{"before", "100ns", "800ns", nil},
		{"across", "100ns", "950ns", &CurveRow{600, 600, 600, 900}},
		{"after", "950ns", "1050ns", &CurveRow{0, 300, 600, 950}},
	} {
		if d := answer(t, thinned, analyze.Query{}, row.from, row.to).Devices[0]; !reflect.DeepEqual(d.Acquired, row.acquired) {
			t.Errorf("%s: %v, want %v", row.name, d.Acquired, row.acquired)
		}
	}
}

// A curve that misses events is not called exact, each trace by itself.
func TestAcquiredOfAPartialTrace(t *testing.T) {
	whole := formattest.Text(t, "device 0\nprocess 1\n1000 Alloc api=cuMemAlloc_v2 device=0 address=0x100 size=600\n").Path()
	lossy := formattest.Text(t, "device 0\nprocess 1\n1000 Alloc api=cuMemAlloc_v2 device=0 address=0x100 size=600\n1100 Lost size=2\n").Path()
	var a Answer
	c, err := analyze.Run(context.Background(), []string{lossy, whole}, &analyze.Query{}, &a, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := a.Report(c)
	if l, w := r.Traces[0].Devices[0].How, r.Traces[1].Devices[0].How; l != "at least" || w != "exact" {
		t.Errorf("with a loss %q, without %q", l, w)
	}
	var text strings.Builder
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(r)
	if err != nil || strings.Count(text.String(), "  at least\n") != 1 || strings.Count(text.String(), "  exact\n") != 1 || !strings.Contains(string(b), `"acquired_how":"at least"`) {
		t.Errorf("%s\n%s, %v", text.String(), b, err)
	}
}

func TestJSONHasNoNulls(t *testing.T) {
	b, err := json.Marshal(report(t, "meta end_monotonic=5", analyze.Query{}))
	if err != nil || strings.Contains(string(b), "null") {
		t.Errorf("%s, %v: an empty answer has empty lists", b, err)
	}
}
