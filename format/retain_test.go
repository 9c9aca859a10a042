package format

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// onDisk is what a directory takes, as du counts it, and its parts.
func onDisk(t *testing.T, dir string) (bytes int64, parts []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			bytes += diskBlock
			if path != dir {
				parts = append(parts, d.Name())
			}
			return nil
		}
		fi, err := d.Info()
		if err == nil {
			bytes += blocks(fi.Size())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return bytes, parts
}

// watchedDisk looks at the directory after every step of the writer.
type watchedDisk struct {
	osDisk
	look func()
}

type watchedFile struct {
	File
	look func()
}

func (d *watchedDisk) Create(path string) (File, error) {
	f, err := d.osDisk.Create(path)
	d.look()
	return &watchedFile{f, d.look}, err
}

func (d *watchedDisk) Rename(from, to string) error {
	defer d.look()
	return d.osDisk.Rename(from, to)
}

func (f *watchedFile) Write(b []byte) (int, error) {
	defer f.look()
	return f.File.Write(b)
}

// fill writes events at 1 µs each in parts of so many, each with a checkpoint of
// so many rows.
func fill(t testing.TB, w *Writer, parts, events, live int) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	now := w.meta.Monotonic
	row := func(k Kind) Event {
		return Event{Time: now, Kind: k, API: APIMemAlloc, Layer: LayerDriver, Class: ClassDevice, Process: 1, Thread: 1, Address: r.Uint64(), Size: r.Int64N(1 << 40),
			Stack: StackID(1 + r.IntN(50)), Duration: -1, Requested: -1, Allocated: -1, Reserved: -1}
	}
	w.Defs().PutProcess(Process{ID: 1, PID: 1, Command: "x"})
	for i := range 50 {
		w.Defs().PutFrame(Frame{ID: FrameID(i + 1), Kind: FramePython, File: "a.py", Line: int32(i), Function: "f"})
		w.Defs().PutStack(Stack{ID: StackID(i + 1), Frame: FrameID(i + 1)})
	}
	for p := range parts {
		for range events {
			now += 1000
			e := row(Alloc)
			if err := w.Event(&e); err != nil {
				t.Fatal(err)
			}
		}
		if p == parts-1 {
			return
		}
		var rows []Event
		for range live {
			rows = append(rows, row(Live))
		}
		rows = append(rows, Event{Time: now, Kind: CheckpointEnd, Size: int64(live), Duration: -1, Requested: -1, Allocated: -1, Reserved: -1})
		if err := w.Rotate(rows); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRetainBytes: at no step is the directory larger than the bound, parts that
// are rewritten and their copies included, and what can stay stays.
func TestRetainBytes(t *testing.T) {
	for _, row := range []struct {
		name         string
		batch, live  int
		most         int64
		parts, least int // begun, and on disk at the end
	}{
		{"full batches", 0, 0, 512 << 10, 20, 3},
		{"small batches, which are rewritten", 500, 0, 640 << 10, 20, 3},
		{"with checkpoints", 0, 500, 512 << 10, 20, 3},
		{"a bound that is not reached", 0, 0, 1 << 30, 6, 6},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "t.gpurec")
			most := int64(0)
			disk := &watchedDisk{look: func() {
				n, _ := onDisk(t, dir)
				most = max(most, n)
			}}
			w, err := Create(dir, Meta{Monotonic: 5}, WriterOptions{BatchRows: row.batch, Disk: disk, Retain: Retention{Bytes: row.most}})
			if err != nil {
				t.Fatal(err)
			}
			fill(t, w, row.parts, 4000, row.live)
			now, _ := onDisk(t, dir)
			if now != w.keep.total {
				t.Errorf("%d bytes are on disk, and the keeper counts %d", now, w.keep.total)
			}
			if err := w.Close(nil); err != nil {
				t.Fatal(err)
			}
			if most > row.most || w.Overfull() {
				t.Errorf("%d bytes at most, of %d allowed; overfull %v", most, row.most, w.Overfull())
			}
			tr := open(t, dir)
			first, left := tr.Parts()[0].Index(), len(tr.Parts())
			_, parts := onDisk(t, dir)
			if left < row.least || left != len(parts) || first != row.parts-left || tr.Parts()[left-1].Index() != row.parts-1 {
				t.Errorf("the parts are %v of %d, want the last %d or more", parts, row.parts, row.least)
			}
			want := Time(0)
			if first > 0 {
				want = 5 + Time(first)*4000*1000
			}
			if got := tr.Meta().Since; got != want {
				t.Errorf("trace.json has it since %d, the first part %d begins at %d", got, first, want)
			}
			if gap, missing := tr.Missing(0); missing {
				t.Errorf("%v", gap)
			}
		})
	}
}

// TestRetainTime: what is younger than the bound stays whole, and not much more.
func TestRetainTime(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "t.gpurec")
	w, err := Create(dir, Meta{}, WriterOptions{Retain: Retention{Time: 10 * time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	fill(t, w, 20, 4000, 10) // 4 ms a part; the last begins at 76 ms
	if err := w.Close(nil); err != nil {
		t.Fatal(err)
	}
	if m := open(t, dir).Meta(); m.Since != 64e6 || m.Parts != 20 {
		t.Errorf("kept since %v of %d parts, want 64ms of 20", time.Duration(m.Since), m.Parts)
	}
}

// TestRetainTooLittle: the two newest parts stay, and it is known that they are
// too much.
func TestRetainTooLittle(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "t.gpurec")
	w, err := Create(dir, Meta{}, WriterOptions{Retain: Retention{Bytes: 100_000}})
	if err != nil {
		t.Fatal(err)
	}
	fill(t, w, 5, 8000, 0)
	if _, parts := onDisk(t, dir); !w.Overfull() || strings.Join(parts, " ") != "00003 00004" {
		t.Errorf("parts %v, overfull %v", parts, w.Overfull())
	}
	if err := w.Close(nil); err != nil {
		t.Fatal(err)
	}
}

// TestRetainWhileRead: a reader that has a part's events open reads them to the
// end, and the next part that it asks for is said to be gone.
func TestRetainWhileRead(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "t.gpurec")
	w, err := Create(dir, Meta{}, WriterOptions{BatchRows: 1000, Retain: Retention{Time: time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	fill(t, w, 2, 4000, 0)
	tr := open(t, dir)
	r, err := tr.Parts()[0].Events()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	fill(t, w, 4, 4000, 0)
	if _, parts := onDisk(t, dir); parts[0] == "00000" || parts[0] == "00001" {
		t.Fatalf("parts %v", parts)
	}
	rows := 0
	for {
		b, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		rows += len(b)
	}
	if rows != 4000 {
		t.Errorf("%d rows of the part that went, want 4000", rows)
	}
	if _, err := tr.Parts()[1].Events(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the next part: %v", err)
	}
	if err := w.Close(nil); err != nil {
		t.Fatal(err)
	}
}

// stuckDisk renames no directory.
type stuckDisk struct{ osDisk }

func (d stuckDisk) Rename(from, to string) error {
	if strings.HasSuffix(to, ".deleted") {
		return fmt.Errorf("rename %s: %w", from, os.ErrPermission)
	}
	return d.osDisk.Rename(from, to)
}

// TestRetainDisturbed: parts that somebody else removed, or that cannot be
// removed, do not end the recording.
func TestRetainDisturbed(t *testing.T) {
	for _, row := range []struct {
		name string
		disk Disk
		by   func(dir string) error
		want string
		over bool
	}{
		{"removed by hand", osDisk{}, func(dir string) error { return os.RemoveAll(filepath.Join(dir, "00000")) }, "00005 00006 00007", false},
		{"cannot be renamed", stuckDisk{}, func(string) error { return nil }, "00000 00001 00002 00003 00004 00005 00006 00007", true},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "t.gpurec")
			w, err := Create(dir, Meta{}, WriterOptions{Disk: row.disk, Retain: Retention{Bytes: 650_000}})
			if err != nil {
				t.Fatal(err)
			}
			fill(t, w, 2, 8000, 0)
			if err := row.by(dir); err != nil {
				t.Fatal(err)
			}
			if err := w.Rotate(nil); err != nil {
				t.Fatal(err)
			}
			fill(t, w, 6, 8000, 0)
			_, parts := onDisk(t, dir)
			if got := strings.Join(parts, " "); got != row.want || w.Overfull() != row.over {
				t.Errorf("parts %s, overfull %v", got, w.Overfull())
			}
			if n, _ := onDisk(t, dir); n != w.keep.total {
				t.Errorf("%d bytes are on disk, and the keeper counts %d", n, w.keep.total)
			}
			if err := w.Close(nil); err != nil {
				t.Fatal(err)
			}
		})
	}
}
