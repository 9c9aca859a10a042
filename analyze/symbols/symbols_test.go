package symbols

import (
	"os"
	"path/filepath"
	"testing"
)

// TestAddr2line compares every byte of chain.cc's functions with addr2line.
func TestAddr2line(t *testing.T) {
	for _, c := range []struct {
		name  string
		flags []string
	}{
		{"dwarf 5", []string{"-gdwarf-5"}},
		{"dwarf 4", []string{"-gdwarf-4"}},
		{"no pie", []string{"-no-pie"}},
		{"pie", []string{"-pie", "-fPIE"}},
		{"zlib", []string{"-gz=zlib"}},
		{"zlib, the old way", []string{"-gdwarf-4", "-gz=zlib-gnu"}},
		{"sections", []string{"-ffunction-sections", "-Wl,--gc-sections"}},
		{"O3", []string{"-O3", "-fomit-frame-pointer"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			path := program(t, t.TempDir(), "chain", c.flags...)
			addrs := addresses(t, path, 1, ours)
			got, m := resolved(&finder{}, path, idOf(t, path), addrs)
			if m.Why != "" {
				t.Error(m.Why)
			}
			agree(t, got, oracle(t, path, addrs), addrs)
		})
	}
	t.Run("zstd", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		path := program(t, dir, "chain")
		addrs := addresses(t, path, 1, ours)
		want := oracle(t, path, addrs)
		tool(t, dir, "objcopy", "--compress-debug-sections=zstd", path)
		got, _ := resolved(&finder{}, path, idOf(t, path), addrs)
		agree(t, got, want, addrs)
	})
}

// TestSplit has the debug information elsewhere.
func TestSplit(t *testing.T) {
	dir := t.TempDir()
	path := program(t, dir, "chain")
	id := idOf(t, path)
	addrs := addresses(t, path, 1, ours)
	want := oracle(t, path, addrs)
	debug := filepath.Join(dir, "split.debug")
	tool(t, dir, "objcopy", "--only-keep-debug", path, debug)
	stripped := filepath.Join(dir, "app", "chain")
	os.Mkdir(filepath.Dir(stripped), 0o700)
	tool(t, dir, "objcopy", "--strip-all", "--add-gnu-debuglink=split.debug", path, stripped)
	place := func(t *testing.T, file string) string { // a folder with the debug file under that name
		to := filepath.Join(t.TempDir(), "d")
		b, err := os.ReadFile(debug)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(filepath.Join(to, file)), 0o700)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(to, file), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		return to
	}
	byID := filepath.Join(".build-id", id[:2], id[2:]+".debug")
	for _, c := range []struct {
		name   string
		module string
		find   func(t *testing.T) *finder
	}{
		{"by build id", stripped, func(t *testing.T) *finder { return &finder{debug: []string{place(t, byID)}} }},
		{"by build id in a search folder, the module is not here", "/nowhere/chain", func(t *testing.T) *finder { return &finder{search: []string{place(t, byID)}} }},
		{"debuginfod's folder", "/nowhere/chain", func(t *testing.T) *finder { return &finder{search: []string{place(t, id+"/debuginfo")}} }},
		{"by its link, in the debug folder", stripped, func(t *testing.T) *finder {
			return &finder{debug: []string{place(t, filepath.Join(filepath.Dir(stripped), "split.debug"))}}
		}},
		{"by its link, found by name", stripped, func(t *testing.T) *finder { return &finder{search: []string{place(t, "deep/er/split.debug")}} }},
		{"the module elsewhere, under its path", path[1:], func(t *testing.T) *finder { return &finder{search: []string{"/"}} }},
		{"the module elsewhere, by name", "/nowhere/chain", func(t *testing.T) *finder { return &finder{search: []string{dir}} }},
		{"the module was removed", path + gone, func(t *testing.T) *finder { return &finder{} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := c.find(t)
			if c.name == "the module elsewhere, under its path" {
				f.names = map[string][]string{} // its path alone: not all files of this machine
			}
			got, m := resolved(f, c.module, id, addrs)
			if m.Why != "" {
				t.Error(m.Why)
			}
			agree(t, got, want, addrs)
		})
	}
}
