package symbols

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"path"
	"path/filepath"

	"github.com/gpurec/gpurec/analyze/symbols/dwarf"
)

// A split finds debug information that an image has in other files: its split
// units, one a file or many in a package, and what dwz moved to a file that several
// have in common.
type split struct {
	b      *budget
	find   *finder
	img    *image
	module string
	most   int64

	looked   bool
	packages []*pack
}

// A pack is a package of split units.
type pack struct {
	img   *image
	index *dwarf.Index
	whole map[string][]byte // sections of which no part can be read alone: strings, and compressed ones
	size  uint64            // of these
}

func (x *split) close() {
	for _, p := range x.packages {
		p.img.close()
	}
}

// around are the paths that a file of that name may have: as it is told, beside the
// image and beside where the module was, and in the search folders, also by its last
// part.
func (x *split) around(folder, name string) []string {
	slashed := filepath.ToSlash(name)
	whole := name
	if !path.IsAbs(slashed) && folder != "" {
		whole = filepath.Join(folder, name)
	}
	out := []string{whole}
	if !path.IsAbs(slashed) {
		real := x.img.path
		if r, err := filepath.EvalSymlinks(real); err == nil { // in .build-id are links
			real = r
		}
		for _, of := range []string{x.img.path, real, x.module} {
			out = append(out, filepath.Join(filepath.Dir(filepath.FromSlash(of)), name))
		}
	}
	for _, dir := range x.find.search {
		out = append(out, filepath.Join(dir, filepath.FromSlash(whole)), filepath.Join(dir, name))
	}
	if len(x.find.search) > 0 {
		out = append(out, x.find.named(x.b, path.Base(slashed))...)
	}
	return out
}

// sections are those of the unit that a skeleton stands for.
func (x *split) sections(s dwarf.Skeleton) (*dwarf.Sections, error) {
	if !x.looked {
		x.looked = true
		x.packed()
	}
	for _, p := range x.packages {
		if parts := p.index.Parts(s.ID); parts != nil {
			return p.sections(x, parts)
		}
	}
	tried, why := map[string]bool{}, error(nil)
	for _, file := range x.around(s.Folder, s.Name) {
		if tried[file] {
			continue
		}
		tried[file] = true
		if err := x.b.check(); err != nil {
			return nil, err
		}
		img, err := openImage(file)
		if err != nil {
			continue
		}
		found, err := x.read(img, dwo)
		img.close()
		if err == nil && !found.Holds(s.ID) {
			err = fmt.Errorf("%s is of another build", file)
		}
		if err == nil {
			return found, nil
		}
		why = err
	}
	if why != nil {
		return nil, why
	}
	return nil, fmt.Errorf("%s is not here, which has it: --search takes its folder, or that of %s.dwp", s.Name, path.Base(filepath.ToSlash(x.module)))
}

// read reads a file's debug information, if it has some, of no more than is wanted.
func (x *split) read(img *image, suffix string) (*dwarf.Sections, error) {
	switch size := img.sizeOf(suffix); {
	case size == 0:
		return nil, fmt.Errorf("%s has no debug information", img.path)
	case size > uint64(x.most):
		return nil, tooLarge(img.path, size, x.most)
	}
	return img.sections(x.b, suffix)
}

// packed opens the packages that are named after the module, or the image.
func (x *split) packed() {
	tried := map[string]bool{}
	for _, of := range []string{x.img.path, x.module} {
		name := path.Base(filepath.ToSlash(of)) + ".dwp"
		for _, file := range x.around(filepath.Dir(of), name) {
			if tried[file] {
				continue
			}
			tried[file] = true
			img, err := openImage(file)
			if err != nil {
				continue
			}
			var index []byte
			if s := img.section("cu_index"); s != nil && plainSize(s) < uint64(x.most) {
				index, _ = debugData(s)
			}
			if index == nil {
				img.close()
				continue
			}
			x.packages = append(x.packages, &pack{img: img, index: dwarf.ReadIndex(index, img.elf.ByteOrder), whole: map[string][]byte{}})
		}
	}
}

// sections are a unit's parts of a package, and the strings of all.
func (p *pack) sections(x *split, parts []dwarf.Part) (*dwarf.Sections, error) {
	out := &dwarf.Sections{Order: p.img.elf.ByteOrder}
	size := uint64(0)
	for _, part := range parts {
		size += uint64(part.Size)
	}
	if size > uint64(x.most) {
		return nil, tooLarge(p.img.path, size, x.most)
	}
	for _, part := range parts {
		var to *[]byte
		var name string
		switch part.Section {
		case dwarf.PartInfo:
			to, name = &out.Info, "info"
		case dwarf.PartAbbrev:
			to, name = &out.Abbrev, "abbrev"
		case dwarf.PartStrOffsets:
			to, name = &out.StrOffsets, "str_offsets"
		case dwarf.PartRngLists:
			to, name = &out.RngLists, "rnglists"
		default:
			continue
		}
		b, err := p.part(x, name+dwo, part)
		if err != nil {
			return nil, err
		}
		*to = b
	}
	if p.img.section("str"+dwo) != nil {
		b, err := p.all(x, "str"+dwo)
		if err != nil {
			return nil, err
		}
		out.Str = b
	}
	return out, nil
}

// all is a whole section, which is kept for the other units.
func (p *pack) all(x *split, name string) ([]byte, error) {
	if b, ok := p.whole[name]; ok {
		return b, nil
	}
	s := p.img.section(name)
	if p.size += plainSize(s); p.size > uint64(x.most) {
		return nil, tooLarge(p.img.path, p.size, x.most)
	}
	b, err := debugData(s)
	if err != nil {
		return nil, fmt.Errorf("%s: .debug_%s: %w", p.img.path, name, err)
	}
	p.whole[name] = b
	return b, nil
}

func (p *pack) part(x *split, name string, part dwarf.Part) ([]byte, error) {
	s := p.img.section(name)
	if s == nil {
		return nil, fmt.Errorf("%s has no section .debug_%s", p.img.path, name)
	}
	if s.ReaderAt != nil && s.Name[1] != 'z' { // as it lies there
		b, err := io.ReadAll(io.NewSectionReader(s, int64(part.At), int64(part.Size)))
		if err == nil && len(b) < int(part.Size) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, fmt.Errorf("%s: .debug_%s: %w", p.img.path, name, err)
		}
		return b, nil
	}
	b, err := p.all(x, name)
	if err == nil && uint64(part.At)+uint64(part.Size) > uint64(len(b)) {
		err = fmt.Errorf("%s: .debug_%s: %w", p.img.path, name, io.ErrUnexpectedEOF)
	}
	if err != nil {
		return nil, err
	}
	return b[part.At:][:part.Size], nil
}

// other is the file that dwz moved to what several have in common, and its build
// id: as GNU says it, or DWARF 5.
func (g *image) other() (name, id string) {
	if s := g.elf.Section(".gnu_debugaltlink"); s != nil {
		b, _ := io.ReadAll(io.NewSectionReader(raw(s), 0, 4096))
		if end := bytes.IndexByte(b, 0); end > 0 {
			return string(b[:end]), hex.EncodeToString(b[end+1:])
		}
	}
	if s := g.elf.Section(".debug_sup"); s != nil {
		b, _ := io.ReadAll(io.NewSectionReader(raw(s), 0, 4096))
		if len(b) > 3 && b[2] == 0 { // version, whether it is that file itself, name, length, id
			if end := bytes.IndexByte(b[3:], 0); end > 0 && len(b) > 3+end+2 {
				return string(b[3:][:end]), hex.EncodeToString(b[3+end+2:])
			}
		}
	}
	return "", ""
}

// other reads that file; its build id decides.
func (x *split) other(name, id string) (*dwarf.Sections, error) {
	why := error(nil)
	for _, file := range append(x.around("", name), x.find.byID(id)...) {
		img, err := openImage(file)
		if err != nil {
			continue
		}
		if err = fmt.Errorf("%s is of another build", file); img.buildID == id || img.elf.Section(".debug_sup") != nil && img.supplements(id) {
			var s *dwarf.Sections
			if s, err = x.read(img, ""); err == nil {
				img.close()
				return s, nil
			}
		}
		img.close()
		why = err
	}
	if why != nil {
		return nil, why
	}
	return nil, fmt.Errorf("%s is not here, to which dwz moved them: --search takes its folder", name)
}

// supplements reports whether this is the file that DWARF 5's .debug_sup names.
func (g *image) supplements(id string) bool {
	b, _ := io.ReadAll(io.NewSectionReader(raw(g.elf.Section(".debug_sup")), 0, 4096))
	if len(b) < 4 || b[2] != 1 {
		return false
	}
	end := bytes.IndexByte(b[3:], 0)
	return end >= 0 && len(b) > 3+end+2 && hex.EncodeToString(b[3+end+2:]) == id
}
