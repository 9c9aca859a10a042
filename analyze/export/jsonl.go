package export

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
)

// jsonlSink writes a JSON object on each line. Numbers are JSON integers of up
// to 64 bits: readers that keep them as doubles, as JavaScript's does, lose the
// low bits of addresses.
type jsonlSink struct {
	w    *bufio.Writer
	keys [][]byte // with what stands before each
	text bytes.Buffer
	enc  *json.Encoder
}

func openJSONL(w io.Writer, shape *batch) (sink, error) {
	s := &jsonlSink{w: bufio.NewWriterSize(w, 1<<16)}
	s.enc = json.NewEncoder(&s.text)
	s.enc.SetEscapeHTML(false)
	before := byte('{')
	for i := range shape.cols {
		s.keys = append(s.keys, append(append([]byte{before}, s.quote(shape.cols[i].name)...), ':'))
		before = ','
	}
	return s, nil
}

// quote is a text in JSON's words. What is no UTF-8 is replaced.
func (s *jsonlSink) quote(v string) []byte {
	s.text.Reset()
	_ = s.enc.Encode(v) // of a string, into memory
	return bytes.TrimSuffix(s.text.Bytes(), []byte("\n"))
}

func (s *jsonlSink) write(b *batch) error {
	for n := range b.rows {
		for i := range b.cols {
			s.w.Write(s.keys[i])
			c := &b.cols[i]
			if c.typ == text || c.typ == instant {
				s.w.Write(s.quote(c.text(n)))
			} else {
				s.w.WriteString(c.text(n))
			}
		}
		if _, err := s.w.WriteString("}\n"); err != nil {
			return err
		}
	}
	return nil
}

func (s *jsonlSink) close() error { return s.w.Flush() }
