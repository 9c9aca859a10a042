package dwarf

import "encoding/binary"

// An Index says where in a package of split units each of them has its parts.
type Index struct {
	rows map[uint64][]Part
}

// A Part is a unit's share of a section.
type Part struct {
	Section  PartOf
	At, Size uint32
}

// A PartOf is a section that a package has parts of, by the number that version 5
// has for it.
type PartOf uint32

const (
	PartInfo       PartOf = 1
	PartAbbrev     PartOf = 3
	PartLine       PartOf = 4
	PartStrOffsets PartOf = 6
	PartRngLists   PartOf = 8
)

// ReadIndex reads .debug_cu_index, of GNU's version 2 or of version 5.
func ReadIndex(b []byte, order binary.ByteOrder) *Index {
	r := reader{b: b, order: order}
	version := r.number(4)
	if order == binary.BigEndian && version>>16 == 5 {
		version = 5 // it has two bytes, and two of room
	}
	columns, units, slots := r.number(4), r.number(4), r.number(4)
	x := &Index{rows: map[uint64][]Part{}}
	need := 12*slots + 4*columns + 8*columns*units
	if version != 2 && version != 5 || columns == 0 || columns > 16 || units > slots || slots > uint64(len(b)) || r.bad || need > uint64(len(b)-r.at) {
		return x
	}
	ids, rows := r.at, r.at+int(8*slots)
	names := rows + int(4*slots)
	offsets := names + int(4*columns)
	sizes := offsets + int(4*columns*units)
	word := func(at int) uint32 { return order.Uint32(b[at:]) }
	for i := range int(slots) {
		n := word(rows + 4*i)
		if n == 0 || uint64(n) > units {
			continue
		}
		var parts []Part
		for c := range int(columns) {
			p := Part{Section: PartOf(word(names + 4*c))}
			if version == 2 && p.Section > PartStrOffsets || version == 2 && p.Section == 5 {
				continue // of macros and variables
			}
			at := 4 * (int(n-1)*int(columns) + c)
			p.At, p.Size = word(offsets+at), word(sizes+at)
			parts = append(parts, p)
		}
		x.rows[order.Uint64(b[ids+8*i:])] = parts
	}
	return x
}

// Parts are a unit's, by its id.
func (x *Index) Parts(id uint64) []Part { return x.rows[id] }
