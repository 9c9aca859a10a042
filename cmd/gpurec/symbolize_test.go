package main

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpurec/gpurec/analyze/symbols"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/formattest"
	"github.com/gpurec/gpurec/recorder"
)

// TestSymbolize names a frame of a program at the end of a recording.
func TestSymbolize(t *testing.T) {
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("there is no C compiler here")
	}
	dir := t.TempDir()
	source, exe := filepath.Join(dir, "taker.c"), filepath.Join(dir, "taker")
	os.WriteFile(source, []byte("#include <stdlib.h>\nvoid *take(int n)\n{\n\treturn malloc(n);\n}\nint main(void) { return !take(8); }\n"), 0o600)
	if out, err := exec.Command("cc", "-g", "-Wl,--build-id=none", "-o", exe, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	f, err := elf.Open(exe)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	syms, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	b := formattest.New(t)
	b.Process("taker")
	for _, s := range syms {
		if s.Name == "take" {
			b.Defs().PutFrame(format.Frame{ID: 1, Kind: format.FrameNative, Module: exe, Address: s.Value + s.Size - 1})
		}
	}
	b.Defs().PutStack(format.Stack{ID: 2, Frame: 1})
	b.Alloc(format.APIMemAlloc, 0x1000, 512).Stack = 2
	trace := b.Trace().Path()

	frame := func() string {
		tr, err := format.Open(trace)
		if err != nil {
			t.Fatal(err)
		}
		defs := format.NewDefs()
		if err := tr.Parts()[0].LoadDefs(defs); err != nil {
			t.Fatal(err)
		}
		f, _ := defs.Frame(1)
		return f.String()
	}
	var said []string
	say := func(s string) { said = append(said, s) }
	top := func() string {
		return topHolder(trace, recorder.Summary{Top: format.Frame{Kind: format.FrameThread, Function: "[thread taker]"}, TopStack: 2, TopSize: 512}, true)
	}
	words := symbolize(context.Background(), trace, time.Nanosecond, 0, say)
	if got := frame(); !strings.HasPrefix(got, "taker+0x") || !strings.Contains(words+strings.Join(said, ""), "does the rest") || top() != "[thread taker]" {
		t.Errorf("without time it is %s, words %q, said is %q, top %s", got, words, said, top())
	}
	said = nil
	words = symbolize(context.Background(), trace, time.Minute, 10_000, say)
	if got := frame(); !strings.HasPrefix(got, "taker+0x") || !strings.Contains(words, "stays within --retain") || len(said) != 0 {
		t.Errorf("without room it is %s, words %q, said is %q", got, words, said)
	}
	words = symbolize(context.Background(), trace, time.Minute, 16<<20, say)
	if got := frame(); got != source+":5:take" || words != "1 of 1 native frames have names" || len(said) != 0 || top() != got {
		t.Errorf("the frame is %s, words %q, said is %q, top %s", got, words, said, top())
	}
	os.RemoveAll(trace)
	words = symbolize(context.Background(), trace, time.Minute, 0, say)
	if len(said) != 1 || !strings.Contains(said[0], "gpuanalyze symbolize tries again") || words != "" || top() != "[thread taker]" {
		t.Errorf("without a trace is said %q, words %q, top %s", said, words, top())
	}
}

// What is said of names: another try is proposed where it may find some.
func TestNamed(t *testing.T) {
	module := func(path string, frames, named int) *symbols.Module {
		return &symbols.Module{Path: path, Frames: frames, Named: named}
	}
	for _, row := range []struct {
		name    string
		stopped bool
		modules []*symbols.Module
		want    string
	}{
		{"all", false, []*symbols.Module{module("/home/me/sim", 5, 5)}, "5 of 5 native frames have names"},
		{"a stripped libstdc++, and libc", false, []*symbols.Module{module("/home/me/sim", 5, 5), module("/usr/lib/x86_64-linux-gnu/libstdc++.so.6", 4, 1), module("/lib64/libc.so.6", 3, 2), module("[vdso]", 1, 0)},
			"8 of 13 native frames have names, all of the program's own modules"},
		{"a framework's, and the driver", false, []*symbols.Module{module("/home/me/sim", 5, 5), module("/v/lib/python3.12/site-packages/torch/lib/libc10_cuda.so", 9, 2), module("/home/me/lib/libcuda.so.1", 1, 0)},
			"7 of 15 native frames have names, all of the program's own modules"},
		{"the program's own", false, []*symbols.Module{module("/home/me/sim", 1500, 2), module("/lib64/libc.so.6", 3, 2)},
			"4 of 1,503 native frames have names, 1,498 of the program's own modules have none: gpuanalyze symbolize says why, and takes debug files"},
		{"no time", true, []*symbols.Module{module("/lib64/libc.so.6", 3, 2)}, "2 of 3 native frames have names: gpuanalyze symbolize does the rest"},
	} {
		r := &symbols.Report{Modules: row.modules, Stopped: row.stopped}
		for _, m := range row.modules {
			r.Frames, r.Named = r.Frames+m.Frames, r.Named+m.Named
		}
		if got := named(r); got != row.want {
			t.Errorf("%s: %s", row.name, got)
		}
	}
}

// A file system that does not answer holds nobody: a module lies in one.
func TestSymbolizeStuck(t *testing.T) {
	silent := t.TempDir()
	fuse, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no file system of our own can be made here: %v", err)
	}
	defer fuse.Close() // who waits for it goes on
	if err := syscall.Mount("silent", silent, "fuse", syscall.MS_NOSUID|syscall.MS_NODEV, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fuse.Fd())); err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}
	defer syscall.Unmount(silent, syscall.MNT_DETACH)
	b := formattest.New(t)
	b.Process("taker")
	b.Defs().PutFrame(format.Frame{ID: 1, Kind: format.FrameNative, Module: filepath.Join(silent, "module"), BuildID: "0011", Address: 1})
	b.Defs().PutStack(format.Stack{ID: 2, Frame: 1})
	b.Alloc(format.APIMemAlloc, 0x1000, 512).Stack = 2
	trace := b.Trace().Path()
	for _, c := range []struct {
		name string
		most time.Duration
		told bool
		want string
	}{
		{"it takes too long", 50 * time.Millisecond, false, "it took too long"},
		{"somebody does not want to wait", time.Hour, true, "somebody"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(context.Background())
			defer cancel(nil)
			if c.told {
				cancel(errors.New("somebody"))
			}
			var said []string
			symbolize(ctx, trace, c.most, 0, func(s string) { said = append(said, s) })
			if len(said) != 1 || !strings.Contains(said[0], c.want) {
				t.Errorf("said is %q", said)
			}
		})
	}
}
