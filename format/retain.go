package format

import (
	"errors"
	"io/fs"
	"path/filepath"
	"syscall"
	"time"
)

// A Retention says how much of a trace stays: the newest parts. The zero value
// keeps everything.
type Retention struct {
	Bytes int64         // of the directory, in whole blocks as du(1) counts them, at any moment; 0: any
	Time  time.Duration // parts that ended longer ago go when the next one begins; 0: never
}

// diskBlock is what file systems give a file at a time.
const diskBlock = 4096

func blocks(n int64) int64 { return (n + diskBlock - 1) / diskBlock * diskBlock }

// A keeper is the Disk of a Writer that keeps the newest parts only. It counts
// what is in the trace's directory, and makes room before a file grows:
//
//  1. the oldest part's directory gets a name that no part has: from then on no
//     reader finds it, and one that has its files open reads on;
//  2. its files are removed.
//
// The part being written and the one before it always stay. A bound that is too
// tight for those two is exceeded: a trace that ends just after a rotation would
// have nothing to say otherwise.
//
// A disk that is full sooner than the bound is reached has the oldest parts go
// too, and then the part before as well: what failed is tried again.
type keeper struct {
	Disk
	dir   string
	most  Retention
	files map[string]int64 // bytes by path
	total int64            // blocks of files and directories
	parts []keptPart       // oldest first; the last is being written
	over  bool             // the bound was exceeded
	full  bool             // the disk was, and parts went for it
}

type keptPart struct {
	dir   string
	since Time // of its checkpoint
}

func newKeeper(disk Disk, dir string, most Retention) *keeper {
	return &keeper{Disk: disk, dir: dir, most: most, files: map[string]int64{}}
}

// set notes how long a file is, or that it is not there: -1.
func (k *keeper) set(path string, size int64) {
	if old, ok := k.files[path]; ok {
		k.total -= blocks(old)
	}
	if size < 0 {
		delete(k.files, path)
		return
	}
	k.files[path] = size
	k.total += blocks(size)
}

// room lets the oldest parts go until path can have so many bytes.
func (k *keeper) room(path string, size int64) {
	if k.most.Bytes <= 0 {
		return
	}
	more := blocks(size) - blocks(k.files[path])
	for k.total+more > k.most.Bytes && k.drop(2) {
	}
	k.over = k.over || k.total+more > k.most.Bytes
}

// expire lets the parts go that ended before the retained time, when a part
// begins: a part ends where the next begins.
func (k *keeper) expire(now Time) {
	if k.most.Time <= 0 {
		return
	}
	for len(k.parts) > 1 && k.parts[1].since <= now-Time(k.most.Time) && k.drop(2) {
	}
}

// retry calls f again as long as it says that the disk is full and a part can go.
func (k *keeper) retry(f func() error) error {
	for {
		err := f()
		if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) || !k.drop(1) {
			return err
		}
		k.full = true
	}
}

// drop removes the oldest part where more than so many are there, and reports
// whether that could be done.
func (k *keeper) drop(least int) bool {
	if len(k.parts) <= least {
		return false
	}
	dir := k.parts[0].dir
	gone := dir + ".deleted"
	if err := k.Disk.Rename(dir, gone); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	k.parts = k.parts[1:]
	for _, t := range tableOrder {
		for _, name := range []string{t.file(), t.file() + besideSuffix} {
			if path := filepath.Join(dir, name); k.has(path) {
				k.Disk.Remove(filepath.Join(gone, name))
				k.set(path, -1)
			}
		}
	}
	k.Disk.Remove(gone)
	k.total -= diskBlock
	return true
}

func (k *keeper) has(path string) bool {
	_, ok := k.files[path]
	return ok
}

// began says when the part being written begins.
func (k *keeper) began(at Time) { k.parts[len(k.parts)-1].since = at }

// since is when the oldest part begins that is there, 0 for the first of all.
func (k *keeper) since() Time {
	if len(k.parts) == 0 {
		return 0
	}
	return k.parts[0].since
}

func (k *keeper) Mkdir(path string) error {
	if err := k.retry(func() error { return k.Disk.Mkdir(path) }); err != nil {
		return err
	}
	k.total += diskBlock
	if filepath.Dir(path) == filepath.Clean(k.dir) {
		k.parts = append(k.parts, keptPart{dir: path})
	}
	return nil
}

func (k *keeper) Create(path string) (File, error) {
	var f File
	err := k.retry(func() (err error) {
		f, err = k.Disk.Create(path)
		return err
	})
	if err != nil {
		return nil, err
	}
	k.set(path, 0)
	return &keptFile{f, k, path}, nil
}

func (k *keeper) Rename(from, to string) error {
	if err := k.retry(func() error { return k.Disk.Rename(from, to) }); err != nil {
		return err
	}
	size := k.files[from]
	k.set(from, -1)
	k.set(to, size)
	return nil
}

func (k *keeper) Remove(path string) error {
	if err := k.Disk.Remove(path); err != nil {
		return err
	}
	k.set(path, -1)
	return nil
}

func (k *keeper) Overwrite(path string, content []byte) error {
	k.room(path, int64(len(content)))
	if err := k.retry(func() error { return k.Disk.Overwrite(path, content) }); err != nil {
		return err
	}
	k.set(path, int64(len(content)))
	return nil
}

// A keptFile has room made for what it writes.
type keptFile struct {
	File
	k    *keeper
	path string
}

func (f *keptFile) Write(b []byte) (n int, err error) {
	size := f.k.files[f.path]
	f.k.room(f.path, size+int64(len(b)))
	err = f.k.retry(func() error {
		m, err := f.File.Write(b[n:])
		n += m
		f.k.set(f.path, size+int64(n))
		return err
	})
	return n, err
}

func (f *keptFile) Truncate(size int64) error {
	err := f.File.Truncate(size)
	if err == nil {
		f.k.set(f.path, size)
	}
	return err
}

// retained says in trace.json since when the trace is there, once parts have
// gone. That this write failed is no loss: the first part says so itself.
func (w *Writer) retained() {
	if w.keep != nil && w.keep.since() != w.meta.Since {
		w.meta.Since = w.keep.since()
		w.writeMeta()
	}
}

// Overfull reports whether the two newest parts were more than the bytes that
// the trace may have. Recording went on.
func (w *Writer) Overfull() bool { return w.keep != nil && w.keep.over }

// DiskFull reports whether parts that the bound allows went because the disk was
// full. Recording went on.
func (w *Writer) DiskFull() bool { return w.keep != nil && w.keep.full }
