package symbols

import (
	"debug/elf"
	"os"
	"path/filepath"
	"strings"
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
		{"zlib", []string{"-gz=zlib"}},
		{"zlib, the old way", []string{"-gdwarf-4", "-gz=zlib-gnu"}},
		{"pie, O3, sections", []string{"-pie", "-fPIE", "-O3", "-fomit-frame-pointer", "-ffunction-sections", "-Wl,--gc-sections"}},
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

const lambdaSource = `
struct Pool {
	template <typename F> static inline __attribute__((always_inline)) int grow(F f) { return f(3) + 1; }
};
__attribute__((noinline)) int pool_outer(int n) {
	auto middle = [&](int m) {
		{
			auto inner = [&](int k) { return k + m + n; };
			return Pool::grow(inner) + m;
		}
	};
	return middle(n) + Pool::grow(middle);
}
int main(int argc, char **argv) { return pool_outer(argc); }
`

// TestLambdas has functions in classes in functions, with code of their own and with
// calls that are inlined.
func TestLambdas(t *testing.T) {
	for _, flag := range []string{"-O0", "-O1", "-O2"} {
		dir := t.TempDir()
		os.WriteFile(filepath.Join(dir, "lambda.cc"), []byte(lambdaSource), 0o600)
		path := filepath.Join(dir, "lambda")
		tool(t, dir, "g++", flag, "-g", "-Wl,--build-id", "-o", path, "lambda.cc")
		addrs := addresses(t, path, 1, ours)
		got, m := resolved(&finder{}, path, idOf(t, path), addrs)
		if m.Why != "" {
			t.Error(m.Why)
		}
		inlined := 0
		for i, want := range oracle(t, path, addrs) {
			if len(got[i]) > 1 {
				inlined++
			}
			same := len(got[i]) == len(want) // of a lambda addr2line has less of a name: see same
			for j := 0; same && j < len(want); j++ {
				same = at(words(got[i])[j]) == at(want[j])
			}
			if !same {
				t.Fatalf("%s: %#x is %q, addr2line says %q", flag, addrs[i], words(got[i]), want)
			}
		}
		if inlined == 0 && flag == "-O0" {
			t.Errorf("%s: nothing is inlined", flag)
		}
	}
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
		{"what debuginfod's clients have", stripped, func(t *testing.T) *finder {
			t.Setenv("DEBUGINFOD_CACHE_PATH", place(t, id+"/debuginfo"))
			return &finder{debug: DebugDirs()}
		}},
		{"what debuginfod's clients have in the home folder", stripped, func(t *testing.T) *finder {
			t.Setenv("DEBUGINFOD_CACHE_PATH", "")
			t.Setenv("XDG_CACHE_HOME", "")
			t.Setenv("HOME", place(t, ".cache/debuginfod_client/"+id+"/debuginfo"))
			return &finder{debug: DebugDirs()}
		}},
		{"debuginfod's folder", "/nowhere/chain", func(t *testing.T) *finder { return &finder{search: []string{place(t, id+"/debuginfo")}} }},
		{"by its link, in the debug folder", stripped, func(t *testing.T) *finder {
			return &finder{debug: []string{place(t, filepath.Join(filepath.Dir(stripped), "split.debug"))}}
		}},
		{"by its link, found by name", stripped, func(t *testing.T) *finder { return &finder{search: []string{place(t, "deep/er/split.debug")}} }},
		{"the module elsewhere, under its path", path[1:], func(t *testing.T) *finder { return &finder{search: []string{"/"}} }},
		{"the module elsewhere, by name", "/nowhere/chain", func(t *testing.T) *finder { return &finder{search: []string{dir}} }},
		{"by the module's name and .debug, the module is not here", "/nowhere/chain", func(t *testing.T) *finder { return &finder{search: []string{place(t, "deep/er/chain.debug")}} }},
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

// TestSymbols has functions without lines: from .symtab, and of a stripped library
// from .dynsym. Each address is compared with what the unstripped table holds.
func TestSymbols(t *testing.T) {
	dir := t.TempDir()
	path := program(t, dir, "chain", "-g0", "-rdynamic")
	addrs := addresses(t, path, 1, func(string) bool { return true })
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	syms, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	holds := func(addr uint64, function string, global bool) bool {
		for _, s := range syms {
			if elf.ST_TYPE(s.Info) == elf.STT_FUNC && s.Value <= addr && addr < s.Value+max(s.Size, 1) && demangled(s.Name) == function &&
				(!global || elf.ST_BIND(s.Info) != elf.STB_LOCAL) {
				return true
			}
		}
		return false
	}
	stripped := filepath.Join(dir, "stripped")
	tool(t, dir, "objcopy", "--strip-all", path, stripped)
	for _, c := range []struct {
		name, path string
		global     bool
	}{{"all", path, false}, {"stripped", stripped, true}} {
		t.Run(c.name, func(t *testing.T) {
			got, m := resolved(&finder{}, c.path, idOf(t, path), addrs)
			if m.Why != "" {
				t.Error(m.Why)
			}
			named := 0
			for i, chain := range got {
				if len(chain) == 0 {
					continue
				}
				named++
				if len(chain) != 1 || chain[0].line != 0 || chain[0].file != "" || !holds(addrs[i], chain[0].function, c.global) {
					t.Errorf("%#x is %v", addrs[i], words(chain))
				}
			}
			if !c.global && named != len(addrs) || named < len(addrs)/2 {
				t.Errorf("%d of %d addresses have a name", named, len(addrs))
			}
			outside, _ := resolved(&finder{}, c.path, idOf(t, path), []uint64{0, 1, 0x10, 1 << 40, 1<<64 - 1})
			for _, chain := range outside {
				if len(chain) > 0 {
					t.Errorf("an address outside of all functions is %v", words(chain))
				}
			}
		})
	}
}

const rustSource = `
#[inline(always)] fn take(n: usize) -> Vec<u64> { vec![n as u64; n + 1] }
trait Grow { fn grow(&mut self, n: usize) -> u64; }
struct Pool<T> { held: Vec<Vec<u64>>, first: T }
impl<T> Grow for Pool<T> {
    #[inline(never)] fn grow(&mut self, n: usize) -> u64 {
        let mut add = |m: usize| { self.held.push(take(m)); self.held.len() };
        (add(n) + add(n + 1)) as u64 + self.held.iter().map(|v| v[0]).sum::<u64>()
    }
}
mod größe { #[inline(never)] pub fn grow(p: &mut dyn super::Grow, n: usize) -> u64 { p.grow(n) + p.grow(2 * n) } }
fn main() {
    let mut p = Pool { held: Vec::new(), first: 7.0 };
    println!("{}", größe::grow(&mut p, std::env::args().count()) + p.first as u64);
}
`

// TestRust has a program of Rust, with names of both kinds: which is a compiler's own
// choice depends on its version.
func TestRust(t *testing.T) {
	for _, c := range []struct {
		name  string
		flags []string
		grow  string
	}{
		{"as the compiler has them", nil, "> as pool::Grow>::grow"},
		{"version 0", []string{"-C", "symbol-mangling-version=v0"}, "<pool::Pool<f64> as pool::Grow>::grow"},
		{"split", []string{"-C", "split-debuginfo=unpacked"}, "> as pool::Grow>::grow"},
		{"packed", []string{"-C", "split-debuginfo=packed"}, "> as pool::Grow>::grow"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			os.WriteFile(filepath.Join(dir, "pool.rs"), []byte(rustSource), 0o600)
			path, plain := filepath.Join(dir, "pool"), filepath.Join(dir, "plain")
			args := []string{"-g", "-O", "-C", "link-arg=-Wl,--build-id"}
			tool(t, dir, "rustc", append(append(args, c.flags...), "-o", path, "pool.rs")...)
			if len(c.flags) > 0 && strings.HasPrefix(c.flags[1], "split") {
				tool(t, dir, "rustc", append(args, "-o", plain, "pool.rs")...)
			} else {
				plain = path
			}
			addrs := addresses(t, path, 1, func(name string) bool {
				return strings.Contains(name, "4grow") && strings.Contains(name, "4pool") || strings.Contains(name, "Grow")
			})
			got, m := resolved(&finder{}, path, idOf(t, path), addrs)
			if m.Why != "" {
				t.Error(m.Why)
			}
			agree(t, got, oracle(t, plain, addrs), addrs)
			functions := map[string]bool{}
			for _, chain := range got {
				functions[chain[0].function] = true
			}
			method := false
			for f := range functions {
				method = method || strings.HasSuffix(f, c.grow)
			}
			if !functions["pool::größe::grow"] || !method {
				t.Errorf("the functions are %v", functions)
			}
		})
	}
}

// TestDemangled has a name of each kind that is met.
func TestDemangled(t *testing.T) {
	for _, c := range []struct{ name, want string }{
		{"main", "main"},
		{"_ZN2at6native12_GLOBAL__N_115add_kernel_implERNS_18TensorIteratorBaseERKN3c106ScalarE.cold", "at::native::(anonymous namespace)::add_kernel_impl"},
		{"_ZN5caffe3addIfEEvPT_i.constprop.0.isra.0", "caffe::add<float>"},
		{"_ZL6helperi.part.0", "helper"},
		{"sort.constprop.0.isra.0.cold", "sort"},
		{"main._omp_fn.0", "main._omp_fn.0"},
		{"main.cold", "main.cold"}, // or it is Go's
		{"_ZN3foo3barB5cxx11Ei", "foo::bar[abi:cxx11]"},
		{"_ZZN4pool3oneEiENKUliE_clEi", "pool::one()::{lambda(int)#1}::operator()"},
		{"_ZNSt17_Function_handlerIFviEZ11plugin_turniEUliE_E9_M_invokeERKSt9_Any_dataOi", "std::_Function_handler<void (int), plugin_turn()::{lambda(int)#1}>::_M_invoke"},
		{"_ZN12_GLOBAL__N_16WalkerlsEi", "(anonymous namespace)::Walker::operator<<"},
		{"_ZNKR3Foo3barEv", "Foo::bar"},
		{"_ZN3barILi3EEC2Ev", "bar<3>::bar"},
		{"_ZN50_$LT$pool..Pool$LT$T$GT$$u20$as$u20$pool..Take$GT$4take17h314c156bf43a821dE", "<pool::Pool<T> as pool::Take>::take"},
		{"_ZN4pool13gr$uf6$$udf$e4dyns17h5c1b02d24b210f05E", "pool::größe::dyns"},
		{"_RNvNtCsaRHK5DXs8vu_4poolu9gre_6ka8i4dyns", "pool::größe::dyns"},
		{"_RNvXCsaRHK5DXs8vu_4poolINtB2_4PooldENtB2_4Take4takeB2_", "<pool::Pool<f64> as pool::Take>::take"},
		{"main.Map[go.shape.int,go.shape.string]", "main.Map[...]"},
		{"_Z", "_Z"},
		{"_Rust", "_Rust"},
		{"$u41$", "$u41$"},
	} {
		if got := demangled(c.name); got != c.want {
			t.Errorf("%s is %s, want %s", c.name, got, c.want)
		}
	}
}

const goSource = `package main

import "fmt"

type pool struct{ held [][]byte }

func (p *pool) take(n int) []byte { return make([]byte, n) }

//go:noinline
func (p *pool) grow(n int) int {
	p.held = append(p.held, p.take(n))
	return len(p.held)
}

func main() {
	p := &pool{}
	fmt.Println(p.grow(7), p.grow(9))
}
`

func TestGo(t *testing.T) {
	dir := t.TempDir()
	os.WriteFile(filepath.Join(dir, "pool.go"), []byte(goSource), 0o600)
	path := filepath.Join(dir, "pool")
	tool(t, dir, "go", "build", "-o", path, "pool.go")
	addrs := addresses(t, path, 1, func(name string) bool { return strings.HasPrefix(name, "main.") })
	got, _ := resolved(&finder{}, path, idOf(t, path), addrs)
	functions, lines := map[string]bool{}, 0
	for i, chain := range got {
		var all []string
		for _, p := range chain {
			all = append(all, p.function)
			if p.line > 0 {
				lines++
			}
			if p.file != filepath.Join(dir, "pool.go") && strings.HasPrefix(p.function, "main.") {
				t.Errorf("%#x is %v", addrs[i], words(chain))
			}
		}
		functions[strings.Join(all, " ")] = true
	}
	for _, want := range []string{"main.main", "main.(*pool).grow", "main.(*pool).grow main.(*pool).take"} {
		if !functions[want] {
			t.Errorf("no address is in %s", want)
		}
	}
	if lines == 0 {
		t.Error("no line is known")
	}
}
