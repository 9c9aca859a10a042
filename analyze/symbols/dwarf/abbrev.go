package dwarf

import (
	"errors"
	"fmt"
)

const (
	mostAttributes = 256 // of an entry; compilers write up to 30
	mostDense      = 1 << 16
	mostShapes     = 16 << 20 // of a file, each as much as five attributes: 256 MiB
)

// An abbrev is the shape of entries.
type abbrev struct {
	code     uint64
	tag      uint16
	children bool
	plain    bool // nothing in it is asked for, and all of it has a size:
	bytes    int  // of itself,
	addrs    int  // addresses,
	offsets  int  // offsets,
	refs     int  // and references within a file
	fields   []field
}

// A field is an attribute of a shape.
type field struct {
	form     uint16
	slot     slot
	constant int64 // of formImplicitConst
}

// A table is the shapes that a unit's entries count.
type table struct {
	dense  []*abbrev // by code - 1: as compilers number them
	sparse map[uint64]*abbrev
	err    error // why there is none
}

func (t *table) find(code uint64) *abbrev {
	if code-1 < uint64(len(t.dense)) {
		return t.dense[code-1]
	}
	return t.sparse[code]
}

// table reads the shapes at an offset, once, also where it cannot. Tables that lie
// over each other, which would make of little much, are no compiler's: they, and more
// than any has, are an end of all.
func (f *file) table(at uint64) (*table, error) {
	t := f.tables[at]
	if t == nil {
		t = &table{sparse: map[uint64]*abbrev{}}
		if t.err = f.read(t, at); f.tables == nil {
			f.tables = map[uint64]*table{}
		}
		f.tables[at] = t
	}
	return t, t.err
}

func (f *file) read(t *table, at uint64) error {
	if f.unread != nil {
		return f.unread
	}
	if at >= uint64(len(f.Abbrev)) {
		return fmt.Errorf("abbreviations at %#x of %#x", at, len(f.Abbrev))
	}
	r := reader{b: f.Abbrev, at: int(at), order: f.Order}
	defer func() { f.abbreviated += r.at - int(at) }()
	for {
		a := &abbrev{code: r.uleb()}
		if a.code == 0 || r.bad {
			break
		}
		tag := r.uleb()
		a.tag, a.children = uint16(min(tag, 0xffff)), r.u8() != 0
		if err := a.read(&r); err != nil {
			return fmt.Errorf("the abbreviations at %#x: %w", at, err)
		}
		if f.abbreviated+r.at-int(at) > len(f.Abbrev) {
			f.unread = fatal{errors.New("its abbreviations lie over each other")}
			return f.unread
		}
		if f.shapes += 5 + len(a.fields); f.shapes > mostShapes {
			f.unread = fatal{errors.New("it has more abbreviations than any program")}
			return f.unread
		}
		if a.code == uint64(len(t.dense))+1 && len(t.dense) < mostDense {
			t.dense = append(t.dense, a)
		} else if t.find(a.code) == nil {
			t.sparse[a.code] = a
		}
	}
	return nil
}

// read reads a shape's attributes, and whether its entries can be passed at once.
func (a *abbrev) read(r *reader) error {
	a.plain = true
	for n := 0; ; n++ {
		if n > mostAttributes {
			return fmt.Errorf("an entry has more than %d attributes", mostAttributes)
		}
		attr, form := r.uleb(), r.uleb()
		if r.bad || attr == 0 && form == 0 {
			return nil
		}
		f := field{form: uint16(min(form, 0xffff)), slot: slotOf(a.tag, attr)}
		if f.form == formImplicitConst {
			f.constant = r.sleb()
		}
		a.fields = append(a.fields, f)
		switch size := sizeOf(f.form); {
		case f.slot != none, size == sizeVaries:
			a.plain = false
		case size == sizeAddress:
			a.addrs++
		case size == sizeOffset:
			a.offsets++
		case size == sizeReference:
			a.refs++
		default:
			a.bytes += size
		}
	}
}
