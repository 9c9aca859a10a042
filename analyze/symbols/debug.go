package symbols

import (
	"bytes"
	"compress/zlib"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/gpurec/gpurec/analyze/symbols/dwarf"
	"github.com/gpurec/gpurec/format"
)

// debugSections are those of DWARF that lines and functions need.
func debugSections(s *dwarf.Sections) map[string]*[]byte {
	return map[string]*[]byte{"info": &s.Info, "abbrev": &s.Abbrev, "line": &s.Line, "str": &s.Str, "line_str": &s.LineStr,
		"str_offsets": &s.StrOffsets, "addr": &s.Addr, "ranges": &s.Ranges, "rnglists": &s.RngLists}
}

// dwo ends the names of sections that belong to a split unit.
const dwo = ".dwo"

// section is one of DWARF's, in the old way of compressing too.
func (g *image) section(name string) *elf.Section {
	if all := g.all(name); len(all) > 0 {
		return all[0]
	}
	return nil
}

// all are the sections of that name: a file of a split unit, which no linker has
// seen, may have several units in as many.
func (g *image) all(name string) (out []*elf.Section) {
	for _, s := range g.elf.Sections {
		if s.Type != elf.SHT_NOBITS && (s.Name == ".debug_"+name || s.Name == ".zdebug_"+name) {
			out = append(out, s)
		}
	}
	return out
}

// debugSize is what DWARF takes in memory; 0 where there is none.
func (g *image) debugSize() uint64 { return g.sizeOf("") }

func (g *image) sizeOf(suffix string) (n uint64) {
	if g.section("info"+suffix) == nil || g.section("abbrev"+suffix) == nil {
		return 0
	}
	for name := range debugSections(&dwarf.Sections{}) {
		for _, s := range g.all(name + suffix) {
			n = min(n+plainSize(s), 1<<62)
		}
	}
	return n
}

// oldHeader is before what .zdebug_ compresses: "ZLIB" and its size.
const oldHeader = 12

func plainSize(s *elf.Section) uint64 {
	var h [oldHeader]byte
	if s.Name[1] == 'z' {
		if n, _ := raw(s).ReadAt(h[:], 0); n == len(h) && string(h[:4]) == "ZLIB" {
			return min(binary.BigEndian.Uint64(h[4:]), 1<<61)
		}
	}
	return min(s.Size, 1<<61)
}

// debugData is a section's content; its size has been judged.
func debugData(s *elf.Section) ([]byte, error) {
	if s.Name[1] != 'z' && s.ReaderAt != nil { // in one piece: Data grows, and copies, as it reads
		if _, err := s.ReadAt(make([]byte, 1), int64(s.Size)-1); s.Size > 0 && err != nil {
			return nil, io.ErrUnexpectedEOF
		}
		b := make([]byte, s.Size)
		_, err := io.ReadFull(io.NewSectionReader(s, 0, int64(s.Size)), b)
		return b, err
	}
	if s.Name[1] != 'z' {
		return s.Data()
	}
	size := int64(plainSize(s))
	r, err := zlib.NewReader(io.NewSectionReader(raw(s), oldHeader, int64(s.FileSize)))
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer // grows with what there is, not with what is claimed
	if _, err := io.Copy(&b, io.LimitReader(r, size)); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func tooLarge(path string, size uint64, most int64) error {
	return fmt.Errorf("%s has %s of debug information, more than %s", path, format.Bytes(int64(size)), format.Bytes(most))
}

// sections reads what there is of DWARF; its size has been judged.
func (g *image) sections(b *budget, suffix string) (*dwarf.Sections, error) {
	out := &dwarf.Sections{Order: g.elf.ByteOrder}
	for name, to := range debugSections(out) {
		for _, s := range g.all(name + suffix) {
			if err := b.check(); err != nil {
				return nil, err
			}
			data, err := debugData(s)
			if err != nil {
				return nil, fmt.Errorf("section %s: %w", s.Name, err)
			}
			if *to == nil {
				*to = data
			} else {
				*to = append(*to, data...)
			}
		}
	}
	return out, nil
}

// places finds of each address of a module the functions that it lies in.
func (g *image) places(b *budget, find *finder, m *Module, most int64) (*dwarf.Answer, error) {
	s, err := g.sections(b, "")
	if err == nil {
		x := &split{b: b, find: find, img: g, module: m.Path, most: most}
		defer x.close()
		q := dwarf.Query{Addrs: m.addrs, Check: b.check, Progress: b.progress, Demangle: demangled, Split: x.sections}
		if name, id := g.other(); name != "" {
			q.Other = func() (*dwarf.Sections, error) { return x.other(name, id) }
		}
		var answer *dwarf.Answer
		if answer, err = dwarf.Find(s, q); err == nil {
			return answer, nil
		}
	}
	return nil, fmt.Errorf("read the debug information of %s: %w", g.path, err)
}
