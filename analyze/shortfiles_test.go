package analyze

import (
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
)

func TestShortFiles(t *testing.T) {
	for _, row := range []struct {
		name  string
		files [][2]string // file, and as it is printed
	}{
		{"one file", [][2]string{{"/home/me/.cache/x/demo.py", "demo.py"}}},
		{"a folder, and what is installed", [][2]string{
			{"/home/me/run/train.py", "train.py"},
			{"/home/me/run/lib/model.py", "lib/model.py"},
			{"/home/me/run/venv/lib/python3.12/site-packages/torch/nn/modules/module.py", "torch/nn/modules/module.py"},
			{"/usr/lib/python3/dist-packages/cupy/cuda/memory.py", "cupy/cuda/memory.py"},
			{"/usr/lib/python3.12/threading.py", "python3.12/threading.py"},
			{"/home/me/go/pkg/mod/example.com/pool@v1.2.0/alloc.go", "example.com/pool@v1.2.0/alloc.go"},
			{"/home/me/.cargo/registry/src/index.crates.io-6f17/cust-0.3/src/memory.rs", "cust-0.3/src/memory.rs"},
			{"/rustc/59807616e/library/alloc/src/raw_vec.rs", "library/alloc/src/raw_vec.rs"},
		}},
		{"names that are whole already", [][2]string{{"train.py", "train.py"}, {"../src/sim.cc", "../src/sim.cc"}, {"<string>", "<string>"}, {"<frozen runpy>", "<frozen runpy>"}}},
		{"far off", [][2]string{{"/home/me/run/train.py", "train.py"}, {"/home/me/run/data.py", "data.py"}, {"/tmp/torchinductor_me/ab/cab.py", "/tmp/torchinductor_me/ab/cab.py"}}},
		{"nothing in common", [][2]string{{"/train.py", "/train.py"}, {"/a/b.py", "b.py"}, {"/a/c.py", "c.py"}}},
		{"folders whose names begin alike", [][2]string{{"/home/me/run/a.py", "run/a.py"}, {"/home/me/run2/b.py", "run2/b.py"}}},
		{"two files of one name", [][2]string{
			{"/home/me/run/torch/nn.py", "/home/me/run/torch/nn.py"}, {"/home/me/run/train.py", "train.py"},
			{"/v/site-packages/torch/nn.py", "/v/site-packages/torch/nn.py"}, {"/w/site-packages/torch/nn.py", "/w/site-packages/torch/nn.py"},
			{"/v/site-packages/torch/cuda.py", "torch/cuda.py"},
		}},
		{"a name that was given as it is", [][2]string{{"train.py", "train.py"}, {"/home/me/run/train.py", "/home/me/run/train.py"}, {"/home/me/run/data.py", "data.py"}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			defs := format.NewDefs()
			for i, f := range row.files {
				kind := format.FramePython
				if strings.HasSuffix(f[0], ".rs") {
					kind = format.FrameNative
				}
				defs.PutFrame(format.Frame{ID: format.FrameID(i + 1), Kind: kind, File: f[0], Line: 7, Function: "f"})
			}
			defs.SetFiles(shortFiles(defs))
			for i, f := range row.files {
				if got, _ := defs.Frame(format.FrameID(i + 1)); defs.Shown(&got).String() != f[1]+":7:f" || got.File != f[0] {
					t.Errorf("%s: %s, want %s", f[0], defs.Shown(&got), f[1])
				}
			}
		})
	}
	t.Run("definitions that come later", func(t *testing.T) {
		defs := format.NewDefs()
		put := func(id format.FrameID, file string) {
			defs.PutFrame(format.Frame{ID: id, Kind: format.FramePython, File: file, Line: 7, Function: "f"})
		}
		put(1, "/home/me/run/torch/nn.py")
		defs.SetFiles(shortFiles(defs))
		put(2, "/home/me/run/torch/more.py")
		put(3, "/v/site-packages/nn.py")
		for id, want := range map[format.FrameID]string{1: "nn.py:7:f", 2: "more.py:7:f", 3: "/v/site-packages/nn.py:7:f"} {
			if f, _ := defs.Frame(id); defs.Shown(&f).String() != want {
				t.Errorf("%s, want %s", defs.Shown(&f), want)
			}
		}
	})
	t.Run("native frames", func(t *testing.T) {
		defs := format.NewDefs()
		for i, f := range []format.Frame{
			{Module: "/home/me/build/sim", File: "/home/me/src/sim.cc", Line: 7, Function: "step"},
			{Module: "/v/site-packages/torch/lib/libc10.so", File: "/pytorch/c10/cuda/pool.cpp", Line: 3, Function: "malloc"},
			{Module: "/home/me/build/sim", File: "/usr/include/c++/12/bits/new.h", Line: 1, Function: "allocate"},
			{Module: "/home/me/build/sim", Address: 16},
		} {
			f.ID, f.Kind = format.FrameID(i+1), format.FrameNative
			defs.PutFrame(f)
		}
		defs.SetFiles(shortFiles(defs))
		for i, want := range []string{"sim.cc:7:step", "/pytorch/c10/cuda/pool.cpp:3:malloc", "/usr/include/c++/12/bits/new.h:1:allocate", "sim+0x10"} {
			if f, _ := defs.Frame(format.FrameID(i + 1)); defs.Shown(&f).String() != want {
				t.Errorf("%s, want %s", defs.Shown(&f), want)
			}
		}
	})
}
