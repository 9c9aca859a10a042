package dwarf

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

var le = binary.LittleEndian

func addr(n uint64) []byte { return le.AppendUint64(nil, n) }

func cat(parts ...any) (b []byte) {
	for _, p := range parts {
		switch p := p.(type) {
		case int:
			b = append(b, byte(p))
		case string:
			b = append(append(b, p...), 0)
		case []byte:
			b = append(b, p...)
		}
	}
	return b
}

// TestRanges has every way in which a list says a range.
func TestRanges(t *testing.T) {
	table := cat(addr(0x1000), addr(0x2000), addr(0x3000)) // .debug_addr
	none := addr(1<<64 - 1)
	for _, c := range []struct {
		name    string
		version int
		list    []byte
		want    []extent
	}{
		{"from the base of the unit", 5, cat(4, 0x10, 0x20, 0), []extent{{0x510, 0x520}}},
		{"from another base", 5, cat(5, addr(0x9000), 4, 1, 2, 4, 0x80, 1, 0x90, 1, 0), []extent{{0x9001, 0x9002}, {0x9080, 0x9090}}},
		{"from a base by index", 5, cat(1, 1, 4, 1, 2, 0), []extent{{0x2001, 0x2002}}},
		{"both by index", 5, cat(2, 0, 2, 0), []extent{{0x1000, 0x3000}}},
		{"the first by index", 5, cat(3, 1, 0x10, 0), []extent{{0x2000, 0x2010}}},
		{"both", 5, cat(6, addr(0x700), addr(0x800), 0), []extent{{0x700, 0x800}}},
		{"the first and a length", 5, cat(7, addr(0x700), 0x80, 2, 0), []extent{{0x700, 0x800}}},
		{"left out by the linker", 5, cat(6, addr(0), addr(0x800), 7, addr(1<<64-1), 0x10, 6, addr(8), addr(8), 7, addr(0x10), 1, 0), []extent{{0x10, 0x11}}},
		{"an index that is not there", 5, cat(2, 0, 9, 3, 9, 1, 0), nil},
		{"of a later version", 5, cat(7, addr(0x10), 1, 0x33, 7, addr(0x20), 1, 0), []extent{{0x10, 0x11}}},
		{"without an end", 5, cat(7, addr(0x10), 1, 7, addr(0x20)), []extent{{0x10, 0x11}}},
		{"old", 4, cat(addr(0x10), addr(0x20), addr(0), addr(0)), []extent{{0x510, 0x520}}},
		{"old, from another base", 4, cat(none, addr(0x7000), addr(1), addr(2), addr(0), addr(0)), []extent{{0x7001, 0x7002}}},
		{"old, empty, and left out", 4, cat(addr(1), addr(1), none, addr(0), addr(0), addr(9), addr(0), addr(0)), nil},
		{"old, without an end", 4, cat(addr(0x10), addr(0x20), addr(0x30)), []extent{{0x510, 0x520}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			u := &unit{f: &file{Sections: &Sections{Order: le, Addr: table, Ranges: c.list, RngLists: c.list}}, version: c.version, word: 4, addrSize: 8, low: 0x500}
			var got []extent
			e := entry{}
			e.values[ranges] = value{form: formSecOffset}
			u.extents(&e, func(x extent) bool {
				got = append(got, x)
				return true
			})
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("%x, want %x", got, c.want)
			}
		})
	}
}

// lineProgram is a line table of version 3 around a program: lines go by -3 to 8, the
// first opcode of its own is 13, and an instruction has at least one byte.
func lineProgram(program []byte) []byte {
	head := cat(1, 1, 0xfd, 12, 13, []byte{0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1}, "inc", 0, "a.c", 0, 0, 0, "b.h", 1, 0, 0, 0)
	b := cat([]byte{3, 0}, le.AppendUint32(nil, uint32(len(head))), head, program)
	return append(le.AppendUint32(nil, uint32(len(b))), b...)
}

// TestLines has every step of a line table's program.
func TestLines(t *testing.T) {
	set := func(n uint64) []byte { return cat(0, 9, 2, addr(n)) }
	end := []byte{0, 1, 1}
	for _, c := range []struct {
		name    string
		program []byte
		want    string
	}{
		{"special opcodes", cat(set(0x100), 13+3+12*4, 13+4, 2, 9, end), "104-10d /src/a.c:2"},
		{"a line's steps", cat(set(0x100), 3, 9, 1, 2, 4, 3, 0x7f, 1, 2, 4, end), "100-104 /src/a.c:10, 104-108 /src/a.c:9"},
		{"files", cat(set(0x100), 4, 2, 1, 2, 1, 4, 1, 1, 2, 1, end), "100-101 /src/inc/b.h:1, 101-102 /src/a.c:1"},
		{"a file of its own", cat(set(0x100), 0, 8, 3, "c.h", 1, 0, 0, 4, 3, 1, 2, 1, end), "100-101 /src/inc/c.h:1"},
		{"a file that is not there", cat(set(0x100), 4, 9, 1, 2, 1, end), "100-101 :1"},
		{"long steps", cat(set(0x100), 1, 8, 1, 9, 0, 2, 1, 2, 1, end), "100-114 /src/a.c:1, 114-314 /src/a.c:1, 314-315 /src/a.c:1"},
		{"what says nothing of lines", cat(set(0x100), 5, 7, 6, 7, 10, 11, 12, 3, 1, 2, 1, end), "100-101 /src/a.c:1"},
		{"of a later version", cat(set(0x100), 0, 3, 0x80, 1, 2, 1, 2, 1, end), "100-101 /src/a.c:1"},
		{"two that lie apart", cat(set(0x100), 1, 2, 1, end, set(0x50), 1, 2, 2, end), "100-101 /src/a.c:1, 50-52 /src/a.c:1"},
		{"left out by the linker", cat(set(0), 1, 2, 9, 1, 2, 9, end, set(0x50), 1, 2, 2, end), "50-52 /src/a.c:1"},
		{"cut", cat(set(0x100), 1, 2, 1, 1, 0, 99), "100-101 /src/a.c:1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			u := &unit{f: &file{Sections: &Sections{Order: le, Line: lineProgram(c.program)}}, version: 3, word: 4, addrSize: 8, folderText: "/src", lineTable: value{form: formData4}}
			unbounded := func(int) error { return nil }
			table, err := u.lines(unbounded)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			table.run(unbounded, func(from row, to uint64) error {
				file, _ := table.path(from.file)
				got = append(got, fmt.Sprintf("%x-%x %s:%d", from.addr, to, file, int64(from.line)))
				return nil
			})
			if s := strings.Join(got, ", "); s != c.want {
				t.Errorf("%s, want %s", s, c.want)
			}
		})
	}
}

// TestIndex has an index of two units in four slots.
func TestIndex(t *testing.T) {
	w := func(n ...uint32) (b []byte) {
		for _, n := range n {
			b = le.AppendUint32(b, n)
		}
		return b
	}
	b := cat(w(2, 3, 2, 4), addr(7), addr(0), addr(9), addr(0), w(1, 0, 2, 0), w(1, 3, 7), w(0, 0, 0), w(100, 8, 0), w(100, 8, 1), w(50, 8, 1))
	x := ReadIndex(b, le)
	if got, want := fmt.Sprint(x.Parts(9)), "[{1 100 50} {3 8 8}]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := fmt.Sprint(x.Parts(7)), "[{1 0 100} {3 0 8}]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if x.Parts(8) != nil {
		t.Error("there is a unit 8")
	}
	for n := range b {
		ReadIndex(b[:n], le)
	}
}

// small is a unit with a function at 0x100 in which, at 0x110, it is inlined itself.
func small() *Sections {
	abbrev := cat(1, 0x11, 1, 0x11, 1, 0x12, 6, 0x10, 0x17, 0, 0, 2, 0x2e, 1, 0x03, 8, 0x11, 1, 0x12, 6, 0, 0, 3, 0x1d, 0, 0x31, 0x13, 0x11, 1, 0x12, 6, 0x59, 0x0b, 0, 0, 0)
	body := cat([]byte{4, 0, 0, 0, 0, 0}, 8, 1, addr(0x100), le.AppendUint32(nil, 0x100), []byte{0, 0, 0, 0}, 2, "f", addr(0x100), le.AppendUint32(nil, 0x80),
		3, le.AppendUint32(nil, 28), addr(0x110), le.AppendUint32(nil, 0x10), 7, 0, 0)
	return &Sections{Order: le, Info: append(le.AppendUint32(nil, uint32(len(body))), body...), Abbrev: abbrev,
		Line: lineProgram(cat(0, 9, 2, addr(0x100), 1, 2, 0x40, 3, 4, 1, 2, 0x40, 0, 1, 1))}
}

func query(s *Sections) Query {
	return Query{Addrs: []uint64{1, 0x100, 0x115, 0x17f, 1 << 40}, Check: func() error { return nil }, Demangle: func(s string) string { return s },
		Split: func(Skeleton) (*Sections, error) { return s, nil }, Other: func() (*Sections, error) { return s, nil }}
}

func TestFind(t *testing.T) {
	a, err := Find(small(), query(nil))
	if err != nil || a.Why != nil || a.Units != 1 || a.Whole != 1 {
		t.Fatalf("%+v, %v", a, err)
	}
	if got, want := fmt.Sprint(a.Places), "[[] [{f f a.c 1}] [{f f  7} {f f a.c 1}] [{f f a.c 5}] []]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// GCC may leave out the function that something is inlined in: the call is kept, and
// the function has no name, which the symbol tables may have.
func TestFindAlone(t *testing.T) {
	s := small()
	s.Abbrev = cat(s.Abbrev[:len(s.Abbrev)-1], 4, 0x2e, 0, 0x03, 8, 0x20, 0x0b, 0, 0, 0)
	body := cat([]byte{4, 0, 0, 0, 0, 0}, 8, 1, addr(0x100), le.AppendUint32(nil, 0x100), []byte{0, 0, 0, 0}, 4, "g", 1,
		3, le.AppendUint32(nil, 28), addr(0x110), le.AppendUint32(nil, 0x10), 7, 0, 0)
	s.Info = append(le.AppendUint32(nil, uint32(len(body))), body...)
	a, err := Find(s, query(nil))
	if err != nil || a.Why != nil {
		t.Fatalf("%+v, %v", a, err)
	}
	if got, want := fmt.Sprint(a.Places[2]), "[{   7} {g g a.c 1}]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// FuzzFind reads sections that may hold anything.
func FuzzFind(f *testing.F) {
	s := small()
	f.Add(s.Info, s.Abbrev, s.Line, []byte("x\x00"), addr(0x100))
	f.Fuzz(func(t *testing.T, info, abbrev, line, str, other []byte) {
		s := &Sections{Order: le, Info: info, Abbrev: abbrev, Line: line, Str: str, LineStr: str, StrOffsets: other, Addr: other, Ranges: other, RngLists: other}
		a, err := Find(s, query(s))
		if err != nil {
			return
		}
		for _, chain := range a.Places {
			if len(chain) > MostInlined+1 {
				t.Errorf("%d calls at an address", len(chain))
			}
		}
	})
}

// TestJoin: a compiler that leaves out where it ran, as Go's -trimpath does, says ".".
func TestJoin(t *testing.T) {
	for _, c := range [][3]string{
		{"", "a.c", "a.c"},
		{".", "example.com/a.go", "example.com/a.go"},
		{"/src/", "a.c", "/src/a.c"},
		{"./csu", "../csu/a.c", "./csu/../csu/a.c"},
		{"/src", "/usr/include/a.h", "/usr/include/a.h"},
		{"/src", `C:\a.c`, `C:\a.c`},
	} {
		if got := join(c[0], c[1]); got != c[2] {
			t.Errorf("%q, %q: %q, want %q", c[0], c[1], got, c[2])
		}
	}
}
