package export

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// A kind of column. All numbers are kept as the bits of an int64 until a sink
// writes them in their own width, so that a row is filled one way for every
// format.
type colType uint8

const (
	text    colType = iota // UTF-8
	i64                    // signed
	u64                    // unsigned: addresses and handles use all 64 bits
	i32                    //
	u32                    //
	i16                    //
	instant                // nanoseconds since 1970, UTC
	naive                  // the same without a zone, for DuckDB: before 2.0 it knows no nanoseconds in a zone
)

// A column is one column of an exported table: its name, how wide it is, what
// it means, and how it is read off a row R. Just one of num and str is set.
type column[R any] struct {
	name string
	typ  colType
	doc  string
	num  func(R) int64
	str  func(R) string
}

// cells are the values of one column of a batch.
type cells struct {
	name string
	typ  colType
	doc  string
	num  []int64
	str  []string
}

// A batch is rows of a table, column by column.
type batch struct {
	table string
	cols  []cells
	rows  int
	bytes int // of texts: what decides when a batch of deep stacks is full
}

// A batch is written when it has this many rows or this many bytes of text: a
// stack of 100 frames is 5 KB of text, and a batch of 65,536 of those would
// take a third of a gigabyte.
const (
	batchRows  = 65536
	batchBytes = 32 << 20
)

// A sink writes batches of one table to one file, in order.
type sink interface {
	write(*batch) error
	close() error // writes what is left; the file is whole only after it
}

// A writer fills batches from rows and passes them to a sink, or rows to the
// writers of the partitions they belong to.
type writer[R any] struct {
	cols              []column[R]
	b                 batch
	out               sink
	rows              int64
	maxRows, maxBytes int // of a batch

	by    []column[R] // what it is partitioned by, which then stands in paths alone
	parts map[string]*writer[R]
	open  func(path string, b *batch) (sink, error)
}

func newWriter[R any](table string, cols []column[R], open func(*batch) (sink, error)) (*writer[R], error) {
	w := &writer[R]{cols: cols, b: batch{table: table}, maxRows: batchRows, maxBytes: batchBytes}
	for _, c := range cols {
		w.b.cols = append(w.b.cols, cells{name: c.name, typ: c.typ, doc: c.doc})
	}
	var err error
	w.out, err = open(&w.b)
	return w, err
}

// newPartitioned returns a writer with a file for each value of some of the
// columns, in directories COLUMN=VALUE as Hive has them.
func newPartitioned[R any](table string, cols []column[R], by []string, open func(path string, b *batch) (sink, error)) *writer[R] {
	w := &writer[R]{b: batch{table: table}, parts: map[string]*writer[R]{}, open: open}
	for _, name := range by {
		if i := slices.IndexFunc(cols, func(c column[R]) bool { return c.name == name }); i >= 0 {
			w.by = append(w.by, cols[i])
		}
	}
	for _, c := range cols {
		if !slices.ContainsFunc(w.by, func(b column[R]) bool { return b.name == c.name }) {
			w.cols = append(w.cols, c)
		}
	}
	return w
}

// part is the writer of a row's partition.
func (w *writer[R]) part(r R) (*writer[R], error) {
	var path strings.Builder
	for i := range w.by {
		c := &w.by[i]
		fmt.Fprintf(&path, "%s=", c.name)
		if c.str != nil {
			path.WriteString(url.PathEscape(c.str(r)))
		} else {
			path.WriteString(strconv.FormatInt(c.num(r), 10))
		}
		path.WriteByte('/')
	}
	p := w.parts[path.String()]
	if p == nil {
		var err error
		p, err = newWriter(w.b.table, w.cols, func(b *batch) (sink, error) { return w.open(path.String(), b) })
		if err != nil {
			return nil, err
		}
		p.maxRows, p.maxBytes = batchRows/8, batchBytes/8 // there may be many
		w.parts[path.String()] = p
	}
	return p, nil
}

func (w *writer[R]) add(r R) error {
	if w.parts != nil {
		p, err := w.part(r)
		if err != nil {
			return err
		}
		w.rows++
		return p.add(r)
	}
	for i := range w.cols {
		c, out := &w.cols[i], &w.b.cols[i]
		if c.str != nil {
			s := c.str(r)
			w.b.bytes += len(s)
			out.str = append(out.str, s)
		} else {
			out.num = append(out.num, c.num(r))
		}
	}
	w.b.rows++
	w.rows++
	if w.b.rows < w.maxRows && w.b.bytes < w.maxBytes {
		return nil
	}
	return w.flush()
}

func (w *writer[R]) flush() error {
	if w.b.rows == 0 {
		return nil
	}
	if err := w.out.write(&w.b); err != nil {
		return fmt.Errorf("write %s: %w", w.b.table, err)
	}
	for i := range w.b.cols {
		c := &w.b.cols[i]
		clear(c.str) // a batch must not keep another batch's stacks
		c.num, c.str = c.num[:0], c.str[:0]
	}
	w.b.rows, w.b.bytes = 0, 0
	return nil
}

func (w *writer[R]) close() error {
	if w.parts != nil {
		var err error
		for _, p := range w.parts {
			err = errors.Join(err, p.close())
		}
		return err
	}
	err := w.flush()
	if e := w.out.close(); err == nil && e != nil {
		err = fmt.Errorf("write %s: %w", w.b.table, e)
	}
	return err
}

// A table is a writer, whatever its rows.
type table interface {
	shape() *batch
	count() int64
	close() error
}

func (w *writer[R]) shape() *batch { return &w.b }
func (w *writer[R]) count() int64  { return w.rows }
