package symbols

import (
	"debug/dwarf"
	"errors"
	"fmt"
	"io"
	"sort"
	"strings"
)

// A place is a function, and where in it the address or the call within is.
type place struct {
	function string
	file     string
	line     int32
}

// A call is one function that an address lies in: the one that has its own code,
// or one inlined there.
type call struct {
	origin dwarf.Offset // of the function's entry, or of its instance
	file   string       // of the call, of an inlined one
	line   int32
}

// mostWork bounds what a file's DWARF may make of us, in entries and their
// attributes, rows and files of line tables, and ranges looked at: most take a byte
// at least, and are looked at for the addresses in them; some may be shared.
func mostWork(size uint64, addrs int) int64 {
	return 1_000_000 + 16*int64(size) + 4*maxInlined*int64(addrs)
}

// A lookup reads DWARF for addresses.
type lookup struct {
	b     *budget
	data  *dwarf.Data
	addrs []uint64 // sorted
	calls [][]call // of each address, outermost first
	lines []place  // of each address, by the line table; without a function
	names map[dwarf.Offset]string
	by    *dwarf.Reader // for names
	work  int64
	most  int64 // see mostWork
}

// places finds of each address, which are sorted, the functions that it lies in,
// outermost first, with its line in the innermost and of each other the line of
// the call; nil where nothing is known. A function without a name is "".
func (g *image) places(b *budget, addrs []uint64) ([][]place, error) {
	var err error
	l := &lookup{b: b, addrs: addrs, calls: make([][]call, len(addrs)), lines: make([]place, len(addrs)), names: map[dwarf.Offset]string{}, most: mostWork(g.debugSize(), len(addrs))}
	if l.data, err = g.dwarf(b); err == nil {
		l.by = l.data.Reader()
		err = l.units()
	}
	if err != nil {
		return nil, fmt.Errorf("read the debug information of %s: %w", g.path, err)
	}
	out := make([][]place, len(addrs))
	for i, calls := range l.calls {
		at := l.lines[i]
		if len(calls) == 0 && at.line > 0 { // a function in assembly
			calls = []call{{}}
		}
		chain := make([]place, len(calls))
		for j := len(calls) - 1; j >= 0; j-- {
			chain[j] = place{l.name(calls[j].origin, 0), at.file, at.line}
			at = place{file: calls[j].file, line: calls[j].line}
		}
		out[i] = chain
	}
	return out, nil
}

func (g *image) dwarf(b *budget) (*dwarf.Data, error) {
	content := map[string][]byte{}
	for _, name := range debugSections {
		s := g.section(name)
		if s == nil {
			continue
		}
		if err := b.check(); err != nil {
			return nil, err
		}
		data, err := debugData(s)
		if err != nil {
			return nil, fmt.Errorf("section %s: %w", s.Name, err)
		}
		content[name] = data
	}
	if err := abbreviations(content["info"], content["abbrev"], g.elf.ByteOrder); err != nil {
		return nil, err
	}
	d, err := dwarf.New(content["abbrev"], nil, nil, content["info"], content["line"], nil, content["ranges"], content["str"])
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"addr", "line_str", "str_offsets", "rnglists"} {
		if data := content[name]; data != nil {
			if err := d.AddSection(".debug_"+name, data); err != nil {
				return nil, err
			}
		}
	}
	return d, nil
}

// did counts work.
func (l *lookup) did(n int) error {
	before := l.work >> 12
	if l.work += int64(n); l.work > l.most {
		return errors.New("it is more than any program has")
	}
	if l.work>>12 != before {
		return l.b.check()
	}
	return nil
}

// within calls f for every address in the ranges, and reports whether there is
// any.
func (l *lookup) within(ranges [][2]uint64, f func(i int)) (any bool) {
	for _, r := range ranges {
		for i := sort.Search(len(l.addrs), func(i int) bool { return l.addrs[i] >= r[0] }); i < len(l.addrs) && l.addrs[i] < r[1]; i++ {
			any = true
			f(i)
			l.work++
		}
	}
	return any
}

// A frameOf is what an entry lies in.
type frameOf struct {
	owner dwarf.Offset // the function with code of its own, 0: none
}

// units walks over the units, and through those that hold an address:
//
//  1. A function with code of its own takes the addresses in it, unless another
//     has.
//  2. What is inlined in it, entries below, adds itself to those it holds.
func (l *lookup) units() error {
	r := l.data.Reader()
	var files []*dwarf.LineFile
	var in []frameOf
	last := int64(-1)
	for {
		e, err := r.Next()
		if err != nil {
			return err
		}
		if e == nil {
			return nil
		}
		if err := l.did(1 + len(e.Field)); err != nil {
			return err
		}
		if e.Tag == 0 { // the end of what an entry has below it
			if len(in) > 0 {
				in = in[:len(in)-1]
			}
			continue
		}
		if int64(e.Offset) <= last { // by what it says of its siblings
			return fmt.Errorf("the entry at %#x leads back to %#x", last, e.Offset)
		}
		last = int64(e.Offset)
		var at frameOf
		if len(in) > 0 {
			at = in[len(in)-1]
		}
		skip := false
		switch e.Tag {
		case dwarf.TagCompileUnit, dwarf.TagSkeletonUnit:
			in, at = in[:0], frameOf{}
			if files, skip, err = l.unit(e); err != nil {
				return err
			}
		case dwarf.TagPartialUnit, dwarf.TagTypeUnit:
			in, skip = in[:0], true
		case dwarf.TagStructType, dwarf.TagClassType, dwarf.TagUnionType, dwarf.TagEnumerationType, dwarf.TagSubroutineType, dwarf.TagArrayType:
			skip = true
		case dwarf.TagSubprogram:
			at = frameOf{e.Offset}
			ranges, err := l.ranges(e)
			if err != nil {
				return err
			}
			l.within(ranges, func(i int) {
				if len(l.calls[i]) == 0 {
					l.calls[i] = append(l.calls[i], call{origin: e.Offset})
				}
			})
			skip = len(ranges) == 0 && e.Val(dwarf.AttrInline) != nil
		case dwarf.TagInlinedSubroutine:
			ranges, err := l.ranges(e)
			if err != nil {
				return err
			}
			c := call{origin: e.Offset}
			if line, ok := e.Val(dwarf.AttrCallLine).(int64); ok {
				c.line = int32(max(0, min(line, 1<<31-1)))
			}
			if file, ok := e.Val(dwarf.AttrCallFile).(int64); ok && file >= 0 && file < int64(len(files)) && files[file] != nil {
				c.file = files[file].Name
			}
			l.within(ranges, func(i int) {
				if n := len(l.calls[i]); n > 0 && n < maxInlined && l.calls[i][0].origin == at.owner {
					l.calls[i] = append(l.calls[i], c)
				}
			})
		}
		if skip {
			r.SkipChildren()
		} else if e.Children {
			in = append(in, at)
		}
	}
}

// maxInlined is how many functions an address may lie in.
const maxInlined = 256

func (l *lookup) ranges(e *dwarf.Entry) ([][2]uint64, error) {
	ranges, err := l.data.Ranges(e)
	if err != nil { // of one entry: it is without
		ranges = nil
	}
	return ranges, l.did(len(ranges))
}

// unit begins a unit: which files its entries count, and whether no address is in
// it.
func (l *lookup) unit(e *dwarf.Entry) (files []*dwarf.LineFile, skip bool, err error) {
	ranges, err := l.ranges(e)
	if err != nil {
		return nil, false, err
	}
	if !l.within(ranges, func(int) {}) {
		return nil, true, nil
	}
	lr, err := l.data.LineReader(e)
	if err != nil || lr == nil {
		return nil, false, nil // functions without lines
	}
	if err := l.did(len(lr.Files())); err != nil { // units may have one table in common
		return nil, false, err
	}
	var row, before dwarf.LineEntry
	have := false
	for {
		if err := l.did(1); err != nil {
			return nil, false, err
		}
		if err := lr.Next(&row); err != nil {
			if err != io.EOF {
				return nil, false, nil
			}
			return lr.Files(), false, nil
		}
		if have && before.Address < row.Address && before.File != nil {
			l.within([][2]uint64{{before.Address, row.Address}}, func(i int) {
				if l.lines[i].file == "" {
					l.lines[i] = place{file: before.File.Name, line: int32(max(0, min(before.Line, 1<<31-1)))}
				}
			})
		}
		before, have = row, !row.EndSequence
	}
}

// attrMIPSLinkageName is what older compilers call the linkage name.
const attrMIPSLinkageName dwarf.Attr = 0x2007

// name is the function's of an entry, which may be told by another entry that it
// comes from.
func (l *lookup) name(at dwarf.Offset, depth int) (name string) {
	if at == 0 || depth > 16 {
		return ""
	}
	if name, known := l.names[at]; known {
		return name
	}
	defer func() { l.names[at] = name }()
	l.by.Seek(at)
	e, err := l.by.Next()
	if err != nil || e == nil {
		return ""
	}
	for _, attr := range []dwarf.Attr{dwarf.AttrLinkageName, attrMIPSLinkageName} {
		if s, ok := e.Val(attr).(string); ok && s != "" {
			return demangled(s)
		}
	}
	plain, _ := e.Val(dwarf.AttrName).(string)
	for _, attr := range []dwarf.Attr{dwarf.AttrAbstractOrigin, dwarf.AttrSpecification} {
		if from, ok := e.Val(attr).(dwarf.Offset); ok {
			if name := l.name(from, depth+1); name != "" {
				return name
			}
		}
	}
	if len(plain) > maxName {
		return ""
	}
	if strings.Contains(plain, "[go.shape.") {
		return demangled(plain)
	}
	return plain
}
