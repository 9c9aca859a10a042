package leaks

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/gpurec/gpurec/format"
)

// Suppressions are patterns of places whose memory is kept on purpose. A file
// has one a line; empty lines and those that begin with # say nothing.
//
//	train.py:*:load_weights     # is no comment: a path may hold it
//	[thread pt_autograd_0]
//	*/torch/cuda/*
//
// A pattern stands for a line, file:line:function, on whole of it or from a
// path's separator on; * is any text. A site is suppressed when a line of its
// stack matches.
type Suppressions struct {
	patterns []pattern
	frames   map[format.FrameID]int // line of the pattern that matches, 0 none; of one trace
	defs     *format.Defs
	buf      []format.FrameID
}

type pattern struct {
	line int // of the file
	text []string
	used bool
}

const mostSuppressions = 10_000

// ReadSuppressions reads a file of them.
func ReadSuppressions(r io.Reader) (*Suppressions, error) {
	s := &Suppressions{}
	in := bufio.NewScanner(r)
	for n := 1; in.Scan(); n++ {
		t := strings.TrimSpace(in.Text())
		if t == "" || t[0] == '#' {
			continue
		}
		if len(s.patterns) == mostSuppressions {
			return nil, fmt.Errorf("line %d: more than %d suppressions", n, mostSuppressions)
		}
		s.patterns = append(s.patterns, pattern{line: n, text: strings.Split(t, "*")})
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("read suppressions: %w", err)
	}
	return s, nil
}

// of is the line of the file that suppresses a stack, 0 where none does.
func (s *Suppressions) of(defs *format.Defs, stack format.StackID) int {
	if s == nil || len(s.patterns) == 0 {
		return 0
	}
	if s.defs != defs {
		s.defs, s.frames = defs, map[format.FrameID]int{}
	}
	s.buf, _ = defs.Walk(stack, s.buf[:0])
	for i := len(s.buf) - 1; i >= 0; i-- {
		id := s.buf[i]
		n, known := s.frames[id]
		if !known {
			if f, ok := defs.Frame(id); ok { // else its row may be yet to come
				n = s.match(f.String())
				s.frames[id] = n
			}
		}
		if n > 0 {
			return n
		}
	}
	return 0
}

// match is the line of the first pattern that matches.
func (s *Suppressions) match(text string) int {
	for i := range s.patterns {
		p := &s.patterns[i]
		for t := text; ; {
			if glob(p.text, t) {
				p.used = true
				return p.line
			}
			slash := strings.IndexByte(t, '/')
			if slash < 0 {
				break
			}
			t = t[slash+1:]
		}
	}
	return 0
}

// glob reports whether pieces stand in t in their order, the first at its begin
// and the last at its end.
func glob(pieces []string, t string) bool {
	first, last := pieces[0], pieces[len(pieces)-1]
	if len(pieces) == 1 {
		return t == first
	}
	if !strings.HasPrefix(t, first) || len(t) < len(first)+len(last) || !strings.HasSuffix(t, last) {
		return false
	}
	t = t[len(first) : len(t)-len(last)]
	for _, p := range pieces[1 : len(pieces)-1] {
		i := strings.Index(t, p)
		if i < 0 {
			return false
		}
		t = t[i+len(p):]
	}
	return true
}

// unused are the lines of patterns that matched nothing.
func (s *Suppressions) unused() (lines []int) {
	if s == nil {
		return nil
	}
	for _, p := range s.patterns {
		if !p.used {
			lines = append(lines, p.line)
		}
	}
	return lines
}

func (s *Suppressions) len() int {
	if s == nil {
		return 0
	}
	return len(s.patterns)
}
