package symbols

import (
	"context"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// A part is a section of a file that elfOf makes: content, then a hole.
type part struct {
	name    string
	kind    elf.SectionType
	link    uint32
	content []byte
	hole    int64
}

// elfOf makes a file of these sections and one of their names, unless the last is
// that.
func elfOf(t *testing.T, parts []part) string {
	t.Helper()
	le := binary.LittleEndian
	names := []byte{0}
	headers := make([]byte, sectionSize) // the first is none
	body := make([]byte, headerSize)
	size := int64(0)
	add := func(name uint32, p part) {
		h := make([]byte, sectionSize)
		le.PutUint32(h, name)
		le.PutUint32(h[4:], uint32(p.kind))
		le.PutUint64(h[24:], uint64(len(body)))
		le.PutUint64(h[32:], uint64(len(p.content))+uint64(p.hole))
		le.PutUint32(h[40:], p.link)
		headers = append(headers, h...)
		body = append(body, p.content...)
		size = max(size, int64(len(body))+p.hole)
	}
	for _, p := range parts {
		at := uint32(len(names))
		names = append(append(names, p.name...), 0)
		add(at, p)
	}
	own := part{kind: elf.SHT_STRTAB, content: names}
	if len(parts) > 0 && parts[len(parts)-1].name == ".shstrtab" {
		own = parts[len(parts)-1]
	}
	add(0, own)
	copy(body, elf.ELFMAG)
	body[elf.EI_CLASS], body[elf.EI_DATA], body[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), 1
	le.PutUint16(body[16:], uint16(elf.ET_DYN))
	le.PutUint16(body[18:], uint16(elf.EM_X86_64))
	le.PutUint32(body[20:], 1)
	le.PutUint64(body[40:], uint64(len(body)))
	le.PutUint16(body[52:], headerSize)
	le.PutUint16(body[54:], 56)
	le.PutUint16(body[58:], sectionSize)
	le.PutUint16(body[60:], uint16(len(headers)/sectionSize))
	le.PutUint16(body[62:], uint16(len(headers)/sectionSize-1))
	path := filepath.Join(t.TempDir(), "hostile")
	if err := os.WriteFile(path, append(body, headers...), 0o600); err != nil {
		t.Fatal(err)
	}
	if size > int64(len(body)) {
		if err := os.Truncate(path, size); err != nil {
			t.Skipf("no sparse file can be made here: %v", err)
		}
	}
	return path
}

// units are n units of DWARF 4 with no more than the beginning of an entry, the
// abbreviations of each so many bytes further on.
func units(n, apart int) []byte {
	var b []byte
	for i := range n {
		b = append(b, unitOf(uint32(apart*i), 0)...)
	}
	return b
}

// unitOf is one of DWARF 4, with abbreviations there.
func unitOf(abbrev uint32, entries ...byte) []byte {
	le := binary.LittleEndian
	b := le.AppendUint16(le.AppendUint32(nil, uint32(7+len(entries))), 4)
	return append(append(le.AppendUint32(b, abbrev), 8), entries...)
}

// Files that would make much of little, or of nothing, are found out in little
// memory, and said.
func TestHostileSizes(t *testing.T) {
	const huge = 10 << 30
	var tables []byte // an entry each 5 bytes
	for range 40_000 {
		tables = append(tables, 1, 2, 0, 0, 0)
	}
	many := []byte{} // as those, numbered
	for i := range 2000 {
		many = append(binary.AppendUvarint(many, uint64(i+2)), 2, 0, 0, 0)
	}
	wide := append(append([]byte{1, 2, 0}, strings.Repeat("\x03\x19", 1<<20)...), 0, 0, 0)
	// Of a unit at 0x1000, a function in 2,000 namespaces each named with a letter.
	scopes := []byte{1, 0x11, 1, 0x11, 1, 0x12, 6, 0, 0, 2, 0x39, 1, 3, 8, 0, 0, 3, 0x2e, 0, 3, 8, 0x11, 1, 0x12, 6, 0, 0, 0}
	held := []byte{0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0x20, 0, 0}
	deep := append([]byte{1}, held...)
	for range 2000 {
		deep = append(deep, 2, 'n', 0)
	}
	deep = append(append(deep, 3, 'f', 0), held...)
	// A line table of version 5 whose files take a byte each.
	files := append([]byte{5, 0, 8, 0, 0, 0, 0, 0, 1, 1, 0, 1, 1, 0, 0, 0, 1, 2, 0x0b, 0x80, 0x80, 0x80, 1}, make([]byte, 2<<20)...)
	files = append(binary.LittleEndian.AppendUint32(nil, uint32(len(files))), files...)
	binary.LittleEndian.PutUint32(files[8:], uint32(len(files)-12))
	lined := []byte{1, 0x11, 0, 0x11, 1, 0x12, 6, 0x10, 0x17, 0, 0, 0}
	var notes []part
	for range 60_000 {
		notes = append(notes, part{name: "n", kind: elf.SHT_NOTE, hole: huge})
	}
	for _, c := range []struct {
		name  string
		parts []part
		why   string
	}{
		{"names in a hole", []part{{name: ".shstrtab", kind: elf.SHT_STRTAB, hole: huge}}, "sections' names take"},
		{"notes in a hole, many times", notes, ""},
		{"abbreviations over each other", []part{{name: ".debug_abbrev", kind: elf.SHT_PROGBITS, content: tables}, {name: ".debug_info", kind: elf.SHT_PROGBITS, content: units(40_000, 5)}}, "lie over each other"},
		{"an entry with attributes without end", []part{{name: ".debug_abbrev", kind: elf.SHT_PROGBITS, content: wide}, {name: ".debug_info", kind: elf.SHT_PROGBITS, content: units(1, 0)}}, "more than 256 attributes"},
		{"the same for many units", []part{{name: ".debug_abbrev", kind: elf.SHT_PROGBITS, content: append(many, wide...)}, {name: ".debug_info", kind: elf.SHT_PROGBITS, content: units(5000, 0)}}, "more than 256 attributes"},
		{"namespaces in each other", []part{{name: ".debug_abbrev", kind: elf.SHT_PROGBITS, content: scopes}, {name: ".debug_info", kind: elf.SHT_PROGBITS, content: unitOf(0, deep...)}}, "more than any program has"},
		{"files of a byte each", []part{{name: ".debug_abbrev", kind: elf.SHT_PROGBITS, content: lined}, {name: ".debug_info", kind: elf.SHT_PROGBITS, content: unitOf(0, append(append([]byte{1}, held...), 0, 0, 0, 0)...)}, {name: ".debug_line", kind: elf.SHT_PROGBITS, content: files}}, "has 2097152 files"},
		{"debug information in a hole", []part{{name: ".debug_abbrev", kind: elf.SHT_PROGBITS, content: wide}, {name: ".debug_info", kind: elf.SHT_PROGBITS, hole: huge}}, "more than 64.00 MiB"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := elfOf(t, c.parts)
			runtime.GC()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			m := &Module{Path: path, addrs: []uint64{0x1000, 0x2000}}
			m.resolve(&budget{ctx: context.Background()}, &finder{}, 64<<20)
			runtime.ReadMemStats(&after)
			if took := after.TotalAlloc - before.TotalAlloc; took > 128<<20 {
				t.Errorf("it took %d MiB", took>>20)
			}
			if c.why != "" && !strings.Contains(m.Why, c.why) {
				t.Errorf("it says %q, want %q", m.Why, c.why)
			}
		})
	}
}

// A file of the kernel's that says it is empty may make whoever reads it wait.
func TestEmptyFile(t *testing.T) {
	for _, path := range []string{"/proc/kmsg", "/proc/self/status"} {
		if _, err := openImage(path); err == nil || os.IsNotExist(err) {
			if err == nil {
				t.Errorf("%s is opened", path)
			}
			continue
		} else if !os.IsPermission(err) && !strings.Contains(err.Error(), "too short") {
			t.Errorf("%s: %v", path, err)
		}
	}
}
