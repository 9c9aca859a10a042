package symbols

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The readers of ELF and DWARF in Go's library believe what a file says of sizes
// that are within it, and a file may be sparse, or say one thing many times. What
// would take more memory than any program's needs is found before they are asked.
const (
	headerSize     = 64      // of an ELF file of 64 bits
	sectionSize    = 64      // of one's entry in the table of sections
	mostSections   = 1 << 18 // an object file has one for each function, a program 40
	mostNames      = 16 << 20
	mostAttributes = 256 // of an entry of DWARF; compilers write up to 30
)

// affordable reports why the table of sections or that of their names, which are
// read as a whole, are none.
func affordable(r io.ReaderAt) error {
	var h [headerSize]byte
	if _, err := r.ReadAt(h[:], 0); err != nil {
		return err
	}
	if string(h[:4]) != elf.ELFMAG {
		return errors.New("it does not begin as one")
	}
	if elf.Class(h[elf.EI_CLASS]) != elf.ELFCLASS64 {
		return errors.New("it is not of 64 bits")
	}
	var order binary.ByteOrder = binary.LittleEndian
	if elf.Data(h[elf.EI_DATA]) == elf.ELFDATA2MSB {
		order = binary.BigEndian
	}
	table, each := order.Uint64(h[40:]), order.Uint16(h[58:])
	count, names := uint64(order.Uint16(h[60:])), uint64(order.Uint16(h[62:]))
	if table == 0 {
		return nil
	}
	if each != sectionSize {
		return fmt.Errorf("an entry of its table of sections has %d bytes", each)
	}
	var s [sectionSize]byte
	entry := func(i uint64) error {
		at := table + i*sectionSize
		if at < table || int64(at) < 0 {
			return io.ErrUnexpectedEOF
		}
		_, err := r.ReadAt(s[:], int64(at))
		return err
	}
	if count == 0 || names == uint64(elf.SHN_XINDEX) { // too many for the header: the first entry has the numbers
		if err := entry(0); err != nil {
			return fmt.Errorf("its table of sections is not there: %w", err)
		}
		if count == 0 {
			count = order.Uint64(s[32:])
		}
		if names == uint64(elf.SHN_XINDEX) {
			names = uint64(order.Uint32(s[40:]))
		}
	}
	if count > mostSections {
		return fmt.Errorf("it has %d sections", count)
	}
	if count == 0 || names >= count {
		return nil
	}
	if err := entry(names); err != nil {
		return fmt.Errorf("its table of sections is not there: %w", err)
	}
	if size, flags := order.Uint64(s[32:]), order.Uint64(s[8:]); size > mostNames || elf.SectionFlag(flags)&elf.SHF_COMPRESSED != 0 {
		return fmt.Errorf("its sections' names take %d bytes, or are compressed", size)
	}
	return nil
}

// abbreviations reports why the abbreviations that the units of .debug_info use,
// each unit's from a place of its own on, are no compiler's: their tables may not
// lie over each other, which would make of little much, and no entry has attributes
// without end.
func abbreviations(info, abbrev []byte, order binary.ByteOrder) error {
	seen := map[uint64]bool{}
	all := 0
	for len(info) >= 4 {
		length, word := uint64(order.Uint32(info)), 4
		info = info[4:]
		if length == 0xffffffff {
			if len(info) < 8 {
				break
			}
			length, word, info = order.Uint64(info), 8, info[8:]
		}
		if length > uint64(len(info)) {
			break // debug/dwarf says it
		}
		unit := info[:length]
		info = info[length:]
		at := 2
		if len(unit) >= 2 && order.Uint16(unit) >= 5 {
			at = 4
		}
		if len(unit) < at+word {
			continue
		}
		offset := uint64(order.Uint32(unit[at:]))
		if word == 8 {
			offset = order.Uint64(unit[at:])
		}
		if offset >= uint64(len(abbrev)) || seen[offset] {
			continue
		}
		seen[offset] = true
		n, err := tableLength(abbrev[offset:])
		if err != nil {
			return fmt.Errorf("the abbreviations at %#x: %w", offset, err)
		}
		if all += n; all > len(abbrev) {
			return errors.New("its abbreviations lie over each other")
		}
	}
	return nil
}

// tableLength is how many bytes a table of abbreviations takes, up to what there is.
func tableLength(b []byte) (int, error) {
	at := 0
	number := func() (n uint64) { // also of a signed one, whose value does not matter
		for shift := 0; at < len(b); shift += 7 {
			c := b[at]
			at++
			n |= uint64(c&0x7f) << min(shift, 63)
			if c < 0x80 {
				break
			}
		}
		return n
	}
	const implicitConst = 0x21 // the form whose value is in the abbreviation
	for at < len(b) && number() != 0 {
		number() // its tag
		at++     // whether it has entries below
		for attributes := 0; at < len(b); attributes++ {
			if attributes > mostAttributes {
				return 0, fmt.Errorf("an entry has more than %d attributes", mostAttributes)
			}
			name, form := number(), number()
			if name == 0 && form == 0 {
				break
			}
			if form == implicitConst {
				number()
			}
		}
	}
	return min(at, len(b)), nil
}
