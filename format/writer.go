package format

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// MetaFile is the file of a trace directory that says what it is.
const MetaFile = "trace.json"

// besideSuffix is of a file that is written beside another, to take its place.
const besideSuffix = ".new"

// A Disk is where a Writer writes: the file system, or a test's that is full.
type Disk interface {
	Mkdir(path string) error                     // of mode 0700; fails where path exists
	Create(path string) (File, error)            // fails where path exists
	Rename(from, to string) error                // replaces to, where that is a file
	Remove(path string) error                    // a file, or an empty directory
	Overwrite(path string, content []byte) error // in place: needs no new block where it is no longer
}

// A File is one file of a Disk.
type File interface {
	io.WriteCloser
	Truncate(size int64) error // and go on writing there
	Sync() error
}

// WriterOptions are how a Writer writes. The zero value is the usual way.
type WriterOptions struct {
	BatchRows  int           // rows of a batch, at most and by default MaxBatchRows
	FlushEvery time.Duration // after which an Event or Sample flushes; 0: only Flush does
	Disk       Disk          // nil: the file system
	Retain     Retention     // which parts stay; the zero value: all
	Redact     bool          // leave out command lines, the host's name, and where paths begin: see redactor
}

// A Writer writes a trace directory. It is for one goroutine, its Defs too.
//
// Rows gather in memory until Flush, until a batch is full, or until
// FlushEvery is over; each flush adds one batch to every table that has rows,
// definitions first, so that no reader finds an event before what it refers
// to. A part that closes with many small batches is rewritten in full ones.
//
// A write that fails ends the recording: the file is cut back to its last
// whole batch, trace.json says EndFailed and why, and every later call returns
// that same error.
type Writer struct {
	dir   string
	meta  Meta
	opt   WriterOptions
	disk  Disk
	count *countedDisk
	keep  *keeper // the disk too, where not every part stays; else nil
	enc   *encoder
	defs  *Defs
	part  *partWriter
	index int
	last  time.Time // of the last flush, where FlushEvery is set
	err   error

	flushes int
}

// Create makes the directory dir (mode 0700, it must not exist) with its first
// part. A missing trace id is made; Version is set.
func Create(dir string, meta Meta, opt WriterOptions) (*Writer, error) {
	if meta.TraceID == "" {
		var id [16]byte
		rand.Read(id[:])
		meta.TraceID = hex.EncodeToString(id[:])
	}
	return create(dir, meta, opt, 0)
}

func create(dir string, meta Meta, opt WriterOptions, index int) (*Writer, error) {
	if opt.BatchRows <= 0 || opt.BatchRows > MaxBatchRows {
		opt.BatchRows = MaxBatchRows
	}
	if opt.Disk == nil {
		opt.Disk = osDisk{}
	}
	enc, err := newEncoder()
	if err != nil {
		return nil, fmt.Errorf("make a compressor: %w", err)
	}
	meta.Version, meta.Since = Version, 0
	if meta.APIs, err = theirs(meta.APIs); err != nil {
		enc.Close()
		return nil, fmt.Errorf("create a trace: %w", err)
	}
	count := &countedDisk{Disk: opt.Disk}
	w := &Writer{dir: dir, meta: meta, opt: opt, disk: count, count: count, enc: enc, defs: NewDefs(), index: index}
	w.defs.track = true
	if opt.Redact {
		w.defs.hide = newRedactor(meta.Host)
	}
	if opt.Retain != (Retention{}) {
		w.keep = newKeeper(count, dir, opt.Retain)
		w.disk = w.keep
	}
	if opt.FlushEvery > 0 {
		w.last = time.Now()
	}
	if err := w.disk.Mkdir(dir); err != nil {
		enc.Close()
		return nil, fmt.Errorf("create a trace: %w", err)
	}
	err = w.writeMeta()
	if err == nil {
		w.part, err = w.openPart()
	}
	if err != nil {
		w.unmake()
		return nil, fmt.Errorf("create a trace: %w", err)
	}
	return w, nil
}

// unmake removes what create made before it failed.
func (w *Writer) unmake() {
	part := filepath.Join(w.dir, partName(w.index))
	for _, t := range tableOrder {
		w.disk.Remove(filepath.Join(part, t.file()))
	}
	w.disk.Remove(part)
	w.disk.Remove(filepath.Join(w.dir, MetaFile+besideSuffix))
	w.disk.Remove(filepath.Join(w.dir, MetaFile))
	w.disk.Remove(w.dir)
	w.enc.Close()
}

// Defs takes the definitions: put one before the first event or sample that
// refers to it. Each part restates by itself what it refers to.
func (w *Writer) Defs() *Defs { return w.defs }

// Meta is what trace.json says now.
func (w *Writer) Meta() Meta { return w.meta }

// Dir is the trace's directory.
func (w *Writer) Dir() string { return w.dir }

// Event adds a copy of e.
func (w *Writer) Event(e *Event) error {
	if w.err != nil {
		return w.err
	}
	p := w.part
	p.refer(e)
	p.events = append(p.events, *e)
	if p.left--; p.left > 0 && w.opt.FlushEvery == 0 {
		return w.err
	}
	return w.tidy()
}

// Events adds copies of all of es, as Event does of each, and costs less: they
// need not gather before they become columns.
func (w *Writer) Events(es []Event) error {
	for len(es) > 0 && w.err == nil {
		p := w.part
		p.transpose()
		b := p.batch(eventsTable)
		n := min(len(es), w.opt.BatchRows-b.rows)
		for i := range es[:n] {
			p.refer(&es[i])
		}
		addRows(b, es[:n])
		p.look()
		es = es[n:]
		if err := w.tidy(); err != nil {
			return err
		}
	}
	return w.err
}

// Sample adds a copy of s.
func (w *Writer) Sample(s *Sample) error {
	if w.err != nil {
		return w.err
	}
	p := w.part
	p.drain()
	p.needProcess(s.Process)
	p.needDevice(s.Device)
	addRows(p.batch(samplesTable), []Sample{*s})
	return w.tidy()
}

// tidy flushes when that is due.
func (w *Writer) tidy() error {
	if w.err != nil {
		return w.err
	}
	if w.part.full() || w.opt.FlushEvery > 0 && time.Since(w.last) >= w.opt.FlushEvery {
		return w.Flush()
	}
	return nil
}

// Flush writes what has gathered: after it, a reader sees all of it.
func (w *Writer) Flush() error {
	if w.err != nil {
		return w.err
	}
	if w.opt.FlushEvery > 0 {
		w.last = time.Now()
	}
	if err := w.part.flush(); err != nil {
		return w.fail(err)
	}
	w.flushes++
	w.retained()
	return nil
}

// Written is how many bytes have gone to the disk, those included that were
// rewritten or removed again.
func (w *Writer) Written() int64 { return w.count.n }

// Flushes is how often everything that had gathered has gone to the disk.
func (w *Writer) Flushes() int { return w.flushes }

// Rotate closes the part and opens the next, which begins with the rows of a
// checkpoint, its CheckpointEnd included.
func (w *Writer) Rotate(checkpoint []Event) error {
	if w.err != nil {
		return w.err
	}
	return w.rotateTo(w.index+1, checkpoint)
}

func (w *Writer) rotateTo(index int, checkpoint []Event) error {
	if err := w.part.close(); err != nil {
		return w.fail(err)
	}
	w.index = index
	next, err := w.openPart()
	if err != nil {
		return w.fail(err)
	}
	w.part = next
	if n := len(checkpoint); w.keep != nil && n > 0 {
		w.keep.began(checkpoint[n-1].Time)
		w.keep.expire(checkpoint[n-1].Time)
	}
	if err := w.Events(checkpoint); err != nil {
		return err
	}
	return w.Flush()
}

// PartBytes is what the current part has on disk; PartIndex is its number.
func (w *Writer) PartBytes() int64 { return w.part.bytes() }
func (w *Writer) PartIndex() int   { return w.index }

// Update changes trace.json.
func (w *Writer) Update(f func(*Meta)) error {
	if w.err != nil {
		return w.err
	}
	f(&w.meta)
	if err := w.writeMeta(); err != nil {
		return w.fail(err)
	}
	return nil
}

// Close closes the part and the trace: Ending is EndClosed unless f, which may
// be nil, says otherwise. After a failure f is called too, but the ending
// stays EndFailed, and Close returns what failed.
func (w *Writer) Close(f func(*Meta)) error {
	if errors.Is(w.err, os.ErrClosed) {
		return w.err
	}
	if w.err == nil {
		if err := w.part.close(); err != nil {
			w.fail(err)
		}
	}
	failed := w.err
	ending, reason := EndClosed, w.meta.Reason
	if failed != nil {
		ending = EndFailed
	}
	w.meta.Ending = ending
	if w.keep != nil {
		w.meta.Since = w.keep.since()
	}
	if f != nil {
		f(&w.meta)
	}
	w.meta.Parts = max(w.meta.Parts, w.index+1)
	if failed != nil {
		w.meta.Ending, w.meta.Reason = ending, reason
	}
	err := w.writeMeta()
	w.enc.Close()
	if failed != nil {
		return failed
	}
	if err != nil {
		return w.fail(err)
	}
	w.err = fmt.Errorf("write %s: %w", w.dir, os.ErrClosed)
	return nil
}

// fail ends the recording. What is on disk is closed as far as the disk lets.
func (w *Writer) fail(err error) error {
	if w.err != nil {
		return w.err
	}
	err = fmt.Errorf("the recording ended: %w", err)
	w.err = err
	if w.part != nil {
		w.part.abandon()
	}
	w.meta.Ending, w.meta.Reason = EndFailed, err.Error()
	w.writeMeta() // the disk may be what failed: the error returned says all
	return err
}

// writeMeta writes trace.json beside itself and renames it. On a full disk the
// blocks it already has must do.
func (w *Writer) writeMeta() error {
	m := w.meta
	if w.opt.Redact {
		m = w.defs.hide.meta(m)
	}
	b, err := json.MarshalIndent(&struct {
		*Meta
		APIs map[API]string `json:"apis"` // in place of Meta's
	}{&m, m.APIs.all()}, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", MetaFile, err)
	}
	b = append(b, '\n')
	path := filepath.Join(w.dir, MetaFile)
	beside := path + besideSuffix
	err = func() error {
		w.disk.Remove(beside) // of an earlier failure
		f, err := w.disk.Create(beside)
		if err != nil {
			return err
		}
		err = writeAll(f, b)
		// Renamed before its bytes are on disk it could be empty after a crash.
		err = errors.Join(err, f.Sync(), f.Close())
		if err == nil {
			err = w.disk.Rename(beside, path)
		}
		if err != nil {
			w.disk.Remove(beside)
		}
		return err
	}()
	if err != nil && w.disk.Overwrite(path, b) == nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// A countedDisk counts what is written to it.
type countedDisk struct {
	Disk
	n int64
}

type countedFile struct {
	File
	d *countedDisk
}

func (d *countedDisk) Create(path string) (File, error) {
	f, err := d.Disk.Create(path)
	if err != nil {
		return nil, err
	}
	return countedFile{f, d}, nil
}

func (f countedFile) Write(b []byte) (int, error) {
	n, err := f.File.Write(b)
	f.d.n += int64(n)
	return n, err
}

// osDisk is the file system.
type osDisk struct{}

func (osDisk) Mkdir(path string) error      { return os.Mkdir(path, 0o700) }
func (osDisk) Rename(from, to string) error { return os.Rename(from, to) }
func (osDisk) Remove(path string) error     { return os.Remove(path) }

func (osDisk) Create(path string) (File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (osDisk) Overwrite(path string, content []byte) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	// Spaces over what was longer, and only then shorter: at no moment is it
	// shorter than what it says.
	fi, err := f.Stat()
	if err == nil {
		size := int64(len(content))
		for int64(len(content)) < fi.Size() {
			content = append(content, ' ')
		}
		_, err = f.WriteAt(content, 0)
		if err == nil {
			err = f.Truncate(size)
		}
	}
	return errors.Join(err, f.Close())
}

type osFile struct{ *os.File }

func (f osFile) Truncate(size int64) error {
	if err := f.File.Truncate(size); err != nil {
		return err
	}
	_, err := f.Seek(size, io.SeekStart)
	return err
}
