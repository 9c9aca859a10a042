package recorder

import (
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/recorder/ring"
)

// What drain hands to fold, and who owns it on the way.

const (
	bufferSize = 1 << 20 // many times the longest record
	bufferTail = 1 << 17 // less room than that at a buffer's end is not used
)

// A buffer holds copied records of many lanes and rounds. Drain fills it, fold
// reads it, the last to let go returns it.
type buffer struct {
	bytes []byte
	used  int
	refs  atomic.Int32
}

// A chunk is a run of whole records of one lane.
type chunk struct {
	lane    *lane
	records []byte
	buffer  *buffer
	dropped uint64 // the lane's counter, read after the records
	defines bool   // there are definitions among them
}

// An ending is the end of a process, whose lanes have been emptied.
type ending struct {
	process    *process
	time       format.Time
	status     int32
	unfinished []unfinishedCall
}

type unfinishedCall struct {
	lane *lane
	call format.WireCallSlot
}

// A round is what one or more turns of the loop found. Whatever lies before
// until, in it or in earlier rounds, is complete and may be passed on.
type round struct {
	born    []*lane
	refused int // files of lanes that could not be taken in
	chunks  []chunk
	bytes   int // of chunks
	left    []leaving
	ended   []ending
	absent  []syscall.Errno // why processes could make no lane; in the last round
	until   format.Time
	last    bool
}

func (r *round) empty() bool {
	return len(r.born)+r.refused+len(r.chunks)+len(r.left)+len(r.ended) == 0
}

// A leaving is a lane that will bring nothing more.
type leaving struct {
	lane    *lane
	time    format.Time
	dropped uint64
	waited  uint64
	corrupt error // why it was closed, nil at its process's end
}

// A lane is one ring and what is known of it. Drain owns the first group, fold
// the second.
type lane struct {
	id      int32 // the lower goes first at equal times
	process *process
	epoch   atomic.Uint32 // raised by fold, told to the writer by drain

	ring       *ring.Consumer
	told       uint32      // epoch
	asked      format.Time // the thread's latest question
	bound      format.Time
	busySince  format.Time // 0: not busy, or it published meanwhile
	incomplete bool        // something published is still in the ring

	fold laneFold

	answered atomic.Int64 // the time of the question that fold answered last
	mapped   sync.Mutex   // held by fold while it answers into ring, by drain while it lets go of it
}
