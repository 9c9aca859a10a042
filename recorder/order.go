package recorder

import (
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/recorder/ring"
)

// A laneFold is what fold knows of a lane.
type laneFold struct {
	tid    uint32
	name   string // of the thread, "" unknown
	row    format.Process
	first  bool           // it brought its process
	next   uint64         // seq of the next event
	lost   uint64         // events missing so far
	queue  []piece        // what has come and not been passed on
	head   int            // of queue
	gone   bool           // nothing more will come
	nest   nest           // the thread's open scopes
	thread format.StackID // "[thread NAME]", 0 not made yet
	lied   bool           // its seq contradicts its counter, and that was said
}

// A piece is a run of records of one lane, or one thing that fold itself put
// between them, at its time.
type piece struct {
	records []byte
	buffer  *buffer // of records
	dropped uint64  // the lane's counter when records were copied

	kind pieceKind
	time format.Time
	end  *ending
	read *format.Reading
}

type pieceKind uint8

const (
	pieceRecords pieceKind = iota
	pieceBegin             // its process begins
	pieceLeft              // its last words: what its counter has beyond the gaps
	pieceEnd               // its process ends
	pieceReading           // of a Source
)

// An order merges lanes by the time at their heads. At equal times the lane
// whose head gives memory back goes first, then the lower lane number: a free
// is stamped before its call and an alloc after it, so of two events on one
// address at one time the free was first. A lane is never reordered: a step
// back of a clock delays what stands behind it and loses nothing.
type order struct {
	heap []head
}

type head struct {
	time format.Time
	tie  uint64
	lane *lane
}

func (a *head) before(b *head) bool {
	if a.time != b.time {
		return a.time < b.time
	}
	return a.tie < b.tie
}

// add puts a piece at the end of a lane's queue.
func (o *order) add(l *lane, p piece) {
	q := &l.fold
	q.queue = append(q.queue, p)
	if len(q.queue)-q.head == 1 {
		o.push(headOf(l))
	}
}

// headOf is a lane's place in the order by its first piece, which it has.
func headOf(l *lane) head {
	p := &l.fold.queue[l.fold.head]
	h := head{time: p.time, tie: 1<<32 | uint64(uint32(l.id)), lane: l}
	if p.kind == pieceRecords {
		w := ring.Record(p.records).Head()
		h.time = format.Time(w.Time)
		if w.Kind.GivesBack() {
			h.tie = uint64(uint32(l.id))
		}
	}
	return h
}

// peek is the first lane, nil when all queues are empty.
func (o *order) peek() *head {
	if len(o.heap) == 0 {
		return nil
	}
	return &o.heap[0]
}

// others is the time of the first head of all lanes but the first, or limit if
// that is earlier.
func (o *order) others(limit format.Time) format.Time {
	for _, h := range o.heap[1:min(len(o.heap), 3)] {
		limit = min(limit, h.time)
	}
	return limit
}

// advance is called after the first lane's head was passed on and taken off its
// queue: the lane moves to where its next head belongs, or leaves.
func (o *order) advance() {
	l := o.heap[0].lane
	if l.fold.head < len(l.fold.queue) {
		o.heap[0] = headOf(l)
	} else {
		l.fold.queue, l.fold.head = l.fold.queue[:0], 0
		n := len(o.heap) - 1
		o.heap[0] = o.heap[n]
		o.heap[n] = head{}
		o.heap = o.heap[:n]
		if n == 0 {
			return
		}
	}
	o.down()
}

func (o *order) push(h head) {
	o.heap = append(o.heap, h)
	i := len(o.heap) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !o.heap[i].before(&o.heap[up]) {
			return
		}
		o.heap[i], o.heap[up] = o.heap[up], o.heap[i]
		i = up
	}
}

func (o *order) down() {
	i, n := 0, len(o.heap)
	for {
		c := 2*i + 1
		if c >= n {
			return
		}
		if c+1 < n && o.heap[c+1].before(&o.heap[c]) {
			c++
		}
		if !o.heap[c].before(&o.heap[i]) {
			return
		}
		o.heap[i], o.heap[c] = o.heap[c], o.heap[i]
		i = c
	}
}
