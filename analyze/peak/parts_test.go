package peak

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/formattest"
)

const mib = 1 << 20

// told are the parts of device 0 that have bytes, in MiB.
func told(t *testing.T, text string) string {
	t.Helper()
	r := ask(t, &analyze.Query{}, formattest.Text(t, "process 1 pid=1 begin=1000000000 command=x\nprocess 2 pid=2 begin=1000000000 command=y\npart\n"+text))
	if len(r.Devices) == 0 || r.Devices[0].Parts == nil {
		t.Fatalf("no parts: %+v", r.Completeness)
	}
	var out []string
	for _, p := range r.Devices[0].Parts.Rows {
		if p.Bytes != 0 {
			out = append(out, fmt.Sprintf("%s %g", p.Name, float64(p.Bytes)/mib))
		}
	}
	return strings.Join(out, ", ")
}

// readingAt is a device's reading and its processes', at a second, in MiB.
func readingAt(s float64, used int, processes ...int) string {
	row := func(more string) string {
		return fmt.Sprintf("sample %d device=0 total=%d used=%d%s\n", int64(s*1e9), 1<<40, used*mib, more)
	}
	out := row("")
	for i, p := range processes {
		if p > 0 {
			out += row(fmt.Sprintf(" process=%d process_used=%d", i+1, p*mib))
		}
	}
	return out
}

// alloc is an allocation by the driver at a second, of so many MiB at so many.
func alloc(s float64, process, at, size int) string {
	return fmt.Sprintf("%d Alloc process=%d thread=1 api=cuMemAlloc_v2 device=0 address=%d size=%d\n", int64(s*1e9), process, at*mib, size*mib)
}

// What is not an event: each step of NVML's numbers under the rule that
// explains it.
func TestBeyond(t *testing.T) {
	one := alloc(2, 1, 100, 10)
	many := ""
	for i := range 12 {
		many += readingAt(5+float64(i)/2, 510+200*(i+1), 510+200*(i+1))
	}
	for _, row := range []struct{ name, text, want string }{
		{"a context", one + readingAt(4, 515, 510), "used 10, CUcontext 500, other processes and the driver's own 5"},
		{"a module", one + readingAt(4, 510, 510) + readingAt(5, 600, 600) + alloc(6, 1, 200, 2) + readingAt(8, 602, 602), "used 12, CUcontext 500, modules 90"},
		{"a step too large for a module", one + readingAt(4, 510, 510) + readingAt(5, 767, 767) + alloc(6, 1, 200, 2) + readingAt(8, 769, 769),
			"used 12, CUcontext 500, unexplained 257"},
		{"too many modules", one + readingAt(4, 510, 510) + many + alloc(15, 1, 200, 2) + readingAt(17, 2912, 2912), "used 12, CUcontext 500, modules 2000, unexplained 400"},
		{"a context too large for one", one + readingAt(4, 10+4097, 10+4097), "used 10, unexplained 4097"},
		{"the context was growing when NVML was read first", readingAt(1.5, 14, 14) + one + readingAt(4, 510, 510), "used 10, CUcontext 500"},
		{"another process comes after NVML told them apart", one + readingAt(4, 510, 510) + alloc(6, 1, 200, 2) + readingAt(6.9, 812), "used 12, CUcontext 500, unexplained 300"},
		{"a neighbour", one + readingAt(4, 90_510, 510), "used 10, CUcontext 500, other processes and the driver's own 90000"},
		{"two of the traced", one + alloc(2, 2, 100, 20) + readingAt(4, 735, 510, 220), "used 30, CUcontext 500, CUcontext 200, other processes and the driver's own 5"},
		{"one that NVML does not name", one + alloc(2, 2, 100, 20) + readingAt(4, 735, 510), "used 30, CUcontext 500, other processes and the driver's own 205"},
		{"a reading during a call does not count", one + readingAt(4, 510, 510) + readingAt(5.9995, 900, 900) + alloc(6, 1, 200, 2),
			"used 12, CUcontext 500"},
		{"a call that ends after the reading", one + readingAt(4, 510, 510) + readingAt(5.5, 900, 900) +
			strings.Replace(alloc(6, 1, 200, 2), "Alloc", "Alloc duration=900000000", 1), "used 12, CUcontext 500"},
		{"a free that takes long", one + alloc(3, 1, 200, 2) + "4000000000 Free process=1 thread=1 api=cuMemFree_v2 address=" + fmt.Sprint(200*mib) + "\n" +
			"4500000000 FreeDone process=1 thread=1 api=cuMemFree_v2 duration=500000000\n" + readingAt(4.2, 999, 999) + readingAt(6, 510, 510), "used 12, CUcontext 500"},
		{"after a reset the context is another", one + readingAt(3.5, 510, 510) + "4000000000 Reset process=1 thread=1 api=cuDevicePrimaryCtxReset device=0\n" +
			alloc(5, 1, 100, 30) + readingAt(7, 330, 330), "used 30, CUcontext 300"},
		{"taken since the reading", one + readingAt(4, 510, 510) + alloc(8, 1, 200, 40), "used 50, CUcontext 500"},
	} {
		if got := told(t, row.text); got != row.want {
			t.Errorf("%s:\n got %s\nwant %s", row.name, got, row.want)
		}
	}
}

// Memory of a pool that is not one allocation of the driver's.
func TestPoolsOfManyKinds(t *testing.T) {
	const created = "2000000000 Alloc process=1 thread=1 api=cuMemCreate device=0 object=0x1 size=20971520\n2000000001 Map process=1 thread=1 api=cuMemMap object=0x1 address=0x40000000 size=20971520\n"
	for _, row := range []struct{ name, text, want string }{
		{"expandable segments", created + "2000000002 Alloc process=1 thread=1 api=torch device=0 address=0x40000000 size=1048576\n" + readingAt(4, 520, 520),
			"used 1, pool slack 19, CUcontext 500"},
		{"a mapping outside the pool", created + "2000000002 Alloc process=1 thread=1 api=torch device=0 address=0x90000000 size=0\n" +
			alloc(2.1, 1, 0x500, 10) + fmt.Sprintf("2200000000 Alloc process=1 thread=1 api=torch device=0 address=%d size=%d\n", 0x500*mib, 4*mib) + readingAt(4, 530, 530),
			"used 4, pool slack 6, driver, outside pools 20, CUcontext 500"},
		{"stream-ordered: what the driver keeps beyond the blocks", "2000000000 Alloc process=1 thread=1 api=cuMemAllocAsync device=0 address=0x40000000 size=1048576\n" +
			readingAt(3.5, 532, 532) + "4000000000 Alloc process=1 thread=1 api=cuMemAllocAsync device=0 address=0x50000000 size=41943040\n" + readingAt(6, 596, 596),
			"used 41, CUcontext 531, stream-ordered pools beyond their blocks 24"},
		{"stream-ordered: the reserve was asked", "2000000000 Alloc process=1 thread=1 api=pool.reserve device=0 object=0x1000000000001 size=33554432\n" +
			"2000000001 Alloc process=1 thread=1 api=cuMemAllocAsync device=0 address=0x40000000 size=1048576\n" + readingAt(3.5, 532, 532),
			"used 1, stream-ordered pools beyond their blocks 31, CUcontext 500"},
		{"kept for graphs", "1900000000 Alloc process=1 thread=1 api=graph.reserve device=0 object=0x1000000000001 size=67108864\n" + alloc(2, 1, 100, 10) + readingAt(4, 574, 574),
			"used 10, kept for graphs 64, CUcontext 500"},
		{"arrays", alloc(2, 1, 100, 10) + "2000000001 Alloc process=1 thread=1 api=cuArray3DCreate_v2 device=0 object=0x7 size=3145728 flags=estimate\n" +
			alloc(2.1, 1, 200, 1) + readingAt(4, 515, 515), "used 11, rounding to 2 MiB 1, arrays 3, CUcontext 500"},
	} {
		if got := told(t, row.text); got != row.want {
			t.Errorf("%s:\n got %s\nwant %s", row.name, got, row.want)
		}
	}
}

// Who took what lies outside pools, by its stack.
func TestMaker(t *testing.T) {
	b := formattest.New(t)
	python := b.Stack("a.py:1:main", "b.py:2:f")
	d := b.Defs()
	frame := func(id format.FrameID, k format.FrameKind, module, function string, parent, as format.StackID) format.StackID {
		d.PutFrame(format.Frame{ID: id, Kind: k, Module: module, Function: function})
		d.PutStack(format.Stack{ID: as, Parent: parent, Frame: id})
		return as
	}
	lib := frame(90, format.FrameNative, "/usr/lib/libnccl.so.2", "ncclInit", python, 90)
	rt := frame(91, format.FrameNative, "/usr/lib/libcudart.so.13", "cudaMalloc", lib, 91)
	plain := frame(92, format.FrameNative, "", "main", 0, 92)
	thread := frame(93, format.FrameThread, "", "[thread worker]", 0, 93)
	for s, want := range map[format.StackID]string{python: "called by b.py:2:f", lib: "libnccl.so.2", rt: "libnccl.so.2", plain: "[no line]",
		thread: "called by [thread worker]", 0: "[no line]", 77: "[no line]"} {
		if got := maker(s, d); got != want {
			t.Errorf("stack %d: %q, want %q", s, got, want)
		}
	}
}
