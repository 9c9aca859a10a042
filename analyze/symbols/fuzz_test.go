package symbols

import (
	"context"
	"os"
	"path/filepath"
	"testing"

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
			if len(chain) > maxInlined+1 {
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

// TestFlippedBits damages files systematically, also where no fuzzer runs.
func TestFlippedBits(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "image")
	for n, b := range smalls(t) {
		for at := n; at < len(b); at += 41 {
			c := append([]byte(nil), b...)
			c[at] ^= 1 << (at % 8)
			if at%3 == 0 {
				c[at] = 0xff
			}
			if at%5 == 0 {
				c = c[:at]
			}
			os.WriteFile(path, c, 0o600)
			if img, err := openImage(path); err == nil {
				id := img.buildID
				img.close()
				resolved(&finder{}, path, id, []uint64{0x400100, 0x400150, 0x401000, 0x401010})
			}
		}
	}
}
