package format

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow/go/v15/arrow/array"
	"github.com/apache/arrow/go/v15/arrow/ipc"
	"github.com/apache/arrow/go/v15/arrow/memory"
)

// A shape is what every file of one table has in common, byte for byte: the
// head up to the first batch, the metadata of a batch but for its numbers, and
// the footer but for its list of batches. Arrow writes each once, here; from
// then on batches are written by filling in the numbers and read by comparing
// all the rest. So a reader never follows an offset that a file chose, and
// what it holds is bounded by numbers it has checked. Arrow v15's own readers
// need the footer, or run into it, and die of one flipped bit: an allocation
// that cannot be recovered. Its writer makes a new zstd encoder, some MiB, for
// every batch.
//
//	byte 0   ARROW1 00 00
//	     8   FFFFFFFF, length, schema message        } head
//	         FFFFFFFF, length, batch message, body   } any number of these
//	         FFFFFFFF, 00000000                      } end of messages
//	         footer, its length, ARROW1              } only when closed
//
// A body is, for each column: of numbers the values; of text the offsets and
// the bytes. Each is its length before compression as 8 bytes, a zstd frame
// with a checksum, and zeros to a multiple of 8. Empty text is nothing at all.
type shape struct {
	head   []byte
	meta   []byte // of a batch, its numbers zero
	rowsAt []int  // where it repeats the number of rows
	bodyAt int    // where the length of its body is
	bufsAt int    // where its list of buffers begins: offset, length
	bufs   []bufShape
	footer []byte       // with an empty list of batches
	listAt int          // where the footer's offset of that list is
	lanes  *laneColumns // of a table whose rows are numbered
}

// A bufShape is one buffer of a batch: nothing (validity), or a column's.
type bufShape struct {
	col  int
	what bufKind
}

type bufKind uint8

const (
	bufNone bufKind = iota // validity: no column has nulls, so it is always empty
	bufData
	bufOffsets
)

var magic = []byte("ARROW1")

const (
	headAt       = 8          // where the first message begins
	continuation = 0xFFFFFFFF // begins every message
	tailSize     = 4 + 6      // the footer's length and the magic
	endSize      = 8          // the end of messages
	prefixSize   = 8          // continuation and length
	lengthSize   = 8          // before a compressed buffer
	blockSize    = 24         // of a batch in the footer: offset, metadata length, padding, body length
	bufferSize   = 16         // of a buffer in a batch's metadata: offset, length
)

// Prepare makes the shapes of all tables, a millisecond or two of work that a
// program in a hurry has done beside something else before its first Create.
func Prepare() {
	for _, t := range tableOrder {
		t.shape()
	}
}

func (t *table) shape() *shape {
	t.once.Do(func() {
		s, err := makeShape(t)
		if err != nil { // Arrow changed under us; nothing of a file is read yet
			panic(fmt.Sprintf("format: table %s: %v", t.name, err))
		}
		t.made = s
	})
	return t.made
}

func makeShape(t *table) (*shape, error) {
	schema := t.schema()
	bld := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer bld.Release()
	for i, c := range t.columns {
		if c.cell == cellText {
			bld.Field(i).(*array.StringBuilder).Append("x")
		} else if err := bld.Field(i).AppendValueFromString("1"); err != nil {
			return nil, err
		}
	}
	rec := bld.NewRecord()
	defer rec.Release()

	var stream bytes.Buffer
	w := ipc.NewWriter(&stream, ipc.WithSchema(schema), ipc.WithZstd())
	if err := errors.Join(w.Write(rec), w.Close()); err != nil {
		return nil, err
	}
	s := &shape{head: append(append([]byte{}, magic...), 0, 0)}
	b := stream.Bytes()
	n := prefixSize + int(binary.LittleEndian.Uint32(b[4:]))
	s.head, b = append(s.head, b[:n]...), b[n:]
	s.meta = bytes.Clone(b[prefixSize : prefixSize+int(binary.LittleEndian.Uint32(b[4:]))])

	// Message: version, header type, header, body length. RecordBatch: length,
	// nodes, buffers, compression.
	m := fbRoot(s.meta)
	s.bodyAt = m.field(3)
	rb := m.table(2)
	nodes, count := rb.vector(1)
	if count != len(t.columns) {
		return nil, fmt.Errorf("%d nodes for %d columns", count, len(t.columns))
	}
	s.rowsAt = append(s.rowsAt, rb.field(0))
	for i := range count {
		s.rowsAt = append(s.rowsAt, nodes+16*i) // length, null count
	}
	s.lanes = t.laneColumns()
	s.bufsAt, count = rb.vector(2)
	for i, c := range t.columns {
		s.bufs = append(s.bufs, bufShape{i, bufNone})
		if c.cell == cellText {
			s.bufs = append(s.bufs, bufShape{i, bufOffsets})
		}
		s.bufs = append(s.bufs, bufShape{i, bufData})
	}
	if count != len(s.bufs) {
		return nil, fmt.Errorf("%d buffers where %d are expected", count, len(s.bufs))
	}
	for _, at := range s.rowsAt {
		if binary.LittleEndian.Uint64(s.meta[at:]) != 1 {
			return nil, errors.New("the number of rows is not where it should be")
		}
		binary.LittleEndian.PutUint64(s.meta[at:], 0)
	}
	if got := binary.LittleEndian.Uint64(s.meta[s.bodyAt:]); got == 0 || got%8 != 0 {
		return nil, errors.New("the body's length is not where it should be")
	}
	binary.LittleEndian.PutUint64(s.meta[s.bodyAt:], 0)
	clear(s.meta[s.bufsAt : s.bufsAt+bufferSize*count])

	var file memFile
	fw, err := ipc.NewFileWriter(&file, ipc.WithSchema(schema), ipc.WithZstd())
	if err != nil {
		return nil, err
	}
	if err := fw.Close(); err != nil {
		return nil, err
	}
	end := len(file) - tailSize
	s.footer = bytes.Clone(file[end-int(binary.LittleEndian.Uint32(file[end:])) : end])
	for len(s.footer)%8 != 4 { // the list's count comes next, and its rows are aligned to 8
		s.footer = append(s.footer, 0)
	}
	// Footer: version, schema, dictionaries, record batches.
	f := fbRoot(s.footer)
	s.listAt = f.field(3)
	if _, n := f.vector(3); n != 0 || s.listAt < 0 {
		return nil, errors.New("the footer's list is not where it should be")
	}
	return s, nil
}

// A fileBlock is one batch in a footer.
type fileBlock struct {
	offset int64
	body   int64
}

// tail is what closes a file with these batches: the end of messages, footer,
// its length, magic.
func (s *shape) tail(blocks []fileBlock) []byte {
	b := make([]byte, 0, endSize+len(s.footer)+4+blockSize*len(blocks)+tailSize)
	b = binary.LittleEndian.AppendUint32(b, continuation)
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = append(b, s.footer...)
	binary.LittleEndian.PutUint32(b[endSize+s.listAt:], uint32(len(s.footer)-s.listAt))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(blocks)))
	for _, k := range blocks {
		b = binary.LittleEndian.AppendUint64(b, uint64(k.offset))
		b = binary.LittleEndian.AppendUint64(b, uint64(prefixSize+len(s.meta))) // 32 bits and padding
		b = binary.LittleEndian.AppendUint64(b, uint64(k.body))
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(b)-endSize))
	return append(b, magic...)
}

// An fb is a table of a flatbuffer. It is used only on what Arrow has just
// written for us, never on what a file holds.
type fb struct {
	b  []byte
	at int
}

func fbRoot(b []byte) fb { return fb{b, int(binary.LittleEndian.Uint32(b))} }

// field is where the i-th field's value is, -1 where it is absent.
func (t fb) field(i int) int {
	vt := t.at - int(int32(binary.LittleEndian.Uint32(t.b[t.at:])))
	if 4+2*i >= int(binary.LittleEndian.Uint16(t.b[vt:])) {
		return -1
	}
	if o := int(binary.LittleEndian.Uint16(t.b[vt+4+2*i:])); o != 0 {
		return t.at + o
	}
	return -1
}

func (t fb) table(i int) fb {
	at := t.field(i)
	return fb{t.b, at + int(binary.LittleEndian.Uint32(t.b[at:]))}
}

// vector is where the i-th field's elements begin and how many they are.
func (t fb) vector(i int) (at, n int) {
	v := t.table(i).at
	return v + 4, int(binary.LittleEndian.Uint32(t.b[v:]))
}

// memFile is the least that Arrow's file writer wants.
type memFile []byte

func (f *memFile) Write(p []byte) (int, error) { *f = append(*f, p...); return len(p), nil }

func (f *memFile) Seek(offset int64, whence int) (int64, error) {
	if offset != 0 || whence != io.SeekCurrent {
		return 0, errors.New("only the current position is known")
	}
	return int64(len(*f)), nil
}
