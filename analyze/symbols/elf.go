package symbols

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"regexp"
	"sort"
	"strconv"
	"strings"

	"github.com/ianlancetaylor/demangle"
)

// An image is an ELF file that may be a module's, or its debug file.
type image struct {
	path    string
	file    *os.File // nil: it lies in another
	elf     *elf.File
	buildID string // in hex; "" where it has none
}

// maxNotes bounds what is read of a file's notes.
const maxNotes = 64 << 10

// maxNoteSections is how many sections, or segments, of notes are looked at.
const maxNoteSections = 64

// openImage opens what is an ELF file of 64 bits. What is no regular file is
// refused and not waited for; nor is one of the kernel's that says it is empty:
// /proc/kmsg is such a file, and whoever reads it waits.
func openImage(path string) (*image, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	if fi.Size() < headerSize {
		return nil, fmt.Errorf("%s is not read as an ELF file: it is too short", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	var e *elf.File
	if err = affordable(f); err == nil {
		e, err = elf.NewFile(f)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s is not read as an ELF file: %w", path, err)
	}
	img := &image{path: path, file: f, elf: e}
	img.buildID = img.note()
	return img, nil
}

func (g *image) close() {
	if g.file != nil {
		g.file.Close()
	}
}

// raw is a section as it lies in the file; of a compressed one, which has no
// business to be where this is asked for, nothing.
func raw(s *elf.Section) io.ReaderAt {
	if s.ReaderAt == nil {
		return strings.NewReader("")
	}
	return s.ReaderAt
}

// note is the build id: of the sections' notes, which a debug file has too, else
// of the segments'.
func (g *image) note() string {
	n := 0
	for _, s := range g.elf.Sections {
		if n == maxNoteSections {
			break
		}
		if s.Type == elf.SHT_NOTE {
			n++
			if id := buildID(io.NewSectionReader(raw(s), 0, maxNotes), g.elf.ByteOrder); id != "" {
				return id
			}
		}
	}
	n = 0
	for _, p := range g.elf.Progs {
		if n == maxNoteSections {
			break
		}
		if p.Type == elf.PT_NOTE {
			n++
			if id := buildID(io.NewSectionReader(p, 0, maxNotes), g.elf.ByteOrder); id != "" {
				return id
			}
		}
	}
	return ""
}

// buildID looks for GNU's note of that kind among notes.
func buildID(r io.Reader, order binary.ByteOrder) string {
	b, _ := io.ReadAll(r)
	for len(b) >= 12 {
		name, desc, kind := uint64(order.Uint32(b)), uint64(order.Uint32(b[4:])), order.Uint32(b[8:])
		b = b[12:]
		at := (name + 3) &^ 3
		if at+desc > uint64(len(b)) {
			return ""
		}
		if kind == 3 && string(b[:name]) == "GNU\x00" {
			return hex.EncodeToString(b[at : at+desc])
		}
		b = b[min((at+desc+3)&^3, uint64(len(b))):]
	}
	return ""
}

// link is the name of the debug file that .gnu_debuglink has, and its checksum.
func (g *image) link() (name string, crc uint32) {
	s := g.elf.Section(".gnu_debuglink")
	if s == nil {
		return "", 0
	}
	b, _ := io.ReadAll(io.NewSectionReader(raw(s), 0, 4096))
	end := bytes.IndexByte(b, 0)
	if end < 1 || (end+4)&^3+4 > len(b) {
		return "", 0
	}
	return string(b[:end]), g.elf.ByteOrder.Uint32(b[(end+4)&^3:])
}

// A symbol is the function that an address lies in, as far as it is known.
type symbol struct {
	start, size uint64
	name        uint32 // in the table's strings
	rank        uint8  // of several at one address: global over weak over local
	section     uint16
}

// symbolSize is that of an ELF symbol of 64 bits.
const symbolSize = 24

// symbols finds the functions of addrs, which are sorted, in a symbol table of
// that type: the nearest that begins at or before each. The table is read as a
// stream, so its size does not matter to memory. names are by the index of the
// address; those that are there stay.
func (g *image) symbols(b *budget, table elf.SectionType, addrs []uint64, names []string) error {
	for _, s := range g.elf.Sections {
		if s.Type != table || s.Flags&elf.SHF_COMPRESSED != 0 {
			continue
		}
		if int(s.Link) >= len(g.elf.Sections) {
			return fmt.Errorf("%s: its symbols' strings are section %d of %d", g.path, s.Link, len(g.elf.Sections))
		}
		found, err := g.nearest(b, s, addrs)
		if err != nil {
			return err
		}
		text := g.elf.Sections[s.Link]
		for i, sym := range found {
			if names[i] != "" || sym.rank == 0 || !g.covers(&sym, addrs[i]) {
				continue
			}
			names[i] = demangled(textAt(text, sym.name))
		}
		return nil
	}
	return nil
}

func (g *image) nearest(b *budget, s *elf.Section, addrs []uint64) ([]symbol, error) {
	best := make([]symbol, len(addrs))
	buf := make([]byte, symbolSize<<12)
	order := g.elf.ByteOrder
	for at := int64(0); ; at += int64(len(buf)) {
		if err := b.check(); err != nil {
			return nil, err
		}
		n, err := raw(s).ReadAt(buf, at)
		for p := buf[:n-n%symbolSize]; len(p) > 0; p = p[symbolSize:] {
			kind, section := elf.SymType(p[4]&0xf), order.Uint16(p[6:])
			if kind != elf.STT_FUNC && kind != elf.STT_GNU_IFUNC && kind != elf.STT_NOTYPE || section == 0 {
				continue
			}
			sym := symbol{start: order.Uint64(p[8:]), size: order.Uint64(p[16:]), name: order.Uint32(p), section: section, rank: rank(kind, p[4]>>4)}
			i := sort.Search(len(addrs), func(i int) bool { return addrs[i] >= sym.start })
			if i < len(best) && (sym.start > best[i].start || sym.rank > best[i].rank && sym.start == best[i].start || best[i].rank == 0) {
				best[i] = sym
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read the symbols of %s: %w", g.path, err)
		}
	}
	for i := 1; i < len(best); i++ { // the nearest before an address may be before the one before it
		if best[i].rank == 0 || best[i-1].rank != 0 && best[i-1].start > best[i].start {
			best[i] = best[i-1]
		}
	}
	return best, nil
}

// rank is over 0. A label that is no function counts least: assembly has such.
func rank(kind elf.SymType, bind uint8) uint8 {
	r := uint8(1)
	if kind != elf.STT_NOTYPE {
		r += 3
	}
	switch elf.SymBind(bind) {
	case elf.STB_GLOBAL:
		return r + 2
	case elf.STB_WEAK:
		return r + 1
	}
	return r
}

// covers reports whether a symbol holds an address: of one without a size, its
// section must.
func (g *image) covers(sym *symbol, addr uint64) bool {
	if sym.size > 0 {
		return addr-sym.start < sym.size
	}
	if int(sym.section) >= len(g.elf.Sections) {
		return false
	}
	s := g.elf.Sections[sym.section]
	return s.Flags&elf.SHF_EXECINSTR != 0 && sym.start >= s.Addr && addr-s.Addr < s.Size
}

// maxName bounds a function's name as its compiler wrote it.
const maxName = 16 << 10

// textAt is a string of a string table, "" where it is not there or too long.
func textAt(s *elf.Section, at uint32) string {
	var b [256]byte
	var name []byte
	for off := int64(at); len(name) < maxName; off += int64(len(b)) {
		n, err := raw(s).ReadAt(b[:], off)
		if end := bytes.IndexByte(b[:n], 0); end >= 0 {
			return string(append(name, b[:end]...))
		}
		name = append(name, b[:n]...)
		if err != nil {
			return ""
		}
	}
	return ""
}

// demangled is a name as its language has it, of C++ without parameters, so that
// a line of a tree is file:line:function in every language. Of Go's generic
// functions it has [...], as Go prints them: one is compiled for several types. Rust
// before its version 0 of names writes letters beyond ASCII as $u and their number.
func demangled(name string) string {
	if len(name) > maxName {
		return ""
	}
	if from, to := strings.Index(name, "["), strings.LastIndex(name, "]"); strings.Contains(name, "[go.shape.") && from < to {
		return name[:from] + "[...]" + name[to+1:]
	}
	plain := demangle.Filter(name, demangle.NoParams, demangle.NoEnclosingParams, demangle.NoClones, demangle.MaxLength(12))
	if plain == name {
		return clones.ReplaceAllString(plain, "")
	}
	if strings.Contains(plain, "$u") {
		plain = escaped.ReplaceAllStringFunc(plain, func(s string) string {
			n, _ := strconv.ParseUint(s[2:len(s)-1], 16, 32)
			return string(rune(n))
		})
	}
	return plain
}

// clones end the names of what GCC makes of a function of C, as DWARF does not: left
// there, sort.constprop.0 would be taken for one of Go's package sort.
var clones = regexp.MustCompile(`(\.(constprop|isra|part|lto_priv)\.[0-9]+)+(\.cold)?$`)

var escaped = regexp.MustCompile(`\$u[0-9a-f]{1,6}\$`)
