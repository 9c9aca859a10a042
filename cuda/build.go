package cuda

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
)

//go:embed hook/*.c hook/*.h hook/export.map hook/fake/*.c hook/fake/*.h hook/fake/*.map
var sources embed.FS

// built holds the libraries and the key of the sources they were made from;
// only a placeholder where nobody built them.
//
//go:embed all:hook/build
var built embed.FS

// HookName is the file name of the preload library.
const HookName = "libgpurec.so"

// A library is one shared object and how it is made. This is the only place
// that knows; the Makefile comes here through internal/build.
type library struct {
	name    string
	dir     string                 // of its sources
	sources func(name string) bool // which of the C files there
	script  string                 // what it exports
	flags   []string
}

// cflags are every library's. Warnings are no errors here: a newer compiler's
// new warning must not keep anybody from recording. The tests add -Werror.
var cflags = []string{"-std=gnu11", "-O2", "-fPIC", "-shared", "-pthread", "-fvisibility=hidden", "-Wall", "-Wextra"}

var libraries = []library{
	{
		// initial-exec: thread-local storage without a call that might allocate.
		// now: a call that is bound when first made saves the vector registers
		// on a stack that may be a small one, 2.3 KiB more than any event takes.
		// -Bsymbolic: the addresses of our functions are ours, whoever else
		// exports the names. libdl is named by file, because a linker with
		// glibc 2.34 drops -ldl, which an older system needs.
		name: HookName, dir: "hook", script: "export.map",
		sources: func(string) bool { return true },
		flags:   []string{"-ftls-model=initial-exec", "-fno-stack-protector", "-Wl,-Bsymbolic", "-Wl,-z,defs", "-Wl,-z,now", "-Wl,--no-as-needed", "-l:libdl.so.2"},
	},
	{
		name: "libcuda.so.1", dir: "hook/fake", script: "cuda.map",
		sources: func(name string) bool { return name != "nvml.c" },
		flags:   []string{"-Wl,-soname=libcuda.so.1", "-ldl"},
	},
	{
		name: "libnvidia-ml.so.1", dir: "hook/fake", script: "nvml.map",
		sources: func(name string) bool { return name == "nvml.c" || name == "sim.c" },
		flags:   []string{"-Wl,-soname=libnvidia-ml.so.1"},
	},
}

const keyFile = "key"

// key names what the sources and the flags make for this machine. It is asked more
// than once around a command of a millisecond, and the hash takes half of one.
var key = sync.OnceValues(func() (string, error) { return keyFor(runtime.GOARCH) })

func keyFor(arch string) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, arch, cflags)
	for _, l := range libraries {
		fmt.Fprintln(h, l.name, l.script, l.flags)
	}
	err := fs.WalkDir(sources, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := sources.ReadFile(path)
		if err == nil {
			fmt.Fprintf(h, "%s %d\n%s", path, len(b), b)
		}
		return err
	})
	return hex.EncodeToString(h.Sum(nil))[:16], err
}

// Build compiles the libraries from the sources in this binary into dir.
// Extra flags go to the compiler.
func Build(dir string, extra ...string) error { return BuildFor(runtime.GOARCH, dir, extra...) }

// BuildFor is Build for another machine, as GOARCH says it, whose compiler is $CC.
func BuildFor(arch, dir string, extra ...string) error {
	k, err := keyFor(arch)
	if err != nil {
		return err
	}
	for _, l := range libraries {
		if err := compile(l, dir, extra); err != nil {
			return err
		}
	}
	return replace(filepath.Join(dir, keyFile), []byte(k))
}

// compiler is $CC, or cc.
func compiler() string {
	if cc := os.Getenv("CC"); cc != "" {
		return cc
	}
	return "cc"
}

func compile(l library, dir string, extra []string) error {
	tmp, err := os.MkdirTemp(dir, ".build")
	if err != nil {
		return fmt.Errorf("compile %s: %w", l.name, err)
	}
	defer os.RemoveAll(tmp)
	entries, err := sources.ReadDir(l.dir)
	if err != nil {
		return err
	}
	args := append(append([]string{}, cflags...), extra...)
	var files []string
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		b, err := sources.ReadFile(l.dir + "/" + e.Name())
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(tmp, e.Name()), b, 0o600); err != nil {
			return fmt.Errorf("compile %s: %w", l.name, err)
		}
		if strings.HasSuffix(e.Name(), ".c") && l.sources(e.Name()) {
			files = append(files, e.Name())
		}
	}
	out := filepath.Join(tmp, l.name)
	args = append(append(args, "-o", l.name), files...)
	args = append(append(args, "-Wl,--version-script="+l.script), l.flags...)
	cc := strings.Fields(compiler())
	cmd := exec.Command(cc[0], append(cc[1:], args...)...)
	cmd.Dir = tmp
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &text
	if err := cmd.Run(); err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			return fmt.Errorf("compile %s: no C compiler %q: install one, name it in CC, or use a gpurec made by `make build`, which needs none", l.name, cc[0])
		}
		return fmt.Errorf("compile %s: %s %s: %w\n%s", l.name, cc[0], strings.Join(args, " "), err, text.Bytes())
	}
	return os.Rename(out, filepath.Join(dir, l.name))
}

// replace writes a file so that no one ever sees half of it.
func replace(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if e := f.Chmod(0o755); err == nil {
		err = e
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}
