package main

import (
	"errors"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gpurec/gpurec/format"
)

func init() { roles["wide"] = wideTrace }

// A trace of hours of a large program: nearly a million events, 150,000 distinct
// stacks of 31 frames in the middle, 60,000 distinct frames. What reading it takes
// is the walks over stacks, the views of them and the texts of frames, where the
// training run has 60 stacks and shows the events alone.
const (
	wideEvents = 980_000
	wideStacks = 150_000
	wideFrames = 60_000
	wideDepth  = 31
	wideScopes = 40
)

// wide is what answers from such a trace take.
func wide(s *suite) error {
	stacks := wideStacks
	if s.quick {
		stacks /= 5
	}
	trace := s.fresh("wide.gpurec")
	n, err := writeWide(trace, stacks)
	if err != nil {
		return err
	}
	defer os.RemoveAll(trace)
	for i := range s.rounds(3) {
		out := s.fresh(fmt.Sprintf("wide%d", i))
		for _, answer := range []string{"lines", "lines --by-scope", "lines --at peak", "peak", "leaks", "report -o " + out + ".html", "export --to csv -o " + out} {
			words := strings.Fields(answer)
			c, err := s.metered(filepath.Join(s.bin, "gpuanalyze"), append(words, trace)...)
			if err != nil {
				return err
			}
			name, _, _ := strings.Cut(strings.NewReplacer(" --at ", "-", " --to ", "-", " --by", "-by").Replace(answer), " -o")
			s.sheet.put("Wide/answer="+name, ours, n, float64(c.wall.Nanoseconds())/float64(n), "ns/op", float64(c.cpu.Nanoseconds())/float64(n), "cpu-ns/op", float64(c.rss)/(1<<20), "MiB")
		}
		os.RemoveAll(out)
		os.Remove(out + ".html")
	}
	return nil
}

// wideTrace writes the trace alone, for a look at single answers with a profiler, or
// one of another size, for what grows faster than it.
func wideTrace(args []string) error {
	stacks := wideStacks
	if len(args) == 2 {
		var err error
		if stacks, err = strconv.Atoi(args[1]); err != nil || stacks < 1000 {
			return fmt.Errorf("%q is no number of stacks, of which there are 1,000 at least", args[1])
		}
	} else if len(args) != 1 {
		return errors.New("one directory to make, and how many stacks")
	}
	_, err := writeWide(args[0], stacks)
	return err
}

// writeWide writes a closed trace of so many stacks, events and frames in
// proportion. It is the same one each time.
func writeWide(dir string, stacks int) (events int, err error) {
	w, err := format.Create(dir, format.Meta{Tool: "benchmarks"}, format.WriterOptions{})
	if err != nil {
		return 0, err
	}
	g := &growth{r: rand.New(rand.NewSource(1)), defs: w.Defs()}
	g.define(stacks)
	for i := range stacks * (wideEvents / 1000) / (wideStacks / 1000) {
		e := g.event(i)
		if err := w.Event(&e); err != nil {
			return 0, fmt.Errorf("write %s: %w", dir, err)
		}
		events++
	}
	return events, w.Close(nil)
}

// A growth is such a trace in the making.
type growth struct {
	r      *rand.Rand
	defs   *format.Defs
	leaves []format.StackID
	live   []format.Event
	next   uint64
	scope  format.ScopeID
}

// define makes the frames: a third Python's, a twelfth the libraries' and the
// interpreter's, which a view leaves off, the rest native, with lines or only a
// function. A stack parts from an earlier one somewhere.
func (g *growth) define(stacks int) {
	frames := wideFrames * (stacks / 1000) / (wideStacks / 1000)
	g.defs.PutProcess(format.Process{ID: 1, PID: 1000, Parent: 1, Begin: 0, End: format.Unknown, Status: format.Unknown, Rank: format.Unknown, Command: "python serve.py", Python: "3.12.3"})
	g.defs.PutDevice(format.DeviceRow{ID: 0, UUID: "GPU-00000000-0000-0000-0000-000000000000", Name: "wide"})
	for i := range wideScopes {
		g.defs.PutName(format.NameID(i+1), fmt.Sprintf("phase %d", i))
	}
	for i := range frames {
		f := format.Frame{ID: format.FrameID(i + 1), Kind: format.FrameNative, Line: int32(1 + i%1700), Address: 0x1000 + 16*uint64(i), Module: fmt.Sprintf("/opt/serve/lib/libserve%d.so.3", i%37), BuildID: "0123456789abcdef"}
		switch i % 12 {
		case 0, 1, 2, 3:
			f = format.Frame{ID: f.ID, Kind: format.FramePython, Line: f.Line, File: fmt.Sprintf("/srv/app/python/serve/layers/block%d.py", i%800), Function: fmt.Sprintf("Block%d.forward_%d", i%800, i%23)}
		case 4:
			f.Module, f.Function, f.Line = "/usr/lib/libpython3.12.so.1.0", fmt.Sprintf("_PyEval_Vector_%d", i), 0
		case 5, 6:
			f.File, f.Function = "/usr/include/c++/13/bits/std_function.h", fmt.Sprintf("std::_Function_handler<void (serve::Request<%d>&), serve::Batcher::step(int)::{lambda(serve::Request<%d>&)#1}>::_M_invoke", i, i)
		case 7, 8, 9:
			f.File, f.Function = fmt.Sprintf("/build/serve/src/engine/kernels_%d.cc", i%500), fmt.Sprintf("serve::engine::Kernel<float, %d>::launch(serve::Tensor const&, serve::Tensor&)", i)
		default:
			f.Function, f.Line = fmt.Sprintf("serve::runtime::Pool::allocate_%d(unsigned long, serve::Stream)", i), 0
		}
		g.defs.PutFrame(f)
	}
	var paths [][]format.StackID
	for range stacks {
		depth := wideDepth - 8 + g.r.Intn(17)
		var path []format.StackID
		if len(paths) > 0 {
			from := paths[g.r.Intn(len(paths))]
			path = append(path, from[:g.r.Intn(min(depth, len(from)))]...)
		}
		for len(path) < depth {
			parent := format.StackID(0)
			if len(path) > 0 {
				parent = path[len(path)-1]
			}
			g.next++
			g.defs.PutStack(format.Stack{ID: format.StackID(g.next), Parent: parent, Frame: format.FrameID(1 + g.r.Intn(frames))})
			path = append(path, format.StackID(g.next))
		}
		g.leaves = append(g.leaves, path[depth-1])
		if len(paths) < 1000 { // where stacks part: enough, and not all of them are kept
			paths = append(paths, path)
		} else {
			paths[g.r.Intn(len(paths))] = path
		}
	}
}

// event is the i-th: mostly a pool's allocs and frees, a segment of the driver's
// now and then, and a scope begun and ended every 1,000.
func (g *growth) event(i int) format.Event {
	e := format.Event{Kind: format.Alloc, Layer: format.LayerPool, Class: format.ClassDevice, API: format.APITorch, Time: format.Time(i) * 3000, Seq: uint64(i + 1), Process: 1, Thread: 1001,
		Scope: g.scope, Size: 512 << g.r.Intn(12), Requested: format.Unknown, Allocated: format.Unknown, Reserved: format.Unknown, Duration: format.Unknown, Address: 0x7f0000000000 + uint64(i)<<24,
		Stack: g.leaves[(i*7919)%len(g.leaves)]}
	switch k := i % 1000; {
	case k == 0 || k == 900:
		e.Kind, e.Class, e.API, e.Layer, e.Device, e.Address, e.Size, e.Stack = format.ScopeBegin, 0, format.APINVTX, format.LayerHost, format.NoDevice, 0, format.Unknown, 0
		if k == 900 {
			e.Kind, g.scope = format.ScopeEnd, 0
			break
		}
		g.scope = format.ScopeID(i + 1)
		e.Scope, e.Name = g.scope, format.NameID(1+g.r.Intn(wideScopes))
	case k%20 == 1:
		e.Layer, e.API = format.LayerDriver, format.APIMemAlloc
	case len(g.live) > 20_000 || len(g.live) > 0 && g.r.Intn(5) < 2:
		at := g.r.Intn(len(g.live))
		old := g.live[at]
		g.live[at] = g.live[len(g.live)-1]
		g.live = g.live[:len(g.live)-1]
		e.Kind, e.Size, e.Address, e.Layer, e.API = format.Free, format.Unknown, old.Address, old.Layer, old.API
		return e
	}
	if e.Kind == format.Alloc && e.Layer == format.LayerPool {
		g.live = append(g.live, e)
	}
	return e
}
