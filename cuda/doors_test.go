package cuda

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/recorder/ring"
)

// RTLD_NEXT means after the caller, and the caller is not the hook.
func TestCallerIdentity(t *testing.T) {
	first := cc(t, "libfirst.so", "-DFIRST", "-shared", "-fPIC", "testdata/next.c", "-ldl")
	second := cc(t, "libsecond.so", "-DSECOND", "-shared", "-fPIC", "testdata/next.c", "-ldl")
	main := cc(t, "next", "-DMAIN", "testdata/next.c", "-Wl,--no-as-needed", first, second, "-ldl",
		"-Wl,-rpath="+filepath.Dir(first), "-Wl,-rpath="+filepath.Dir(second))
	for _, recorded := range []bool{false, true} {
		r := newReceiver(t)
		if !recorded {
			r = nil
		}
		if _, out := (program{args: []string{main}}).run(t, r); out != "fine\n" {
			t.Errorf("recorded %v: %s", recorded, out)
		}
	}
}

// Calls that only some programs make.
func TestSpecialCalls(t *testing.T) {
	for _, word := range []string{"capture", "locations", "contexts"} {
		t.Run(word, func(t *testing.T) {
			lanes, _ := guest(t, newReceiver(t), program{}, "start", word)
			var got []string
			for _, r := range lanes[0].events() {
				switch r.Kind() {
				case format.FreeDone:
				case format.Mark:
					got = append(got, "Mark")
				default:
					got = append(got, fmt.Sprintf("%s context=%v object=%v", text(r), r.Call().CUctx != 0, r.Event().B != 0))
				}
			}
			golden(t, word+".txt", got)
		})
	}
}

// oddDriver is a directory with testdata/oddcuda.c as libcuda.so.1.
func oddDriver(t *testing.T) string {
	return filepath.Dir(cc(t, "libcuda.so.1", "-shared", "-fPIC", "-fvisibility=hidden", "testdata/oddcuda.c", "-Wl,-soname=libcuda.so.1"))
}

// A driver that answers cuGetProcAddress with what it does not export: the
// function is known by its name and version, and called at its own address.
func TestUnexportedAnswers(t *testing.T) {
	lanes, _ := guest(t, newReceiver(t), program{e: Environment{Simulator: oddDriver(t)}}, "start", "by-proc", "pair")
	var got []string
	for _, r := range all(lanes) {
		if r.Kind() != format.FreeDone {
			got = append(got, fmt.Sprintf("%s %s %d", r.Kind(), r.Event().API, r.Event().Size))
		}
	}
	want := "Alloc cuMemAlloc_v2 4096, Free cuMemFree_v2 -1, Alloc cuMemAlloc_v2 4096, Free cuMemFree_v2 -1"
	if s := strings.Join(got, ", "); s != want {
		t.Errorf("got %s, want %s", s, want)
	}
}

// Of a CUDA that is newer than the hook a function may take other arguments: the
// program gets the driver's own, and the trace says that it was looked up.
func TestNewerThanKnown(t *testing.T) {
	lanes, _ := guest(t, newReceiver(t), program{e: Environment{Simulator: oddDriver(t)}}, "start", "by-newer-proc")
	names, got := map[uint64]string{}, []string{}
	for _, r := range lanes[0].records {
		switch r.Kind() {
		case format.WireName:
			d, s := r.Name()
			names[d.Hash] = string(s)
		case format.Unhooked:
			got = append(got, names[r.Scope().Name])
		case format.Alloc, format.Free:
			got = append(got, r.Event().API.String())
		}
	}
	if s := strings.Join(got, ", "); s != "cuMemAlloc, cuMemFree" {
		t.Errorf("got %s", s)
	}
}

// A process that dies inside a call leaves in its lane which one it was.
func TestUnfinished(t *testing.T) {
	r := newReceiver(t)
	bin := cc(t, "guest", "testdata/guest.c", "-ldl", "-lpthread")
	cmd := program{e: Environment{Simulator: oddDriver(t)}, args: []string{bin, "start", "pair", "never-returns"}}.command(t, r)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.waitFor(func(r ring.Record) bool { return r.Kind() == format.Mark })
	// The mark precedes the call; the process is in it once its state says so.
	var l *lane
	for l == nil || !l.inCall {
		r.mu.Lock()
		l = r.lanes[0]
		l.call, l.inCall = l.c.Call()
		r.mu.Unlock()
	}
	cmd.Process.Kill()
	cmd.Wait()
	lanes := r.finish()
	if c := lanes[0].call; !lanes[0].inCall || c.API != format.APIMemAlloc || c.Size != 4711 || c.Since == 0 || c.TID != lanes[0].hello.TID {
		t.Errorf("in a call: %v, %+v", lanes[0].inCall, c)
	}
}

// When the recorder has forgotten its tables, definitions come again.
func TestEpoch(t *testing.T) {
	for _, raise := range []bool{false, true} {
		t.Run(fmt.Sprintf("raised=%v", raise), func(t *testing.T) {
			r := newReceiver(t)
			bin := cc(t, "guest", "testdata/guest.c", "-ldl", "-lpthread")
			cmd := program{args: []string{bin, "start", "twice"}}.command(t, r)
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			r.waitFor(func(r ring.Record) bool { return r.Kind() == format.Mark })
			r.mu.Lock()
			if raise {
				r.lanes[0].c.SetEpoch(1)
			}
			r.mu.Unlock()
			io.WriteString(in, "\n")
			if err := cmd.Wait(); err != nil {
				t.Fatal(err)
			}
			lanes := r.finish()
			want := 1
			if raise {
				want = 2
			}
			names := 0
			for _, rec := range lanes[0].records {
				if rec.Kind() == format.WireName {
					names++
				}
			}
			if names != want || count(all(lanes), format.Mark) != 2 {
				t.Errorf("%d definitions of the name, want %d; %d marks", names, want, count(all(lanes), format.Mark))
			}
		})
	}
}

// With --on-full wait and a recorder that gives no sign of life, the program
// goes on: it must never hang with its recorder.
func TestRecorderIsGone(t *testing.T) {
	r := newReceiver(t)
	r.wait.Store(true)
	r.paused.Store(true)
	lanes, _ := guest(t, r, program{e: Environment{LaneSize: format.MinLaneSize, OnFull: "wait"}}, "start", "full")
	if lanes[0].dropped == 0 {
		t.Error("a lane that nobody read dropped nothing")
	}
}

// ---- finding the libraries ------------------------------------------------------

func TestHookIsMadeOnce(t *testing.T) {
	cache := t.TempDir()
	said := 0
	say := func(string) { said++ }
	path, err := Hook(cache, say)
	if err != nil {
		t.Fatal(err)
	}
	first := said
	k, err := key()
	if err != nil {
		t.Fatal(err)
	}
	if b, err := built.ReadFile("hook/build/" + keyFile); err == nil && string(b) == k {
		if first != 0 {
			t.Error("compiled although it is in the binary")
		}
	} else if first != 1 {
		t.Errorf("said %d things while compiling", first)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Hook(cache, say)
	if err != nil || again != path || said != first {
		t.Errorf("the second time: %q, %v, %d said", again, err, said)
	}
	sim, err := Simulator(cache, say)
	if err != nil || said != first {
		t.Fatalf("simulator: %v, %d said", err, said)
	}
	for _, name := range []string{"libcuda.so.1", "libnvidia-ml.so.1"} {
		if _, err := os.Stat(filepath.Join(sim, name)); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(filepath.Join(sim, HookName)); !errors.Is(err, os.ErrNotExist) {
		t.Error("the hook stands on the simulated GPU's search path")
	}

	// A first run that was cut short leaves no key: it is made anew.
	os.Remove(filepath.Join(filepath.Dir(path), keyFile))
	os.WriteFile(path, []byte("half"), 0o755)
	if _, err := Hook(cache, say); err != nil {
		t.Fatal(err)
	}
	if now, err := os.Stat(path); err != nil || now.Size() < info.Size()/2 {
		t.Errorf("half a library was kept: %v", err)
	}
}

func TestPythonDir(t *testing.T) {
	cache := t.TempDir()
	dir, err := PythonDir(cache)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"sitecustomize.py", "gpurec/__init__.py", "gpurec/_wire.py"} {
		have, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join("python", name))
		if err != nil || !bytes.Equal(have, want) {
			t.Errorf("%s differs from the source: %v", name, err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "sitecustomize.py"), []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := PythonDir(cache); err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(filepath.Join(dir, "sitecustomize.py")); string(b) == "old" {
		t.Error("an old file was kept")
	}
	// Under another content's name: what another gpurec with this hook made stays.
	if base := filepath.Base(dir); base != "python-"+pythonKey() || len(base) != len("python-")+16 {
		t.Errorf("%s is not named by its content", dir)
	}
}

func TestCacheDir(t *testing.T) {
	for _, row := range []struct{ name, xdg, tmp, want string }{
		{name: "the user's", xdg: "xdg", tmp: "tmp", want: "xdg/gpurec/KEY"},
		{name: "a blank in its path", xdg: "x dg", tmp: "tmp", want: "tmp/gpurec-UID/KEY"},
		{name: "a colon in its path", xdg: "x:dg", tmp: "tmp", want: "tmp/gpurec-UID/KEY"},
		{name: "blanks everywhere", xdg: "x dg", tmp: "t mp", want: ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			root, err := os.MkdirTemp("", "gpurec-cache-")
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(root)
			os.Mkdir(filepath.Join(root, row.tmp), 0o755)
			t.Setenv("XDG_CACHE_HOME", filepath.Join(root, row.xdg))
			t.Setenv("TMPDIR", filepath.Join(root, row.tmp))
			dir, err := cacheDir("", "KEY", func(string) bool { return false })
			want := strings.ReplaceAll(row.want, "UID", fmt.Sprint(os.Getuid()))
			if want == "" {
				if err == nil {
					t.Errorf("%q, although the loader cannot take it", dir)
				}
				return
			}
			if rel, _ := filepath.Rel(root, dir); err != nil || rel != want {
				t.Errorf("%q, %v; want %q", rel, err, want)
			}
		})
	}
	t.Run("somebody else's", func(t *testing.T) {
		root := t.TempDir()
		t.Setenv("XDG_CACHE_HOME", "/proc/nowhere")
		t.Setenv("TMPDIR", root)
		if err := os.Mkdir(filepath.Join(root, fmt.Sprintf("gpurec-%d", os.Getuid())), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(root, fmt.Sprintf("gpurec-%d", os.Getuid())), 0o777); err != nil {
			t.Fatal(err)
		}
		if dir, err := cacheDir("", "KEY", func(string) bool { return false }); err == nil {
			t.Errorf("%q is open to all", dir)
		}
	})
}

// What the hook looks up for itself and a driver lacks is no error of the program's.
func TestLookUpLeavesNoError(t *testing.T) {
	p := program{args: []string{cc(t, "noerror", "testdata/noerror.c", "-ldl")}, e: Environment{Simulator: oddDriver(t)}}
	for _, r := range []*receiver{nil, newReceiver(t)} {
		if out, err := p.command(t, r).CombinedOutput(); err != nil {
			t.Errorf("recorded %v: %v\n%s", r != nil, err, out)
		}
	}
}
