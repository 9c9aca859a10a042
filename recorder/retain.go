package recorder

import (
	"fmt"

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

// retain sets what a bound leaves open, and returns how many pages may be queued.
func (o *Options) retain() (pages int) {
	r := o.Writer.Retain
	if r.Time > 0 && o.RotateEvery <= 0 {
		o.RotateEvery = r.Time / partsOfTime
	}
	if r.Bytes <= 0 {
		return queuedPages
	}
	if o.RotateSize <= 0 {
		o.RotateSize = r.Bytes / partsOfSize
	}
	rows := int(min(max(r.Bytes/onItsWay/bulkyRow, pageRows), format.MaxBatchRows))
	if o.Writer.BatchRows <= 0 || o.Writer.BatchRows > rows {
		o.Writer.BatchRows = rows
	}
	return min(max(int(r.Bytes/onItsWay/bulkyRow/pageRows), 1), queuedPages)
}

// tooTight says once that the bound on bytes is exceeded. The recording goes on:
// less than the two newest parts would answer nothing.
func (w *write) tooTight() {
	if text := w.overfull(); text != "" && !w.told {
		w.told = true
		w.s.say(text)
	}
}

// overfull is why the trace takes more than it may, "" if it does not.
func (w *write) overfull() string {
	if !w.w.Overfull() {
		return ""
	}
	return fmt.Sprintf("what is live does not fit %s twice: the trace takes more than it was to retain", format.Bytes(w.s.opt.Writer.Retain.Bytes))
}
