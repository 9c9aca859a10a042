package symbols

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The reader of ELF in Go's library believes what a file says of sizes that are
// within it, and a file may be sparse, or say one thing many times. What would take
// more memory than any program's needs is found before it is asked.
const (
	headerSize   = 64      // of an ELF file of 64 bits
	sectionSize  = 64      // of one's entry in the table of sections
	mostSections = 1 << 18 // an object file has one for each function, a program 40
	mostNames    = 16 << 20
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
