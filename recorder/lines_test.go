package recorder

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestLineTables decodes what each Python compiled (testdata/lines.py) and
// compares every offset with what that Python itself reads.
func TestLineTables(t *testing.T) {
	f, err := os.Open("testdata/lines.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	checked := map[string]int{}
	for in := bufio.NewScanner(f); in.Scan(); {
		w := strings.Fields(in.Text())
		var major, minor, size int
		var first int32
		fmt.Sscanf(w[0], "%d.%d", &major, &minor)
		fmt.Sscan(w[1], &first)
		fmt.Sscan(w[3], &size)
		table, _ := hex.DecodeString(w[2])
		lt := lineTable{first: first, python: uint16(major<<8 | minor), table: table}
		runs, want := w[4:], first
		for offset := 0; offset < size; offset += 2 {
			for len(runs) > 0 {
				var start int
				var line int32
				fmt.Sscanf(runs[0], "%d:%d", &start, &line)
				if start > offset {
					break
				}
				want, runs = line, runs[1:]
			}
			if got := lt.line(int32(offset)); got != want {
				t.Errorf("Python %s, code at line %d, offset %d: line %d, want %d", w[0], first, offset, got, want)
			}
			checked[w[0]]++
		}
	}
	for _, v := range []string{"3.9", "3.10", "3.11", "3.12", "3.13", "3.14"} {
		if checked[v] < 200 {
			t.Errorf("Python %s: only %d offsets compared", v, checked[v])
		}
	}
}

// TestLineTablesCut cuts tables: a line from before the cut is right, one from
// behind it unknown, and nothing is read outside.
func TestLineTablesCut(t *testing.T) {
	table := []byte{0x80 | 11<<3, 0, 0, 0x80 | 13<<3, 0x41, 0x01, 0x80 | 14<<3 | 1, 4, 0, 0, 0, 0x80 | 15<<3}
	for _, python := range []uint16{0x0309, 0x030a, 0x030b, 0x030d, 0x030e} {
		for n := range len(table) {
			whole := lineTable{first: 10, python: python, table: table}
			cut := lineTable{first: 10, python: python, table: table[:n], cut: true}
			for offset := int32(-1); offset < 2000; offset++ {
				if got := cut.line(offset); got != 0 && python >= 0x030b && n > 3 && offset < 2 && got != whole.line(offset) {
					t.Errorf("%#x cut at %d, offset %d: line %d, want %d", python, n, offset, got, whole.line(offset))
				}
			}
		}
	}
}

func TestText(t *testing.T) {
	for _, row := range []struct {
		name string
		in   string
		unit int
		want string
	}{
		{"ascii", "a/b.py", 1, "a/b.py"},
		{"latin-1", "caf\xe9.py", 1, "café.py"},
		{"ucs-2", "\x42\x04\x2e\x00", 2, "т."},
		{"ucs-2, undecodable byte", "\x80\xdc", 2, "\uFFFD"},
		{"ucs-4", "\x00\xf6\x01\x00", 4, "\U0001F600"},
		{"ucs-4, no character", "\xff\xff\xff\xff", 4, "\uFFFD"},
		{"ucs-4, cut", "\x41\x00\x00\x00\x42", 4, "A"},
		{"utf-8", "т", 0, "т"},
		{"no utf-8", "a\xffb", 0, "a\uFFFDb"},
		{"unknown unit", "ab", 9, "ab"},
		{"nothing", "", 2, ""},
	} {
		if got := text([]byte(row.in), row.unit); got != row.want {
			t.Errorf("%s: %q, want %q", row.name, got, row.want)
		}
	}
}

// FuzzLineTable: no table makes a line negative-sized trouble: it ends, and
// reads nothing outside.
func FuzzLineTable(f *testing.F) {
	f.Add(uint16(0x030b), int32(1), []byte{0x80 | 14<<3, 0xff, 0xff, 0xff}, int32(4))
	f.Add(uint16(0x030a), int32(1), []byte{2, 128}, int32(0))
	f.Add(uint16(0x0309), int32(1), []byte{2, 128, 3}, int32(9))
	f.Fuzz(func(t *testing.T, python uint16, first int32, table []byte, offset int32) {
		lt := lineTable{first: first, python: python, table: table}
		if a, b := lt.line(offset), lt.line(offset); a != b {
			t.Fatal("two answers")
		}
	})
}
