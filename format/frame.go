package format

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/klauspost/compress/zstd"
)

// How batches go to a file and come from one. See shape for the bytes.

// A tableFile writes one table. After a failed write the file ends with its
// last whole batch.
type tableFile struct {
	table  *table
	path   string
	f      File
	enc    *encoder
	size   int64 // of what is whole
	rows   int64
	blocks []fileBlock
	buf    []byte
	seqs   numbering
	torn   bool // it ends with part of a batch, which could not be cut off
}

func createTable(disk Disk, path string, t *table, enc *encoder) (*tableFile, error) {
	f, err := disk.Create(path)
	if err != nil {
		return nil, fmt.Errorf("create a table: %w", err)
	}
	w := &tableFile{table: t, path: path, f: f, enc: enc}
	if err := w.write(t.shape().head); err != nil {
		f.Close()
		return nil, err
	}
	return w, nil
}

// writeAll is f.Write of a disk that may keep to no rule.
func writeAll(f File, b []byte) error {
	n, err := f.Write(b)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	return err
}

// write appends b whole or not at all.
func (w *tableFile) write(b []byte) error {
	if err := writeAll(w.f, b); err != nil {
		if terr := w.f.Truncate(w.size); terr != nil {
			w.torn = true
			err = errors.Join(err, fmt.Errorf("cut back to the last whole batch: %w", terr))
		}
		return fmt.Errorf("write %s at byte %d: %w", w.path, w.size, err)
	}
	w.size += int64(len(b))
	return nil
}

// append writes b, if it has rows, as one batch in one write.
func (w *tableFile) append(b *batch) error {
	if b.rows == 0 {
		return nil
	}
	s := w.table.shape()
	buf := binary.LittleEndian.AppendUint32(w.buf[:0], continuation)
	buf = binary.LittleEndian.AppendUint32(buf, uint32(len(s.meta)))
	buf = append(buf, s.meta...)
	start := len(buf)
	for i, k := range s.bufs {
		var src []byte
		switch k.what {
		case bufData:
			src = b.cols[k.col].data
			if s.lanes != nil && k.col == s.lanes.seq {
				src = w.seqs.pack(b, *s.lanes)
			}
		case bufOffsets:
			src = b.cols[k.col].offs
		}
		at := len(buf)
		if len(src) > 0 {
			buf = binary.LittleEndian.AppendUint64(buf, uint64(len(src)))
			buf = w.enc.append(buf, src, w.table.columns[k.col].cell)
		}
		meta := buf[prefixSize+s.bufsAt+bufferSize*i:]
		binary.LittleEndian.PutUint64(meta, uint64(at-start))
		binary.LittleEndian.PutUint64(meta[8:], uint64(len(buf)-at))
		for (len(buf)-start)%8 != 0 {
			buf = append(buf, 0)
		}
	}
	for _, at := range s.rowsAt {
		binary.LittleEndian.PutUint64(buf[prefixSize+at:], uint64(b.rows))
	}
	body := int64(len(buf) - start)
	binary.LittleEndian.PutUint64(buf[prefixSize+s.bodyAt:], uint64(body))
	w.buf = buf
	offset := w.size
	if err := w.write(buf); err != nil {
		return err
	}
	w.blocks = append(w.blocks, fileBlock{offset, body})
	w.rows += int64(b.rows)
	return nil
}

// close writes the footer, but behind part of a batch, where it would hide that
// something is cut, and closes the file.
func (w *tableFile) close() error {
	var err error
	if !w.torn {
		err = w.write(w.table.shape().tail(w.blocks))
	}
	if cerr := w.f.Close(); err == nil && cerr != nil {
		err = fmt.Errorf("close %s: %w", w.path, cerr)
	}
	return err
}

// A tableReader reads one table batch by batch. It trusts no number of the
// file before it has compared it with the bytes left and with the limits of a
// batch, and holds at most one batch, compressed and not.
type tableReader struct {
	table  *table
	path   string
	f      *os.File
	size   int64 // when it was opened: what is written later is not seen
	end    int64 // where the messages end when closed, else -1
	off    int64 // of the batch to come
	blocks []fileBlock
	dec    *zstd.Decoder
	raw    []byte
	same   []sameBuf
	seqs   numbering
	b      *batch
	err    error
}

// A sameBuf remembers a buffer that compressed to almost nothing: most
// columns of most batches hold one value, and need decoding only once.
type sameBuf struct {
	raw []byte
	n   int64
}

const maxSame = 256

// openFile opens a file of a trace, and says how long it is. What is no file,
// like a pipe or a device, is refused and not waited for.
func openFile(path string) (*os.File, int64, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return nil, 0, err
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = &os.PathError{Op: "open", Path: path, Err: errors.New("it is no regular file")}
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, fi.Size(), nil
}

func openTable(path string, t *table) (*tableReader, error) {
	f, size, err := openFile(path)
	if err != nil {
		return nil, err
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxMemory(maxBatchText), zstd.WithDecoderMaxWindow(maxBatchText), zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("make a decompressor: %w", err)
	}
	r := &tableReader{table: t, path: path, f: f, size: size, end: -1, dec: dec, b: newBatch(t)}
	r.same = make([]sameBuf, len(t.shape().bufs))
	return r, nil
}

func (r *tableReader) close() {
	r.dec.Close()
	r.f.Close()
	if r.err == nil {
		r.err = fmt.Errorf("read %s: %w", r.path, os.ErrClosed)
	}
}

func (r *tableReader) truncated() error {
	return &TruncatedError{Path: r.path, Batch: len(r.blocks), Offset: r.off, Left: r.size - r.off}
}

func (r *tableReader) corrupt(format string, args ...any) error {
	return &CorruptError{Path: r.path, Batch: len(r.blocks), Offset: r.off, Err: fmt.Errorf(format, args...)}
}

// next returns the next batch, valid until the next call, or io.EOF, a
// *TruncatedError or a *CorruptError, again and again.
func (r *tableReader) next() (*batch, error) {
	if r.err != nil {
		return nil, r.err
	}
	if r.off == 0 {
		r.err = r.readHead()
	}
	if r.err == nil {
		r.err = r.readBatch()
	}
	if r.err != nil {
		return nil, r.err
	}
	return r.b, nil
}

// read fills b from offset at, or says that the file has become shorter.
func (r *tableReader) read(b []byte, at int64) error {
	_, err := r.f.ReadAt(b, at)
	if err == io.EOF {
		return r.truncated()
	}
	if err != nil {
		return fmt.Errorf("read %s at byte %d: %w", r.path, at, err)
	}
	return nil
}

func (r *tableReader) readHead() error {
	want := r.table.shape().head
	got := make([]byte, min(int64(len(want)), r.size))
	if err := r.read(got, 0); err != nil {
		return err
	}
	if !bytes.HasPrefix(want, got) {
		if !bytes.HasPrefix(got, magic[:min(len(magic), len(got))]) {
			return r.corrupt("it does not begin as an Arrow file")
		}
		return r.corrupt("its columns are not those of table %s in version %d of this build; read it with the gpurec that wrote it", r.table.name, Version)
	}
	if len(got) < len(want) {
		return r.truncated()
	}
	r.off = int64(len(want))

	// Closed when the last bytes say where a footer begins.
	var tail [tailSize]byte
	if r.size < r.off+endSize+tailSize {
		return nil
	}
	if err := r.read(tail[:], r.size-tailSize); err != nil {
		return err
	}
	if footer := r.size - tailSize - int64(binary.LittleEndian.Uint32(tail[:])); bytes.Equal(tail[4:], magic) && footer >= r.off+endSize {
		r.end = footer
	}
	return nil
}

// readBatch reads one batch, in this order:
//
//  1. the prefix: a batch's, or the end of messages;
//  2. the metadata, whose length is known: all but its numbers equals the shape;
//  3. its numbers: rows within the limit and everywhere the same, buffers one
//     after the other, the body as long as they are and no longer than is left;
//  4. the body: each buffer's own length is what the rows need, and decoding
//     may not exceed it;
//  5. the rules of text and of seq, and the numbers that have names.
func (r *tableReader) readBatch() error {
	s := r.table.shape()
	limit := r.size
	if r.end >= 0 {
		limit = r.end
	}
	left := limit - r.off
	short := func() error {
		if r.end >= 0 {
			return r.corrupt("the footer begins inside it")
		}
		return r.truncated()
	}

	// 1
	if left < prefixSize {
		return short()
	}
	head := int64(prefixSize + len(s.meta))
	r.raw = grow(r.raw[:0], int(min(head, left)))
	if err := r.read(r.raw, r.off); err != nil {
		return err
	}
	if c := binary.LittleEndian.Uint32(r.raw); c != continuation {
		return r.corrupt("it begins with %#x and not as a message", c)
	}
	switch n := binary.LittleEndian.Uint32(r.raw[4:]); {
	case n == 0:
		return r.readEnd(left)
	case int64(n) != head-prefixSize:
		return r.corrupt("its metadata has %d bytes and not %d", n, head-prefixSize)
	case left < head:
		return short()
	}

	// 2
	meta := r.raw[prefixSize:]
	num := func(at int) int64 { return int64(binary.LittleEndian.Uint64(meta[at:])) }
	rows, body := num(s.rowsAt[0]), num(s.bodyAt)
	for _, at := range s.rowsAt {
		if n := num(at); n != rows {
			return r.corrupt("its columns have %d and %d rows", rows, n)
		}
		clear(meta[at : at+8])
	}
	list := bytes.Clone(meta[s.bufsAt : s.bufsAt+bufferSize*len(s.bufs)])
	clear(meta[s.bufsAt : s.bufsAt+len(list)])
	clear(meta[s.bodyAt : s.bodyAt+8])
	if !bytes.Equal(meta, s.meta) {
		return r.corrupt("its metadata is not that of table %s", r.table.name)
	}

	// 3
	if rows < 1 || rows > MaxBatchRows {
		return r.corrupt("it claims %d rows; 1 to %d are right", rows, MaxBatchRows)
	}
	var sum int64
	for i := range s.bufs {
		o, n := int64(binary.LittleEndian.Uint64(list[bufferSize*i:])), int64(binary.LittleEndian.Uint64(list[bufferSize*i+8:]))
		if o != sum || n < 0 || n > maxCompressed(r.plain(s.bufs[i], rows)) {
			return r.corrupt("its buffer %d claims %d bytes at %d", i, n, o)
		}
		sum += (n + 7) &^ 7
	}
	if body != sum {
		return r.corrupt("its body claims %d bytes and its buffers have %d", body, sum)
	}
	if body > left-head {
		return short()
	}

	// 4
	r.raw = grow(r.raw[:0], int(body))
	if err := r.read(r.raw, r.off+head); err != nil {
		return err
	}
	r.b.rows = int(rows)
	raw := r.raw
	for i := range s.bufs {
		n := int(binary.LittleEndian.Uint64(list[bufferSize*i+8:]))
		padded := (n + 7) &^ 7
		if err := r.decode(i, raw[:n]); err != nil {
			return r.corrupt("buffer %d (column %s): %w", i, r.table.columns[s.bufs[i].col].name, err)
		}
		for _, z := range raw[n:padded] {
			if z != 0 {
				return r.corrupt("buffer %d is padded with %#x", i, z)
			}
		}
		raw = raw[padded:]
	}

	// 5
	for i, c := range r.table.columns {
		if c.cell == cellText {
			if err := r.b.cols[i].checkText(int(rows)); err != nil {
				return r.corrupt("column %s: %w", c.name, err)
			}
		}
		if c.cell == cellSeq {
			if err := r.seqs.unpack(r.b, *s.lanes); err != nil {
				return r.corrupt("column %s: %w", c.name, err)
			}
		}
		if c.hi == 0 {
			continue
		}
		for row, v := range r.b.cols[i].data {
			if v < c.lo || v > c.hi {
				return r.corrupt("row %d has %s %d; %d to %d are known", row, c.name, v, c.lo, c.hi)
			}
		}
	}
	r.blocks = append(r.blocks, fileBlock{r.off, body})
	r.off += head + body
	return nil
}

// readEnd judges the end of messages: in a closed file all that follows is
// determined by what came before.
func (r *tableReader) readEnd(left int64) error {
	if r.end < 0 {
		return r.truncated()
	}
	if left != endSize {
		return r.corrupt("the messages end %d bytes before the footer", left-endSize)
	}
	want := r.table.shape().tail(r.blocks)
	if r.size-r.off != int64(len(want)) {
		return r.corrupt("the footer does not list the %d batches before it", len(r.blocks))
	}
	got := make([]byte, len(want))
	if err := r.read(got, r.off); err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return r.corrupt("the footer does not list the %d batches before it", len(r.blocks))
	}
	return io.EOF
}

// maxCompressed is the most that n bytes can become, their length included.
func maxCompressed(n int64) int64 {
	if n == 0 {
		return 0
	}
	return n + n>>7 + 1024
}

// plain is how long a buffer of so many rows is; of text, how long it may be.
func (r *tableReader) plain(k bufShape, rows int64) int64 {
	c := r.table.columns[k.col].cell
	switch {
	case k.what == bufNone:
		return 0
	case k.what == bufOffsets:
		return 4 * (rows + 1)
	case c == cellText:
		return maxBatchText
	}
	return rows * int64(cells[c].width)
}

// decode decompresses one buffer into its column. That no more is compressed
// than may be has been checked; a validity buffer is empty.
func (r *tableReader) decode(i int, raw []byte) (err error) {
	k := r.table.shape().bufs[i]
	if k.what == bufNone {
		return nil
	}
	col := &r.b.cols[k.col]
	dst, text := &col.data, k.what == bufData && r.table.columns[k.col].cell == cellText
	if k.what == bufOffsets {
		dst = &col.offs
	}
	if len(raw) == 0 && text {
		*dst = (*dst)[:0]
		r.same[i].raw = r.same[i].raw[:0]
		return nil
	}
	if len(raw) < lengthSize {
		return fmt.Errorf("%d bytes have no room for a length", len(raw))
	}
	n, plain := int64(binary.LittleEndian.Uint64(raw)), r.plain(k, int64(r.b.rows))
	if n != plain && (!text || n < 1 || n > plain) {
		return fmt.Errorf("it claims %d bytes for %d rows", n, r.b.rows)
	}
	if same := &r.same[i]; same.n == n && bytes.Equal(same.raw, raw) {
		return nil
	}
	r.same[i].raw = r.same[i].raw[:0]
	defer func() { // a belt: the decoder is fuzzed, and not by us
		if p := recover(); p != nil {
			err = fmt.Errorf("decompress: %v", p)
		}
	}()
	*dst = grow((*dst)[:0], int(n))
	out, err := r.dec.DecodeAll(raw[lengthSize:], (*dst)[:0:n])
	if err != nil {
		return fmt.Errorf("decompress: %w", err)
	}
	if int64(len(out)) != n {
		return fmt.Errorf("decompress: %d bytes and not %d", len(out), n)
	}
	*dst = out
	if len(raw) <= maxSame && r.table.columns[k.col].cell != cellSeq { // which does not stay as it was decoded
		r.same[i] = sameBuf{append(r.same[i].raw, raw...), n}
	}
	return nil
}
