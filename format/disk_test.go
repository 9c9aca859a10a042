package format

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// fullDisk is a file system with room for so many bytes; the write that meets
// the end is done in part, as write(2) does it.
type fullDisk struct {
	osDisk
	room    *int
	noMeta  bool // nor may trace.json be overwritten in place
	renames error
}

type fullFile struct {
	File
	disk *fullDisk
}

func (d *fullDisk) Create(path string) (File, error) {
	if *d.room <= 0 {
		return nil, &os.PathError{Op: "open", Path: path, Err: syscall.ENOSPC}
	}
	f, err := d.osDisk.Create(path)
	return fullFile{f, d}, err
}

func (d *fullDisk) Mkdir(path string) error {
	if *d.room <= 0 {
		return &os.PathError{Op: "mkdir", Path: path, Err: syscall.ENOSPC}
	}
	return d.osDisk.Mkdir(path)
}

func (d *fullDisk) Rename(from, to string) error {
	if d.renames != nil {
		return d.renames
	}
	return d.osDisk.Rename(from, to)
}

func (d *fullDisk) Overwrite(path string, content []byte) error {
	if d.noMeta {
		return syscall.EIO
	}
	return d.osDisk.Overwrite(path, content)
}

func (f fullFile) Write(b []byte) (int, error) {
	n := min(len(b), max(0, *f.disk.room))
	*f.disk.room -= n
	n, err := f.File.Write(b[:n])
	if err == nil && n < len(b) {
		err = syscall.ENOSPC
	}
	return n, err
}

// A disk that is full at any byte ends the recording: whole batches stay, the
// trace says why, and every later call says the same.
func TestDiskIsFull(t *testing.T) {
	want := randomEvents(400, 9)
	ended := 0
	room := 0
	for ; ; room += 2503 {
		left := room
		dir := filepath.Join(t.TempDir(), "t.gpurec")
		disk := &fullDisk{room: &left}
		w, err := Create(dir, Meta{Host: "h"}, WriterOptions{Disk: disk, BatchRows: 40})
		if err != nil {
			if !errors.Is(err, syscall.ENOSPC) {
				t.Fatalf("room for %d: create: %v", room, err)
			}
			continue
		}
		putDefs(w.Defs())
		done := 0
		var first error
		for i := range want {
			var err error
			if i == 200 {
				err = w.Rotate([]Event{{Kind: CheckpointEnd}})
			}
			if err == nil {
				err = w.Event(&want[i])
			}
			if first == nil && err == nil {
				done++
			}
			if first == nil {
				first = err
			} else if err != first {
				t.Fatalf("room for %d: after %v came %v", room, first, err)
			}
		}
		err = w.Close(func(m *Meta) { m.Ending, m.Reason, m.Stats.Events = EndClosed, "all is well", 7 })
		if first == nil {
			first = err
		}
		if err != first || first != nil && !errors.Is(first, syscall.ENOSPC) {
			t.Fatalf("room for %d: closed with %v after %v", room, err, first)
		}
		tr := open(t, dir)
		m := tr.Meta()
		var got []Event
		for _, p := range tr.Parts() {
			rows, batches, rerr := readEvents(p)
			if rerr != nil && !errors.Is(rerr, ErrTruncated) {
				t.Fatalf("room for %d: %v", room, rerr)
			}
			var cut *TruncatedError
			if errors.As(rerr, &cut) && cut.Left != 0 {
				t.Fatalf("room for %d: half a batch was left: %v", room, rerr)
			}
			if rows = slices.DeleteFunc(rows, func(e Event) bool { return e == Event{Kind: CheckpointEnd} }); len(rows)%40 != 0 && first != nil && p.Index() == 0 {
				t.Fatalf("room for %d: %d events in %d batches", room, len(rows), batches)
			}
			got = append(got, rows...)
		}
		if len(got) > len(want) || !slices.Equal(got, want[:len(got)]) {
			t.Fatalf("room for %d: %d events, and not those that were written", room, len(got))
		}
		if first == nil {
			if m.Ending != EndClosed || len(got) != len(want) || m.Reason != "all is well" {
				t.Fatalf("room for %d: %d events, ending %+v", room, len(got), m)
			}
			break
		}
		ended++
		if m.Ending != EndFailed || !strings.Contains(m.Reason, "no space left on device") || m.Stats.Events != 7 || m.Host != "h" {
			t.Fatalf("room for %d: the trace says %+v", room, m)
		}
		if len(got) < done-80 {
			t.Fatalf("room for %d: %d events taken, %d left: more than what gathers is gone", room, done, len(got))
		}
	}
	if ended < 10 {
		t.Errorf("the disk was full in only %d runs, up to %d bytes", ended, room)
	}
}

// trace.json that can be replaced in no way is an error of Update, not a panic,
// and the old one stays.
func TestMetaCannotBeWritten(t *testing.T) {
	for _, c := range []struct {
		name   string
		noMeta bool
		want   string
	}{
		{"renamed neither, but overwritten", false, ""},
		{"nor overwritten", true, "input/output error"},
	} {
		t.Run(c.name, func(t *testing.T) {
			room := 1 << 20
			disk := &fullDisk{room: &room}
			dir := filepath.Join(t.TempDir(), "t.gpurec")
			w, err := Create(dir, Meta{Reason: "long enough to be shorter afterwards"}, WriterOptions{Disk: disk})
			if err != nil {
				t.Fatal(err)
			}
			disk.renames, disk.noMeta = syscall.EIO, c.noMeta
			err = w.Update(func(m *Meta) { m.Host, m.Reason = "new", "" })
			match(t, "update", err, c.want)
			if got := open(t, dir).Meta().Host; (got == "new") != (c.want == "") {
				t.Errorf("host is %q", got)
			}
			match(t, "close", w.Close(nil), c.want)
			if c.want == "" {
				match(t, "close again", w.Close(nil), "file already closed")
			}
		})
	}
}

// A table that cannot be rewritten when its part closes stays as it was.
func TestRewriteFails(t *testing.T) {
	room := 1 << 30
	disk := &fullDisk{room: &room}
	dir := filepath.Join(t.TempDir(), "t.gpurec")
	w, err := Create(dir, Meta{}, WriterOptions{Disk: disk})
	if err != nil {
		t.Fatal(err)
	}
	want := randomEvents(60, 2)
	for i := range want {
		w.Event(&want[i])
		w.Flush()
	}
	disk.renames = syscall.EIO
	if err := w.Close(nil); err != nil {
		t.Fatal(err)
	}
	got, batches, err := readEvents(open(t, dir).Parts()[0])
	if err != nil || !slices.Equal(got, want) || batches != 60 {
		t.Errorf("%d events in %d batches, %v", len(got), batches, err)
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "*", "*.new")); len(files) > 0 {
		t.Errorf("left over: %v", files)
	}
}

// Long texts make batches close early, in writing and in rewriting.
func TestLongTexts(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "t.gpurec")
	w, err := Create(dir, Meta{}, WriterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("é", MaxText/2)
	for i := range 12 {
		w.Defs().PutName(NameID(i+1), fmt.Sprint(i, long))
		if i%2 == 0 {
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.Defs().PutName(100, "bad \xff\xfe bytes")
	if err := w.Close(nil); err != nil {
		t.Fatal(err)
	}
	d := NewDefs()
	if err := open(t, dir).Parts()[0].LoadDefs(d); err != nil {
		t.Fatal(err)
	}
	for i := range 12 {
		if s := d.Name(NameID(i + 1)); len(s) > MaxText || !strings.HasPrefix(s, fmt.Sprint(i, "éé")) || !strings.HasSuffix(s, "é…") {
			t.Errorf("name %d has %d bytes and ends with %q", i+1, len(s), s[max(0, len(s)-8):])
		}
	}
	if s := d.Name(100); s != "bad \uFFFD bytes" {
		t.Errorf("a name that is not UTF-8 became %q", s)
	}
}
