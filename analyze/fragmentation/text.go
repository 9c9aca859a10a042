package fragmentation

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/tree"
	"github.com/gpurec/gpurec/format"
)

// WriteText writes r for people, of each pool so many segments and pins; 0 is
// all of them.
func (r *Report) WriteText(w io.Writer, most int) error {
	b := bufio.NewWriter(w)
	if len(r.Pools) == 0 {
		fmt.Fprintln(b, "no pool had a segment")
	}
	for i, p := range r.Pools {
		if i > 0 {
			fmt.Fprintln(b)
		}
		p.write(b, r.At, most)
	}
	return b.Flush()
}

func (p *Pool) write(w io.Writer, at string, most int) {
	device := fmt.Sprintf("device %d", p.Device)
	if p.Device == format.NoDevice {
		device = "device unknown"
	}
	if p.Name != "" {
		device += " (" + analyze.Short(p.Name) + ")"
	}
	when := ""
	switch {
	case at == Worst.String() && p.Pinned == 0:
		when = ", when its segments were largest; nothing was ever pinned"
	case at == Worst.String():
		when = ", when most was pinned"
	case at == End.String():
		when = ", at its end"
	}
	fmt.Fprintf(w, "%s  process %d on %s, at %s%s\n", analyze.Line(p.Trace), p.PID, device, analyze.Seconds(p.Time), when)
	row := func(depth int, name string, n int64, share bool, words ...string) {
		s := ""
		if share {
			s = fmt.Sprintf("%6.1f %%", 100*part(n, p.Bytes))
		}
		fmt.Fprintf(w, "%-*s%-*s %28s %8s  %s\n", 2+depth, "", 22-depth, name, tree.Size(n), s, strings.Join(words, ""))
	}
	row(0, "segments", p.Bytes, false, fmt.Sprintf("%d of them", len(p.Segments)))
	row(2, "in blocks", p.Occupied, true)
	row(2, "free", p.Free, true)
	row(4, "pinned", p.Pinned, true, "in segments that hold a block: they cannot be given back")
	row(4, "whole segments", p.Whole, true, "they can be")
	row(0, "still fits in a hole", p.Largest, false, "at most: streams and private pools are not recorded")
	if p.DeviceFree >= 0 {
		row(0, "free on the device", p.DeviceFree, false, "by NVML, corrected by what was acquired since its sample")
	}
	if p.Loose > 0 {
		row(0, "outside segments", p.Loose, false, "in stream-ordered pools, or events are missing")
	}
	p.writePins(w, most)
	p.writeSegments(w, most)
	p.writeHistory(w)
}

// shown is how many of n rows are.
func shown(n, most int) int {
	if most <= 0 {
		return n
	}
	return min(n, most)
}

func more(w io.Writer, n, most int, what string) {
	if left := n - shown(n, most); left > 0 {
		fmt.Fprintf(w, "    and %d more %s\n", left, what)
	}
}

func (p *Pool) writePins(w io.Writer, most int) {
	if len(p.Pins) == 0 {
		return
	}
	fmt.Fprintf(w, "\n  pinned by\n    %10s  %10s  %8s  %7s  %10s\n", "free", "alone", "segments", "blocks", "in blocks")
	for _, pin := range p.Pins[:shown(len(p.Pins), most)] {
		fmt.Fprintf(w, "    %10s  %10s  %8d  %7d  %10s  %s\n", format.Bytes(pin.Free), format.Bytes(pin.Alone), pin.Segments, pin.Blocks, format.Bytes(pin.Bytes), analyze.Line(pin.Line))
	}
	more(w, len(p.Pins), most, "lines")
}

func (p *Pool) writeSegments(w io.Writer, most int) {
	fmt.Fprintf(w, "\n  segments, most pinned first; # block, + some of it, . free\n    %-16s  %10s  %10s  %10s  %7s\n", "address", "size", "free", "largest", "blocks")
	for _, s := range p.Segments[:shown(len(p.Segments), most)] {
		pieces := ""
		if s.Pieces > 1 {
			pieces = fmt.Sprintf("  %d mappings", s.Pieces)
		}
		fmt.Fprintf(w, "    %-16s  %10s  %10s  %10s  %7d  |%s|  %s%s\n", s.Address, format.Bytes(s.Bytes), format.Bytes(s.Bytes-s.Occupied), format.Bytes(s.Largest), s.Blocks,
			s.picture(), analyze.Line(s.Line), pieces)
	}
	more(w, len(p.Segments), most, "segments")
}

const pictureWidth = 40

// picture is what the segment's parts hold, from its first byte to its last.
func (s *Segment) picture() string {
	var filled [pictureWidth]float64
	cell := float64(s.Bytes) / pictureWidth
	for _, v := range s.Intervals {
		if v.Line == "" || cell == 0 {
			continue
		}
		from, to := float64(v.Offset)/cell, float64(v.Offset+v.Bytes)/cell
		for i := int(from); i < pictureWidth && float64(i) < to; i++ {
			filled[i] += min(to, float64(i+1)) - max(from, float64(i))
		}
	}
	out := make([]byte, pictureWidth)
	for i, f := range filled {
		switch {
		case f > 0.999: // sums of parts
			out[i] = '#'
		case f > 0:
			out[i] = '+'
		default:
			out[i] = '.'
		}
	}
	return string(out)
}

// same reports whether a stretch says nothing that the one before did not.
func (h Stretch) same(b Stretch) bool {
	return h.Bytes == b.Bytes && h.Free == b.Free && h.Pinned == b.Pinned && h.Least == b.Least
}

func (p *Pool) writeHistory(w io.Writer) {
	if len(p.History) == 0 {
		return
	}
	fmt.Fprintf(w, "\n  over time: the worst moment of each stretch, where it is another than before\n    %-14s  %10s  %10s  %10s  %10s\n", "from", "segments", "free", "pinned", "least")
	for i, h := range p.History {
		if i > 0 && h.same(p.History[i-1]) {
			continue
		}
		fmt.Fprintf(w, "    %-14s  %10s  %10s  %10s  %10s  %5.1f %%  %s\n", analyze.Seconds(h.From), format.Bytes(h.Bytes), format.Bytes(h.Free), format.Bytes(h.Pinned), format.Bytes(h.Least), 100*h.Share,
			strings.Repeat("#", int(h.Share*pictureWidth+0.5)))
	}
}
