package cuda

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
)

// Libraries that are opened so that our doors are not theirs: what they do is
// recorded where that was asked for, said where it was not, and they are bound as
// the program wanted it in either case.
func TestDeepbind(t *testing.T) {
	dir := libraryDirectory(t)
	main := cc(t, "deep", "-DMAIN", "-rdynamic", "testdata/deep.c", "-ldl")
	library := func(name string, flags ...string) string {
		return cc(t, name, append(append([]string{"-shared", "-fPIC"}, flags...), "testdata/deep.c", "-ldl", "-L", dir, "-Wl,--as-needed", "-l:libcuda.so.1")...)
	}
	libraries := []string{
		library("liblazy.so", "-DLINKED", "-Wl,-z,lazy"),
		library("libnow.so", "-DLINKED", "-Wl,-z,now", "-Wl,-z,relro"),
		library("libproc.so", "-DBY_PROC"),
		library("libname.so", "-DBY_NAME"),
	}
	for _, row := range []struct {
		name   string
		args   []string
		caught bool // it was asked for
		bound  string
		events int
		note   string
	}{
		{"as usual", []string{"plain"}, false, "main", 20, ""},
		{"deep", []string{"deep"}, false, "library", 0, format.Deepbound},
		{"deep, bound late", []string{"deep", "lazy"}, false, "library", 0, format.Deepbound},
		{"deep, asked for", []string{"deep"}, true, "library", 20, ""},
		{"deep, bound late, asked for", []string{"deep", "lazy"}, true, "library", 20, ""},
		{"as usual, asked for", []string{"plain"}, true, "main", 20, ""},
		{"a namespace of its own", []string{"apart"}, true, "library", 0, " (dlmopen)"},
	} {
		for _, lib := range libraries {
			t.Run(row.name+"/"+strings.TrimSuffix(filepath.Base(lib), ".so"), func(t *testing.T) {
				args := append([]string{main, row.args[0], lib}, row.args[1:]...)
				if _, out := (program{args: args}).run(t, nil); out != row.bound+" 0\n" {
					t.Fatalf("unrecorded: %q", out)
				}
				lanes, out := program{args: args, e: Environment{Deepbind: row.caught}}.run(t, newReceiver(t))
				if out != row.bound+" 0\n" {
					t.Errorf("recorded: %q", out)
				}
				events, names, notes := 0, map[uint64]string{}, []string{}
				for _, l := range lanes {
					for _, r := range l.records {
						switch r.Kind() {
						case format.Alloc, format.Free:
							events++
						case format.WireName:
							d, s := r.Name()
							names[d.Hash] = string(s)
						case format.Unhooked:
							notes = append(notes, names[r.Scope().Name])
						}
					}
				}
				var want []string
				// One that finds all of it by itself, after the program's last look-up,
				// is seen to do so nowhere.
				if row.note != "" && filepath.Base(lib) != "libname.so" {
					want = []string{filepath.Base(lib) + row.note}
				}
				if events != row.events || !slices.Equal(notes, want) {
					t.Errorf("%d events, want %d; notes %q, want %q", events, row.events, notes, want)
				}
			})
		}
	}
}

// Where a library looks for another is told by who asks, through our door too.
func TestOpensForItsCaller(t *testing.T) {
	far := cc(t, "libfar.so", "-shared", "-fPIC", "-DFAR", "testdata/far.c")
	asks := cc(t, "libasks.so", "-shared", "-fPIC", "-DASKS", "testdata/far.c", "-ldl", "-Wl,-rpath="+filepath.Dir(far))
	main := cc(t, "far", "testdata/far.c", "-Wl,--no-as-needed", asks, "-ldl", "-Wl,-rpath="+filepath.Dir(asks))
	if _, out := (program{args: []string{main}}).run(t, newReceiver(t)); out != "found 1, for the program 0\n" {
		t.Errorf("%q", out)
	}
}

// Two libcudas in a process: each call goes to the library that it was found in,
// is recorded once, and on the device that this one says.
func TestTwoDrivers(t *testing.T) {
	second := filepath.Join(t.TempDir(), "libcuda.so.1")
	b, err := os.ReadFile(filepath.Join(libraryDirectory(t), "libcuda.so.1"))
	if err == nil {
		err = os.WriteFile(second, b, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	p := program{args: []string{cc(t, "two", "testdata/two.c", "-ldl"), second}}
	if _, out := p.run(t, nil); out != "fine\n" {
		t.Fatalf("unrecorded: %q", out)
	}
	lanes, out := p.run(t, newReceiver(t))
	if out != "fine\n" {
		t.Errorf("recorded: %q", out)
	}
	var got []string
	for _, r := range all(lanes) {
		if r.Kind() != format.FreeDone {
			got = append(got, fmt.Sprintf("%s dev=%d size=%d", r.Kind(), r.Event().Device, r.Event().Size))
		}
	}
	want := []string{"Alloc dev=0 size=4096", "Alloc dev=1 size=16384", "Alloc dev=0 size=8192", "Alloc dev=1 size=32768"}
	for range 4 { // of the other library in vain, then of its own
		want = append(want, "Free dev=-1 size=-1", "FreeFailed dev=-1 size=-1", "Free dev=-1 size=-1")
	}
	if !slices.Equal(got, want) {
		t.Errorf("recorded\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
