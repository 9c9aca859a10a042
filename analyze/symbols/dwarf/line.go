package dwarf

import (
	"errors"
	"fmt"
	"path"
	"strings"
)

// A lineTable is a unit's files, and the program that its rows are made by.
type lineTable struct {
	u          *unit
	version    int
	word       int
	minLength  uint64
	maxOps     uint64
	lineBase   int
	lineRange  int
	opcodeBase int
	lengths    []byte // of the standard opcodes, from the first
	folders    [][]byte
	files      []lineFile
	program    []byte
	paths      map[int]string
}

// mostFiles is how many files, or folders, of one are looked at: in memory they take
// as much as thirty times their bytes.
const mostFiles = 1 << 20

type lineFile struct {
	name   []byte
	folder uint64
}

// lines opens the line table of a unit; of a split one its skeleton's is asked.
func (u *unit) lines(did func(int) error) (*lineTable, error) {
	if u.lineTable.form == 0 {
		return nil, nil
	}
	if u.lineTable.u >= uint64(len(u.f.Line)) {
		return nil, fmt.Errorf("the line table at %#x is not there", u.lineTable.u)
	}
	r := reader{b: u.f.Line, at: int(u.lineTable.u), order: u.f.Order}
	t := &lineTable{u: u, word: 4, maxOps: 1}
	length := r.number(4)
	if length == 0xffffffff {
		length, t.word = r.number(8), 8
	}
	if r.bad || length > uint64(len(r.b)-r.at) {
		return nil, fmt.Errorf("the line table at %#x is longer than what there is", u.lineTable.u)
	}
	r.b = r.b[:r.at+int(length)]
	if t.version = int(r.number(2)); t.version < 2 || t.version > 5 {
		return nil, fmt.Errorf("a line table is of version %d, and only 2 to 5 are known", t.version)
	}
	if t.version >= 5 {
		r.skip(2) // sizes that the unit knows
	}
	head := r.number(t.word)
	if head > uint64(len(r.b)-r.at) {
		return nil, errors.New("a line table's head is longer than it")
	}
	begin := r.at + int(head)
	t.minLength = uint64(r.u8())
	if t.version >= 4 {
		t.maxOps = uint64(max(r.u8(), 1))
	}
	r.skip(1) // whether a row begins a statement
	t.lineBase, t.lineRange, t.opcodeBase = int(int8(r.u8())), int(r.u8()), int(r.u8())
	if t.lineRange == 0 {
		return nil, errors.New("a line table's opcodes have no range")
	}
	at := r.at
	r.skip(uint64(max(t.opcodeBase-1, 0)))
	if r.at > begin {
		return nil, errors.New("a line table's opcodes are longer than its head")
	}
	t.lengths = r.b[at:r.at]
	t.program = r.b[begin:]
	r.b = r.b[:begin]
	if t.version >= 5 {
		return t, t.tables(&r, did)
	}
	t.folders = append(t.folders, []byte(u.folderText))
	for s := r.text(); len(s) > 0 && len(t.folders) < mostFiles; s = r.text() {
		t.folders = append(t.folders, s)
	}
	t.files = append(t.files, lineFile{})
	for s := r.text(); len(s) > 0 && len(t.files) < mostFiles; s = r.text() {
		t.file(&r, s)
	}
	if err := did(len(t.folders) + len(t.files)); err != nil {
		return nil, err
	}
	return t, r.err("the files of the line table", int(u.lineTable.u))
}

// file reads the rest of one in the old way.
func (t *lineTable) file(r *reader, name []byte) {
	t.files = append(t.files, lineFile{name, r.uleb()})
	r.uleb() // when it was changed
	r.uleb() // its size
}

// tables reads folders and files as version 5 has them.
func (t *lineTable) tables(r *reader, did func(int) error) error {
	for what := range 2 {
		type column struct {
			content uint64
			form    uint16
		}
		columns := make([]column, r.u8())
		for i := range columns {
			columns[i] = column{r.uleb(), uint16(min(r.uleb(), 0xffff))}
		}
		rows := r.uleb()
		if rows > min(uint64(len(r.b)-r.at), mostFiles) || len(columns) == 0 && rows > 0 {
			return fmt.Errorf("a line table of %d bytes has %d files", len(r.b), rows)
		}
		for range rows {
			if err := did(len(columns)); err != nil {
				return err
			}
			var f lineFile
			before := r.at
			for _, c := range columns {
				text := []byte(nil)
				var n uint64
				switch c.form {
				case formString:
					text = r.text()
				case formLineStrp:
					text = bytesAt(t.u.f.LineStr, r.number(t.word))
				case formStrp:
					text = bytesAt(t.u.f.Str, r.number(t.word))
				case formData16:
					r.skip(16)
				case formBlock:
					r.skip(r.uleb())
				default:
					v, err := t.u.value(r, c.form, 0)
					if err != nil {
						return err
					}
					if n = v.u; c.content == 1 {
						text = []byte(t.u.string(v))
					}
				}
				switch c.content {
				case 1:
					f.name = text
				case 2:
					f.folder = n
				}
			}
			if r.at == before || r.bad {
				return r.err("the files of the line table", int(t.u.lineTable.u))
			}
			if what == 0 {
				t.folders = append(t.folders, f.name)
			} else {
				t.files = append(t.files, f)
			}
		}
	}
	return nil
}

// bytesAt is textAt without a copy.
func bytesAt(b []byte, at uint64) []byte {
	if at > uint64(len(b)) {
		return nil
	}
	r := reader{b: b[:min(uint64(len(b)), at+maxText)], at: int(at)}
	return r.text()
}

// path is a file's, and how many bytes were made for it; its folder may be below the
// compilation's.
func (t *lineTable) path(file uint64) (s string, made int) {
	if t == nil || file >= uint64(len(t.files)) {
		return "", 0
	}
	if s, ok := t.paths[int(file)]; ok {
		return s, 0
	}
	f := t.files[file]
	s = string(f.name)
	if f.folder < uint64(len(t.folders)) && s != "" {
		folder := string(t.folders[f.folder])
		if f.folder > 0 {
			folder = join(string(t.folders[0]), folder)
		}
		s = join(folder, s)
	}
	if len(s) > maxText {
		s = ""
	}
	if t.paths == nil {
		t.paths = map[int]string{}
	}
	t.paths[int(file)] = s
	return s, len(s)
}

func join(folder, name string) string {
	if folder == "" || folder == "." || path.IsAbs(name) || len(name) > 2 && name[1] == ':' && strings.ContainsRune(`/\`, rune(name[2])) {
		return name
	}
	return strings.TrimSuffix(folder, "/") + "/" + name
}

// A row is a line that holds from its address to the next row's.
type row struct {
	addr uint64
	op   uint64
	file uint64
	line uint64
	have bool
}

// run runs the program and calls f with each row and where it ends, until it fails.
func (t *lineTable) run(did func(int) error, f func(from row, to uint64) error) (err error) {
	r := reader{b: t.program, order: t.u.f.Order}
	begin := row{file: 1, line: 1}
	at, last := begin, row{}
	advance := func(ops uint64) {
		if t.maxOps == 1 {
			at.addr += ops * t.minLength
			return
		}
		all := at.op + ops
		at.addr += all / t.maxOps * t.minLength
		at.op = all % t.maxOps
	}
	gone := false // by the linker, which has it begin at 0
	emit := func() {
		if gone = at.addr == 0 || gone && last.have; last.have && last.addr < at.addr && !gone {
			err = f(last, at.addr)
		}
		last = at
		last.have = true
	}
	steps := 0
	for r.at < len(r.b) && !r.bad && err == nil {
		if steps++; steps&0xfff == 0 {
			if err := did(0x1000); err != nil {
				return err
			}
		}
		op := int(r.u8())
		if op >= t.opcodeBase {
			op -= t.opcodeBase
			advance(uint64(op / t.lineRange))
			at.line += uint64(int64(t.lineBase + op%t.lineRange))
			emit()
			continue
		}
		switch op {
		case 0:
			n := r.uleb()
			if n > uint64(len(r.b)-r.at) {
				return r.err("a line table's step", r.at)
			}
			end := r.at + int(n)
			if n == 0 {
				continue
			}
			switch r.u8() {
			case 1: // the end of what lies together
				emit()
				at, last = begin, row{}
			case 2:
				if size := end - r.at; size == 4 || size == 8 {
					at.addr, at.op = r.number(size), 0
				}
			case 3:
				if s := r.text(); s != nil && len(t.files) < mostFiles {
					t.file(&r, s)
				}
			}
			r.at = end
		case 1:
			emit()
		case 2:
			advance(r.uleb())
		case 3:
			at.line += uint64(r.sleb())
		case 4:
			at.file = r.uleb()
		case 5, 10, 11:
			if op == 5 {
				r.uleb()
			}
		case 6, 7:
		case 8:
			advance(uint64((255 - t.opcodeBase) / t.lineRange))
		case 9:
			at.addr, at.op = at.addr+r.number(2), 0
		case 12:
			r.uleb()
		default: // of a later version: it says how many numbers it has
			if op-1 < len(t.lengths) {
				for range t.lengths[op-1] {
					r.uleb()
				}
			}
		}
	}
	if err == nil {
		err = did(steps & 0xfff)
	}
	return err
}
