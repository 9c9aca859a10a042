package symbols

import (
	"bytes"
	"context"
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ulikunitz/xz"

	"github.com/gpurec/gpurec/analyze/symbols/dwarf"
	"github.com/gpurec/gpurec/format"
)

// small is a program of a few KiB, linked to nothing.
const small = `
static inline __attribute__((always_inline)) int one(int n) { return n ^ (n >> 3) * 5; }
__attribute__((noinline)) int two(int n) { return one(n) * one(n + 3); }
void _start(void) { two(7); for (;;) ; }
`

// smalls are it with the debug sections that there are.
func smalls(t testing.TB) (out [][]byte) {
	dir := t.TempDir()
	os.WriteFile(filepath.Join(dir, "small.c"), []byte(small), 0o600)
	for _, flags := range [][]string{{"-gdwarf-5"}, {"-gdwarf-4"}, {"-gdwarf-5", "-gz=zlib"}, {"-gdwarf-4", "-gz=zlib-gnu"}, {"-g0", "-s"}} {
		tool(t, dir, "gcc", append([]string{"-O2", "-nostdlib", "-static", "-Wl,--build-id", "-Wl,-z,noseparate-code", "-o", "small", "small.c"}, flags...)...)
		b, err := os.ReadFile(filepath.Join(dir, "small"))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, b)
	}
	return out
}

// FuzzImage reads a file that may hold anything: it ends, in memory bounded by the
// file and the limit, and what it says is fit for a table.
func FuzzImage(f *testing.F) {
	for _, b := range smalls(f) {
		f.Add(b, uint64(0x400100))
	}
	dir := f.TempDir()
	beside(f, dir)
	for _, name := range []string{"dwz4", "dwz5", "split4", "split5"} {
		f.Add(form(f, name), uint64(0x400150))
	}
	f.Fuzz(func(t *testing.T, b []byte, addr uint64) {
		path := filepath.Join(dir, "image")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		img, err := openImage(path)
		if err != nil {
			return
		}
		id := img.buildID
		img.link()
		img.close()
		m := &Module{Path: path, BuildID: id, addrs: []uint64{1, addr, addr + 7, addr + 0x40, 1 << 63}}
		if addr == 0 || addr+0x40 < addr || addr+0x40 > 1<<63 {
			m.addrs = []uint64{1}
		}
		chains := m.resolve(&budget{ctx: context.Background()}, &finder{}, 1<<20)
		if chains != nil && len(chains) != len(m.addrs) {
			t.Fatalf("%d answers for %d addresses", len(chains), len(m.addrs))
		}
		for _, chain := range chains {
			if len(chain) > dwarf.MostInlined+1 {
				t.Errorf("%d calls at an address", len(chain))
			}
			for _, p := range chain {
				if p.line < 0 {
					t.Errorf("line %d", p.line)
				}
				f := format.Frame{ID: 1, Kind: format.FrameNative, Function: p.function, File: p.file, Line: p.line}
				format.NewDefs().PutFrame(f)
			}
		}
	})
}

// form is a file of testdata/forms.
func form(t testing.TB, name string) []byte {
	b, err := os.ReadFile(filepath.Join("testdata/forms", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// besides are the files that the programs of testdata/forms have debug information in.
var besides = []struct{ program, name string }{
	{"dwz4", "both4.debug"}, {"dwz5", "both5.debug"}, {"split5", "one.dwo"}, {"split5", "two.dwo"}, {"split4", "split4.dwp"}, {"split5", "split5.dwp"},
}

func beside(t testing.TB, dir string) {
	for _, f := range besides {
		if err := os.WriteFile(filepath.Join(dir, f.name), form(t, f.name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// FuzzBeside has a sound program, and beside it a file that may hold anything.
func FuzzBeside(f *testing.F) {
	for n, c := range besides {
		f.Add(form(f, c.name), uint8(n))
	}
	dir := f.TempDir()
	ids := make([]string, len(besides))
	for n, c := range besides {
		os.MkdirAll(filepath.Join(dir, c.name), 0o700)
		path := filepath.Join(dir, c.name, c.program)
		os.WriteFile(path, form(f, c.program), 0o600)
		ids[n] = idOf(f, path)
	}
	f.Fuzz(func(t *testing.T, b []byte, n uint8) {
		n %= uint8(len(besides))
		c := besides[n]
		if err := os.WriteFile(filepath.Join(dir, c.name, c.name), b, 0o600); err != nil {
			t.Fatal(err)
		}
		m := &Module{Path: filepath.Join(dir, c.name, c.program), BuildID: ids[n], addrs: []uint64{0x400150, 0x400180, 0x400210, 0x4002d0, 0x400333}}
		if chains := m.resolve(everything, &finder{}, 1<<20); len(chains) != len(m.addrs) || len(chains[1]) == 0 {
			t.Fatalf("the program itself is not read: %q, %v", m.Why, chains)
		}
	})
}

// FuzzUnpack has what should be a stream of xz: it ends, in the memory that was
// allowed.
func FuzzUnpack(f *testing.F) {
	for _, b := range packages(f) {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if out, err := unpack(bytes.NewReader(b), 1<<20, everything.check); err == nil && len(out) > 1<<20 {
			t.Errorf("%d bytes", len(out))
		}
	})
}

// Blocks that are empty ask for windows all the same.
func TestUnpackBlocks(t *testing.T) {
	b := []byte("\xfd7zXZ\x00\x00\x00....")
	for range 1000 {
		head := []byte{2, 0, 0x21, 1, 24, 0, 0, 0} // LZMA2, 16 MiB
		b = append(binary.LittleEndian.AppendUint32(append(b, head...), crc32.ChecksumIEEE(head)), 0, 0, 0, 0)
	}
	if _, err := unpack(bytes.NewReader(append(b, 0)), 1<<20, everything.check); err == nil || !strings.Contains(err.Error(), "windows of") {
		t.Errorf("%v", err)
	}
}

// packages are streams of xz: of one block, of three, without a check, empty.
func packages(t testing.TB) (out [][]byte) {
	plain := form(t, "dwz4")
	for _, c := range []struct {
		xz.WriterConfig
		content []byte
	}{{xz.WriterConfig{}, plain}, {xz.WriterConfig{BlockSize: 3000, CheckSum: xz.CRC32}, plain}, {xz.WriterConfig{NoCheckSum: true}, plain}, {xz.WriterConfig{CheckSum: xz.SHA256}, nil}} {
		var b bytes.Buffer
		w, err := c.NewWriter(&b)
		if err == nil {
			_, err = w.Write(c.content)
		}
		if err == nil {
			err = w.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, b.Bytes())
	}
	return out
}

// TestFlippedBits damages files systematically, also where no fuzzer runs.
func TestFlippedBits(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "image")
	each := func(n int, b []byte, f func(c []byte)) {
		for at := n; at < len(b); at += 41 {
			c := append([]byte(nil), b...)
			c[at] ^= 1 << (at % 8)
			if at%3 == 0 {
				c[at] = 0xff
			}
			if at%5 == 0 {
				c = c[:at]
			}
			f(c)
		}
	}
	read := func(path string) {
		if img, err := openImage(path); err == nil {
			id := img.buildID
			img.close()
			resolved(&finder{}, path, id, []uint64{0x400100, 0x400150, 0x401000, 0x401010})
		}
	}
	beside(t, dir)
	for n, b := range append(smalls(t), form(t, "dwz4"), form(t, "dwz5"), form(t, "split4"), form(t, "split5")) {
		each(n, b, func(c []byte) {
			os.WriteFile(path, c, 0o600)
			read(path)
		})
	}
	for n, f := range besides {
		program := filepath.Join(dir, f.program)
		os.WriteFile(program, form(t, f.program), 0o600)
		each(n, form(t, f.name), func(c []byte) {
			os.WriteFile(filepath.Join(dir, f.name), c, 0o600)
			read(program)
		})
		beside(t, dir)
	}
	for n, b := range packages(t) {
		each(n, b, func(c []byte) { unpack(bytes.NewReader(c), 1<<20, everything.check) })
	}
}
