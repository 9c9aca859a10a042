package torch

import (
	"bufio"
	"encoding/binary"
)

// Words of pickle, protocol 4, that Python's reader and MemoryViz.js's know.
const (
	opProto     = "\x80\x04"
	opStop      = '.'
	opMark      = '('
	opDict      = '}'
	opSetItems  = 'u'
	opList      = ']'
	opAppends   = 'e'
	opTuple2    = '\x86'
	opInt       = 'J' // 4 bytes, signed
	opLong      = '\x8a'
	opText      = 'X' // 4 bytes of length
	opTrue      = '\x88'
	opFalse     = '\x89'
	opPut       = 'r' // 4 bytes of number
	opGet       = 'j'
	batchLength = 1000 // of appends: MemoryViz.js hands a batch to one call
)

// A pickler writes values. Texts and stacks are written once and then referred
// to by number; numbers are of all picklers of one file, whose parts may be put
// together in any order.
type pickler struct {
	w     *bufio.Writer
	next  *uint32
	texts map[string]uint32
	buf   [8]byte
}

func newPickler(w *bufio.Writer, next *uint32) *pickler {
	return &pickler{w: w, next: next, texts: map[string]uint32{}}
}

func (p *pickler) op(b byte) { p.w.WriteByte(b) }

func (p *pickler) op4(b byte, n uint32) {
	p.w.WriteByte(b)
	p.w.Write(binary.LittleEndian.AppendUint32(p.buf[:0], n))
}

func (p *pickler) number(v int64) {
	if v == int64(int32(v)) {
		p.op4(opInt, uint32(v))
		return
	}
	p.w.Write([]byte{opLong, 8})
	p.w.Write(binary.LittleEndian.AppendUint64(p.buf[:0], uint64(v)))
}

func (p *pickler) bool(v bool) {
	if v {
		p.op(opTrue)
	} else {
		p.op(opFalse)
	}
}

// put gives what was written last a number.
func (p *pickler) put() uint32 {
	n := *p.next
	*p.next++
	p.op4(opPut, n)
	return n
}

func (p *pickler) text(s string) {
	if n, ok := p.texts[s]; ok {
		p.op4(opGet, n)
		return
	}
	p.op4(opText, uint32(len(s)))
	p.w.WriteString(s)
	p.texts[s] = p.put()
}

// A list is one that is being written.
type list struct {
	p *pickler
	n int
}

func (p *pickler) list() *list {
	p.op(opList)
	return &list{p: p}
}

// next comes before each item.
func (l *list) next() *pickler {
	if l.n%batchLength == 0 {
		if l.n > 0 {
			l.p.op(opAppends)
		}
		l.p.op(opMark)
	}
	l.n++
	return l.p
}

func (l *list) end() {
	if l.n > 0 {
		l.p.op(opAppends)
	}
}

// dict writes a dictionary; f writes keys and values in turn.
func (p *pickler) dict(f func()) {
	p.op(opDict)
	p.op(opMark)
	f()
	p.op(opSetItems)
}

func (p *pickler) field(key string, v int64) {
	p.text(key)
	p.number(v)
}

func (p *pickler) textField(key, v string) {
	p.text(key)
	p.text(v)
}
