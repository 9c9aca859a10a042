package export

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v15/arrow"
	"github.com/apache/arrow/go/v15/arrow/array"
	"github.com/apache/arrow/go/v15/arrow/ipc"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/formattest"
)

// write exports traces of text twins.
func write(t *testing.T, out, as string, q analyze.Query, traces ...*format.Trace) {
	t.Helper()
	x, err := Create(t.Context(), out, as)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Abort()
	var paths []string
	for _, tr := range traces {
		paths = append(paths, tr.Path())
	}
	if _, err := analyze.Run(context.Background(), paths, &q, x, nil); err != nil {
		t.Fatal(err)
	}
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
}

// A sheet is a table as texts, by column.
type sheet map[string][]string

// line is the named columns of one row.
func (s sheet) line(i int, names ...string) string {
	var out []string
	for _, n := range names {
		col, ok := s[n]
		if !ok {
			return "no column " + n
		}
		if i >= len(col) {
			return fmt.Sprintf("no row %d", i)
		}
		out = append(out, col[i])
	}
	return strings.Join(out, " ")
}

// readers read a file back, by format.
var readers = map[string]func(*testing.T, string) sheet{
	"arrow": func(t *testing.T, path string) sheet {
		s, _ := readArrow(t, path)
		return s
	},
	"parquet": readParquet,
	"csv":     readCSV,
	"jsonl":   readJSONL,
}

func readArrow(t *testing.T, path string) (sheet, *arrow.Schema) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := ipc.NewFileReader(f)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s := sheet{}
	for i := range r.NumRecords() {
		rec, err := r.Record(i)
		if err != nil {
			t.Fatal(err)
		}
		for j, c := range rec.Columns() {
			name := r.Schema().Field(j).Name
			if c.NullN() > 0 {
				t.Errorf("column %s has nulls", name)
			}
			for k := range c.Len() {
				v := c.ValueStr(k)
				if ts, ok := c.(*array.Timestamp); ok {
					v = fmt.Sprint(int64(ts.Value(k)))
				}
				s[name] = append(s[name], v)
			}
		}
	}
	return s, r.Schema()
}

// Process 1 has a pool, process 2 none. Addresses use all 64 bits.
const twoProcesses = `
meta start=2026-11-30T10:00:00.000000001Z start_monotonic=1000
device 0 uuid="GPU-a" name="H200" total=1000
device 1 uuid="GPU-b" name="H200" total=1000
process 1 pid=11 command="python train.py" rank=3
process 2 pid=22 command="./c"
frame 1 python "/app/main.py" 42 "<module>"
frame 2 python "/app/net.py" 7 "forward"
frame 3 thread "" 0 "[thread loader]"
stack 10 0 1
stack 11 10 2
frame 4 native "" 0 "" module="/opt/libx.so" address=16
stack 12 0 3
stack 13 0 4
name 1 "epoch"
name 2 "step"
name 3 "torch"
1100 ScopeBegin process=1 thread=5 api=nvtx scope=8 name=1 note=3
1200 Alloc process=1 thread=5 api=cuMemAlloc_v2 device=0 address=0xffffeaab54e00000 size=512 requested=500 stack=10 scope=8
1250 ScopeBegin process=1 thread=5 api=nvtx scope=9 parent=8 name=2 stack=13
1300 Alloc process=1 thread=5 api=cupy device=0 address=0xffffeaab54e00000 object=0x8000000000000001 size=256 requested=200 stack=11 scope=9
1400 Alloc process=2 thread=6 api=cuMemAlloc_v2 device=1 address=0x10 size=100 requested=100 stack=12
1500 Free process=1 thread=5 api=cupy address=0xffffeaab54e00000 object=0x8000000000000001 scope=9
1550 ScopeEnd process=1 thread=5 api=nvtx scope=9 parent=8
1600 Free process=2 thread=6 api=cuMemFree_v2 address=0x99
1650 AllocFailed process=1 thread=5 api=cuMemAlloc_v2 device=0 requested=99999 status=2 stack=77 scope=8
1700 ProcessEnd process=2 status=0
sample 1350 device=0 total=1000 used=600 free=390 reserved=10 peak_used=650
sample 1360 device=0 process=1 total=1000 used=600 free=390 reserved=10 process_used=555
`

func TestEvents(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	write(t, out, "arrow", analyze.Query{}, formattest.Text(t, twoProcesses))
	s, _ := readArrow(t, filepath.Join(out, "events.arrow"))
	for _, row := range []struct {
		name string
		row  int
		cols []string
		want string
	}{
		{"times", 1, []string{"timestamp", "time_ns"}, "1796032800000000201 200"},
		{"words", 1, []string{"trace", "kind", "layer", "class", "api"}, "text.gpurec Alloc driver device cuMemAlloc_v2"},
		{"who and where", 1, []string{"pid", "thread", "command", "rank", "device", "device_uuid", "device_name"}, "11 5 python train.py 3 0 GPU-a H200"},
		{"64 bits", 3, []string{"address", "object"}, "18446720620317114368 9223372036854775809"},
		{"a stack", 3, []string{"file", "line", "function", "stack"}, "/app/net.py 7 forward /app/main.py:42:<module>;/app/net.py:7:forward"},
		{"a thread without frames", 4, []string{"file", "line", "function", "stack"}, " 0 [thread loader] [thread loader]"},
		{"a native frame", 2, []string{"file", "line", "function", "stack"}, "libx.so 0 +0x10 libx.so+0x10"},
		{"an unknown stack", 8, []string{"file", "line", "function", "stack"}, " 0  unknown"},
		{"no stack", 5, []string{"file", "line", "function", "stack"}, " 0  "},
		{"scope", 0, []string{"scope", "scope_path", "name", "note"}, "8 epoch epoch torch"},
		{"nested scope", 3, []string{"scope", "scope_path", "name"}, "9 epoch/step "},
		{"a scope's end", 6, []string{"scope", "scope_path"}, "9 epoch/step"},
		{"before the pool's first event", 1, []string{"process_used", "process_acquired", "device_used", "device_acquired"}, "0 512 0 512"},
		{"after it", 3, []string{"process_used", "process_acquired", "device_used", "device_acquired"}, "256 512 256 512"},
		{"a process without a pool", 4, []string{"process_used", "process_acquired", "device_used", "device_acquired"}, "100 100 100 100"},
		{"a free knows what it ends", 5, []string{"size", "requested", "device", "device_uuid", "lifetime_ns", "process_used", "device_used"}, "256 200 0 GPU-a 200 0 0"},
		{"an unknown free does not", 7, []string{"size", "requested", "device", "device_uuid", "lifetime_ns", "process_used", "device_used"}, "-1 -1 -1  -1 100 -1"},
		{"a failure is not live", 8, []string{"kind", "requested", "status", "process_acquired"}, "AllocFailed 99999 2 512"},
		{"the end of a process", 9, []string{"kind", "size", "device", "process_used", "device_acquired", "lifetime_ns"}, "ProcessEnd 100 1 0 0 300"},
		{"and no more rows", 10, []string{"kind"}, "no row 10"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := s.line(row.row, row.cols...); got != row.want {
				t.Errorf("%v of row %d: %q, want %q", row.cols, row.row, got, row.want)
			}
		})
	}
	if _, schema := readArrow(t, filepath.Join(out, "scopes.arrow")); schema.Metadata().FindKey("gpurec.units") < 0 {
		t.Errorf("units are not in the schema: %v", schema.Metadata())
	}
	samples, _ := readArrow(t, filepath.Join(out, "samples.arrow"))
	for i, want := range []string{"350 0 GPU-a 600 390 10 650 2 0 -1", "360 0 GPU-a 600 390 10 600 2 11 555", "no row 2"} {
		if got := samples.line(i, "time_ns", "device", "device_uuid", "used", "free", "reserved", "peak_used", "nvml_api", "pid", "process_used"); got != want {
			t.Errorf("sample %d: %q, want %q", i, got, want)
		}
	}
	scopes, _ := readArrow(t, filepath.Join(out, "scopes.arrow"))
	for i, want := range []string{"9 8 epoch/step step 250 550 0 0 0 256 0 256 512 512 512", "8 0 epoch epoch 100 700 1 0 0 256 0 256 0 512 512", "no row 2"} {
		if got := scopes.line(i, "scope", "parent", "path", "name", "begin_ns", "end_ns", "open", "used_begin", "used_end", "used_max", "used_delta", "used_peaked", "acquired_begin", "acquired_end", "acquired_max"); got != want {
			t.Errorf("scope %d: %q, want %q", i, got, want)
		}
	}
}

// A batch ends by rows or by bytes of text, and the next one begins clean.
func TestBatches(t *testing.T) {
	big := strings.Repeat("x", 1000)
	cols := []column[int]{
		{name: "u", typ: u64, num: func(i int) int64 { return -int64(i) - 1 }},
		{name: "w", typ: u32, num: func(i int) int64 { return math.MaxUint32 }},
		{name: "h", typ: i16, num: func(i int) int64 { return -1 }},
		{name: "s", typ: text, str: func(i int) string {
			if i < 5 {
				return big
			}
			return []string{"", "é"}[i%2]
		}},
	}
	const rows = 1000
	for _, f := range Formats {
		t.Run(f.Name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x")
			out, err := os.Create(path)
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			w, err := newWriter("x", cols, func(b *batch) (sink, error) { return f.open(out, b) })
			if err != nil {
				t.Fatal(err)
			}
			w.maxRows, w.maxBytes = 300, 3000
			for i := range rows {
				if err := w.add(i); err != nil {
					t.Fatal(err)
				}
			}
			if w.b.rows != 97 { // after batches of 3, by bytes, and three of 300
				t.Errorf("%d rows wait for the next batch, want 97", w.b.rows)
			}
			if err := w.close(); err != nil {
				t.Fatal(err)
			}
			s := readers[f.Name](t, path)
			if got := s.line(rows-1, "u", "w", "h", "s"); len(s["u"]) != rows || got != fmt.Sprintf("%d 4294967295 -1 é", uint64(math.MaxUint64)-rows+1) {
				t.Errorf("%d rows, the last %q", len(s["u"]), got)
			}
			if s["s"][4] != big || s["s"][6] != "" {
				t.Errorf("texts moved between batches")
			}
		})
	}
}

func TestCreate(t *testing.T) {
	dir := t.TempDir()
	there := filepath.Join(dir, "there")
	if err := os.WriteFile(there, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct{ name, out, format, want string }{
		{"never over a file", there, "arrow", "exists already"},
		{"unknown format", filepath.Join(dir, "new"), "xls", "no such format"},
		{"no directory", filepath.Join(dir, "none", "new"), "arrow", "no such file"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if _, err := Create(t.Context(), row.out, row.format); err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("error %v, want %q", err, row.want)
			}
		})
	}
	t.Run("a single file has the events alone", func(t *testing.T) {
		out := filepath.Join(dir, "e.arrow")
		write(t, out, "arrow", analyze.Query{}, formattest.Text(t, twoProcesses))
		if s, _ := readArrow(t, out); len(s["kind"]) != 10 {
			t.Errorf("%d rows, want 10", len(s["kind"]))
		}
	})
	t.Run("given up, nothing is left", func(t *testing.T) {
		x, err := Create(t.Context(), filepath.Join(dir, "gone"), "arrow")
		if err != nil {
			t.Fatal(err)
		}
		x.Abort()
	})
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 2 {
		t.Errorf("%v are left, %v; want the file that was there and e.arrow", left, err)
	}
}

func TestFilters(t *testing.T) {
	from, _ := analyze.ParseMoment("300ns")
	to, _ := analyze.ParseMoment("500ns")
	scope, _ := analyze.ParseScope("step")
	for _, row := range []struct {
		name                    string
		q                       analyze.Query
		events, samples, scopes string // times, times, ids
	}{
		{"none", analyze.Query{}, "100 200 250 300 400 500 550 600 650 700", "350 360", "9 8"},
		{"window", analyze.Query{From: from, To: to}, "300 400 500", "350 360", "8 9"},
		{"process", analyze.Query{Processes: []int32{22}}, "400 600 700", "350", ""},
		{"device, frees by what they end", analyze.Query{Devices: []string{"0"}}, "200 300 500 650", "350 360", "9 8"},
		{"scope", analyze.Query{Scopes: []analyze.ScopeRef{scope}}, "250 300 500 550", "350 360", "9"},
		{"layer", analyze.Query{Layers: []format.Layer{format.LayerPool}}, "300 500", "350 360", "9 8"},
	} {
		t.Run(row.name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out")
			write(t, out, "arrow", row.q, formattest.Text(t, twoProcesses))
			for _, table := range []struct{ name, column, want string }{{"events", "time_ns", row.events}, {"samples", "time_ns", row.samples}, {"scopes", "scope", row.scopes}} {
				s, _ := readArrow(t, filepath.Join(out, table.name+".arrow"))
				if got := strings.Join(s[table.column], " "); got != table.want {
					t.Errorf("%s: %q, want %q", table.name, got, table.want)
				}
			}
		})
	}
}

// Of a checkpoint only allocations that nothing told of before are rows.
func TestCheckpoints(t *testing.T) {
	const text = `
device 0
process 1
part 3
1000 Live api=cuMemAlloc_v2 device=0 address=0x10 size=100
1050 CheckpointEnd size=1
1100 Alloc api=cuMemAlloc_v2 device=0 address=0x20 size=7
part
1000 Live api=cuMemAlloc_v2 device=0 address=0x10 size=100
1100 Live api=cuMemAlloc_v2 device=0 address=0x20 size=7
1150 CheckpointEnd size=2
1200 Free api=cuMemFree_v2 address=0x10
part 9
1100 Live api=cuMemAlloc_v2 device=0 address=0x20 size=7
1300 Live api=cuMemAlloc_v2 device=0 address=0x30 size=8
1350 CheckpointEnd size=2
1400 Free api=cuMemFree_v2 address=0x30
`
	out := filepath.Join(t.TempDir(), "out.arrow")
	write(t, out, "arrow", analyze.Query{}, formattest.Text(t, text))
	s, _ := readArrow(t, out)
	want := []string{"Live 1000 100", "Alloc 1100 7", "Free 1200 100", "Live 1300 8", "Free 1400 8"}
	for i, w := range want {
		if got := s.line(i, "kind", "time_ns", "size"); got != w {
			t.Errorf("row %d: %q, want %q", i, got, w)
		}
	}
	if len(s["kind"]) != len(want) {
		t.Errorf("%d rows, want %d", len(s["kind"]), len(want))
	}
}

// What a thread without scopes takes has the path of the scope that is inferred in
// a column of its own, in each table, and the recorded ones stay as they are.
func TestInferredScopes(t *testing.T) {
	const text = `
process 1 pid=5 command=x
part
1000 ScopeBegin thread=5 api=nvtx scope=1 name="step"
1001 ScopeBegin thread=5 api=nvtx scope=2 parent=1 name="backward"
1002 Alloc thread=5 api=torch device=0 address=0x10 size=1 scope=2
1003 Alloc thread=6 api=torch device=0 address=0x20 size=2
1004 AllocFailed thread=6 api=torch.oom device=0 requested=5
1005 Free thread=6 api=torch address=0x20
1006 ScopeEnd thread=5 api=nvtx scope=2
1007 ScopeEnd thread=5 api=nvtx scope=1
1008 Alloc thread=6 api=torch device=0 address=0x20 size=2
`
	for _, one := range []struct {
		infer analyze.Infer
		path  string
	}{{analyze.InferMark, "step/backward"}, {analyze.InferOff, ""}} {
		out := filepath.Join(t.TempDir(), "out")
		write(t, out, "arrow", analyze.Query{Infer: one.infer}, formattest.Text(t, text))
		for _, row := range []struct {
			table string
			row   int
			want  string
		}{
			{"events", 2, "2 step/backward  "},
			{"events", 3, "0  " + one.path + " "},
			{"events", 4, "0  " + one.path + " "},
			{"events", 5, "0  " + one.path + " "},
			{"events", 8, "0   "},
			{"allocations", 0, "0  " + one.path},
			{"allocations", 1, "2 step/backward "},
			{"failures", 0, " " + one.path},
		} {
			s, _ := readArrow(t, filepath.Join(out, row.table+".arrow"))
			cols := map[string][]string{"events": {"scope", "scope_path", "inferred_scope_path", "flags"}, "allocations": {"scope", "scope_path", "inferred_scope_path"}, "failures": {"scope_path", "inferred_scope_path"}}
			if got := s.line(row.row, cols[row.table]...); got != row.want {
				t.Errorf("%v, row %d of %s: got %q, want %q", one.infer, row.row, row.table, got, row.want)
			}
		}
	}
}
