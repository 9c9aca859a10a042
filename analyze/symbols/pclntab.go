package symbols

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sort"

	"github.com/gpurec/gpurec/analyze/symbols/dwarf"
)

// A goTable is what Go's linker leaves in every program, stripped or not, for
// stacks: of each address its function, file and line, and what is inlined there.
// It is that of Go 1.18 and later; the runtime's symtab.go is its definition.
//
//	.gopclntab: header, names, files by unit, files, tables of pc, functions
//	module data: where the text begins, where the trees of inlined calls lie
//
// A table of pc is pairs of varints: by how much the value changes, and for how
// many bytes of code it then holds.
type goTable struct {
	g                        *image
	order                    binary.ByteOrder
	names, units, files, pcs []byte
	funcs                    []byte // first pairs of (entry, where in it the function is), sorted
	n                        int
	text, trees              uint64 // addresses; 0: not found
	steps                    int    // of tables of pc, and bytes of names, left
}

const (
	goMagic118, goMagic120 = 0xfffffff0, 0xfffffff1
	goHeader               = 72
	goModule               = 328 // of the module data, as far as it is read
	goModuleText           = 176
	goModuleTrees          = 320
	goPCDataInlined        = 2
	goFuncDataInlined      = 3
)

var errGoTable = errors.New("its table of Go's functions is not understood")

// goTable is nil where the file has none.
func (g *image) goTable(most int64, addrs int) (*goTable, error) {
	var s *elf.Section
	for _, name := range []string{".gopclntab", ".data.rel.ro.gopclntab"} {
		if s = g.elf.Section(name); s != nil && s.Type == elf.SHT_PROGBITS {
			break
		}
	}
	if s == nil || s.Type != elf.SHT_PROGBITS || s.Flags&elf.SHF_COMPRESSED != 0 {
		return nil, nil
	}
	if s.Size > uint64(most) {
		return nil, fmt.Errorf("its table of Go's functions is larger than %d bytes", most)
	}
	b, err := s.Data()
	if err != nil {
		return nil, err
	}
	t := &goTable{g: g, order: g.elf.ByteOrder, steps: int(dwarf.MostWork(int64(s.Size), addrs))}
	if len(b) < goHeader {
		return nil, errGoTable
	}
	if magic := t.order.Uint32(b); magic != goMagic118 && magic != goMagic120 || b[6] != 1 || b[7] != 8 {
		return nil, nil // another machine's, or another version
	}
	word := func(i int) uint64 { return t.order.Uint64(b[8+8*i:]) }
	part := func(i int) []byte { return b[min(word(i), uint64(len(b))):] }
	t.names, t.units, t.files, t.pcs, t.funcs = part(3), part(4), part(5), part(6), part(7)
	t.n = int(min(word(0), uint64(len(t.funcs)/8)))
	t.text = word(2)
	t.module(s.Addr, most)
	if t.text == 0 {
		return nil, errGoTable
	}
	return t, nil
}

// module looks for the module data, which begin with the table's address: as it
// stands in a section, or as the loader is told to write it.
func (t *goTable) module(table uint64, most int64) {
	found := func(text, trees uint64) bool {
		first := uint64(0)
		if t.n > 0 {
			first = uint64(t.order.Uint32(t.funcs))
		}
		if text == 0 || t.text != 0 && t.text != text || first > 1<<31 {
			return false
		}
		t.text, t.trees = text, trees
		return true
	}
	var want [8]byte
	t.order.PutUint64(want[:], table)
	for _, name := range []string{".go.module", ".noptrdata", ".data", ".data.rel.ro"} {
		s := t.g.elf.Section(name)
		if s == nil || s.Type != elf.SHT_PROGBITS || s.Flags&elf.SHF_COMPRESSED != 0 || s.Size > uint64(most) {
			continue
		}
		b, _ := s.Data()
		for at := 0; ; at++ {
			i := bytes.Index(b[at:], want[:])
			if at += i; i < 0 || at+goModule > len(b) {
				break
			}
			if at%8 == 0 && found(t.order.Uint64(b[at+goModuleText:]), t.order.Uint64(b[at+goModuleTrees:])) {
				return
			}
		}
	}
	at := map[uint64]uint64{} // what is written by the loader near where the table's address is
	for pass := range 2 {
		var starts []uint64
		t.relocations(func(offset, value uint64) {
			if pass == 0 && value == table && len(at) < 64 {
				at[offset+goModuleText], at[offset+goModuleTrees] = 0, 0
			} else if _, near := at[offset]; near && pass == 1 {
				at[offset] = value
			}
			if pass == 1 && value == table {
				starts = append(starts, offset)
			}
		})
		for _, s := range starts {
			if found(at[s+goModuleText], at[s+goModuleTrees]) {
				return
			}
		}
	}
}

// relocations calls f with where the loader writes an address of the file's own.
func (t *goTable) relocations(f func(offset, value uint64)) {
	const size, relative = 24, 8 // R_X86_64_RELATIVE
	s := t.g.elf.Section(".rela.dyn")
	if s == nil || s.Type != elf.SHT_RELA || s.Flags&elf.SHF_COMPRESSED != 0 || t.g.elf.Machine != elf.EM_X86_64 {
		return
	}
	buf := make([]byte, size<<12)
	for at := int64(0); ; at += int64(len(buf)) {
		n, err := raw(s).ReadAt(buf, at)
		for p := buf[:n-n%size]; len(p) > 0; p = p[size:] {
			if t.order.Uint64(p[8:])&0xffffffff == relative {
				f(t.order.Uint64(p), t.order.Uint64(p[16:]))
			}
		}
		if err != nil {
			return
		}
	}
}

// number is the i-th number of four bytes.
func (t *goTable) number(b []byte, i uint64) uint32 {
	if i >= uint64(len(b)/4) {
		return 0
	}
	return t.order.Uint32(b[4*i:])
}

// name is a text of a part of it.
func (t *goTable) name(b []byte, at uint32) string {
	b = b[min(uint64(at), uint64(len(b))):]
	b = b[:min(len(b), maxName)]
	end := bytes.IndexByte(b, 0)
	if t.steps -= max(end, 0); end >= 0 && t.steps > 0 {
		return demangled(string(b[:end]))
	}
	return ""
}

// value is what a table of pc says, -1 where it says nothing.
func (t *goTable) value(table uint32, entry, pc uint64) int32 {
	p := t.pcs[min(uint64(table), uint64(len(t.pcs))):]
	if table == 0 {
		return -1
	}
	value, at := int32(-1), entry
	for first := true; t.steps > 0; first = false {
		t.steps--
		change, n := binary.Uvarint(p)
		if n <= 0 || change == 0 && !first {
			return -1
		}
		run, m := binary.Uvarint(p[n:])
		if m <= 0 {
			return -1
		}
		value += int32(change>>1) ^ -int32(change&1)
		if at += run; pc < at {
			return value
		}
		p = p[n+m:]
	}
	return -1
}

// place are the functions at an address, outermost first; nil: there is none.
func (t *goTable) place(addr uint64) []place {
	pc := addr - t.text
	if addr < t.text || pc > 1<<32 {
		return nil
	}
	i := sort.Search(t.n, func(i int) bool { return uint64(t.number(t.funcs, 2*uint64(i))) > pc }) - 1
	if i < 0 || i == t.n-1 && uint64(t.number(t.funcs, 2*uint64(t.n))) <= pc {
		return nil
	}
	f := t.funcs[min(uint64(t.number(t.funcs, 2*uint64(i)+1)), uint64(len(t.funcs))):]
	if len(f) < 44 {
		return nil
	}
	entry := uint64(t.order.Uint32(f))
	file, line, npcdata, unit := t.order.Uint32(f[20:]), t.order.Uint32(f[24:]), t.order.Uint32(f[28:]), t.order.Uint32(f[32:])
	inlined, tree := uint32(0), ^uint32(0)
	if npcdata > goPCDataInlined {
		inlined = t.number(f[44:], goPCDataInlined)
	}
	if f[43] > goFuncDataInlined && npcdata < 1<<16 {
		tree = t.number(f[44:], uint64(npcdata)+goFuncDataInlined)
	}
	at := func(name uint32, pc uint64) place {
		p := place{function: t.name(t.names, name)}
		if n := t.value(file, entry, pc); n >= 0 {
			p.file = t.name(t.files, t.number(t.units, uint64(unit)+uint64(n)))
			p.line = max(0, t.value(line, entry, pc))
		}
		return p
	}
	var chain []place
	for len(chain) < dwarf.MostInlined {
		index := t.value(inlined, entry, pc)
		if index < 0 {
			break
		}
		var call [16]byte // of a function: its kind, name, where in the caller it is called, line
		if t.trees == 0 || tree == ^uint32(0) || !t.g.memory(call[:], t.trees+uint64(tree)+16*uint64(index)) {
			return []place{{function: t.name(t.names, t.order.Uint32(f[4:]))}} // its line is another function's
		}
		chain = append(chain, at(t.order.Uint32(call[4:]), pc))
		pc = entry + uint64(t.order.Uint32(call[8:]))
	}
	chain = append(chain, at(t.order.Uint32(f[4:]), pc))
	for i, j := 0, len(chain)-1; i < j; i, j = i+1, j-1 {
		chain[i], chain[j] = chain[j], chain[i]
	}
	return chain
}

// memory reads what the loader maps at an address.
func (g *image) memory(to []byte, addr uint64) bool {
	for _, p := range g.elf.Progs {
		if p.Type == elf.PT_LOAD && addr >= p.Vaddr && addr-p.Vaddr < p.Filesz {
			n, err := p.ReadAt(to, int64(addr-p.Vaddr))
			return n == len(to) && (err == nil || err == io.EOF)
		}
	}
	return false
}

// golines adds what Go's table says of addresses without a line.
func (m *Module) golines(b *budget, images []*image, most int64, out [][]place) {
	for _, img := range images {
		t, err := img.goTable(most, len(m.addrs))
		if err != nil && m.Why == "" {
			m.Why = err.Error()
		}
		if t == nil {
			continue
		}
		for i, addr := range m.addrs {
			if b.check() != nil {
				return
			}
			if n := len(out[i]); n > 0 && out[i][n-1].line > 0 {
				continue
			}
			if chain := t.place(addr); len(chain) > 0 && chain[0].function != "" {
				out[i] = chain
			}
		}
		return
	}
}
