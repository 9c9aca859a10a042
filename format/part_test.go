package format

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow/go/v15/arrow/ipc"
)

// randomEvents makes n events with every column in use, extremes included.
func randomEvents(n int, seed uint64) []Event {
	r := rand.New(rand.NewPCG(seed, 1))
	out := make([]Event, n)
	for i := range out {
		out[i] = Event{
			Time: Time(i*1000 + r.IntN(900)), Duration: int64(r.IntN(3)) - 1, Seq: uint64(i), Address: r.Uint64() >> (r.IntN(2) * 20), Object: r.Uint64(),
			Size: []int64{-1, 0, 512, math.MaxInt64, math.MinInt64}[r.IntN(5)], Requested: int64(r.IntN(1 << 20)), Allocated: Unknown, Reserved: int64(r.Uint64()),
			CUctx: uint64(r.IntN(2)), Stream: uint64(r.IntN(3)), Pool: math.MaxUint64, Scope: ScopeID(r.IntN(5)), Parent: ScopeID(r.IntN(5)),
			Process: ProcessID(r.IntN(3)), Thread: uint32(r.IntN(4)), Stack: StackID(r.IntN(40)), Name: NameID(r.IntN(6)), Note: NameID(r.IntN(6)),
			Status: int32(r.Uint32()), API: APIs[r.IntN(len(APIs))].API, Flags: Flags(r.IntN(1 << 16)), Device: Device(r.IntN(3) - 1),
			Kind: Alloc + Kind(r.IntN(int(kindCount)-1)), Layer: Layer(r.IntN(4)), Class: Class(r.IntN(8)),
		}
	}
	return out
}

// putDefs defines most of what randomEvents refers to.
func putDefs(d *Defs) {
	for i := 1; i < 38; i++ {
		d.PutFrame(Frame{ID: FrameID(i), Kind: FramePython, File: fmt.Sprintf("/app/f%d.py", i%5), Line: int32(i), Function: "f\x00\n\"é"})
		d.PutStack(Stack{StackID(i), StackID(i / 2), FrameID(i)})
	}
	for i := 1; i < 5; i++ {
		d.PutName(NameID(i), strings.Repeat("n", i))
	}
	d.PutProcess(Process{ID: 1, PID: 10, Begin: 1, End: Unknown, Status: Unknown, Rank: Unknown, Command: "a b"})
	d.PutProcess(Process{ID: 2, PID: 11, Image: math.MaxUint64})
	d.PutDevice(DeviceRow{ID: 0, UUID: "GPU-0", Total: 1 << 40, NVML: 1})
	d.PutDevice(DeviceRow{ID: 1, UUID: "GPU-1", NVML: Unknown})
}

// record writes events, flushing after each `every` of them.
func record(t testing.TB, events []Event, every int, opt WriterOptions) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "t.gpurec")
	w, err := Create(dir, Meta{Host: "h"}, opt)
	if err != nil {
		t.Fatal(err)
	}
	putDefs(w.Defs())
	for i := range events {
		if err := w.Event(&events[i]); err != nil {
			t.Fatal(err)
		}
		if every > 0 && i%every == every-1 {
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(nil); err != nil {
		t.Fatal(err)
	}
	return dir
}

// readEvents reads a part's events, and the error after the last batch.
func readEvents(p *Part) (events []Event, batches int, err error) {
	r, err := p.Events()
	if err != nil {
		return nil, 0, err
	}
	defer r.Close()
	for {
		rows, err := r.Next()
		if err == io.EOF {
			err = nil
		} else if err == nil {
			events = append(events, rows...)
			batches++
			continue
		}
		return events, batches, err
	}
}

func open(t testing.TB, dir string) *Trace {
	t.Helper()
	tr, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func TestEveryFieldIsOneColumn(t *testing.T) {
	rows := map[*table]any{framesTable: Frame{}, stacksTable: Stack{}, namesTable: nameRow{}, processesTable: Process{},
		devicesTable: DeviceRow{}, samplesTable: Sample{}, eventsTable: Event{}}
	if len(rows) != len(tableOrder) {
		t.Fatalf("%d tables are looked at, there are %d", len(rows), len(tableOrder))
	}
	for tab, zero := range rows {
		typ := reflect.TypeOf(zero)
		if typ.NumField() != len(tab.columns) || typ.Size() != tab.size {
			t.Errorf("%s: %d columns for the %d fields of %v", tab.name, len(tab.columns), typ.NumField(), typ)
		}
		for i := range typ.NumField() {
			f := typ.Field(i)
			n := 0
			for _, c := range tab.columns {
				if c.offset != f.Offset {
					continue
				}
				n++
				want := map[reflect.Kind]cell{reflect.Uint8: cellU8, reflect.Int8: cellI8, reflect.Uint16: cellU16, reflect.Int16: cellI16, reflect.Uint32: cellU32,
					reflect.Int32: cellI32, reflect.Uint64: cellU64, reflect.Int64: cellI64, reflect.String: cellText}
				got, ok := want[f.Type.Kind()]
				switch f.Name {
				case "Seq":
					got = cellSeq
				case "Time":
					got = cellTime
				}
				if !ok || got != c.cell {
					t.Errorf("%s.%s: column %s is of another type than %v", tab.name, f.Name, c.name, f.Type)
				}
			}
			if n != 1 {
				t.Errorf("%s.%s is %d columns", tab.name, f.Name, n)
			}
		}
	}
}

func TestWriteReadRows(t *testing.T) {
	for _, c := range []struct {
		name             string
		rows, every, max int
		batches          int
	}{
		{"none", 0, 0, 0, 0},
		{"one", 1, 0, 0, 1},
		{"less than a block", block - 1, 0, 0, 1},
		{"block and one", block + 1, 0, 0, 1},
		{"small batches", 100, 0, 33, 4},
		{"rows not a multiple of a block", 2500, 0, 1000, 3},
		{"full batch and one", MaxBatchRows + 1, 0, 0, 2},
		{"few flushes", 40, 10, 0, 4},
		{"many flushes are rewritten", 3000, 10, 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := randomEvents(c.rows, 7)
			tr := open(t, record(t, want, c.every, WriterOptions{BatchRows: c.max}))
			if len(tr.Parts()) != 1 {
				t.Fatalf("%d parts", len(tr.Parts()))
			}
			got, batches, err := readEvents(tr.Parts()[0])
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%d events came back as other %d", len(want), len(got))
			}
			if batches != c.batches {
				t.Errorf("%d batches, want %d", batches, c.batches)
			}
			want2, got2 := NewDefs(), NewDefs()
			putDefs(want2)
			if err := tr.Parts()[0].LoadDefs(got2); err != nil {
				t.Fatal(err)
			}
			if w, g := string(appendDefsText(nil, want2)), string(appendDefsText(nil, got2)); w != g {
				t.Errorf("definitions came back as\n%s\nwant\n%s", g, w)
			}
			if files, _ := filepath.Glob(filepath.Join(tr.Path(), "*", "*.new")); len(files) > 0 {
				t.Errorf("left over: %v", files)
			}
		})
	}
}

// Our bytes are Arrow's file format to Arrow's own reader.
func TestArrowReadsTheSame(t *testing.T) {
	want := randomEvents(700, 3)
	dir := record(t, want, 0, WriterOptions{BatchRows: 300})
	f, err := os.Open(filepath.Join(dir, "00000", "events.arrow"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := ipc.NewFileReader(f)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	n := 0
	for i := range r.NumRecords() {
		rec, err := r.Record(i)
		if err != nil {
			t.Fatal(err)
		}
		last := map[[2]uint32]uint64{} // of a process and thread, in a batch
		for k := range int(rec.NumRows()) {
			e := reflect.ValueOf(want[n])
			lane, seq := [2]uint32{uint32(want[n].Process), want[n].Thread}, want[n].Seq
			for c := range int(rec.NumCols()) {
				got := rec.Column(c).ValueStr(k)
				w := fmt.Sprint(numberOf(e, eventsTable.columns[c].offset))
				if rec.ColumnName(c) == "seq" && seq > 0 && last[lane] > 0 && seq == last[lane]+1 {
					w = "-1"
				}
				if got != w {
					t.Fatalf("row %d, column %s: Arrow reads %s, want %s", n, rec.ColumnName(c), got, w)
				}
			}
			if seq > 0 {
				last[lane] = seq
			}
			n++
		}
	}
	if n != len(want) {
		t.Errorf("Arrow reads %d rows of %d", n, len(want))
	}
}

func numberOf(v reflect.Value, offset uintptr) any {
	for i := range v.NumField() {
		if v.Type().Field(i).Offset == offset {
			if f := v.Field(i); f.CanInt() {
				return f.Int()
			} else {
				return f.Uint()
			}
		}
	}
	return nil
}

func TestPartsRestateWhatTheyReferTo(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "t.gpurec")
	w, err := Create(dir, Meta{}, WriterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	putDefs(w.Defs())
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(w.Event(&Event{Kind: Alloc, Stack: 20, Process: 1, Device: 0}))
	check(w.Rotate([]Event{{Kind: Live, Stack: 9, Process: 2, Device: NoDevice, Name: 3}, {Kind: CheckpointEnd, Size: 1, Device: NoDevice}}))
	check(w.Event(&Event{Kind: Alloc, Stack: 4, Device: NoDevice}))
	w.Defs().PutProcess(Process{ID: 2, PID: 11, Status: 7})
	check(w.Close(func(m *Meta) { m.End = 5 }))

	tr := open(t, dir)
	if len(tr.Parts()) != 2 || tr.Meta().Ending != EndClosed || tr.Meta().End != 5 || tr.Meta().TraceID == "" {
		t.Fatalf("parts %d, meta %+v", len(tr.Parts()), tr.Meta())
	}
	d := NewDefs()
	check(tr.Parts()[1].LoadDefs(d))
	want := []string{"9 4 2 1", "2 1"}
	for i, s := range []StackID{9, 2} {
		frames, ok := d.Walk(s, nil)
		slices.Reverse(frames)
		if got := strings.Trim(fmt.Sprint(frames), "[]"); got != want[i] || !ok {
			t.Errorf("stack %d: frames %s, %v; want %s", s, got, ok, want[i])
		}
	}
	if _, ok := d.Walk(20, nil); ok {
		t.Error("stack 20 is in a part that does not refer to it")
	}
	if p, _ := d.Process(2); p.Status != 7 {
		t.Errorf("process 2 has status %d; the last row should hold", p.Status)
	}
	if len(d.Devices()) != 2 {
		t.Errorf("%d devices in the second part; a part lists all", len(d.Devices()))
	}
	if d.Name(3) != "nnn" || d.HasName(2) {
		t.Errorf("names: 3 is %q, 2 is there: %v", d.Name(3), d.HasName(2))
	}

	// A part alone: beside its trace.json, and without.
	one := open(t, filepath.Join(dir, "00001"))
	if len(one.Parts()) != 1 || one.Parts()[0].Index() != 1 || one.Meta().Ending != EndClosed {
		t.Errorf("a part alone: %d parts, %+v", len(one.Parts()), one.Meta())
	}
	os.Remove(filepath.Join(dir, MetaFile))
	if one := open(t, filepath.Join(dir, "00001")); len(one.Parts()) != 1 {
		t.Error("a part without trace.json should open")
	}
}

// What is flushed of a growing trace is there, and it is said to grow.
func TestReadWhileItGrows(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "t.gpurec")
	w, err := Create(dir, Meta{}, WriterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close(nil)
	for round := range 5 {
		got, _, err := readEvents(open(t, dir).Parts()[0])
		if len(got) != round || !errors.Is(err, ErrTruncated) {
			t.Fatalf("round %d: %d events, %v", round, len(got), err)
		}
		w.Defs().PutStack(Stack{ID: StackID(round + 1), Frame: 1})
		w.Event(&Event{Kind: Alloc, Stack: StackID(round + 1), Device: NoDevice})
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		d := NewDefs()
		if err := open(t, dir).Parts()[0].LoadDefs(d); !errors.Is(err, ErrTruncated) {
			t.Fatalf("definitions of a growing part: %v", err)
		}
		if _, ok := d.Stack(StackID(round + 1)); !ok {
			t.Fatal("an event is on disk and its stack is not")
		}
	}
}

func TestFlushEvery(t *testing.T) {
	for _, c := range []struct {
		name  string
		every time.Duration
		want  int
	}{{"never by itself", 0, 0}, {"not yet", time.Hour, 0}, {"over at each row", 1, 3}} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "t.gpurec")
			w, err := Create(dir, Meta{}, WriterOptions{FlushEvery: c.every})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close(nil)
			for range 3 {
				if err := errors.Join(w.Event(&Event{Kind: Mark, Device: NoDevice}), w.Sample(&Sample{})); err != nil {
					t.Fatal(err)
				}
			}
			if got, _, _ := readEvents(open(t, dir).Parts()[0]); len(got) != c.want {
				t.Errorf("%d events on disk, want %d", len(got), c.want)
			}
		})
	}
}

func TestOpenErrors(t *testing.T) {
	dir := record(t, randomEvents(10, 1), 0, WriterOptions{})
	meta := func(s string) func(t *testing.T) string {
		return func(t *testing.T) string {
			d := t.TempDir()
			if err := os.WriteFile(filepath.Join(d, MetaFile), []byte(s), 0o600); err != nil {
				t.Fatal(err)
			}
			return d
		}
	}
	for _, c := range []struct {
		name string
		path func(t *testing.T) string
		want string
		as   error
	}{
		{"missing", func(t *testing.T) string { return filepath.Join(dir, "nothing") }, "no such file", &NotTraceError{}},
		{"empty directory", func(t *testing.T) string { return t.TempDir() }, "there is no trace.json in it", &NotTraceError{}},
		{"a table", func(t *testing.T) string { return filepath.Join(dir, "00000", "events.arrow") }, "it is a file", &NotTraceError{}},
		{"no json", meta("hello"), "invalid character", &NotTraceError{}},
		{"empty json", meta(""), "unexpected end", &NotTraceError{}},
		{"no version", meta("{}"), "names no format version", &NotTraceError{}},
		{"negative version", meta(`{"version":-1}`), "names no format version", &NotTraceError{}},
		{"newer", meta(`{"version":7,"start":"in a form we do not know"}`), "format version 7 is newer than 1, the newest this build reads", &VersionError{}},
		{"version 0", meta(`{"version":0,"host":7}`), "format version 0 is older than 1, the first that was frozen; with the gpuanalyze that came with its gpurec `gpuanalyze events -q TRACE > t.txt`", &VersionError{}},
		{"wrong type", meta(`{"version":1,"host":7}`), "cannot unmarshal", &NotTraceError{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := c.path(t)
			_, err := Open(path)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("got %v, want the path and %q", err, c.want)
			}
			if reflect.TypeOf(err) != reflect.TypeOf(c.as) {
				t.Errorf("got a %T, want a %T", err, c.as)
			}
		})
	}
	if _, err := Open(filepath.Join(dir, "nothing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v is not fs.ErrNotExist", err)
	}
	if tr := open(t, filepath.Join(dir, MetaFile)); tr.Path() != dir || len(tr.Parts()) != 1 {
		t.Errorf("trace.json opens %s with %d parts", tr.Path(), len(tr.Parts()))
	}
}

func TestMissingPieces(t *testing.T) {
	for _, c := range []struct {
		name, remove  string
		events, defs  string // of the error's text
		gone, growing bool
	}{
		{"part", "", "no such file", "no such file", true, false},
		{"events", "events.arrow", "truncated at batch 0 (byte 0)", "", false, true},
		{"stacks", "stacks.arrow", "", "the table is missing", false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := record(t, randomEvents(10, 1), 0, WriterOptions{})
			tr := open(t, dir)
			os.RemoveAll(filepath.Join(dir, "00000", c.remove))
			_, _, err := readEvents(tr.Parts()[0])
			match(t, "events", err, c.events)
			if errors.Is(err, fs.ErrNotExist) != c.gone || errors.Is(err, ErrTruncated) != c.growing {
				t.Errorf("events: %v is of the wrong kind", err)
			}
			match(t, "definitions", tr.Parts()[0].LoadDefs(NewDefs()), c.defs)
		})
	}
}

func match(t *testing.T, what string, err error, want string) {
	t.Helper()
	if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
		t.Errorf("%s: got error %v, want %q", what, err, want)
	}
}

func TestNeverOverwrites(t *testing.T) {
	dir := record(t, nil, 0, WriterOptions{})
	before, _ := os.ReadFile(filepath.Join(dir, MetaFile))
	if _, err := Create(dir, Meta{}, WriterOptions{}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("create over a trace: %v", err)
	}
	if err := ReadText(strings.NewReader("gpurec 1\n"), dir); !errors.Is(err, fs.ErrExist) {
		t.Errorf("text over a trace: %v", err)
	}
	after, _ := os.ReadFile(filepath.Join(dir, MetaFile))
	if !bytes.Equal(before, after) || len(before) == 0 {
		t.Error("the trace that was there has changed")
	}
	if fi, _ := os.Stat(dir); fi.Mode().Perm() != 0o700 {
		t.Errorf("a trace has mode %v", fi.Mode())
	}
}

// TestEvents: rows added together are the rows added one by one, in batches of
// the same length, whatever their pieces.
func TestEvents(t *testing.T) {
	want := trainingEvents(50*block + 77)
	for _, rows := range []int{1, 100, block, 2*block + 1, 0} {
		path := filepath.Join(t.TempDir(), "t")
		w, err := Create(path, Meta{}, WriterOptions{BatchRows: rows})
		if err != nil {
			t.Fatal(err)
		}
		rest := want
		for n := 0; len(rest) > 0; n++ {
			piece := rest[:min(len(rest), n*n)]
			rest = rest[len(piece):]
			if err := w.Events(piece); err != nil {
				t.Fatal(err)
			}
			for i := 0; len(rest) > 0 && n%3 == 1 && i < 150; i++ {
				w.Event(&rest[0])
				rest = rest[1:]
			}
		}
		flushes := w.Flushes()
		if err := w.Close(nil); err != nil {
			t.Fatal(err)
		}
		if rows > 0 && flushes != len(want)/rows {
			t.Errorf("batches of %d rows: %d flushes of %d rows", rows, flushes, len(want))
		}
		tr, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := readEvents(tr.Parts()[0])
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("batches of %d rows: %d rows come back, %v", rows, len(got), err)
		}
	}
}
