package main

import (
	"fmt"
	"io"
	"math"
	"math/bits"
	"path/filepath"

	"github.com/apache/arrow/go/v15/arrow"
	"github.com/apache/arrow/go/v15/arrow/array"

	"github.com/gpurec/gpurec/format"
)

// longRun is a training run of some minutes on an H200, on one thread but for
// autograd's: 12 layers, 120 steps.
const longRun = "testdata/h200/steps.gpurec"

// sizes is the bytes an event takes on disk, of a real training run, written
// again as the recorder does it, at the pace at which it came,
// 55,000 events a second, and at others. Nothing here varies: one round.
//
// The limit is the time column's own entropy, of which no writer can spare
// anything: the distances between events, as a mixture over powers of two within
// each of which a distance could be anything. What compressors that know that
// times grow would still reach lies between that and the column's present size.
func sizes(s *suite) error {
	trace := s.fresh("size.gpurec")
	if err := rewrite(filepath.Join(s.root, longRun), trace, ownPace()); err != nil {
		return err
	}
	path := filepath.Join(trace, "00000", "events.arrow")
	schema, batches, err := readBatches(path)
	if err != nil {
		return err
	}
	n := int64(0)
	for _, b := range batches {
		n += b.NumRows()
	}
	put := func(table, who string, bytes float64) {
		s.sheet.put(table, who, int(n), bytes/float64(n), "B/event")
	}
	events, err := size(trace, "events.arrow")
	if err != nil {
		return err
	}
	all, err := size(trace, "")
	if err != nil {
		return err
	}
	put("Disk", ours, float64(events))
	put("Disk", "gpurec-with-definitions", float64(all))
	schemas, err := writeBatches(s.fresh("arrow"), schema, nil) // twice in a file, long texts each
	if err != nil {
		return err
	}
	put("Disk", "gpurec-without-schema", float64(events-schemas))
	for _, thousands := range []int{10, 50} {
		paced := s.fresh("paced.gpurec")
		if err := rewrite(filepath.Join(s.root, longRun), paced, pace(thousands*1000)); err != nil {
			return err
		}
		if events, err = size(paced, "events.arrow"); err != nil {
			return err
		}
		put("Disk", fmt.Sprintf("gpurec-at-%dk-a-second", thousands), float64(events))
	}
	arrowBytes, err := writeBatches(s.fresh("arrow"), schema, batches)
	if err != nil {
		return err
	}
	put("Disk", "arrow-zstd", float64(arrowBytes))
	put("Disk", "time-entropy", entropy(batches, schema.FieldIndices("time")[0])/8)
	empty := int64(0) // of a file of that many batches, whatever the column
	for i, f := range schema.Fields() {
		one := arrow.NewSchema([]arrow.Field{{Name: f.Name, Type: f.Type}}, nil)
		var columns, none []arrow.Record
		for _, b := range batches {
			columns = append(columns, array.NewRecord(one, []arrow.Array{b.Column(i)}, b.NumRows()))
			none = append(none, array.NewRecord(one, []arrow.Array{array.NewSlice(b.Column(i), 0, 0)}, 0))
		}
		if empty, err = writeBatches(s.fresh("arrow"), one, none); err != nil {
			return err
		}
		bytes, err := writeBatches(s.fresh("arrow"), one, columns)
		if err != nil {
			return err
		}
		put("DiskColumn", f.Name, float64(max(bytes-empty, 0)))
	}
	s.sheet.add(fmt.Sprintf("%d events in %d batches", n, len(batches)))
	return nil
}

// A flush says before which events the recorder would have flushed.
type flush func(*format.Event) bool

const flushEvery = 750_000_000 // ns, as the recorder does

// ownPace is by the events' own times, since the last flush: a full batch is
// flushed without being asked.
func ownPace() flush {
	var flushed format.Time
	rows := 0
	return func(e *format.Event) bool {
		due := e.Time >= flushed+flushEvery
		if rows++; due || rows > format.MaxBatchRows {
			flushed, rows = e.Time, 1
		}
		return due
	}
}

// pace is as if so many came each second, one as long after the other.
func pace(perSecond int) flush {
	n := 0
	return func(*format.Event) bool {
		n++
		return n%(perSecond*(flushEvery/1_000_000)/1_000) == 0
	}
}

// rewrite records a trace of one part again; a part that closes with many small
// batches gets full ones.
func rewrite(from, to string, due flush) error {
	t, err := format.Open(from)
	if err != nil {
		return err
	}
	if len(t.Parts()) != 1 {
		return fmt.Errorf("%s has %d parts", from, len(t.Parts()))
	}
	w, err := format.Create(to, t.Meta(), format.WriterOptions{})
	if err != nil {
		return err
	}
	p := t.Parts()[0]
	if err := p.LoadDefs(w.Defs()); err != nil {
		return err
	}
	events, err := p.Events()
	if err != nil {
		return err
	}
	defer events.Close()
	err = each(events.Next, func(e *format.Event) error {
		if due(e) {
			if err := w.Flush(); err != nil {
				return err
			}
		}
		return w.Event(e)
	})
	if err != nil {
		return err
	}
	samples, err := p.Samples()
	if err != nil {
		return err
	}
	defer samples.Close()
	if err := each(samples.Next, w.Sample); err != nil {
		return err
	}
	return w.Close(nil)
}

// each calls f with every row that next delivers.
func each[T any](next func() ([]T, error), f func(*T) error) error {
	for {
		rows, err := next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		for i := range rows {
			if err := f(&rows[i]); err != nil {
				return err
			}
		}
	}
}

// entropy is the bits of a column of times, by its distances: which power of
// two, and where in it.
func entropy(batches []arrow.Record, column int) (sum float64) {
	var count [65]float64
	n, last := 0.0, int64(0)
	for _, b := range batches {
		for _, t := range b.Column(column).(*array.Int64).Int64Values() {
			if last != 0 {
				d := t - last
				exponent := bits.Len64(uint64(max(d, -d)))
				count[exponent]++
				sum += float64(max(exponent-1, 0))
				n++
			}
			last = t
		}
	}
	for _, c := range count {
		if c > 0 {
			sum -= c * math.Log2(c/n)
		}
	}
	return sum
}
