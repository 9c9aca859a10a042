package recorder

import (
	"fmt"
	"path/filepath"
	"syscall"

	"github.com/gpurec/gpurec/format"
)

// How parts divide what may be retained. While a part closes there are at least
// it, the one before, and a copy in full batches of its tables: three that must
// fit. So a part is an eighth, up to twice that with what is on its way to it when
// fold sees that it is full, and a quarter at most also where a checkpoint is
// large.
const (
	partsOfSize = 8
	partsOfTime = 4
	bulkyPart   = 4
	onItsWay    = 16 // of the bound, in pages and again in a batch
	bulkyRow    = 64 // bytes on disk; usual are 3 to 8
)

// queuedPages is how many pages fold may be ahead of write.
const queuedPages = 64

// leastRoom is what a few parts with next to nothing in them take.
const leastRoom = 512 << 10

// retain sets what a bound leaves open, and returns how many pages may be queued.
// The disk bounds a trace of the newest parts too: nine tenths of what is free at
// the start, or the parts would be too large for any to go when it is full. And
// where files may only have some size, a part is to end before a file has it, as
// if that were a quarter of a bound.
func (o *Options) retain() (pages int) {
	r := &o.Writer.Retain
	if r.Time > 0 && o.RotateEvery <= 0 {
		o.RotateEvery = r.Time / partsOfTime
	}
	if *r != (format.Retention{}) {
		if free := freeBytes(filepath.Dir(filepath.Clean(o.Output))); free >= 0 {
			if most := max(free/10*9, leastRoom); r.Bytes <= 0 || r.Bytes > most {
				if r.Bytes > 0 {
					o.tight = fmt.Sprintf("%s are free where the trace goes: it retains %s instead of %s", format.Bytes(free), format.Bytes(most), format.Bytes(r.Bytes))
				}
				r.Bytes = most
			}
		}
	}
	room := r.Bytes
	if most := largestFile(); most >= 0 && (room <= 0 || room > bulkyPart*most) {
		room = bulkyPart * max(most, leastRoom/bulkyPart)
	}
	if room <= 0 {
		return queuedPages
	}
	if o.RotateSize <= 0 || o.RotateSize > room/bulkyPart {
		o.RotateSize = room / partsOfSize
	}
	o.partMost = room / bulkyPart
	rows := int(min(max(room/onItsWay/bulkyRow, pageRows), format.MaxBatchRows))
	if o.Writer.BatchRows <= 0 || o.Writer.BatchRows > rows {
		o.Writer.BatchRows = rows
	}
	return int(min(max(room/onItsWay/bulkyRow/pageRows, 1), queuedPages))
}

// freeBytes is what this user may still write below dir, -1 where nobody says.
func freeBytes(dir string) int64 {
	var s syscall.Statfs_t
	if syscall.Statfs(dir, &s) != nil || s.Bsize <= 0 || s.Bavail > 1<<62/uint64(s.Bsize) {
		return format.Unknown
	}
	return int64(s.Bavail) * s.Bsize
}

// largestFile is how large this process may make a file, -1 for any size.
func largestFile() int64 {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_FSIZE, &l) != nil || l.Cur > 1<<40 {
		return format.Unknown
	}
	return int64(l.Cur)
}

// tooTight says once what the bound on bytes or the disk made of the trace. The
// recording goes on: less than the two newest parts would answer nothing.
func (w *write) tooTight() {
	for _, text := range w.tight() {
		if !w.told[text] {
			w.told[text] = true
			w.s.say(text)
		}
	}
}

// tight is why the trace takes more than it may, or holds less.
func (w *write) tight() (texts []string) {
	if w.s.opt.tight != "" {
		texts = append(texts, w.s.opt.tight)
	}
	if w.w.Overfull() {
		texts = append(texts, fmt.Sprintf("what is live does not fit %s twice: the trace takes more than it was to retain", format.Bytes(w.s.opt.Writer.Retain.Bytes)))
	}
	if w.w.DiskFull() {
		texts = append(texts, "the disk is full: the trace's oldest parts went before their time")
	}
	return texts
}
