package format

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// contents are the hashes of all files of a trace.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			var b []byte
			b, err = os.ReadFile(path)
			rel, _ := filepath.Rel(dir, path)
			out[rel] = fmt.Sprintf("%x", sha256.Sum256(b))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// killed is a trace of two parts, the second of which was never closed.
func killed(t *testing.T) string { return killedWith(t, 10) }

// killedWith has a checkpoint of so many live allocations.
func killedWith(t *testing.T, live int) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "killed.gpurec")
	w, err := Create(dir, Meta{Command: []string{"x"}, Monotonic: 1}, WriterOptions{BatchRows: 200})
	if err != nil {
		t.Fatal(err)
	}
	fill(t, w, 2, 1000, live)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	w.part.closeFiles()
	return dir
}

// closeFiles leaves the files as a killed process does.
func (p *partWriter) closeFiles() {
	for _, f := range p.files {
		f.f.Close()
	}
}

// rowsClosed counts the rows of events of a trace, and fails where a table has no end.
func rowsClosed(t *testing.T, dir string) (n int) {
	t.Helper()
	tr := open(t, dir)
	for _, p := range tr.Parts() {
		for _, tab := range tableOrder {
			k := &repairTable{path: filepath.Join(partName(p.index), tab.file()), table: tab}
			if err := k.look(t.Context(), dir, func(b *batch) {
				if tab == eventsTable {
					n += b.rows
				}
			}); err != nil {
				t.Errorf("%s: %v", k.path, err)
			}
		}
	}
	return n
}

// TestRepair closes what was cut. The trace itself stays as it was unless it is
// asked for; what is repaired is whole and is not repaired again.
func TestRepair(t *testing.T) {
	last := filepath.Join("00001", "events.arrow")
	cut := func(name string, by int64) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			path := filepath.Join(dir, name)
			fi, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(path, max(fi.Size()-by, 0)); err != nil {
				t.Fatal(err)
			}
		}
	}
	const whole = 2000 + 11
	for _, row := range []struct {
		name   string
		damage func(t *testing.T, dir string)
		rows   int
		words  string
	}{
		{"killed", func(*testing.T, string) {}, whole, "the recorder died before it closed the trace; tables without their end: 7, bytes behind their last whole batches: 0"},
		{"cut in the last batch", cut(last, 1), whole - 200, "tables without their end: 7"},
		{"cut to nothing", cut(last, 1<<40), 1000, "tables without their end: 7"},
		{"cut in the head", func(t *testing.T, dir string) {
			if err := os.Truncate(filepath.Join(dir, last), 20); err != nil {
				t.Fatal(err)
			}
		}, 1000, "last whole batches: 20"},
		{"cut in a footer of the first part", cut(filepath.Join("00000", "events.arrow"), 3), whole, "tables without their end: 8"},
		{"a table that was not made yet", func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, last)); err != nil {
				t.Fatal(err)
			}
		}, 1000, "00001/events.arrow was not there"},
		{"a flipped byte", func(t *testing.T, dir string) {
			path := filepath.Join(dir, "00000", "events.arrow")
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			b[len(b)/2] ^= 1
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}, -1, "00000/events.arrow was corrupt from byte"},
	} {
		for _, in := range []string{"beside", "in place"} {
			t.Run(row.name+"/"+in, func(t *testing.T) {
				dir := killed(t)
				row.damage(t, dir)
				before, out, at := contents(t, dir), filepath.Join(t.TempDir(), "r.gpurec"), dir
				if in == "in place" {
					out = ""
				} else {
					at = out
				}
				r, err := Repair(t.Context(), dir, out)
				if err != nil {
					t.Fatal(err)
				}
				if !r.Needed() || !strings.Contains(r.String(), row.words) {
					t.Errorf("it says %q, want %q", r, row.words)
				}
				if after := contents(t, dir); out != "" && fmt.Sprint(after) != fmt.Sprint(before) {
					t.Error("the trace itself has changed")
				}
				if n := rowsClosed(t, at); n != row.rows && row.rows >= 0 || n == 0 {
					t.Errorf("%d rows, want %d", n, row.rows)
				}
				m := open(t, at).Meta()
				if m.Ending != EndRepaired || m.Reason != r.String() || m.Parts != 2 || m.Stats.Events != uint64(r.Events) || m.End == 0 || m.TraceID == "" {
					t.Errorf("trace.json says %+v", m)
				}
				again, err := Repair(t.Context(), at, filepath.Join(t.TempDir(), "again.gpurec"))
				if err != nil || again.Needed() {
					t.Errorf("repaired again: %v, %v", again, err)
				}
			})
		}
	}
}

// A recorder that is killed as it begins a part leaves some of a checkpoint, or
// some of the tables: the checkpoint is not kept, whatever is not there is an end.
func TestRepairBegun(t *testing.T) {
	dir := killedWith(t, 500) // in batches of 200
	path := filepath.Join("00001", eventsTable.file())
	k := &repairTable{path: path, table: eventsTable}
	k.look(t.Context(), dir, func(*batch) {})
	if len(k.blocks) < 4 {
		t.Fatalf("%d batches", len(k.blocks))
	}
	if err := os.Truncate(filepath.Join(dir, path), k.blocks[2].offset+10); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "r.gpurec")
	r, err := Repair(t.Context(), dir, out)
	if err != nil {
		t.Fatal(err)
	}
	if n := rowsClosed(t, out); n != 1000 || !strings.Contains(r.String(), "part 1 had just begun, its checkpoint is not whole and is left out") {
		t.Errorf("%d rows; it says %q", n, r)
	}
	for i := len(tableOrder) - 1; i >= 0; i-- { // as they are made, the last is not there first
		if err := os.Remove(filepath.Join(dir, "00001", tableOrder[i].file())); err != nil {
			t.Fatal(err)
		}
		p := open(t, dir).Parts()[1]
		_, _, err1 := readEvents(p)
		if err2 := p.LoadDefs(NewDefs()); !errors.Is(err1, ErrTruncated) || !errors.Is(err2, ErrTruncated) {
			t.Errorf("without %s: %v, %v", tableOrder[i].file(), err1, err2)
		}
	}
}

// TestRepairRefuses: nothing is left of a repair that could not be done.
func TestRepairRefuses(t *testing.T) {
	dir := killed(t)
	out := filepath.Join(t.TempDir(), "r.gpurec")
	if _, err := Repair(t.Context(), filepath.Join(dir, "00001"), out); err == nil || !strings.Contains(err.Error(), "name the trace") {
		t.Errorf("a part alone: %v", err)
	}
	if _, err := Repair(t.Context(), dir, dir); err == nil {
		t.Error("the trace is its own output")
	}
	if err := os.WriteFile(filepath.Join(dir, "00000", "names.arrow"), []byte("no table at all, and long enough"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Repair(t.Context(), dir, out); err == nil || !strings.Contains(err.Error(), "names.arrow") {
		t.Errorf("a table that is none: %v", err)
	}
	if _, err := os.Lstat(out); err == nil {
		t.Error("an output is left")
	}
}

// A repair in place that is killed, or finds the disk full, leaves a trace that
// says that rows went: of one that was closed nothing else would.
func TestRepairHereStopped(t *testing.T) {
	dir := killed(t)
	if _, err := Repair(t.Context(), dir, ""); err != nil {
		t.Fatal(err)
	}
	meta := filepath.Join(dir, MetaFile)
	b, err := os.ReadFile(meta)
	if err != nil {
		t.Fatal(err)
	}
	// As a closed trace of which files were cut.
	if err := os.WriteFile(meta, []byte(strings.Replace(string(b), `"repaired"`, `"closed"`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"00000", "00001"} {
		if err := os.Truncate(filepath.Join(dir, part, eventsTable.file()), 4000); err != nil {
			t.Fatal(err)
		}
	}
	tr := open(t, dir)
	m := tr.Meta()
	r := &Repaired{}
	tables, err := r.look(t.Context(), tr, &m)
	if err != nil {
		t.Fatal(err)
	}
	m.Ending, m.Reason = EndRepaired, r.String()
	if err := os.RemoveAll(filepath.Join(dir, "00001")); err != nil { // the one of which nothing can be closed
		t.Fatal(err)
	}
	if err := repairHere(tr, tables, &m); err == nil {
		t.Fatal("tables were closed that are not there")
	}
	if m := open(t, dir).Meta(); m.Ending != EndRepaired || !strings.Contains(m.Reason, "tables without their end: 2") {
		t.Errorf("trace.json says %q, %q", m.Ending, m.Reason)
	}
}

// In place nothing is written that is not the trace's.
func TestRepairLinks(t *testing.T) {
	for _, content := range []string{"", "ARROW1"} {
		dir, other := killed(t), filepath.Join(t.TempDir(), "other")
		path := filepath.Join(dir, "00001", "names.arrow")
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if content != "" {
			if err := os.WriteFile(other, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink(other, path); err != nil {
			t.Skip(err)
		}
		before := contents(t, filepath.Join(dir, "00000"))
		if _, err := Repair(t.Context(), dir, ""); err == nil || !strings.Contains(err.Error(), "no regular file") {
			t.Errorf("%q: %v", content, err)
		}
		if b, _ := os.ReadFile(other); string(b) != content {
			t.Errorf("%q became %q", content, b)
		}
		if after := contents(t, filepath.Join(dir, "00000")); fmt.Sprint(after) != fmt.Sprint(before) || open(t, dir).Meta().Ending != EndGrowing {
			t.Errorf("%q: the trace was changed", content)
		}
	}
}

// An interrupt leaves no half of a copy, and the trace as it was.
func TestRepairInterrupted(t *testing.T) {
	dir, out := killed(t), filepath.Join(t.TempDir(), "out.gpurec")
	before := contents(t, dir)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	for _, to := range []string{out, ""} {
		if _, err := Repair(ctx, dir, to); !errors.Is(err, context.Canceled) {
			t.Errorf("to %q: %v", to, err)
		}
	}
	if _, err := os.Lstat(out); err == nil {
		t.Error("there is half of a copy")
	}
	if after := contents(t, dir); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Error("the trace was changed")
	}
}
