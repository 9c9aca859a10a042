package symbols

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/formattest"
	"github.com/gpurec/gpurec/format/live"
)

// recording makes a trace of one part a stack: each is addresses of a module,
// outermost first, as a recorder leaves them. Ids are not in the order of callers.
func recording(t *testing.T, path, id string, stacks ...[]uint64) string {
	t.Helper()
	b := formattest.New(t)
	b.Process("chain")
	b.Device("GPU-0", 1<<30)
	frames, nodes := map[uint64]format.FrameID{}, map[format.Stack]format.StackID{}
	for i, addrs := range stacks {
		at := format.StackID(0)
		for _, a := range addrs {
			if frames[a] == 0 {
				frames[a] = format.FrameID(3 + 2*len(frames))
				b.Defs().PutFrame(format.Frame{ID: frames[a], Kind: format.FrameNative, Module: path, BuildID: id, Address: a})
			}
			node := format.Stack{Parent: at, Frame: frames[a]}
			if nodes[node] == 0 {
				nodes[node] = format.StackID(100 - 3*len(nodes))
				b.Defs().PutStack(format.Stack{ID: nodes[node], Parent: at, Frame: frames[a]})
			}
			at = nodes[node]
		}
		if i > 0 {
			fold := live.New()
			for _, e := range b.Events() {
				fold.Apply(&e)
			}
			b.Part(fold.Checkpoint(format.Time(i * 10 * formattest.Step)))
		}
		b.Alloc(format.APIMemAlloc, uint64(0x1000*(i+1)), 512).Stack = at
	}
	return b.Trace().Path()
}

// stacksOf are the stacks of a trace's allocations, each outermost first, as text,
// from the part alone that the event is in.
func stacksOf(t *testing.T, path string) (out []string) {
	t.Helper()
	tr, err := format.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range tr.Parts() {
		defs := format.NewDefs()
		if err := p.LoadDefs(defs); err != nil {
			t.Fatal(err)
		}
		r, err := p.Events()
		if err != nil {
			t.Fatal(err)
		}
		events, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			if e.Kind != format.Alloc {
				continue
			}
			ids, ok := defs.Walk(e.Stack, nil)
			if !ok {
				t.Errorf("%s: stack %d is not defined", p.Path(), e.Stack)
			}
			var words []string
			for _, id := range ids {
				f, ok := defs.Frame(id)
				if !ok {
					t.Errorf("%s: frame %d is not defined", p.Path(), id)
				}
				words = append(words, fmt.Sprintf("%s:%d:%s", filepath.Base(f.Source()), f.Line, f.Name()))
			}
			out = append(out, strings.Join(words, "; "))
		}
		r.Close()
	}
	return out
}

// files are a trace's, by name.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	filepath.Walk(dir, func(p string, fi os.FileInfo, err error) error {
		if err == nil && !fi.IsDir() {
			b, err := os.ReadFile(p)
			if err != nil {
				t.Fatal(err)
			}
			rel, _ := filepath.Rel(dir, p)
			out[rel] = string(b)
		}
		return err
	})
	return out
}

// deepest are addresses in four inlined calls, in two, and in none, of a program.
func deepest(t *testing.T, path string) (deep, shallow, plain uint64) {
	addrs := addresses(t, path, 1, ours)
	chains, _ := resolved(&finder{}, path, idOf(t, path), addrs)
	count := map[int]int{}
	for i, c := range chains {
		switch {
		case len(c) == 5:
			deep = addrs[i]
		case len(c) == 3:
			shallow = addrs[i]
		case len(c) == 1 && c[0].line > 0:
			plain = addrs[i]
		}
		count[len(c)]++
	}
	if deep == 0 || shallow == 0 || plain == 0 {
		t.Fatalf("the program has no such addresses: by depth there are %v", count)
	}
	return
}

// expected is what stacksOf says of addresses that are known.
func expected(t *testing.T, path string, addrs []uint64) string {
	var out []string
	for _, a := range addrs {
		chains, _ := resolved(&finder{}, path, idOf(t, path), []uint64{a})
		for _, p := range chains[0] {
			out = append(out, fmt.Sprintf("%s:%d:%s", filepath.Base(p.file), p.line, p.function))
		}
	}
	return strings.Join(out, "; ")
}

// TestTrace symbolizes a trace of several parts whose program is on this machine,
// and on another, where it is not where it was.
func TestTrace(t *testing.T) {
	dir := t.TempDir()
	path := program(t, dir, "chain")
	id := idOf(t, path)
	deep, shallow, plain := deepest(t, path)
	stacks := [][]uint64{{plain, deep}, {plain, deep, deep, shallow}, {shallow}, {plain}, {plain, deep, deep, deep}}
	var want []string
	for _, s := range stacks {
		want = append(want, expected(t, path, s))
	}
	opt := Options{MaxDWARF: noLimit}
	check := func(t *testing.T, trace string) {
		t.Helper()
		got := stacksOf(t, trace)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("stacks are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		tr, err := format.Open(trace)
		if err != nil {
			t.Fatal(err)
		}
		formattest.Validate(t, tr)
	}

	t.Run("in place, and again", func(t *testing.T) {
		trace := recording(t, path, id, stacks...)
		before := files(t, trace)
		var steps []int64
		listened := opt
		listened.Progress = func(done, of int64) { steps = append(steps, done, of) }
		r, err := Trace(context.Background(), trace, "", listened)
		if len(steps) < 4 || steps[0] != 0 || steps[len(steps)-1] != 3 {
			t.Errorf("its progress is %v", steps)
		}
		if err != nil || !r.Changed || r.Frames != 3 || r.Named != 3 || r.Lines != 3 || r.Inlined != 6 {
			t.Fatalf("%v %v", r, err)
		}
		check(t, trace)
		after := files(t, trace)
		for name, b := range before {
			table := strings.HasSuffix(name, "frames.arrow") || strings.HasSuffix(name, "stacks.arrow")
			if same := after[name] == b; same == table {
				t.Errorf("%s: the same %v", name, same)
			}
		}
		if len(after) != len(before) {
			t.Errorf("there are %d files, were %d", len(after), len(before))
		}
		again, err := Trace(context.Background(), trace, "", opt)
		if err != nil || again.Changed || again.Named != r.Named || again.Lines != r.Lines || again.Inlined != r.Inlined || again.Frames != r.Frames {
			t.Errorf("the second time: %v %v", again, err)
		}
		if !reflect.DeepEqual(files(t, trace), after) {
			t.Error("the second time changed it")
		}
	})
	t.Run("a copy, on another machine", func(t *testing.T) {
		trace := recording(t, "/not/here/chain", id, stacks...)
		before := files(t, trace)
		r, err := Trace(context.Background(), trace, "", opt)
		if err != nil || r.Changed || !strings.HasPrefix(r.Modules[0].Why, "it is not here") || !strings.HasSuffix(r.Modules[0].Why, id) {
			t.Fatalf("without the program: %v %v", r, err)
		}
		out, link := filepath.Join(t.TempDir(), "named.gpurec"), filepath.Join(t.TempDir(), "link")
		if err := os.Symlink(dir, link); err != nil {
			t.Fatal(err)
		}
		if _, err := Trace(context.Background(), trace, out, Options{MaxDWARF: noLimit, Search: []string{link}}); err != nil {
			t.Fatal(err)
		}
		check(t, out)
		if !reflect.DeepEqual(files(t, trace), before) {
			t.Error("it changed the trace")
		}
	})
	t.Run("functions first, lines later", func(t *testing.T) {
		trace := recording(t, path, id, stacks...)
		r, err := Trace(context.Background(), trace, "", Options{})
		if err != nil || r.Named != 3 || r.Lines != 0 || r.Inlined != 0 || !strings.Contains(r.Modules[0].Why, "lines were not read") {
			t.Fatalf("%v %v %+v", r, err, r.Modules[0])
		}
		if got := stacksOf(t, trace)[0]; !strings.HasPrefix(got, "chain:0:") || strings.Contains(got, "+0x") {
			t.Errorf("without lines: %s", got)
		}
		if _, err := Trace(context.Background(), trace, "", opt); err != nil {
			t.Fatal(err)
		}
		check(t, trace)
		// Of a stripped program nothing is learned, and nothing lost.
		stripped := filepath.Join(t.TempDir(), "chain")
		tool(t, dir, "objcopy", "--strip-debug", path, stripped)
		if _, err := Trace(context.Background(), trace, "", Options{}); err != nil {
			t.Fatal(err)
		}
		check(t, trace)
	})
	t.Run("split files, later, and gone again", func(t *testing.T) {
		home := t.TempDir()
		split := program(t, home, "chain", "-gsplit-dwarf", "-dumpdir", home+"/")
		trace := recording(t, split, idOf(t, split), stacks...)
		dwos, _ := filepath.Glob(home + "/*.dwo")
		if len(dwos) != 1 {
			t.Fatalf("there are %v", dwos)
		}
		os.Rename(dwos[0], dwos[0]+".away")
		r, err := Trace(context.Background(), trace, "", opt)
		if err != nil || r.Lines != 3 || r.Inlined != 0 || !strings.Contains(r.Modules[0].Why, "--search takes its folder") {
			t.Fatalf("without them: %v %v %+v", r, err, r.Modules[0])
		}
		os.Rename(dwos[0]+".away", dwos[0])
		if r, err = Trace(context.Background(), trace, "", opt); err != nil || r.Modules[0].Why != "" {
			t.Fatalf("with them: %v %v %+v", r, err, r.Modules[0])
		}
		check(t, trace)
		os.Remove(dwos[0])
		if r, err = Trace(context.Background(), trace, "", opt); err != nil || r.Changed || r.Inlined != 6 {
			t.Fatalf("without them again: %v %v", r, err)
		}
		check(t, trace)
	})
	t.Run("stopped at once", func(t *testing.T) {
		trace := recording(t, path, id, stacks...)
		r, err := Trace(context.Background(), trace, "", Options{MaxDWARF: noLimit, Stop: func() bool { return true }})
		if err != nil || !r.Stopped || r.Changed || len(r.Modules) != 0 {
			t.Errorf("%v %v", r, err)
		}
		asked := 0 // twice of each part
		r, err = Trace(context.Background(), trace, "", Options{MaxDWARF: noLimit, Stop: func() bool { asked++; return asked > 2*len(stacks) }})
		if err != nil || !r.Stopped || r.Changed || !strings.Contains(r.Modules[0].Why, "no more time") {
			t.Errorf("stopped once its tables are read: %v %v", r, err)
		}
	})
	t.Run("while another does", func(t *testing.T) {
		trace := recording(t, path, id, stacks...)
		unlock, err := lock(trace)
		if err != nil {
			t.Fatal(err)
		}
		before := files(t, trace)
		if _, err := Trace(context.Background(), trace, "", opt); err == nil || !strings.Contains(err.Error(), "another process") {
			t.Errorf("the error is %v", err)
		}
		if !reflect.DeepEqual(files(t, trace), before) {
			t.Error("it changed the trace")
		}
		out := filepath.Join(t.TempDir(), "named.gpurec")
		if _, err := Trace(context.Background(), trace, out, opt); err != nil {
			t.Errorf("a copy: %v", err)
		}
		unlock()
		if _, err := Trace(context.Background(), trace, "", opt); err != nil {
			t.Error(err)
		}
		check(t, trace)
	})
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		trace := recording(t, path, id, stacks...)
		if _, err := Trace(ctx, trace, "", opt); !errors.Is(err, context.Canceled) {
			t.Errorf("the error is %v", err)
		}
	})
	t.Run("killed between the two tables", func(t *testing.T) {
		trace := recording(t, path, id, stacks...)
		old := files(t, trace)
		if _, err := Trace(context.Background(), trace, "", opt); err != nil {
			t.Fatal(err)
		}
		for part := len(stacks) - 1; part >= 0; part-- { // of the last parts first: nothing, the frames alone, of the others all
			for i, name := range []string{"stacks.arrow", "frames.arrow"} {
				name = filepath.Join(fmt.Sprintf("%05d", part), name)
				if err := os.WriteFile(filepath.Join(trace, name), []byte(old[name]), 0o600); err != nil {
					t.Fatal(err)
				}
				os.WriteFile(filepath.Join(trace, name+".new"), []byte("half"), 0o600)
				for j, s := range stacksOf(t, trace) { // what it says is true
					if j < part && s != want[j] || j == part && i == 0 && (strings.Contains(s, "+0x") || strings.Count(s, ";") != len(stacks[j])-1) {
						t.Errorf("stack %d is %s", j, s)
					}
				}
				if part == 1 {
					copied := filepath.Join(t.TempDir(), "killed.gpurec")
					if err := os.CopyFS(copied, os.DirFS(trace)); err != nil {
						t.Fatal(err)
					}
					if _, err := Trace(context.Background(), copied, "", opt); err != nil {
						t.Fatal(err)
					}
					check(t, copied)
					if left, _ := filepath.Glob(copied + "/*/*.new"); part == 1 && i == 1 && len(left) != 0 {
						t.Errorf("left behind: %v", left)
					}
				}
			}
		}
	})
}

// TestNotTheOneRecorded has another program at the module's path.
func TestNotTheOneRecorded(t *testing.T) {
	dir := t.TempDir()
	path := program(t, dir, "chain")
	bare := program(t, dir, "bare", "-Wl,--build-id=none")
	addrs := addresses(t, path, 8, ours)
	for _, c := range []struct{ name, path, id, why string }{
		{"another build", path, "00112233", "its build id is"},
		{"one without a build id", bare, "00112233", "it has no build id"},
		{"that had none", path, "", "that had none"},
		{"nobody knows", bare, "", ""},
		{"no ELF file", "testdata/chain.cc", "00112233", "is not read as an ELF file"},
		{"a folder", dir, "00112233", "is no regular file"},
		{"not there", "/nowhere", "00112233", "it is not here"},
		{"no file", "[vdso]", "", "it is no file"},
		{"made at run time", "[anon]", "", "it is no file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, m := resolved(&finder{}, c.path, c.id, addrs)
			if c.why == "" {
				if len(got) == 0 || len(got[0]) == 0 || !strings.Contains(m.Why, "unverified") {
					t.Errorf("%v %+v", got, m)
				}
				return
			}
			if got != nil || !strings.Contains(m.Why, c.why) {
				t.Errorf("%d are resolved, because %q", len(got), m.Why)
			}
		})
	}
}

// TestGrowing leaves a trace alone that is not closed.
func TestGrowing(t *testing.T) {
	path := program(t, t.TempDir(), "chain")
	trace := recording(t, path, idOf(t, path), []uint64{addresses(t, path, 1, ours)[0]})
	name := filepath.Join(trace, format.MetaFile)
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	growing := bytes.Replace(b, []byte(`"closed"`), []byte(`""`), 1)
	if bytes.Equal(growing, b) {
		t.Fatalf("trace.json has no ending: %s", b)
	}
	os.WriteFile(name, growing, 0o600)
	before := files(t, trace)
	if _, err := Trace(context.Background(), trace, "", Options{MaxDWARF: noLimit}); err == nil || !strings.Contains(err.Error(), "repair") {
		t.Errorf("the error is %v", err)
	}
	if !reflect.DeepEqual(files(t, trace), before) {
		t.Error("it changed the trace")
	}
}
