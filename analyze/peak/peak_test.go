package peak

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/tree"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/formattest"
	"github.com/gpurec/gpurec/format/live"
)

func ask(t *testing.T, q *analyze.Query, traces ...*format.Trace) *Report {
	t.Helper()
	var paths []string
	for _, tr := range traces {
		paths = append(paths, tr.Path())
	}
	a := New(0, len(paths))
	c, err := analyze.Run(context.Background(), paths, q, a, nil)
	if err != nil {
		t.Fatal(err)
	}
	return a.Report(c)
}

func text(t *testing.T, r *Report, by string, top int) string {
	t.Helper()
	var b bytes.Buffer
	if err := r.WriteText(&b, Text{By: by, Top: top}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func one(t *testing.T) *format.Trace {
	return formattest.File(t, "testdata/one.txt")
}

func at(t *testing.T, s string) analyze.Moment {
	t.Helper()
	m, err := analyze.ParseMoment(s)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestGoldens(t *testing.T) {
	for _, row := range []struct {
		name, by string
		top      int
		q        analyze.Query
	}{
		{"all", "all", 10, analyze.Query{}},
		{"process", "all", 1, analyze.Query{Processes: []int32{12}}},
		{"window", "scope", 0, analyze.Query{To: at(t, "2s"), Devices: []string{"0"}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			formattest.Golden(t, row.name+".golden", []byte(text(t, ask(t, &row.q, one(t)), row.by, row.top)))
		})
	}
}

// The parts of testdata/one.txt, by hand.
func TestParts(t *testing.T) {
	r := ask(t, &analyze.Query{}, one(t))
	ps := r.Devices[0].Parts
	var got []string
	for _, p := range ps.Rows {
		pid := ""
		if p.PID != nil {
			pid = fmt.Sprintf(" of %d", *p.PID)
		}
		got = append(got, fmt.Sprintf("%s%s %d", p.Name, pid, p.Bytes))
	}
	// Process 1: a segment of 10 granules, and two small allocations in one granule
	// of their own; process 2: 3,000,000 bytes in two granules. The reading at 4.0005 s
	// is too near to a call. Of 533068672 bytes of process 1 recorded are
	// 11*2097152 = 23068672, of 204194304 of process 2 recorded are 4194304.
	want := []string{
		"used 19777216",      // 12582912 + 4194304 in blocks, 3000000 of the process without a pool
		"pool slack 4194304", // 20971520 less 16777216
		"driver, outside pools 132096",
		"rounding to 2 MiB 3159360", // 2097152-132096 + 4194304-3000000
		"CUcontext of 11 500000000",
		"modules of 11 10000000",
		"CUcontext of 12 200000000",
		"other processes and the driver's own 2802304", // 740065280 - 533068672 - 204194304
		"reserved by the driver 500000",
		"unexplained 0",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if ps.Sum != 740565280 || ps.Taken != 0 || ps.At != 3_500_000_000 {
		t.Errorf("%+v", ps)
	}
	if d := ps.Rows[2].Detail; len(d) != 1 || d[0].Name != "libcublas.so.13" || d[0].Bytes != 132096 {
		t.Errorf("outside: %+v", d)
	}
	if s := ps.Rows[5].Steps; len(s) != 1 || s[0].Bytes != 10000000 || s[0].At != 2_800_000_000 {
		t.Errorf("modules came in %+v", s)
	}
}

// What is highest when a window begins is so from its begin on.
func TestPeakAtTheBegin(t *testing.T) {
	const text = "process 1 pid=1 command=x\nname 1 \"s\"\npart\n1000 Alloc thread=1 api=torch device=0 address=0x10 size=70\n" +
		"5000 ScopeBegin thread=1 api=nvtx scope=1 name=1\n6000 Alloc thread=1 api=torch device=0 address=0x20 size=7\n7000 Free thread=1 api=torch address=0x20\n8000 Mark thread=1 name=1\n"
	for from, want := range map[string][2]int64{"": {77, 6000}, "3us": {77, 6000}, "6.5us": {77, 6500}, "7.5us": {70, 7500}, "scope:s": {77, 6000}} {
		var q analyze.Query
		if from != "" {
			q.From = at(t, from)
		}
		d := ask(t, &q, formattest.Text(t, text)).Devices[0]
		if d.Used != want[0] || d.At != want[1] {
			t.Errorf("from %q: %d at %d, want %v", from, d.Used, d.At, want)
		}
	}
	q := analyze.Query{From: at(t, "scope:s")}
	d := ask(t, &q, formattest.Text(t, strings.Replace(text, "size=7\n", "size=0\n", 1))).Devices[0]
	if d.Used != 70 || d.At != 5000 {
		t.Errorf("a scope in which nothing is taken: %d at %d", d.Used, d.At)
	}
}

// A device on which a process with a pool has no block has what was acquired.
func TestPeakWithoutUsed(t *testing.T) {
	r := ask(t, &analyze.Query{}, formattest.Text(t, `
process 1 pid=1 command=x
part
1000 Alloc thread=1 api=cuMemAlloc_v2 device=1 address=0x10 size=5
2000 Alloc thread=1 api=torch device=0 address=0x20 size=70
3000 Alloc thread=1 api=cuMemAlloc_v2 device=1 address=0x30 size=40
4000 Free thread=1 api=cuMemFree_v2 address=0x30
`))
	if d := r.Devices[1]; d.Device != 1 || d.Used != 0 || d.Acquired != 45 || d.At != 3000 {
		t.Errorf("%+v", d)
	}
	page := text(t, r, "all", 10)
	for _, want := range []string{
		"\nby line\n  share         used           bytes    blocks     on stack  line\n100.0 %         70 B              70         1          0 B  [no line]\n",
		"\nby line\n  share     acquired           bytes  line\n100.0 %         45 B              45  [no line]\n",
		"\nby size of allocation\n  share     acquired           bytes  size\n 88.9 %         40 B              40  32 B to 64 B\n 11.1 %          5 B               5  4 B to 8 B\n",
		"\nas a tree (acquired; lines under 1 % are summed up)\n_root (100.0 %, 45 B)\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no\n%sin\n%s", want, page)
		}
	}
}

// Two processes of one pid, as in two containers, are two; the rank is said.
func TestOnePIDTwice(t *testing.T) {
	r := ask(t, &analyze.Query{}, formattest.Text(t, `
process 1 pid=7 command=x
process 2 pid=7 rank=4 command=y
process 3 pid=7 command=z
part
1000 Alloc process=1 thread=7 api=torch device=0 address=0x10 size=5
1000 Alloc process=2 thread=7 api=torch device=0 address=0x10 size=6
1000 Alloc process=3 thread=7 api=torch device=0 address=0x10 size=5
`))
	got := ""
	for _, row := range r.Devices[0].Processes {
		got += fmt.Sprintf("%s %d; ", row.Name, row.Used)
	}
	if got != "pid 7 rank 4 6; pid 7 5; pid 7 5; " {
		t.Error(got)
	}
}

func TestEmpty(t *testing.T) {
	r := ask(t, &analyze.Query{}, formattest.Text(t, "part\n"))
	if got := text(t, r, "all", 10); got != "no device memory was live at any moment\n" {
		t.Errorf("%q", got)
	}
	b, err := json.Marshal(r)
	if err != nil || !strings.Contains(string(b), `"devices":[],"processes":[]`) {
		t.Errorf("%s %v", b, err)
	}
}

func TestNotes(t *testing.T) {
	const head = "process 1 pid=1 command=x begin=1000000000\npart\n1000000000 Alloc thread=1 api=cuMemAlloc_v2 device=0 address=0x10000000 size=2097152\n"
	for _, row := range []struct {
		name, text string
		q          analyze.Query
		want       string
	}{
		{"no readings", head, analyze.Query{}, "no parts of device 0: there is no NVML reading away from driver calls"},
		{"filtered", head, analyze.Query{Layers: []format.Layer{format.LayerDriver}}, "no parts: NVML counts whole devices"},
		{"processes together", head + "sample 500 device=0 total=100 used=7\nsample 3000000000 device=0 total=100 used=3000007\n", analyze.Query{}, "others are taken to have what was used before"},
		{"nothing before", head + "sample 3000000000 device=0 total=100 used=3000007\n", analyze.Query{}, "no reading is older than the program"},
	} {
		r := ask(t, &row.q, formattest.Text(t, row.text))
		notes := r.Completeness.Notes
		for _, d := range r.Devices {
			if d.Parts != nil {
				notes = append(notes, d.Parts.Notes...)
			}
		}
		if !strings.Contains(strings.Join(notes, "\n"), row.want) {
			t.Errorf("%s: %q is not in %q", row.name, row.want, notes)
		}
	}
}

// A random trace of two devices and two processes, with scopes, segments and
// readings.
func random(t *testing.T, seed int64) *format.Trace {
	r := rand.New(rand.NewSource(seed))
	b := formattest.New(t)
	plain := b.Process("plain")
	b.Device("GPU-0", 1<<40)
	b.Device("GPU-1", 1<<40)
	pooled := b.Process("pooled")
	slow := func(e *format.Event) *format.Event { e.Time *= 1e7; return e } // so that readings are away from calls
	live, segments := map[uint64]bool{}, map[uint64]bool{}
	scopes := 0
	for range 300 {
		d := format.Device(r.Intn(2))
		frames := []string{"a.py:1:main", fmt.Sprintf("a.py:%d:f", 2+r.Intn(4)), fmt.Sprintf("b.py:%d:g", r.Intn(3))}
		b.Stack(frames[:1+r.Intn(3)]...)
		b.In(pooled, 7)
		switch r.Intn(8) {
		case 0:
			if b.Begin(fmt.Sprint("s", r.Intn(3))); scopes > 4 {
				b.End()
			} else {
				scopes++
			}
		case 1:
			if scopes > 0 {
				b.End()
				scopes--
			}
		case 2:
			b.In(plain, 8)
			at := uint64(1+r.Intn(40)) << 19
			if segments[at] {
				slow(b.Free(format.APIMemFree, at))
			} else {
				slow(b.Alloc(format.APIMemAlloc, at, int64(1+r.Intn(1<<19)))).Device = d
			}
			segments[at] = !segments[at]
		case 3:
			b.Sample(d, int64(r.Intn(1<<30))).Time *= 1e7
		default:
			at := uint64(1 + r.Intn(50))
			if live[at] {
				slow(b.Free(format.APITorch, at))
			} else {
				slow(b.Alloc(format.APITorch, at, int64(r.Intn(5000)))).Device = d
			}
			live[at] = !live[at]
		}
	}
	return b.Trace()
}

// fold is the plain fold's word for the highest used bytes of devices.
type fold struct{ devices map[format.Device]live.Curve }

func (f *fold) Needs() analyze.Needs                       { return analyze.Needs{Pooled: true} }
func (f *fold) Begin(*analyze.Pass) error                  { f.devices = map[format.Device]live.Curve{}; return nil }
func (f *fold) Event(*analyze.Pass, *format.Event) error   { return nil }
func (f *fold) Sample(*analyze.Pass, *format.Sample) error { return nil }
func (f *fold) End(p *analyze.Pass) error {
	for _, d := range p.State.Devices() {
		if u := p.State.DeviceUsed(d); u.Peak > 0 {
			f.devices[d.ID] = u
		}
	}
	return nil
}

// The peak is the fold's, at its time; tables and trees add up to it; the parts
// add up to NVML's number.
func TestSums(t *testing.T) {
	parts := 0
	for seed := range int64(30) {
		tr := random(t, seed)
		f := &fold{}
		if _, err := analyze.Run(context.Background(), []string{tr.Path()}, &analyze.Query{}, f, nil); err != nil {
			t.Fatal(err)
		}
		r := ask(t, &analyze.Query{}, tr)
		if len(r.Devices) != len(f.devices) {
			t.Fatalf("seed %d: %d devices, want %d", seed, len(r.Devices), len(f.devices))
		}
		for _, d := range r.Devices {
			if u := f.devices[d.Device]; d.Used != u.Peak || d.At != int64(u.PeakAt-tr.Meta().Monotonic) {
				t.Errorf("seed %d: peak %d at %d, want %d at %d", seed, d.Used, d.At, u.Peak, u.PeakAt)
			}
			if d.Tree.Used != d.Used || d.Tree.Acquired != d.Acquired {
				t.Errorf("seed %d: the tree has %d and %d, want %d and %d", seed, d.Tree.Used, d.Tree.Acquired, d.Used, d.Acquired)
			}
			for name, rows := range map[string][]*tree.Row{"lines": d.Lines, "own lines": d.OwnLines, "functions": d.Functions, "scopes": d.Scopes, "sizes": d.Sizes, "processes": d.Processes} {
				var used, acquired, blocks int64
				for _, row := range rows {
					used, acquired, blocks = used+row.Used, acquired+row.Acquired, blocks+row.Blocks
				}
				if used != d.Used || acquired != d.Acquired || blocks != d.Blocks {
					t.Errorf("seed %d: %s add up to %d %d %d, want %d %d %d", seed, name, used, acquired, blocks, d.Used, d.Acquired, d.Blocks)
				}
			}
			if ps := d.Parts; ps != nil {
				parts++
				sum, nvml := int64(0), ps.Used+ps.Taken+*ps.Reserved
				for _, p := range ps.Rows {
					sum += p.Bytes
				}
				if sum != ps.Sum || sum != nvml || ps.Rows[0].Bytes != d.Used {
					t.Errorf("seed %d: parts add up to %d, want %d, NVML %d", seed, sum, ps.Sum, nvml)
				}
			}
		}
	}
	if parts == 0 {
		t.Error("no device had parts")
	}
}

// The granules that allocations touch, against a set of them.
func TestGranules(t *testing.T) {
	for seed := range int64(50) {
		r := rand.New(rand.NewSource(seed))
		var ph physical
		held := map[*live.Allocation]bool{}
		for range 200 {
			if len(held) > 0 && r.Intn(2) == 0 {
				for a := range held {
					ph.change(a, -1)
					delete(held, a)
					break
				}
			} else {
				a := &live.Allocation{Event: format.Event{API: format.APIMemAlloc, Layer: format.LayerDriver, Class: format.ClassDevice, Address: uint64(r.Intn(40)) << 19}}
				if a.Size = int64(1+r.Intn(12)) << 19; r.Intn(2) == 0 {
					a.Size -= int64(r.Intn(1 << 19))
				}
				held[a] = true
				ph.change(a, 1)
			}
			touched := map[uint64]bool{}
			for a := range held { // overlapping ones count twice where they fill a granule: none do in truth
				for g := a.Address / Granule; g <= (a.Address+uint64(a.Size)-1)/Granule; g++ {
					touched[g] = true
				}
			}
			if want := int64(len(touched)) * Granule; overlap(held) == false && ph.granules != want {
				t.Fatalf("seed %d: %d granules, want %d", seed, ph.granules/Granule, len(touched))
			}
		}
	}
}

func overlap(held map[*live.Allocation]bool) bool {
	for a := range held {
		for b := range held {
			if a != b && a.Address < b.Address+uint64(b.Size) && b.Address < a.Address+uint64(a.Size) {
				return true
			}
		}
	}
	return false
}
