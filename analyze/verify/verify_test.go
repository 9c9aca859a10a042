package verify

import (
	"bytes"
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/formattest"
	"github.com/gpurec/gpurec/format/live"
)

const start = format.Time(1000)

// record writes parts as a recorder does: each but the first begins with the
// checkpoint of the fold so far, which change may spoil.
func record(t *testing.T, parts [][]format.Event, change func(part int, rows []format.Event) []format.Event) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "t.gpurec")
	w, err := format.Create(dir, format.Meta{Start: time.Unix(0, 0), Monotonic: start}, format.WriterOptions{BatchRows: 4})
	if err != nil {
		t.Fatal(err)
	}
	d := w.Defs()
	d.PutProcess(format.Process{ID: 1, PID: 7})
	d.PutDevice(format.DeviceRow{ID: 0, Total: 1 << 30})
	d.PutFrame(format.Frame{ID: 1, Kind: format.FramePython, File: "a.py", Line: 1, Function: "f"})
	d.PutStack(format.Stack{ID: 2, Frame: 1})
	d.PutStack(format.Stack{ID: 3, Parent: 2, Frame: 9}) // a frame that nobody defines
	s := live.New()
	for i, events := range parts {
		if i > 0 {
			rows := s.Checkpoint(s.Now())
			if change != nil {
				rows = change(i, rows)
			}
			if err := w.Rotate(rows); err != nil {
				t.Fatal(err)
			}
		}
		for j := range events {
			s.Apply(&events[j])
			if err := w.Event(&events[j]); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(func(m *format.Meta) { m.Ending = format.EndClosed }); err != nil {
		t.Fatal(err)
	}
	return dir
}

func ev(at int, k format.Kind, seq uint64, change func(*format.Event)) format.Event {
	e := format.Event{Time: start + format.Time(at), Kind: k, Seq: seq, Process: 1, Thread: 7, Duration: -1, Size: -1, Requested: -1, Allocated: -1, Reserved: -1, Device: -1}
	if change != nil {
		change(&e)
	}
	return e
}

func alloc(at int, seq, address uint64, size int64) format.Event {
	return ev(at, format.Alloc, seq, func(e *format.Event) {
		e.API, e.Layer, e.Class, e.Device, e.Address, e.Size = format.APIMemAlloc, format.LayerDriver, format.ClassDevice, 0, address, size
	})
}

func free(at int, seq, address uint64) format.Event {
	return ev(at, format.Free, seq, func(e *format.Event) {
		e.API, e.Layer, e.Class, e.Address = format.APIMemFree, format.LayerDriver, format.ClassDevice, address
	})
}

func torch(at int, seq uint64, k format.Kind, address uint64, size, allocated int64) format.Event {
	return ev(at, k, seq, func(e *format.Event) {
		e.API, e.Layer, e.Class, e.Device, e.Address, e.Size, e.Allocated = format.APITorch, format.LayerPool, format.ClassDevice, 0, address, size, allocated
	})
}

func lost(at int, n int64) format.Event {
	return ev(at, format.Lost, 0, func(e *format.Event) { e.Size = n })
}

func run(t *testing.T, dir string) *Report {
	t.Helper()
	r, err := Verify(context.Background(), formattest.Open(t, dir), nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var fine = [][]format.Event{
	{alloc(1, 1, 0x100, 10), alloc(2, 2, 0x200, 20), alloc(3, 3, 0x300, 30), free(4, 4, 0x100), alloc(5, 5, 0x400, 40)},
	{free(6, 6, 0x200), alloc(7, 7, 0x500, 50)},
	{free(8, 8, 0x500)},
}

func TestVerify(t *testing.T) {
	withStack := func(id format.StackID) format.Event {
		e := alloc(1, 1, 0x100, 1)
		e.Stack = id
		return e
	}
	for _, row := range []struct {
		name    string
		parts   [][]format.Event
		change  func(int, []format.Event) []format.Event
		verdict string
		finding string // contained in one of the findings
		check   func(*Report) bool
	}{
		{"fine", fine, nil, "sound", "", func(r *Report) bool {
			return r.Checkpoints == 2 && r.Differ == 0 && r.Events == 8 && len(r.Parts) == 3 && r.Parts[0].Batches == 2 && r.Parts[0].Rows == 5 &&
				*r.Parts[0].First == 1 && *r.Parts[0].Last == 5 && r.Unknown.sum() == 0
		}},
		{"a checkpoint with another size", fine, func(i int, rows []format.Event) []format.Event { rows[0].Size++; return rows },
			"faulty", "is not the fold", func(r *Report) bool { return r.Differ == 2 }},
		{"a checkpoint that lacks a row", fine, func(i int, rows []format.Event) []format.Event {
			rows = rows[1:]
			rows[len(rows)-1].Size--
			return rows
		}, "faulty", "0 rows too many, 1 missing", nil},
		{"a checkpoint that miscounts its rows", fine, func(i int, rows []format.Event) []format.Event { rows[len(rows)-1].Size++; return rows },
			"faulty", "rows and says", nil},
		{"a checkpoint without end", fine, func(i int, rows []format.Event) []format.Event { return rows[:len(rows)-1] },
			"faulty", "no whole checkpoint", nil},
		{"rows after a checkpoint's end", fine, func(i int, rows []format.Event) []format.Event { return append(rows, rows[0], rows[0]) },
			"faulty", "2 rows of a checkpoint after its end", nil},
		{"numbers beyond all sums", [][]format.Event{{lost(1, 1<<62), lost(2, 1<<62), lost(3, 1<<62), alloc(4, 1, 0x1, 1), alloc(5, 1<<63-1, 0x2, 1), alloc(6, 1, 0x3, 1), alloc(7, 1<<63-1, 0x4, 1)}}, nil,
			"faulty", "9223372036854775807 events lost", func(r *Report) bool { return r.Unaccounted == math.MaxInt64 }},
		{"older rows are legal", [][]format.Event{{alloc(5, 1, 0x100, 1), alloc(4, 2, 0x200, 1), alloc(4, 3, 0x300, 1), free(3, 4, 0x300)}}, nil,
			"sound", "", func(r *Report) bool { return r.Regressions == 2 && *r.Parts[0].First == 3 && *r.Parts[0].Last == 5 }},
		{"a gap that Lost counts", [][]format.Event{{alloc(1, 1, 0x100, 1), lost(2, 4), alloc(3, 6, 0x200, 1)}}, nil,
			"sound, but partial", "4 events lost", func(r *Report) bool { return r.Gaps == 1 && r.Lost == 4 && r.Unaccounted == 0 }},
		{"a gap that Lost counts in part", [][]format.Event{{alloc(1, 1, 0x100, 1), lost(2, 3), alloc(3, 6, 0x200, 1)}}, nil,
			"faulty", "1 events are missing", nil},
		{"a gap that nobody counts", [][]format.Event{{alloc(1, 1, 0x100, 1), alloc(3, 4, 0x200, 1)}}, nil,
			"faulty", "2 events are missing", nil},
		{"a gap over a part's border", [][]format.Event{{alloc(1, 1, 0x100, 1)}, {alloc(3, 4, 0x200, 1)}}, nil,
			"faulty", "2 events are missing", nil},
		{"a gap that a Lost row without a number covers", [][]format.Event{{alloc(1, 1, 0x100, 1), lost(2, -1), alloc(3, 6, 0x200, 1)}}, nil,
			"sound, but partial", "an unknown number of events lost", func(r *Report) bool { return r.Gaps == 1 && r.Lost == 0 && r.Unaccounted == 0 }},
		{"loss with nothing after it", [][]format.Event{{alloc(1, 1, 0x100, 1), lost(2, 3)}}, nil, "sound, but partial", "3 events lost", nil},
		{"a thread takes over a lane", [][]format.Event{{alloc(1, 1, 0x100, 1), ev(2, format.ThreadBegin, 90, nil), alloc(3, 91, 0x200, 1)}}, nil, "sound", "", nil},
		{"an unknown stack is legal, an undefined one is not", [][]format.Event{{withStack(77)}}, nil, "faulty", "1 rows refer", func(r *Report) bool { return r.Unknown.Stacks == 1 }},
		{"an undefined frame", [][]format.Event{{withStack(3)}}, nil, "faulty", "1 rows refer", func(r *Report) bool { return r.Unknown.Frames == 1 && r.Unknown.Stacks == 0 }},
		{"a defined stack", [][]format.Event{{withStack(2)}}, nil, "sound", "", nil},
		{"free of what was never seen", [][]format.Event{{free(1, 1, 0x900)}}, nil, "sound", "1 frees of what was never seen", nil},
		{"PyTorch's sums agree", [][]format.Event{{torch(1, 1, format.Alloc, 0x10, 512, 512), torch(2, 2, format.Alloc, 0x20, 1024, 1536), torch(3, 3, format.Free, 0x10, 512, 1024)}}, nil,
			"sound", "", func(r *Report) bool { return r.Torch == Torch{Compared: 3} }},
		{"PyTorch's sums with a past", [][]format.Event{{torch(1, 1, format.Alloc, 0x10, 512, 4608)}, {torch(2, 2, format.Free, 0x10, 512, 4096)}}, nil,
			"sound", "", func(r *Report) bool { return r.Torch == Torch{Compared: 2, Earlier: 4096} }},
		{"PyTorch's sums disagree", [][]format.Event{{torch(1, 1, format.Alloc, 0x10, 512, 512), torch(2, 2, format.Alloc, 0x20, 512, 2048)}}, nil,
			"sound", "differs from the fold's after 1 of 2", nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := run(t, record(t, row.parts, row.change))
			text := strings.Join(append(append(r.Notes, r.Partial...), r.Faults...), "\n")
			if r.Verdict() != row.verdict || !strings.Contains(text, row.finding) {
				t.Errorf("verdict %q, findings %q; want %q with %q", r.Verdict(), text, row.verdict, row.finding)
			}
			if row.check != nil && !row.check(r) {
				t.Errorf("report %+v", r)
			}
		})
	}
}

func TestScopesAndSamplesAcrossACheckpoint(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "t.gpurec")
	w, err := format.Create(dir, format.Meta{Monotonic: start}, format.WriterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.Defs().PutProcess(format.Process{ID: 1})
	w.Defs().PutDevice(format.DeviceRow{ID: 0})
	w.Defs().PutDevice(format.DeviceRow{ID: 1})
	w.Defs().PutName(4, "outer")
	s := live.New()
	put := func(e format.Event) {
		s.Apply(&e)
		if err := w.Event(&e); err != nil {
			t.Fatal(err)
		}
	}
	sample := func(at int, d format.Device, used int64) {
		r := format.Sample{Time: start + format.Time(at), Device: d, Total: 100, Used: used, Free: 100 - used, ProcessUsed: -1, PeakUsed: used, API: 2}
		s.Sample(&r)
		if err := w.Sample(&r); err != nil {
			t.Fatal(err)
		}
	}
	sample(1, 0, 5)
	put(ev(2, format.ScopeBegin, 1, func(e *format.Event) { e.Scope, e.Name, e.API = 9, 4, format.APIScope }))
	sample(3, 0, 7) // between events in time: rows of two tables do not say so
	put(alloc(4, 2, 0x100, 10))
	sample(5, 1, 3) // a device without events
	if err := w.Rotate(s.Checkpoint(s.Now())); err != nil {
		t.Fatal(err)
	}
	put(free(6, 3, 0x100))
	put(ev(7, format.ScopeEnd, 4, func(e *format.Event) { e.Scope, e.API = 9, format.APIScope }))
	if err := w.Close(func(m *format.Meta) { m.Ending = format.EndClosed }); err != nil {
		t.Fatal(err)
	}
	if r := run(t, dir); r.Verdict() != "sound" || r.Checkpoints != 1 || r.Parts[0].Samples != 3 {
		t.Errorf("%+v", r)
	}
}

// Case D2 and its siblings: damage is said with path and place, and what is
// whole is still read.
func TestDamage(t *testing.T) {
	events := func(dir string, part string) string { return filepath.Join(dir, part, "events.arrow") }
	edit := func(t *testing.T, path string, f func([]byte) []byte) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, f(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range []struct {
		name    string
		damage  func(*testing.T, string)
		verdict string
		finding string
		parts   int
	}{
		{"footer missing", func(t *testing.T, dir string) {
			edit(t, events(dir, "00002"), func(b []byte) []byte { return b[:len(b)-30] })
		}, "sound, but partial", "00002/events.arrow: truncated", 3},
		{"one byte flipped in the middle part", func(t *testing.T, dir string) {
			edit(t, events(dir, "00001"), func(b []byte) []byte { b[len(b)*3/5] ^= 0x40; return b })
		}, "faulty", "00001/events.arrow: corrupt", 3},
		{"a table is missing", func(t *testing.T, dir string) { os.Remove(filepath.Join(dir, "00000", "stacks.arrow")) },
			"faulty", "stacks.arrow", 3},
		{"the middle part deleted", func(t *testing.T, dir string) { os.RemoveAll(filepath.Join(dir, "00001")) }, "sound, but partial", "part 1 is missing", 2},
		{"the last part deleted", func(t *testing.T, dir string) { os.RemoveAll(filepath.Join(dir, "00002")) }, "sound, but partial", "part 2 is missing: the trace had 3", 2},
		{"the first part deleted", func(t *testing.T, dir string) { os.RemoveAll(filepath.Join(dir, "00000")) }, "sound", "begins with part 1", 2},
		{"no part left", func(t *testing.T, dir string) {
			for _, p := range []string{"00000", "00001", "00002"} {
				os.RemoveAll(filepath.Join(dir, p))
			}
		}, "sound, but partial", "all its parts are missing, of which there were 3", 0},
		{"never a part", func(t *testing.T, dir string) {
			for _, p := range []string{"00000", "00001", "00002"} {
				os.RemoveAll(filepath.Join(dir, p))
			}
			edit(t, filepath.Join(dir, "trace.json"), func(b []byte) []byte { return bytes.Replace(b, []byte(`"parts": 3`), []byte(`"parts": 0`), 1) })
		}, "faulty", "no part", 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir := record(t, fine, nil)
			row.damage(t, dir)
			r := run(t, dir)
			text := filepath.ToSlash(strings.Join(append(append(r.Notes, r.Partial...), r.Faults...), "\n"))
			if r.Verdict() != row.verdict || !strings.Contains(text, row.finding) || len(r.Parts) != row.parts {
				t.Errorf("verdict %q, findings %q, %d parts; want %q with %q and %d parts", r.Verdict(), text, len(r.Parts), row.verdict, row.finding, row.parts)
			}
			var b strings.Builder
			if err := r.WriteText(&b); err != nil || !strings.HasSuffix(b.String(), "\n"+row.verdict+"\n") {
				t.Errorf("text %q, %v", b.String(), err)
			}
		})
	}
}

func TestFindingsAreBounded(t *testing.T) {
	var list []string
	for i := range 3 * maxFindings {
		find(&list, "finding %d", []any{i})
	}
	if len(list) != maxFindings+1 || list[maxFindings-1] != "finding 99" || list[maxFindings] != "and more than these 100" {
		t.Errorf("%d findings, the last %q", len(list), list[len(list)-1])
	}
}

func TestEnded(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	stop()
	if _, err := Verify(ctx, formattest.Open(t, record(t, fine, nil)), nil); err != context.Canceled {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
}
