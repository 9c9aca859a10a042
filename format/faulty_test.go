package format

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// A faultyDisk counts its operations, and from one on, or only that one, they
// fail.
type faultyDisk struct {
	osDisk
	n, at  int   // operations so far, and the first that fails
	once   bool  // it alone
	half   bool  // a write that fails has written half
	err    error // nil: writes are short and say nothing, all else works
	what   string
	faults int
}

type faultyFile struct {
	File
	d *faultyDisk
}

// fault reports whether an operation fails.
func (d *faultyDisk) fault(what string) bool {
	d.n++
	if d.n < d.at || d.once && d.n > d.at {
		return false
	}
	if d.faults++; d.faults == 1 {
		d.what = what
	}
	return true
}

func (d *faultyDisk) do(what, path string, f func() error) error {
	if d.fault(what) && d.err != nil {
		return &os.PathError{Op: what, Path: path, Err: d.err}
	}
	return f()
}

func (d *faultyDisk) Mkdir(path string) error {
	return d.do("mkdir", path, func() error { return d.osDisk.Mkdir(path) })
}

func (d *faultyDisk) Create(path string) (f File, err error) {
	err = d.do("create", path, func() error { f, err = d.osDisk.Create(path); return err })
	return faultyFile{f, d}, err
}

func (d *faultyDisk) Rename(from, to string) error {
	return d.do("rename", from, func() error { return d.osDisk.Rename(from, to) })
}

func (d *faultyDisk) Remove(path string) error {
	return d.do("remove", path, func() error { return d.osDisk.Remove(path) })
}

func (d *faultyDisk) Overwrite(path string, content []byte) error {
	return d.do("overwrite", path, func() error { return d.osDisk.Overwrite(path, content) })
}

func (f faultyFile) Write(b []byte) (int, error) {
	if !f.d.fault("write") {
		return f.File.Write(b)
	}
	n := 0
	if f.d.half {
		n, _ = f.File.Write(b[:len(b)/2])
	}
	return n, f.d.err
}

func (f faultyFile) Truncate(size int64) error {
	return f.d.do("truncate", "file", func() error { return f.File.Truncate(size) })
}

func (f faultyFile) Sync() error { return f.d.do("sync", "file", f.File.Sync) }

func (f faultyFile) Close() error {
	err := f.File.Close() // as close(2): the descriptor is gone in any case
	return f.d.do("close", "file", func() error { return err })
}

// TestEveryOperationFails lets each operation of a recording on its disk fail,
// alone or with all that come after it. Whatever was flushed before is in the
// trace, in order and without a half batch; why the recording ended is in
// trace.json, or where even that cannot be written in the error, which is the
// answer to every later call; and a trace that cannot be begun leaves nothing.
func TestEveryOperationFails(t *testing.T) {
	const rows, flushed, parts = 5, 1, 2
	step := 1
	if raceDetector { // ten times slower, and nothing here runs beside anything
		step = 7
	}
	want := randomEvents(rows*parts, 4)
	for _, c := range []struct {
		name   string
		err    error
		half   bool
		retain int64
	}{
		{"input/output error", syscall.EIO, false, 0},
		{"no space left on device", syscall.ENOSPC, true, 0},
		{"read-only file system", syscall.EROFS, false, 0},
		{"no such file or directory", syscall.ENOENT, false, 0}, // the directory was removed
		{"short write", nil, true, 0},
		{"no space left on device", syscall.ENOSPC, true, 1 << 20},
		{"input/output error", syscall.EIO, true, 100 << 10},
	} {
		for _, once := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/retain=%d/once=%v", c.name, c.retain, once), func(t *testing.T) {
				t.Parallel()
				base := memoryDir(t)
				whole, seen := false, map[string]bool{}
				for at := 1; !whole; at += step {
					dir := filepath.Join(base, fmt.Sprint(at))
					disk := &faultyDisk{at: at, once: once, half: c.half, err: c.err}
					whole = faulty(t, dir, disk, want, rows, flushed, c.retain, c.name)
					seen[disk.what] = true
					os.RemoveAll(dir)
				}
				if step > 1 {
					return // which kinds are hit is then chance; make test takes every step too, without the race detector
				}
				for _, what := range []string{"mkdir", "create", "write", "rename", "remove", "sync", "close"} {
					if !seen[what] {
						t.Errorf("no %s has failed", what)
					}
				}
			})
		}
	}
}

// memoryDir is a directory of this test's in memory, where there is such a place:
// making thousands of files takes a while elsewhere.
func memoryDir(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "gpurec-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// faulty records onto a disk, and reports whether nothing failed.
func faulty(t *testing.T, dir string, disk *faultyDisk, want []Event, rows, flushed int, retain int64, name string) bool {
	t.Helper()
	here := func() string { return fmt.Sprintf("operation %d, %s", disk.at, disk.what) }
	w, err := Create(dir, Meta{Host: "h"}, WriterOptions{Disk: disk, Retain: Retention{Bytes: retain}})
	if err != nil {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", here(), err)
		}
		if left, _ := os.ReadDir(dir); disk.once && len(left) > 0 {
			t.Errorf("%s: create left %v", here(), left)
		}
		return false
	}
	putDefs(w.Defs())
	var first error
	safe := 0 // flushed without an error
	step := func(err error) {
		if first != nil && err != first {
			t.Errorf("%s: after %v came %v", here(), first, err)
		}
		if first == nil {
			first = err
		}
	}
	for i := range want {
		if i > 0 && i%rows == 0 {
			step(w.Rotate([]Event{{Kind: CheckpointEnd, Time: want[i].Time}}))
			if first == nil {
				safe = i
			}
		}
		step(w.Event(&want[i]))
		if i%flushed == flushed-1 {
			step(w.Flush())
			if first == nil {
				safe = i + 1
			}
		}
	}
	step(w.Close(nil))
	if first != nil && !strings.Contains(first.Error(), name) {
		t.Errorf("%s: %v", here(), first)
	}
	tr := open(t, dir)
	m := tr.Meta()
	switch {
	case first == nil && (m.Ending != EndClosed || safe != len(want)):
		t.Errorf("%s: closed without an error, and trace.json has %q", here(), m.Ending)
	case first != nil && m.Ending == EndClosed:
		t.Errorf("%s: %v, and trace.json says closed", here(), first)
	case first != nil && disk.once && (m.Ending != EndFailed || !strings.Contains(m.Reason, name)):
		t.Errorf("%s: trace.json says %q, %q", here(), m.Ending, m.Reason)
	}
	var got []Event
	for _, p := range tr.Parts() {
		events, _, err := readEvents(p)
		var cut *TruncatedError
		if err != nil && !errors.As(err, &cut) && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", here(), err)
		}
		if cut != nil && cut.Left > 0 && disk.once {
			t.Errorf("%s: half a batch was left: %v", here(), cut)
		}
		got = append(got, slices.DeleteFunc(events, func(e Event) bool { return e.Kind == CheckpointEnd && e.Seq == 0 && e.Address == 0 })...)
	}
	if retain > 0 && len(got) > 0 { // the newest
		from := slices.Index(want, got[0])
		if from < 0 || from%rows != 0 {
			t.Fatalf("%s: what is kept begins with %+v", here(), got[0])
		}
		safe, want = max(safe-from, 0), want[from:]
	}
	if len(got) < safe || len(got) > len(want) || !slices.Equal(got, want[:len(got)]) {
		t.Errorf("%s: %d events, %d were safe, and they are those that were written: %v", here(), len(got), safe, slices.Equal(got, want[:min(len(got), len(want))]))
	}
	return disk.faults == 0
}

// TestDiskIsFullRetaining: where the newest parts are kept, a full disk has the
// oldest go and the recording goes on, until the disk has no room for the part
// that is being written.
func TestDiskIsFullRetaining(t *testing.T) {
	for _, row := range []struct {
		name  string
		room  int64
		fails bool
	}{
		{"some parts fit", 700_000, false},
		{"one and what is on its way", 400_000, false},
		{"not even one", 100_000, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "t.gpurec")
			disk := &tightDisk{room: row.room, sizes: map[string]int64{}}
			w, err := Create(dir, Meta{Monotonic: 5}, WriterOptions{Disk: disk, BatchRows: 1000, Retain: Retention{Bytes: 1 << 30}})
			if err != nil {
				t.Fatal(err)
			}
			err = catch(func() { fillInto(w, 12, 8000) })
			cerr := w.Close(nil)
			tr := open(t, dir)
			m := tr.Meta()
			if row.fails {
				if !errors.Is(cerr, syscall.ENOSPC) || m.Ending != EndFailed || !strings.Contains(m.Reason, "no space") {
					t.Errorf("closed with %v, trace.json has %q, %q", cerr, m.Ending, m.Reason)
				}
				return
			}
			if err != nil || cerr != nil || m.Ending != EndClosed || !w.DiskFull() || w.Overfull() {
				t.Fatalf("%v, closed with %v, ending %q, disk full %v, overfull %v", err, cerr, m.Ending, w.DiskFull(), w.Overfull())
			}
			first := tr.Parts()[0].Index()
			if first == 0 || m.Since <= 5 || tr.Parts()[len(tr.Parts())-1].Index() != 11 {
				t.Errorf("parts from %d to %d, since %d", first, tr.Parts()[len(tr.Parts())-1].Index(), m.Since)
			}
			for _, p := range tr.Parts() {
				if events, _, err := readEvents(p); err != nil || len(events) < 8000 {
					t.Errorf("part %d: %d events, %v", p.Index(), len(events), err)
				}
			}
		})
	}
}

func catch(f func()) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err, _ = r.(error)
		}
	}()
	f()
	return nil
}

// fillInto is fill for a writer that may fail.
func fillInto(w *Writer, parts, events int) {
	now := w.meta.Monotonic
	for p := range parts {
		for i := range events {
			now += 1000
			if err := w.Event(&Event{Time: now, Kind: Alloc, API: APIMemAlloc, Layer: LayerDriver, Class: ClassDevice, Address: uint64(i) * 0x9E3779B97F4A7C15}); err != nil {
				panic(err)
			}
		}
		if p < parts-1 {
			if err := w.Rotate([]Event{{Kind: CheckpointEnd, Time: now}}); err != nil {
				panic(err)
			}
		}
	}
}

// A tightDisk has room for so many bytes at a time: what is removed makes room.
type tightDisk struct {
	osDisk
	room  int64
	sizes map[string]int64
}

type tightFile struct {
	File
	d    *tightDisk
	path string
}

func (d *tightDisk) used() (n int64) {
	for _, size := range d.sizes {
		n += size
	}
	return n
}

func (d *tightDisk) Create(path string) (File, error) {
	f, err := d.osDisk.Create(path)
	return tightFile{f, d, path}, err
}

func (d *tightDisk) Rename(from, to string) error {
	err := d.osDisk.Rename(from, to)
	if err == nil {
		moved := map[string]int64{}
		for path, size := range d.sizes {
			if path == from || strings.HasPrefix(path, from+"/") {
				path = to + strings.TrimPrefix(path, from)
			} else if path == to {
				continue
			}
			moved[path] = size
		}
		d.sizes = moved
	}
	return err
}

func (d *tightDisk) Remove(path string) error {
	delete(d.sizes, path)
	return d.osDisk.Remove(path)
}

func (f tightFile) Write(b []byte) (int, error) {
	n := min(int64(len(b)), max(f.d.room-f.d.used(), 0))
	f.d.sizes[f.path] += n
	m, err := f.File.Write(b[:n])
	if err == nil && m < len(b) {
		err = syscall.ENOSPC
	}
	return m, err
}

func (f tightFile) Truncate(size int64) error {
	f.d.sizes[f.path] = size
	return f.File.Truncate(size)
}
