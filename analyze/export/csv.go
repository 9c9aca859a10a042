package export

import (
	"encoding/csv"
	"io"
	"strconv"
	"time"
)

// csvSink writes RFC 4180: a line of names, then the rows.
type csvSink struct {
	w   *csv.Writer
	row []string
}

func openCSV(w io.Writer, shape *batch) (sink, error) {
	s := &csvSink{w: csv.NewWriter(w), row: make([]string, len(shape.cols))}
	for i := range shape.cols {
		s.row[i] = shape.cols[i].name
	}
	return s, s.w.Write(s.row)
}

func (s *csvSink) write(b *batch) error {
	for n := range b.rows {
		for i := range b.cols {
			s.row[i] = b.cols[i].text(n)
		}
		if err := s.w.Write(s.row); err != nil {
			return err
		}
	}
	return nil
}

func (s *csvSink) close() error {
	s.w.Flush()
	return s.w.Error()
}

// instantLayout always has nine digits, so that texts sort as times do.
const instantLayout = "2006-01-02T15:04:05.000000000Z"

// text is the n-th value as text.
func (c *cells) text(n int) string {
	switch c.typ {
	case text:
		return c.str[n]
	case u64:
		return strconv.FormatUint(uint64(c.num[n]), 10)
	case u32:
		return strconv.FormatUint(uint64(uint32(c.num[n])), 10)
	case instant:
		return time.Unix(0, c.num[n]).UTC().Format(instantLayout)
	}
	return strconv.FormatInt(c.num[n], 10)
}
