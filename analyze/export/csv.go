package export

import (
	"bufio"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// csvSink writes RFC 4180: a line of names, then the rows. encoding/csv would write
// the same; it looks at each byte of each text, most of which are stacks.
type csvSink struct {
	w    *bufio.Writer
	line []byte
}

func openCSV(w io.Writer, shape *batch) (sink, error) {
	s := &csvSink{w: bufio.NewWriterSize(w, 1<<16)}
	for i := range shape.cols {
		s.line = appendCSV(append(s.line, s.comma(i)...), shape.cols[i].name)
	}
	return s, s.end()
}

func (*csvSink) comma(i int) string {
	if i == 0 {
		return ""
	}
	return ","
}

// end writes the line.
func (s *csvSink) end() error {
	_, err := s.w.Write(append(s.line, '\n'))
	s.line = s.line[:0]
	return err
}

func (s *csvSink) write(b *batch) error {
	for n := range b.rows {
		for i := range b.cols {
			c := &b.cols[i]
			s.line = append(s.line, s.comma(i)...)
			if c.typ == text {
				s.line = appendCSV(s.line, c.str[n])
			} else {
				s.line = c.append(s.line, n)
			}
		}
		if err := s.end(); err != nil {
			return err
		}
	}
	return nil
}

func (s *csvSink) close() error { return s.w.Flush() }

// appendCSV appends a text, in quotes where a reader needs them.
func appendCSV(line []byte, s string) []byte {
	if !quoted(s) {
		return append(line, s...)
	}
	line = append(line, '"')
	for {
		before, after, more := strings.Cut(s, `"`)
		line = append(line, before...)
		if !more {
			return append(line, '"')
		}
		line = append(line, `""`...)
		s = after
	}
}

// quoted reports whether a text stands in quotes: also what begins with a space,
// which some readers drop, and PostgreSQL's end of data.
func quoted(s string) bool {
	if s == "" {
		return false
	}
	for _, c := range []byte{',', '"', '\n', '\r'} {
		if strings.IndexByte(s, c) >= 0 {
			return true
		}
	}
	first, _ := utf8.DecodeRuneInString(s)
	return unicode.IsSpace(first) || s == `\.`
}

// instantLayout always has nine digits, so that texts sort as times do.
const instantLayout = "2006-01-02T15:04:05.000000000Z"

// text is the n-th value as text.
func (c *cells) text(n int) string {
	if c.typ == text {
		return c.str[n]
	}
	return string(c.append(nil, n))
}

// append appends the n-th value, a number or an instant.
func (c *cells) append(to []byte, n int) []byte {
	switch c.typ {
	case u64:
		return strconv.AppendUint(to, uint64(c.num[n]), 10)
	case u32:
		return strconv.AppendUint(to, uint64(uint32(c.num[n])), 10)
	case instant:
		return time.Unix(0, c.num[n]).UTC().AppendFormat(to, instantLayout)
	}
	return strconv.AppendInt(to, c.num[n], 10)
}
