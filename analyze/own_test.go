package analyze

import (
	"testing"

	"github.com/gpurec/gpurec/format"
)

func TestOwnNative(t *testing.T) {
	for _, c := range []struct {
		module, file, function string
		want                   bool
	}{
		{"/home/me/sim", "/home/me/sim.cu", "step", true},
		{"/home/me/sim", "../src/sim.cu", "step", true}, // as CMake and ninja compile
		{"/home/me/sim", "./sim.cu", "step", true},
		{"/home/me/sim", "/build/src/sim.cu", "step", true}, // in a container
		{"/home/me/sim", "../../../../../src/libstdc++-v3/src/c++11/thread.cc", "execute", false},
		{"/home/me/sim", "/build/glibc-6lVvYp/glibc-2.36/csu/libc-start.c", "call_init", false},
		{"/home/me/sim", "", "std::vector<int>::push_back", false},
		{"/home/me/sim", "", "step", true},
		{"/home/me/sim", "", "", false},
		{"/home/me/sim", "/usr/include/c++/12/vector", "std::vector<int>::push_back", false},
		{"/home/me/sim", "/rustc/59807616e/library/alloc/src/raw_vec.rs", "grow", false},
		{"/home/me/sim", "/home/me/.cargo/registry/src/x/lib.rs", "grow", false},
		{"/home/me/sim", "", "cudaMalloc", false},
		{"/home/me/sim", "", "curve::fit", true},
		{"/home/me/sim", "", "operator new", false},
		{"/home/me/lib/libgrid.so", "", "Grid::Grid", true},
		{"/usr/lib/x86_64-linux-gnu/libc.so.6", "./malloc/malloc.c", "malloc", false},
		{"/lib64/libc.so.6", "", "malloc", false},
		{"/usr/local/cuda-13.0/lib64/libcublas.so.13", "", "cublasCreate", false},
		{"/usr/local/bin/job", "", "main", true},
		{"/v/lib/python3.12/site-packages/torch/lib/libtorch.so", "", "at::empty", false},
		{"/home/me/.pyenv/versions/3.12.1/bin/python3.12", "", "PyObject_Call", false},
		{"[vdso]", "", "clock_gettime", false},
		{"", "plain.c", "main", true},
	} {
		if got := Own(&format.Frame{Kind: format.FrameNative, Module: c.module, File: c.file, Function: c.function}); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
