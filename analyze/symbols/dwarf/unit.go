package dwarf

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"sort"
)

// Sections are one file's, or what a package of split units has of one unit. Of a
// split unit they are those whose names end in .dwo.
type Sections struct {
	Order      binary.ByteOrder
	Info       []byte
	Abbrev     []byte
	Line       []byte
	Str        []byte
	LineStr    []byte
	StrOffsets []byte
	Addr       []byte
	Ranges     []byte
	RngLists   []byte
}

// Size is how many bytes there are.
func (s *Sections) Size() (n int64) {
	for _, b := range [][]byte{s.Info, s.Abbrev, s.Line, s.Str, s.LineStr, s.StrOffsets, s.Addr, s.Ranges, s.RngLists} {
		n += int64(len(b))
	}
	return n
}

// Holds reports whether a unit of split ones has that id.
func (s *Sections) Holds(id uint64) bool {
	f, _ := newFile(s, func(int) error { return nil })
	return f.split(id) != nil
}

// split is the unit of that id.
func (f *file) split(id uint64) *unit {
	for _, u := range f.units {
		if (u.kind == unitCompile || u.kind == unitSplitCompile) && u.open() == nil && u.id == id {
			return u
		}
	}
	return nil
}

// mostUnits is how many a file may have, each of 300 bytes in memory; a large program
// has some ten thousands.
const mostUnits = 1 << 20

// A file is sections and what has been read of them.
type file struct {
	*Sections
	other       func() *file // that dwz moved entries and strings to; nil: there is none
	units       []*unit      // by where they begin
	tables      map[uint64]*table
	abbreviated int   // bytes of Abbrev that were read
	shapes      int   // that they made; see mostShapes
	unread      error // why no more are; nil: they are
}

// Kinds of units in DWARF 5.
const (
	unitCompile      = 1
	unitType         = 2
	unitSkeleton     = 4
	unitSplitCompile = 5
	unitSplitType    = 6
)

// A unit is one compilation, or a part of it that several share.
type unit struct {
	f           *file
	at, end     int // in Info, its length included
	first       int // its first entry
	version     int
	kind        uint8
	word        int // bytes of an offset
	addrSize    int
	abbreviated uint64
	id          uint64 // that a skeleton and its split unit have in common

	// From its first entry.
	table                    *table
	strBase, addrBase        uint64
	rngListsBase, rangesBase uint64
	low                      uint64
	skeleton                 *unit // of a split unit
	scopes                   []scope
	scoped                   bool
	folderText, dwo          string
	lineTable                value
}

// newFile lists a file's units. What cannot be one ends the list, and is said.
func newFile(s *Sections, did func(int) error) (*file, error) {
	f := &file{Sections: s}
	r := reader{b: s.Info, order: s.Order}
	for r.at < len(r.b) {
		if err := did(1); err != nil {
			return f, err
		}
		u := &unit{f: f, at: r.at, word: 4, kind: unitCompile}
		length := r.number(4)
		if length == 0xffffffff {
			length, u.word = r.number(8), 8
		}
		if r.bad || length > uint64(len(r.b)-r.at) {
			return f, fmt.Errorf("the unit at %#x is longer than what there is", u.at)
		}
		u.end = r.at + int(length)
		next := u.end
		h := reader{b: r.b[:u.end], at: r.at, order: r.order}
		u.header(&h)
		r.at = next
		if length == 0 { // between units there may be room
			continue
		}
		if u.version < 2 || u.version > 5 {
			return f, fmt.Errorf("the unit at %#x is of DWARF %d, and only 2 to 5 are known", u.at, u.version)
		}
		if h.bad || u.addrSize != 4 && u.addrSize != 8 {
			return f, fmt.Errorf("the unit at %#x has addresses of %d bytes", u.at, u.addrSize)
		}
		if u.first = h.at; u.kind == unitType || u.kind == unitSplitType { // nothing asked for is in one
			continue
		}
		if f.units = append(f.units, u); len(f.units) > mostUnits {
			return f, fmt.Errorf("it has more than %d units", mostUnits)
		}
	}
	return f, nil
}

func (u *unit) header(r *reader) {
	u.version = int(r.number(2))
	if u.version < 5 {
		u.abbreviated = r.number(u.word)
		u.addrSize = int(r.u8())
		return
	}
	u.kind, u.addrSize = r.u8(), int(r.u8())
	u.abbreviated = r.number(u.word)
	switch u.kind {
	case unitSkeleton, unitSplitCompile:
		u.id = r.number(8)
	case unitType, unitSplitType:
		r.skip(uint64(8 + u.word))
	}
}

// unitAt is the one that holds an offset.
func (f *file) unitAt(at int) *unit {
	i := sort.Search(len(f.units), func(i int) bool { return f.units[i].end > at })
	if i == len(f.units) || at < f.units[i].first {
		return nil
	}
	return f.units[i]
}

// open reads a unit's first entry, which says where its numbers count from.
func (u *unit) open() (err error) {
	if u.table != nil {
		return nil
	}
	t, err := u.f.table(u.abbreviated)
	if err != nil {
		return err
	}
	u.table = t
	if u.first >= u.end {
		return nil
	}
	// Of a split unit the strings count from behind the section's head.
	if u.kind == unitSplitCompile {
		u.strBase, u.rngListsBase = uint64(2*u.word), uint64(2*u.word+4)
	}
	var e entry
	if err := e.read(u, u.first); err != nil || e.shape == nil {
		return err
	}
	for _, b := range []struct {
		slot slot
		to   *uint64
	}{{strOffsetsBase, &u.strBase}, {addrBase, &u.addrBase}, {rngListsBase, &u.rngListsBase}, {rangesBase, &u.rangesBase}} {
		if v := e.values[b.slot]; v.form != 0 {
			*b.to = v.u
		}
	}
	if v := e.values[dwoID]; v.form != 0 {
		u.id = v.u
	}
	u.low, _ = u.address(e.values[lowPC])
	u.folderText, u.dwo = u.string(e.values[folder]), u.string(e.values[dwoName])
	u.lineTable = e.values[stmtList]
	return nil
}

// address is an attribute's, which may be an index into a table of them: a split
// unit's is in its skeleton's file.
func (u *unit) address(v value) (uint64, bool) {
	switch v.form {
	case formAddr:
		return v.u, true
	case formAddrx, formAddrx1, formAddrx2, formAddrx3, formAddrx4, formGNUAddrIndex:
		of := u
		if u.skeleton != nil {
			of = u.skeleton
		}
		if v.u > math.MaxInt32 {
			return 0, false
		}
		return number(of.f.Addr, of.addrBase+v.u*uint64(u.addrSize), u.addrSize, u.f.Order)
	}
	return 0, false
}

// string is an attribute's; "" where it is none.
func (u *unit) string(v value) string {
	switch v.form {
	case formString:
		return textAt(u.f.Info[:u.end], v.u)
	case formStrp:
		return textAt(u.f.Str, v.u)
	case formLineStrp:
		return textAt(u.f.LineStr, v.u)
	case formStrx, formStrx1, formStrx2, formStrx3, formStrx4, formGNUStrIndex:
		if v.u > math.MaxInt32 {
			return ""
		}
		if at, ok := number(u.f.StrOffsets, u.strBase+v.u*uint64(u.word), u.word, u.f.Order); ok {
			return textAt(u.f.Str, at)
		}
	case formGNUStrpAlt, formStrpSup:
		if o := u.f.supplement(); o != nil {
			return textAt(o.Str, v.u)
		}
	}
	return ""
}

// supplement is the file that dwz moved to what several have in common.
func (f *file) supplement() *file {
	if f.other == nil {
		return nil
	}
	return f.other()
}

// number is one of so many bytes at an offset of a section, if it is there.
func number(b []byte, at uint64, size int, order binary.ByteOrder) (uint64, bool) {
	if at > uint64(len(b)) {
		return 0, false
	}
	r := reader{b: b, at: int(at), order: order}
	n := r.number(size)
	return n, !r.bad
}

// maxText bounds a name, or a path.
const maxText = 16 << 10

// textAt is a string at an offset of a section; "" where it is not there, or too
// long.
func textAt(b []byte, at uint64) string {
	if at >= uint64(len(b)) {
		return ""
	}
	b = b[at:]
	if end := bytes.IndexByte(b[:min(len(b), maxText)], 0); end >= 0 {
		return string(b[:end])
	}
	return ""
}

// A reader goes through bytes. Past their end it gives zeros and is bad.
type reader struct {
	b     []byte
	at    int
	order binary.ByteOrder
	bad   bool
}

func (r *reader) err(what string, at int) error {
	if r.bad {
		return fmt.Errorf("%s at %#x is longer than what there is", what, at)
	}
	return nil
}

func (r *reader) skip(n uint64) {
	if n > uint64(len(r.b)-r.at) {
		r.at, r.bad = len(r.b), true
		return
	}
	r.at += int(n)
}

func (r *reader) u8() uint8 {
	if r.at >= len(r.b) {
		r.bad = true
		return 0
	}
	r.at++
	return r.b[r.at-1]
}

// number is an unsigned one of 1, 2, 3, 4 or 8 bytes.
func (r *reader) number(size int) uint64 {
	if size > len(r.b)-r.at {
		r.at, r.bad = len(r.b), true
		return 0
	}
	b := r.b[r.at:]
	r.at += size
	switch size {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(r.order.Uint16(b))
	case 3:
		if r.order == binary.BigEndian {
			return uint64(b[0])<<16 | uint64(b[1])<<8 | uint64(b[2])
		}
		return uint64(b[2])<<16 | uint64(b[1])<<8 | uint64(b[0])
	case 4:
		return uint64(r.order.Uint32(b))
	}
	return r.order.Uint64(b)
}

func (r *reader) uleb() (n uint64) {
	for shift := 0; ; shift += 7 {
		c := r.u8()
		if shift < 64 {
			n |= uint64(c&0x7f) << shift
		}
		if c < 0x80 {
			return n
		}
	}
}

func (r *reader) sleb() int64 {
	var n int64
	for shift := 0; ; shift += 7 {
		c := r.u8()
		if shift < 64 {
			n |= int64(c&0x7f) << shift
		}
		if c < 0x80 {
			if c&0x40 != 0 && shift < 57 {
				n |= -1 << (shift + 7)
			}
			return n
		}
	}
}

// text passes a string.
func (r *reader) text() []byte {
	end := bytes.IndexByte(r.b[r.at:], 0)
	if end < 0 {
		r.at, r.bad = len(r.b), true
		return nil
	}
	s := r.b[r.at : r.at+end]
	r.at += end + 1
	return s
}
