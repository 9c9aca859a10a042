package symbols

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestForms has the same program with debug information of other shapes and in
// other files: each says of every byte what addr2line says of the plain one.
func TestForms(t *testing.T) {
	remove := func(pattern string) func(t *testing.T, dir, path string) {
		return func(t *testing.T, dir, path string) {
			all, _ := filepath.Glob(filepath.Join(dir, pattern))
			for _, p := range all {
				os.Remove(p)
			}
			if len(all) == 0 {
				t.Errorf("there is no %s", pattern)
			}
		}
	}
	pack := func(command string) func(t *testing.T, dir, path string) {
		return func(t *testing.T, dir, path string) {
			tool(t, dir, command, "-e", path, "-o", path+".dwp")
			remove("*.dwo")(t, dir, path)
		}
	}
	move := func(pattern string) func(t *testing.T, dir, path string) {
		return func(t *testing.T, dir, path string) {
			os.MkdirAll(filepath.Join(dir, "moved", "away"), 0o700)
			all, _ := filepath.Glob(filepath.Join(dir, pattern))
			for _, p := range all {
				os.Rename(p, filepath.Join(dir, "moved", "away", filepath.Base(p)))
			}
		}
	}
	for _, c := range []struct {
		name   string
		flags  []string
		after  func(t *testing.T, dir, path string)
		search string
		why    string
	}{
		{name: "dwarf 2", flags: []string{"-gdwarf-2"}},
		{name: "dwarf 3", flags: []string{"-gdwarf-3"}},
		{name: "64 bits", flags: []string{"-gdwarf64"}},
		{name: "lines alone", flags: []string{"-g1"}},
		{name: "everything", flags: []string{"-g3"}},
		{name: "types apart", flags: []string{"-fdebug-types-section"}},
		{name: "split", flags: []string{"-gsplit-dwarf"}},
		{name: "split, dwarf 4", flags: []string{"-gsplit-dwarf", "-gdwarf-4"}},
		{name: "split, compressed", flags: []string{"-gsplit-dwarf", "-gz=zlib"}},
		{name: "split, types apart", flags: []string{"-gsplit-dwarf", "-fdebug-types-section"}},
		{name: "split, moved", flags: []string{"-gsplit-dwarf"}, after: move("*.dwo"), search: "moved"},
		{name: "package, dwarf 4", flags: []string{"-gsplit-dwarf", "-gdwarf-4"}, after: pack("dwp")},
		{name: "package, dwarf 4, moved", flags: []string{"-gsplit-dwarf", "-gdwarf-4"}, after: func(t *testing.T, dir, path string) {
			pack("dwp")(t, dir, path)
			move("*.dwp")(t, dir, path)
		}, search: "moved"},
		{name: "dwz", after: func(t *testing.T, dir, path string) { tool(t, dir, "dwz", path) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			plain := program(t, dir, "plain")
			path := filepath.Join(dir, "chain")
			source, err := filepath.Abs("testdata/chain.cc")
			if err != nil {
				t.Fatal(err)
			}
			tool(t, dir, "g++", append([]string{"-O2", "-g", "-Wl,--build-id", "-o", path, source}, c.flags...)...)
			if c.after != nil {
				c.after(t, dir, path)
			}
			addrs := addresses(t, path, 1, ours)
			if !slices.Equal(addrs, addresses(t, plain, 1, ours)) {
				t.Fatal("the compiler makes other code of it")
			}
			find := &finder{}
			if c.search != "" {
				find.search = []string{filepath.Join(dir, c.search)}
			}
			got, m := resolved(find, path, idOf(t, path), addrs)
			if !strings.Contains(m.Why, c.why) || c.why == "" && m.Why != "" {
				t.Errorf("it says %q", m.Why)
			}
			agree(t, got, oracle(t, plain, addrs), addrs)
		})
	}
}

// TestKeptForms has those whose tools not every machine has; testdata/forms/make.sh
// made them.
func TestKeptForms(t *testing.T) {
	for _, c := range []struct {
		name, program, want string
		files               map[string]string // beside it, as they are to be named
		why                 string            // what is said where not all is there
	}{
		{name: "dwz, dwarf 4", program: "dwz4", want: "gcc.txt", files: map[string]string{"both4.debug": "both4.debug"}},
		{name: "dwz, dwarf 5", program: "dwz5", want: "gcc.txt", files: map[string]string{"both5.debug": "both5.debug"}},
		{name: "dwz, the other file is another's", program: "dwz4", want: "gcc.txt", files: map[string]string{"both5.debug": "both4.debug"}, why: "both4.debug is of another build"},
		{name: "dwz, the other file is not here", program: "dwz5", want: "gcc.txt", why: "both5.debug is not here, to which dwz moved them: --search takes its folder"},
		{name: "split", program: "split5", want: "clang.txt", files: map[string]string{"one.dwo": "one.dwo", "two.dwo": "two.dwo"}},
		{name: "package", program: "split5", want: "clang.txt", files: map[string]string{"split5.dwp": "split5.dwp"}},
		{name: "package, dwarf 4", program: "split4", want: "clang.txt", files: map[string]string{"split4.dwp": "split4.dwp"}},
		{name: "a package of others", program: "split4", want: "clang.txt", files: map[string]string{"split5.dwp": "split4.dwp"}, why: "2 of 2 units"},
		{name: "split files of others", program: "split4", want: "clang.txt", files: map[string]string{"one.dwo": "one.dwo", "two.dwo": "two.dwo"}, why: "one.dwo is of another build"},
		{name: "half of the split files", program: "split5", want: "clang.txt", files: map[string]string{"one.dwo": "one.dwo"}, why: "1 of 2 units of its debug information were not understood: the unit at 0x28: two.dwo is not here, which has it: --search takes its folder, or that of split5.dwp"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			put := func(from, to string) {
				b, err := os.ReadFile(filepath.Join("testdata/forms", from))
				if err == nil {
					err = os.WriteFile(filepath.Join(dir, to), b, 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			put(c.program, c.program)
			for from, to := range c.files {
				put(from, to)
			}
			text, err := os.ReadFile(filepath.Join("testdata/forms", c.want))
			if err != nil {
				t.Fatal(err)
			}
			addrs, want := said(string(text))
			path := filepath.Join(dir, c.program)
			got, m := resolved(&finder{}, path, idOf(t, path), addrs)
			if c.why == "" {
				if m.Why != "" {
					t.Errorf("it says %q", m.Why)
				}
				agree(t, got, want, addrs)
				return
			}
			if !strings.Contains(m.Why, c.why) {
				t.Errorf("it says %q", m.Why)
			}
			for i := range addrs { // what the program itself has is there
				g, w := words(got[i]), want[i]
				if strings.HasSuffix(w[len(w)-1], ":0") { // an instruction of no line
					continue
				}
				if len(g) == 0 || at(g[len(g)-1]) != at(w[len(w)-1]) || function(g[0]) != function(w[0]) && !strings.HasSuffix(function(g[0]), "::"+function(w[0])) {
					t.Fatalf("%#x is %q, whole %q", addrs[i], g, w)
				}
			}
		})
	}
}

// at is where a call is, without its folder, which dwz may have moved.
func at(s string) string       { return filepath.Base(s[strings.LastIndex(s, " at ")+4:]) }
func function(s string) string { return s[:strings.LastIndex(s, " at ")] }

// TestPacked has a program without symbols, but with those of functions packed in it
// as Fedora does.
func TestPacked(t *testing.T) {
	dir := t.TempDir()
	path := program(t, dir, "chain", "-g0")
	addrs := addresses(t, path, 1, ours)
	want, _ := resolved(&finder{}, path, idOf(t, path), addrs)
	packed := filepath.Join(dir, "packed")
	for _, c := range []struct {
		name, flags string
		why         string
	}{
		{"as it is packed", "-6", ""},
		{"in blocks", "--block-size=4096", ""},
		{"with another check", "--check=sha256", ""},
		{"of a window that no program has", "--lzma2=dict=512MiB", "a window of 536870912 bytes is needed"},
		{"through a filter", "--x86 --lzma2", "not packed as xz does"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tool(t, dir, "objcopy", "--only-keep-debug", path, "symbols")
			tool(t, dir, "objcopy", "--strip-all", "--remove-section", ".comment", "--keep-symbol=main", "--keep-symbol=plain_c", "--wildcard", "--keep-symbol=*pool*", "symbols")
			os.Remove(filepath.Join(dir, "symbols.xz"))
			tool(t, dir, "xz", append(strings.Fields(c.flags), "symbols")...)
			tool(t, dir, "objcopy", "--strip-all", "--add-section", ".gnu_debugdata=symbols.xz", path, packed)
			got, m := resolved(&finder{}, packed, idOf(t, packed), addrs)
			if !strings.Contains(m.Why, c.why) || c.why == "" && m.Why != "" {
				t.Errorf("it says %q", m.Why)
			}
			for i := range addrs {
				if same := slices.Equal(got[i], want[i]); same != (c.why == "") {
					t.Fatalf("%#x is %v, of the whole program %v", addrs[i], words(got[i]), words(want[i]))
				}
			}
		})
	}
}
