package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/gpurec/gpurec/format"
)

// ownModules are those of the program of cuda/testdata/named.
var ownModules = []string{"shapes", "libshapes.so", "plugin.so"}

// shapes compiles them, at -O2 without frame pointers.
func shapes(t *testing.T, dir string) {
	t.Helper()
	source, err := filepath.Abs("../../cuda/testdata/named")
	if err != nil {
		t.Fatal(err)
	}
	flags := []string{"-O2", "-g", "-fomit-frame-pointer", "-std=gnu++20", "-Wall", "-Wextra", "-Werror", "-Wl,--build-id"}
	for _, args := range [][]string{
		{"-shared", "-fPIC", "-o", "libshapes.so", source + "/library.cpp"},
		{"-shared", "-fPIC", "-o", "plugin.so", source + "/plugin.cpp"},
		{"-o", "shapes", source + "/main.cpp", "-L.", "-lshapes", "-Wl,-rpath,$ORIGIN", "-ldl", "-lpthread"},
	} {
		c := exec.Command("c++", append(slices.Clone(flags), args...)...)
		c.Dir = dir
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
}

// A call is a frame, or what is inlined in it.
type call struct {
	module, function, at string
	address              uint64
}

func (c call) String() string { return c.function + " at " + c.at }

// stacksBySize are those of a trace's allocations, each of another size: their
// calls of ownModules, outermost first.
func stacksBySize(t *testing.T, path string) map[int64][]call {
	t.Helper()
	tr, out := read(t, path), map[int64][]call{}
	for i := range tr.events {
		e := &tr.events[i]
		if e.Kind != format.Alloc {
			continue
		}
		ids, ok := tr.defs.Walk(e.Stack, nil)
		if !ok || out[e.Size] != nil {
			t.Fatalf("the stack of the allocation of %d bytes is not there, or there are two", e.Size)
		}
		calls := []call{}
		for _, id := range ids {
			f, _ := tr.defs.Frame(id)
			if name := filepath.Base(f.Module); slices.Contains(ownModules, name) {
				calls = append(calls, call{name, bare(f.Function), clean(fmt.Sprintf("%s:%d", f.File, f.Line)), f.Address})
			}
		}
		out[e.Size] = calls
	}
	return out
}

// addresses are those of stacks, by module.
func addresses(stacks map[int64][]call) map[string][]uint64 {
	out := map[string][]uint64{}
	for _, calls := range stacks {
		for _, c := range calls {
			if !slices.Contains(out[c.module], c.address) {
				out[c.module] = append(out[c.module], c.address)
			}
		}
	}
	return out
}

// clean is a file and a line as every tool has them.
func clean(at string) string {
	file, line, _ := strings.Cut(at, ":")
	if file == "" || file == "??" {
		return "nowhere"
	}
	return filepath.Clean(file) + ":" + strings.Replace(line, "?", "0", 1)
}

// bare is a C++ name without parameters, also those of what it lies in, which
// gpuanalyze leaves out.
func bare(name string) string {
	name, _, _ = strings.Cut(name, " [clone ")
	keep := strings.NewReplacer("(anonymous namespace)", "\x01", "operator()", "\x02")
	depth := 0
	name = strings.Map(func(r rune) rune {
		switch {
		case r == '(':
			depth++
		case r == ')':
			depth--
		case depth == 0:
			return r
		}
		return -1
	}, keep.Replace(name))
	name = strings.ReplaceAll(name, " const", "")
	return strings.NewReplacer("\x01", "(anonymous namespace)", "\x02", "operator()").Replace(name)
}

// addr2line says of each address of a module what it lies in, outermost first, with
// names as c++filt has them.
func addr2line(t *testing.T, module string, addrs []uint64) map[uint64][]call {
	t.Helper()
	pipe := func(input string, args ...string) string {
		c := exec.Command(args[0], args[1:]...)
		c.Stdin = strings.NewReader(input)
		out, err := c.Output()
		if err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		return string(out)
	}
	var in strings.Builder
	for _, a := range addrs {
		fmt.Fprintf(&in, "%#x\n", a)
	}
	lines := strings.Split(strings.TrimSpace(pipe(pipe(in.String(), "addr2line", "-a", "-f", "-i", "-e", module), "c++filt", "-p")), "\n")
	out, at := map[uint64][]call{}, uint64(0)
	for i := 0; i < len(lines); i++ {
		if a, err := strconv.ParseUint(lines[i], 0, 64); err == nil {
			at = a
			continue
		}
		place, _, _ := strings.Cut(lines[i+1], " (")
		out[at] = append([]call{{filepath.Base(module), bare(lines[i]), clean(place), at}}, out[at]...)
		i++
	}
	return out
}

// differs finds the first call in which a stack is not addr2line's, "" where there is
// none, and counts the names that addr2line has not: of a function that the linker has no name of, as a lambda that is inlined, it
// says the last part alone, or the name of the function that has the code. (gdb has
// them: TestNamesGDB.)
func differs(ours, theirs []call, shorter *int) string {
	holds := "" // of an address, the function that has the code
	for i := range max(len(ours), len(theirs)) {
		if i >= len(ours) || i >= len(theirs) {
			return fmt.Sprintf("there are %d calls, addr2line has %d", len(ours), len(theirs))
		}
		o, w := ours[i], theirs[i]
		if i == 0 || ours[i-1].address != o.address {
			holds = last(o.function)
		}
		switch same := o.module == w.module && o.address == w.address && o.at == w.at; {
		case same && o.function == w.function:
		case same && (strings.HasSuffix(o.function, "::"+w.function) || last(w.function) == holds):
			*shorter++
		default:
			return fmt.Sprintf("%s+%#x is %v, addr2line says %v", o.module, o.address, o, w)
		}
	}
	return ""
}

// TestNames takes memory from 1,000 random stacks of C++ at -O2 without frame
// pointers, names them where there is nothing but gpuanalyze, the trace and copies
// of the binaries, and compares every call of every stack with addr2line's.
func TestNames(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("native frames are walked on x86-64 alone")
	}
	for _, tool := range []string{"c++", "addr2line", "c++filt"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("there is no %s here", tool)
		}
	}
	gpuanalyze, dir, elsewhere := gpuanalyzeProgram(t), t.TempDir(), t.TempDir()
	job := filepath.Join(dir, "job")
	os.Mkdir(job, 0o700)
	shapes(t, job)
	if status := does(t, gpurec(t, dir, "run", "-q", "--simulate-gpu", "--stacks", "native", "--max-frames", "512", "--on-full", "wait", "--symbolize", "0",
		"-o", elsewhere+"/raw.gpurec", "--", job+"/shapes", job+"/plugin.so", "1000")); status != 0 {
		t.Fatalf("status %d", status)
	}
	raw := stacksBySize(t, elsewhere+"/raw.gpurec")
	addrs, known := addresses(raw), map[string]map[uint64][]call{}
	for _, m := range ownModules {
		known[m] = addr2line(t, filepath.Join(job, m), addrs[m])
	}

	// What goes to the other machine: of the programs copies, by other folders.
	os.MkdirAll(elsewhere+"/from/here", 0o700)
	for _, m := range ownModules {
		if err := os.Rename(filepath.Join(job, m), elsewhere+"/from/here/"+m); err != nil {
			t.Fatal(err)
		}
	}
	os.Remove(job)
	b, err := os.ReadFile(gpuanalyze)
	if err == nil {
		err = os.WriteFile(elsewhere+"/gpuanalyze", b, 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command("/gpuanalyze", "symbolize", "--search", "/from", "-o", "/named.gpurec", "/raw.gpurec")
	c.Env, c.Dir = []string{}, "/"
	c.SysProcAttr = &syscall.SysProcAttr{Chroot: elsewhere}
	if os.Geteuid() != 0 {
		c.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		c.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
	}
	out, err := c.CombinedOutput()
	if errors.Is(err, syscall.EPERM) {
		t.Logf("no root of its own can be made here (%v): what else is on this machine is in sight", err)
		c = exec.Command(elsewhere+"/gpuanalyze", "symbolize", "--search", elsewhere+"/from", "-o", elsewhere+"/named.gpurec", elsewhere+"/raw.gpurec")
		c.Env = []string{}
		out, err = c.CombinedOutput()
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	named := stacksBySize(t, elsewhere+"/named.gpurec")

	compared, inlined, differ, shorter := 0, 0, 0, 0
	for size, calls := range raw {
		var want []call
		for _, c := range calls {
			want = append(want, known[c.module][c.address]...)
		}
		compared += len(want)
		inlined += len(want) - len(calls)
		if what := differs(named[size], want, &shorter); what != "" {
			if differ++; differ <= 3 {
				t.Errorf("of the allocation of %d bytes %s", size, what)
			}
		}
	}
	if len(raw) < 1000 || inlined < len(raw) || differ > 0 {
		t.Errorf("%d stacks, %d calls, %d of them inlined; %d stacks differ", len(raw), compared, inlined, differ)
	}
	distinct := 0
	for _, m := range ownModules {
		distinct += len(addrs[m])
	}
	t.Logf("%d stacks, %d calls, %d of them inlined, of %d addresses; of %d addr2line has less of a name", len(raw), compared, inlined, distinct, shorter)
}

// gdbStacks prints, at each driver call, its size and the calls that led to it,
// innermost first, each as function, file:line and module.
const gdbStacks = `set pagination off
set startup-with-shell off
set debuginfod enabled off
set backtrace past-main on
break main
run
python
class Take(gdb.Breakpoint):
    def stop(self):
        print("SIZE\t%d" % int(gdb.parse_and_eval("$rsi")))
        f = gdb.newest_frame().older()
        while f is not None:
            sal = f.find_sal()
            module = gdb.solib_name(f.pc()) or gdb.current_progspace().filename
            print("CALL\t%s\t%s:%d\t%s" % (f.name(), sal.symtab.fullname() if sal.symtab else "", sal.line, module))
            f = f.older()
        return False
Take("*cuMemAlloc_v2")
end
continue
`

// TestNamesGDB compares with what a debugger says at the same moments. Where a
// statement begins at the very instruction of another, gdb says the line of the first,
// and addr2line that of the instruction.
func TestNamesGDB(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("native frames are walked on x86-64 alone")
	}
	for _, tool := range []string{"c++", "gdb", "addr2line", "c++filt"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("there is no %s here", tool)
		}
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	shapes(t, dir)
	os.WriteFile(dir+"/script", []byte(gdbStacks), 0o600)
	c := gpurec(t, dir, "run", "-q", "--simulate-gpu", "--stacks", "native", "--max-frames", "512", "--on-full", "wait", "--symbolize", "60s", "-o", "t.gpurec", "--",
		"gdb", "-nx", "-batch", "-x", "script", "--args", dir+"/shapes", dir+"/plugin.so", "100")
	var printed bytes.Buffer
	c.Stdout, c.Stderr = &printed, &printed
	if status := does(t, c); status != 0 {
		t.Fatalf("status %d\n%s", status, printed.String())
	}
	named := stacksBySize(t, dir+"/t.gpurec")
	known := map[string]map[uint64][]call{}
	for _, m := range ownModules {
		known[m] = addr2line(t, filepath.Join(dir, m), addresses(named)[m])
	}
	compared, calls, begins := 0, 0, 0
	for _, stop := range strings.Split(printed.String(), "SIZE\t")[1:] {
		lines := strings.Split(stop, "\n")
		size, err := strconv.ParseInt(lines[0], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		var want []call
		for _, line := range lines[1:] {
			if w := strings.Split(line, "\t"); w[0] == "CALL" && slices.Contains(ownModules, filepath.Base(w[3])) {
				want = append([]call{{module: filepath.Base(w[3]), function: last(w[1]), at: clean(w[2])}}, want...)
			}
		}
		got := slices.Clone(named[size])
		for i := range got {
			got[i].function = last(got[i].function)
		}
		if len(want) < 2 || len(got) != len(want) {
			t.Fatalf("of the allocation of %d bytes there are %d calls, gdb says\n%v", size, len(got), want)
		}
		for i, w := range want {
			g, innermost := got[i], i+1 == len(got) || got[i+1].address != got[i].address
			inner := known[g.module][g.address]
			if innermost && g.at != w.at && inner[len(inner)-1].at == g.at {
				begins++
				w.at = g.at
			}
			if g.module != w.module || g.function != w.function || g.at != w.at {
				t.Fatalf("of the allocation of %d bytes %v is in %s, gdb says %v in %s", size, g, g.module, w, w.module)
			}
		}
		compared++
		calls += len(want)
	}
	if compared < 100 || begins > calls/10 {
		t.Errorf("%d stacks compared, %d calls, gdb has another line of %d\n%s", compared, calls, begins, printed.String())
	}
	t.Logf("%d stacks, %d calls; of %d gdb says where the statement before begins", compared, calls, begins)
}

// last is a function's own name, without the types that it is made for: tools
// differ in what they put around it.
func last(name string) string {
	depth := 0
	name = strings.Map(func(r rune) rune {
		switch {
		case r == '<':
			depth++
		case r == '>':
			depth--
		case depth == 0:
			return r
		}
		return -1
	}, strings.ReplaceAll(bare(name), "operator<<", "operator\x01"))
	return name[strings.LastIndex(name, ":")+1:]
}
