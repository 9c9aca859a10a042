package cuda

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
)

// TestPythonSubinterpreters: each interpreter of a process counts its code objects
// anew, and their addresses are used again.
func TestPythonSubinterpreters(t *testing.T) {
	for version, python := range interpreters(t) {
		if version == "3.9" || version == "3.10" || version == "3.11" {
			continue // a thread shows the frames of its first interpreter alone
		}
		for _, kind := range []string{"legacy", "isolated"} {
			if version == "3.12" && kind == "isolated" {
				continue // ctypes does not go there
			}
			t.Run(version+"/"+kind, func(t *testing.T) {
				t.Parallel()
				t.Log(comparePython(t, program{args: []string{python, "testdata/subinterpreters.py", "8", kind}}, python))
			})
		}
	}
}

// TestPythonEmbedded runs programs that have an interpreter in them. Where none
// runs their events have no frames of it, and no look at one is a crash.
func TestPythonEmbedded(t *testing.T) {
	embed := cc(t, "embed", "testdata/embed.c", "-ldl", "-lpthread")
	for version, python := range interpreters(t) {
		out, err := exec.Command(python, "-c", "import sys, sysconfig; print(sys.prefix, sysconfig.get_config_var('LIBDIR'))").Output()
		words := strings.Fields(string(out))
		if err != nil || len(words) != 2 {
			t.Fatalf("%v: %s", err, out)
		}
		var start []string
		if strings.Contains(python, ".build/pythons/") { // it has a C library of its own
			words[1] = filepath.Join(words[0], "lib/x86_64-linux-gnu")
			start = []string{filepath.Join(words[1], "ld-linux-x86-64.so.2"), "--library-path", words[1] + ":" + libraryDirectory(t)}
		}
		library := filepath.Join(words[1], "libpython"+version+".so.1.0")
		if _, err := os.Stat(library); err != nil {
			t.Logf("Python %s is not embedded: it has no library", version)
			continue
		}
		for _, row := range []string{"once 1 local", "once 1 global", "threads 3 local", "again 3 local", "closed 3 local", "closed 3 global"} {
			t.Run(version+"/"+row, func(t *testing.T) {
				t.Parallel()
				w := strings.Fields(row)
				args := slices.Concat(start, []string{embed, w[0], w[1], library, w[2]})
				p := program{env: []string{"PYTHONHOME=" + words[0]}, e: Environment{Stacks: "python"}, args: args}
				t.Log(comparePython(t, p, python))
			})
		}
		if len(start) > 0 {
			continue // linking would need the other C library's own tools
		}
		t.Run(version+"/linked", func(t *testing.T) {
			t.Parallel()
			linked := cc(t, "linked", "-DLINKED", "testdata/embed.c", "-ldl", "-lpthread", library, "-Wl,-rpath,"+words[1])
			t.Log(comparePython(t, program{env: []string{"PYTHONHOME=" + words[0]}, e: Environment{Stacks: "python"}, args: []string{linked, "again", "2"}}, python))
		})
	}
}

// TestPythonEnds: the end of an interpreter frees the states of the threads that are
// in C just then. They have no Python frames any more, and the one that ends it does.
func TestPythonEnds(t *testing.T) {
	library := cc(t, "ends", "-shared", "-fPIC", "testdata/ends.c", "-ldl", "-lpthread")
	for version, python := range interpreters(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			p := program{e: Environment{Stacks: "python"}, args: []string{python, "testdata/ends.py", library}}
			lanes, _ := p.run(t, newReceiver(t))
			recorded := stacks(t, lanes).Recorded // which looks at those of 1 byte
			if before, last := len(recorded["800"].Frames), len(recorded["777"].Frames); before < 31 || last != 1 {
				t.Errorf("%d frames of the daemon before the end, %d where it ends", before, last)
			}
			for _, r := range all(lanes) {
				if r.Kind() == format.Alloc && r.Event().Size == 1 {
					return
				}
			}
			t.Errorf("the daemon has taken no memory")
		})
	}
}

// TestPythonSelfCheck: an interpreter whose layout is not the one that its version
// has gets no stacks, and the program runs as ever.
func TestPythonSelfCheck(t *testing.T) {
	for version, python := range interpreters(t) {
		rows := []string{"nothing", "size", "member"}
		if len(version) > 3 && version >= "3.12" { // before, Py_GetVersion writes its answer anew each time
			rows = append(rows, "version", "preview")
		}
		if len(version) > 3 && version >= "3.13" {
			rows = append(rows, "cookie", "offset", "threaded")
		}
		for _, what := range rows {
			t.Run(version+"/"+what, func(t *testing.T) {
				t.Parallel()
				r := newReceiver(t)
				p := program{env: []string{"GPUREC_VERBOSE=1"}, e: Environment{Stacks: "python"}, args: []string{python, "testdata/altered.py", what}}
				cmd := p.command(t, r)
				var said bytes.Buffer
				cmd.Stderr = &said
				if err := cmd.Run(); err != nil {
					t.Fatalf("%v\n%s", err, said.String())
				}
				recorded := stacks(t, r.finish()).Recorded
				frames := len(recorded["777"].Frames)
				if off := strings.Contains(said.String(), "no Python stacks"); len(recorded) != 1 || (frames == 0) != (what != "nothing") || off != (frames == 0) {
					t.Errorf("%d frames of %d stacks; stderr: %s", frames, len(recorded), said.String())
				}
			})
		}
	}
}
