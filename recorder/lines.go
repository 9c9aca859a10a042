package recorder

import (
	"encoding/binary"
	"unicode/utf16"
	"unicode/utf8"
)

// A lineTable is a code object's map from instructions to lines, in the form of
// its Python version.
type lineTable struct {
	first  int32
	python uint16 // 0x030b for 3.11
	table  []byte
	cut    bool // it travelled without its end
}

// line is the line of the instruction at a byte offset; 0 where it has none, or
// where the table was cut before it. -1 is a frame that has not started.
func (t *lineTable) line(offset int32) int32 {
	if t.python == 0 || offset < 0 {
		return t.first
	}
	switch {
	case t.python < 0x030a:
		return t.lnotab(offset)
	case t.python == 0x030a:
		return t.ranges(offset)
	}
	return t.locations(offset)
}

// lnotab is the table up to 3.9: pairs of an unsigned step of the address and a
// signed step of the line.
func (t *lineTable) lnotab(offset int32) int32 {
	addr, line := int32(0), t.first
	for i := 0; i+1 < len(t.table); i += 2 {
		if addr += int32(t.table[i]); addr > offset {
			return line
		}
		line += int32(int8(t.table[i+1]))
	}
	if t.cut {
		return 0
	}
	return line
}

// ranges is 3.10's: pairs of a length and a signed step of the line, where -128
// is a stretch without a line.
func (t *lineTable) ranges(offset int32) int32 {
	end, line := int32(0), t.first
	for i := 0; i+1 < len(t.table); i += 2 {
		end += int32(t.table[i])
		step := int8(t.table[i+1])
		if step != -128 {
			line += int32(step)
		}
		if end > offset {
			if step == -128 {
				return 0
			}
			return line
		}
	}
	return 0
}

// locations is the table from 3.11 on: an entry begins with 0x80 | code<<3 |
// length-1, in units of two bytes, and says by its code what follows.
func (t *lineTable) locations(offset int32) int32 {
	b, end, line := t.table, int32(0), t.first
	for len(b) > 0 {
		code := b[0] >> 3 & 15
		end += 2 * (int32(b[0]&7) + 1)
		b = b[1:]
		has := true
		switch {
		case code <= 9:
			b = skip(b, 1)
		case code <= 12:
			line += int32(code) - 10
			b = skip(b, 2)
		case code == 15:
			has = false
		default:
			var step int32
			step, b = signed(b)
			line += step
			if code == 14 {
				for range 3 {
					_, b = varint(b)
				}
			}
		}
		if end > offset {
			if !has {
				return 0
			}
			return line
		}
	}
	return 0
}

func skip(b []byte, n int) []byte { return b[min(n, len(b)):] }

// varint reads groups of six bits, the lowest first; bit 6 says that one more follows.
func varint(b []byte) (v uint32, rest []byte) {
	for shift := 0; len(b) > 0; shift += 6 {
		c := b[0]
		b = b[1:]
		if shift < 32 {
			v |= uint32(c&0x3f) << shift
		}
		if c&0x40 == 0 {
			break
		}
	}
	return v, b
}

// signed reads a varint whose lowest bit is the sign.
func signed(b []byte) (int32, []byte) {
	v, rest := varint(b)
	if v&1 != 0 {
		return -int32(v >> 1), rest
	}
	return int32(v >> 1), rest
}

// text turns characters of the given unit into UTF-8: 1 Latin-1, 2 UCS-2, 4
// UCS-4 or wchar_t, else UTF-8 already. What cannot be one becomes U+FFFD.
func text(b []byte, unit int) string {
	out := make([]byte, 0, len(b))
	switch unit {
	case 1:
		for _, c := range b {
			out = utf8.AppendRune(out, rune(c))
		}
	case 2:
		for ; len(b) >= 2; b = b[2:] {
			r := rune(binary.LittleEndian.Uint16(b))
			if utf16.IsSurrogate(r) { // Python's str has no pairs: this is an undecodable byte
				r = utf8.RuneError
			}
			out = utf8.AppendRune(out, r)
		}
	case 4:
		for ; len(b) >= 4; b = b[4:] {
			out = utf8.AppendRune(out, rune(binary.LittleEndian.Uint32(b)))
		}
	default:
		return valid(string(b))
	}
	return string(out)
}
