package cuda

import (
	"path/filepath"
	"testing"

	"github.com/gpurec/gpurec/format"
)

// An event of a program that is linked to the driver takes none of the loader's
// locks: another thread may hold them and wait for it.
func TestLoaderLocked(t *testing.T) {
	library := compilePlus(t, "waits.so", "-O2", "-DLIBRARY", "testdata/loader.c")
	linked := cc(t, "linked-loader", "-DLINKED", "-rdynamic", "testdata/loader.c", "-ldl", "-lpthread", "-L", libraryDirectory(t), "-l:libcuda.so.1")
	lanes, _ := program{e: Environment{Stacks: "both"}, args: []string{linked, library}}.run(t, newReceiver(t))
	if n := count(all(lanes), format.Alloc); n != 1 {
		t.Errorf("%d allocs", n)
	}
}

// What dlerror says of a look-up is what it says without the hook.
func TestLoaderError(t *testing.T) {
	driver := filepath.Join(libraryDirectory(t), "libcuda.so.1")
	want := "cuMemAlloc_v2 found -\ncuMemAlloc_v9 not found " + driver + ": undefined symbol: cuMemAlloc_v9\ncuInit found -\ncuGetProcAddress_v2 found -\nputs found -\n"
	_, out := program{args: []string{cc(t, "loader", "testdata/loader.c", "-ldl")}}.run(t, newReceiver(t))
	if out != want {
		t.Errorf("%q, wanted %q", out, want)
	}
}
