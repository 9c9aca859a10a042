package symbols

import (
	"context"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// tool runs a program of the toolchain in dir; a test without it is skipped.
func tool(t testing.TB, dir, name string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("there is no %s here", name)
	}
	c := exec.Command(name, args...)
	c.Dir = dir
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// compiled are programs by their flags: a compiler takes longer than their tests.
var compiled sync.Map

// program compiles chain.cc as dir/name.
func program(t testing.TB, dir, name string, flags ...string) string {
	t.Helper()
	source, err := filepath.Abs("testdata/chain.cc")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, name)
	if b, ok := compiled.Load(strings.Join(flags, " ")); ok {
		if err := os.WriteFile(path, b.([]byte), 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	tool(t, dir, "g++", append([]string{"-O2", "-g", "-Wl,--build-id", "-o", path, source}, flags...)...)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	compiled.Store(strings.Join(flags, " "), b)
	return path
}

// addresses are those of all functions of a program that have a size, every step
// bytes, sorted.
func addresses(t testing.TB, path string, step uint64, want func(name string) bool) []uint64 {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	syms, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[uint64]bool{}
	var out []uint64
	for _, s := range syms {
		if elf.ST_TYPE(s.Info) != elf.STT_FUNC || s.Section == 0 || !want(s.Name) {
			continue
		}
		for a := s.Value; a < s.Value+s.Size; a += step {
			if !seen[a] {
				seen[a] = true
				out = append(out, a)
			}
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i] < out[j] })
	if len(out) == 0 {
		t.Fatalf("%s has no such function", path)
	}
	return out
}

// ours names a function of chain.cc's own.
func ours(name string) bool {
	return strings.Contains(name, "pool") || name == "plain_c" || name == "main"
}

var everything = &budget{ctx: context.Background()}

const noLimit = 1 << 40

// resolved looks addresses up as a module of that path and build id.
func resolved(find *finder, path, id string, addrs []uint64) ([][]place, *Module) {
	m := &Module{Path: path, BuildID: id, addrs: addrs}
	return m.resolve(everything, find, noLimit), m
}

func idOf(t testing.TB, path string) string {
	t.Helper()
	img, err := openImage(path)
	if err != nil {
		t.Fatal(err)
	}
	defer img.close()
	return img.buildID
}

// oracle is what addr2line says: of each address the functions it lies in,
// outermost first, each as function at file:line. Its paths are cleaned.
func oracle(t testing.TB, path string, addrs []uint64) [][]string {
	t.Helper()
	if _, err := exec.LookPath("addr2line"); err != nil {
		t.Skip("there is no addr2line here")
	}
	c := exec.Command("addr2line", "-a", "-f", "-i", "-e", path)
	var in strings.Builder
	for _, a := range addrs {
		fmt.Fprintf(&in, "%#x\n", a)
	}
	c.Stdin = strings.NewReader(in.String())
	text, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	_, out := said(string(text))
	if len(out) != len(addrs) {
		t.Fatalf("addr2line answered for %d addresses of %d", len(out), len(addrs))
	}
	return out
}

// said reads what addr2line says.
func said(text string) (addrs []uint64, out [][]string) {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i := 0; i < len(lines); i++ {
		if strings.HasPrefix(lines[i], "0x") {
			addr, _ := strconv.ParseUint(lines[i][2:], 16, 64)
			addrs, out = append(addrs, addr), append(out, nil)
			continue
		}
		at, _, _ := strings.Cut(lines[i+1], " (")
		file, line, _ := strings.Cut(at, ":")
		last := &out[len(out)-1]
		*last = append([]string{demangled(lines[i]) + " at " + filepath.Clean(file) + ":" + strings.Replace(line, "?", "0", 1)}, *last...)
		i++
	}
	return addrs, out
}

func words(chain []place) []string {
	var out []string
	for _, p := range chain {
		out = append(out, fmt.Sprintf("%s at %s:%d", p.function, filepath.Clean(p.file), p.line))
	}
	return out
}

// same compares a chain with addr2line's. Of a function that the linker has no name
// of, addr2line says the last part alone, and here is also what it lies in.
func same(got, want []string) bool {
	return slices.EqualFunc(got, want, func(g, w string) bool {
		last, place, _ := strings.Cut(w, " at ")
		return g == w || !strings.Contains(last, "::") && strings.HasSuffix(g, "::"+last+" at "+place)
	})
}

// agree compares with addr2line, for every address.
func agree(t *testing.T, got [][]place, want [][]string, addrs []uint64) {
	t.Helper()
	if got == nil {
		t.Fatal("nothing is resolved")
	}
	deep, bad := 0, 0
	for i := range addrs {
		deep = max(deep, len(got[i]))
		if g, w := words(got[i]), want[i]; !same(g, w) {
			if bad++; bad <= 3 {
				t.Errorf("%#x is\n  %s\naddr2line says\n  %s", addrs[i], strings.Join(g, "\n  "), strings.Join(w, "\n  "))
			}
		}
	}
	if bad > 3 {
		t.Errorf("%d of %d addresses differ", bad, len(addrs))
	}
	if deep < 3 {
		t.Errorf("no address lies in two inlined calls: the program tests nothing")
	}
}
