package format

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"
	"unsafe"
)

// Limits of one batch, for writers and readers alike: what a reader may have
// to hold is bounded by them, whatever a file claims.
const (
	MaxBatchRows = 65536
	MaxText      = 1 << 20 // bytes of one text; a longer one is cut with a mark
	maxBatchText = 8 << 20 // bytes of one text column of one batch
	flushText    = 4 << 20 // a writer flushes from here on, so that one more text still fits
)

// A batch is rows as columns, little endian as they lie on disk.
type batch struct {
	table *table
	rows  int
	cols  []colBuf
}

type colBuf struct {
	data []byte // the values; for text the bytes
	offs []byte // for text, rows+1 offsets into data
}

func newBatch(t *table) *batch {
	b := &batch{table: t, cols: make([]colBuf, len(t.columns))}
	b.reset()
	return b
}

func (b *batch) reset() {
	b.rows = 0
	for i := range b.cols {
		b.cols[i].data = b.cols[i].data[:0]
		if b.table.columns[i].cell == cellText {
			b.cols[i].offs = append(b.cols[i].offs[:0], 0, 0, 0, 0)
		}
	}
}

// full reports whether a writer should flush b before it adds to it.
func (b *batch) full(rows int) bool {
	if b.rows >= rows {
		return true
	}
	for i := range b.cols {
		if b.table.columns[i].cell == cellText && len(b.cols[i].data) >= flushText {
			return true
		}
	}
	return false
}

// block is how many rows are transposed at a time: 128 events are 21 KiB, which
// stay in the first-level cache while 26 columns pass over them. Measured, a
// read of 65,536 events a batch: 64 rows 181 ns an event, 128 172, 512 203.
const block = 128

// addRows appends rows, whose type is the one b.table describes.
func addRows[T any](b *batch, rows []T) {
	checkRow[T](b.table)
	for len(rows) > 0 {
		n := min(len(rows), block)
		b.add(unsafe.Pointer(unsafe.SliceData(rows)), n)
		rows = rows[n:]
	}
}

// checkRow holds that T is a row of t. It can fail only by a mistake of ours.
func checkRow[T any](t *table) {
	var zero T
	if unsafe.Sizeof(zero) != t.size {
		panic(fmt.Sprintf("format: %T is no row of %s", zero, t.name))
	}
}

func (b *batch) add(base unsafe.Pointer, n int) {
	size := b.table.size
	for i := range b.table.columns {
		c, col := &b.table.columns[i], &b.cols[i]
		p := unsafe.Add(base, c.offset)
		if c.cell == cellText {
			for k := range n {
				col.data = append(col.data, *(*string)(unsafe.Add(p, uintptr(k)*size))...)
				col.offs = binary.LittleEndian.AppendUint32(col.offs, uint32(len(col.data)))
			}
			continue
		}
		w := cells[c.cell].width
		at := len(col.data)
		col.data = growColumn(col.data, n, w)
		collect(unsafe.Pointer(&col.data[at]), p, n, w, size)
	}
	b.rows += n
}

// collect copies n numbers of w bytes, each stride after the one before, to
// where they lie one after the other, little endian. Both places have been
// checked as a whole: a check a number would double its cost.
func collect(to, from unsafe.Pointer, n, w int, stride uintptr) {
	at := uintptr(0)
	switch w {
	case 1:
		for k := range n {
			*(*uint8)(unsafe.Add(to, k)) = *(*uint8)(unsafe.Add(from, at))
			at += stride
		}
	case 2:
		for k := range n {
			binary.LittleEndian.PutUint16((*[2]byte)(unsafe.Add(to, 2*k))[:], *(*uint16)(unsafe.Add(from, at)))
			at += stride
		}
	case 4:
		for k := range n {
			binary.LittleEndian.PutUint32((*[4]byte)(unsafe.Add(to, 4*k))[:], *(*uint32)(unsafe.Add(from, at)))
			at += stride
		}
	case 8:
		for k := range n {
			binary.LittleEndian.PutUint64((*[8]byte)(unsafe.Add(to, 8*k))[:], *(*uint64)(unsafe.Add(from, at)))
			at += stride
		}
	}
}

// spread is collect's way back.
func spread(to, from unsafe.Pointer, n, w int, stride uintptr) {
	at := uintptr(0)
	switch w {
	case 1:
		for k := range n {
			*(*uint8)(unsafe.Add(to, at)) = *(*uint8)(unsafe.Add(from, k))
			at += stride
		}
	case 2:
		for k := range n {
			*(*uint16)(unsafe.Add(to, at)) = binary.LittleEndian.Uint16((*[2]byte)(unsafe.Add(from, 2*k))[:])
			at += stride
		}
	case 4:
		for k := range n {
			*(*uint32)(unsafe.Add(to, at)) = binary.LittleEndian.Uint32((*[4]byte)(unsafe.Add(from, 4*k))[:])
			at += stride
		}
	case 8:
		for k := range n {
			*(*uint64)(unsafe.Add(to, at)) = binary.LittleEndian.Uint64((*[8]byte)(unsafe.Add(from, 8*k))[:])
			at += stride
		}
	}
}

// growColumn extends a column by n numbers of w bytes. One that has become long
// gets room for a full batch: what has not been written to takes no memory, and
// to double it again and again leaves as much behind.
func growColumn(b []byte, n, w int) []byte {
	const long = 1024
	if full := MaxBatchRows * w; cap(b) < len(b)+n*w && len(b) >= long*w && len(b)+n*w <= full {
		b = append(make([]byte, 0, full), b...)
	}
	return grow(b, n*w)
}

// grow extends b by n bytes of any content.
func grow(b []byte, n int) []byte {
	if cap(b)-len(b) >= n {
		return b[:len(b)+n]
	}
	c := make([]byte, len(b)+n, max(2*cap(b), len(b)+n))
	copy(c, b)
	return c
}

// getRows writes b's rows from..from+len(out) to out.
func getRows[T any](b *batch, from int, out []T) {
	checkRow[T](b.table)
	for len(out) > 0 {
		n := min(len(out), block)
		b.get(unsafe.Pointer(unsafe.SliceData(out)), from, n)
		out, from = out[n:], from+n
	}
}

func (b *batch) get(base unsafe.Pointer, from, n int) {
	size := b.table.size
	for i := range b.table.columns {
		c, col := &b.table.columns[i], &b.cols[i]
		p := unsafe.Add(base, c.offset)
		if c.cell == cellText {
			// One copy of the column for all its texts: they are kept together
			// or dropped together by whoever keeps definitions.
			first, last := col.off(from), col.off(from+n)
			all := string(col.data[first:last])
			for k := range n {
				*(*string)(unsafe.Add(p, uintptr(k)*size)) = all[col.off(from+k)-first : col.off(from+k+1)-first]
			}
			continue
		}
		w := cells[c.cell].width
		spread(p, unsafe.Pointer(&col.data[from*w : (from+n)*w][0]), n, w, size)
	}
}

func (c *colBuf) off(i int) int { return int(binary.LittleEndian.Uint32(c.offs[4*i:])) }

// addBatch appends rows from..to of o, a batch of the same table.
func (b *batch) addBatch(o *batch, from, to int) {
	for i := range b.table.columns {
		c, src, dst := b.table.columns[i].cell, &o.cols[i], &b.cols[i]
		if c != cellText {
			w := cells[c].width
			dst.data = append(dst.data, src.data[from*w:to*w]...)
			continue
		}
		first := src.off(from)
		shift := len(dst.data) - first
		dst.data = append(dst.data, src.data[first:src.off(to)]...)
		for k := from + 1; k <= to; k++ {
			dst.offs = binary.LittleEndian.AppendUint32(dst.offs, uint32(src.off(k)+shift))
		}
	}
	b.rows += to - from
}

// checkText holds what other Arrow readers take for granted: offsets that
// rise inside the data, and UTF-8 between each two of them.
func (c *colBuf) checkText(rows int) error {
	last := 0
	if c.off(0) != 0 {
		return errors.New("text offsets do not begin at 0")
	}
	for i := 1; i <= rows; i++ {
		o := c.off(i)
		if o < last || o > len(c.data) {
			return fmt.Errorf("text offset %d of row %d is not between %d and %d", o, i-1, last, len(c.data))
		}
		if o-last > MaxText {
			return fmt.Errorf("text of row %d has %d bytes, more than %d", i-1, o-last, MaxText)
		}
		if !utf8.Valid(c.data[last:o]) {
			return fmt.Errorf("text of row %d is not UTF-8", i-1)
		}
		last = o
	}
	if last != len(c.data) {
		return fmt.Errorf("%d bytes of text belong to no row", len(c.data)-last)
	}
	return nil
}
