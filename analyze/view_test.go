package analyze

import (
	"fmt"
	"math/rand"
	"regexp/syntax"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
)

// testFrame reads p or g file:line:function, n module|function, n
// module|file:line:function, n module+address, t NAME, or l LABEL.
func testFrame(t *testing.T, id format.FrameID, s string) format.Frame {
	kind, rest, _ := strings.Cut(s, " ")
	f := format.Frame{ID: id}
	var ok bool
	switch kind {
	case "t":
		f.Kind, f.Function = format.FrameThread, "[thread "+rest+"]"
		return f
	case "l":
		f.Kind, f.Function = format.FrameLabel, rest
		return f
	case "p":
		f.Kind = format.FramePython
	case "g":
		f.Kind = format.FrameGo
	case "n":
		f.Kind = format.FrameNative
		if f.Module, rest, ok = strings.Cut(rest, "|"); !ok {
			f.Module, rest, _ = strings.Cut(f.Module, "+0x")
			fmt.Sscanf(rest, "%x", &f.Address)
			return f
		}
		if !strings.Contains(strings.ReplaceAll(rest, "::", ""), ":") {
			f.Function = rest
			return f
		}
	}
	w := strings.SplitN(rest, ":", 3)
	f.File, f.Function = w[0], w[2]
	if _, err := fmt.Sscan(w[1], &f.Line); err != nil {
		t.Fatalf("frame %q: %v", s, err)
	}
	return f
}

// testDefs defines stack 1, of these frames.
func testDefs(t *testing.T, frames []string) *format.Defs {
	d := format.NewDefs()
	for i, s := range frames {
		id := format.FrameID(i + 1)
		d.PutFrame(testFrame(t, id, s))
		d.PutStack(format.Stack{ID: format.StackID(len(frames) - i), Frame: id, Parent: format.StackID((len(frames) - i + 1) % (len(frames) + 1))})
	}
	return d
}

func shown(d *format.Defs) string {
	ids, _ := d.Walk(1, nil)
	var out []string
	for _, id := range ids {
		f, _ := d.Frame(id)
		out = append(out, f.String())
	}
	return strings.Join(out, "; ")
}

// The stacks, outermost frame first, as a recorder leaves them.
var (
	plain  = []string{"p <frozen runpy>:88:_run_code", "p main.py:3:<module>", "p /v/site-packages/torch/nn.py:9:call"}
	merged = []string{"n /usr/bin/python3.12|_start", "n /lib/libc.so.6|__libc_start_main", "n /usr/bin/python3.12|Py_RunMain", "p main.py:3:<module>",
		"n /usr/lib/libpython3.12.so.1.0|_PyEval_EvalFrameDefault", "p model.py:7:forward", "n /usr/lib/libpython3.12.so.1.0+0x77", "n /v/torch/lib/libtorch.so|at::empty(long)",
		"n /v/torch/lib/libc10.so+0x1234", "n /usr/lib/libcudart.so.12|cudaMalloc", "n /usr/lib/libcudart.so.12+0x99", "n /usr/lib/libcuda.so.1+0x5"}
	autograd = []string{"t pt_autograd_0", "n /lib/libc.so.6|start_thread", "n /usr/lib/libstdc++.so.6+0xd44", "n /v/torch/lib/libtorch.so|torch::autograd::Engine::thread_init(int)"}
	program  = []string{"n /home/me/sim|_start", "n /lib/libc.so.6+0x29d90", "n /lib/libc.so.6|__libc_start_call_main", "n /home/me/sim|/home/me/sim.cu:40:main", "n /home/me/sim|/usr/include/c++/12/bits/stl_vector.h:9:std::vector<int>::push_back", "n /home/me/sim|/home/me/alloc.h:7:Pool::take",
		"n /home/me/sim|cudaMalloc"}
	thread   = []string{"n /lib/libc.so.6|clone3", "n /lib/libc.so.6|start_thread", "n /lib/libstdc++.so.6|execute_native_thread_routine", "n /p|std::thread::_State_impl<int>::_M_run()", "n /p|p.cc:4:worker"}
	inlined  = []string{"n /lib/libc.so.6|start_thread", "n /lib/libstdc++.so.6+0xd44", "n /p|/usr/include/c++/12/bits/std_thread.h:259:operator()", "n /p|p.cc:9:operator()"}
	stripped = []string{"n /opt/app/server+0x1040", "n /lib/libc.so.6+0x29d90", "n /lib/libc.so.6+0x29e40", "n /opt/app/server+0x1139"}
	started  = []string{"n /lib/libc.so.6|__libc_start_main", "n /lib/libc.so.6+0x1"}
	rust     = []string{"n /r|_start", "n /r|main", "n /r|std::rt::lang_start::h1", "n /r|std::panicking::try", "n /r|std::sys::backtrace::__rust_begin_short_backtrace", "n /r|core::ops::function::FnOnce::call_once", "n /r|src/main.rs:3:r::main"}
	golang   = []string{"g /usr/local/go/src/runtime/asm_amd64.s:1700:runtime.goexit", "g /usr/local/go/src/runtime/proc.go:283:runtime.main", "g /home/me/job/main.go:12:main.main"}
	async    = []string{"n /lib/libc.so.6|../sysdeps/clone3.S:81:__clone3", "n /lib/libc.so.6|nptl/pthread_create.c:442:start_thread", "n /lib/libstdc++.so.6.0.30+0xd44a2",
		"n /p|/usr/include/x86_64-linux-gnu/c++/12/bits/gthr-default.h:700:__gthread_once", "n /lib/libc.so.6|nptl/pthread_once.c:116:__pthread_once_slow", "n /p|/usr/include/c++/12/future:572:std::__future_base::_State_baseV2::_M_do_set",
		"n /p|/usr/include/c++/12/bits/invoke.h:61:__invoke_impl<int, main()::<lambda()> >", "n /p|p.cc:56:operator()", "n /p|p.cc:19:Buffer<float>::Buffer", "n /p|cudaMalloc"}
	asyncBare = []string{"n /lib/libc.so.6|nptl/pthread_create.c:442:start_thread", "n /lib/libstdc++.so.6.0.30+0xd44a2", "n /p|std::thread::_State_impl<Handle::background()::{lambda()#1}>::_M_run", "n /lib/libcudart.so.12|cudaMalloc"}
	asyncNone = []string{"n /lib/libc.so.6|nptl/pthread_create.c:442:start_thread", "n /lib/libstdc++.so.6.0.30+0xd44a2", "n /p+0x69b2", "n /lib/libc.so.6|nptl/pthread_once.c:116:__pthread_once_slow", "n /p+0x770a", "n /p+0xa93e"}
	grow      = []string{"n /lib/libc.so.6|__libc_start_call_main", "n /p|main", "n /p|std::vector<int>::emplace_back<int>", "n /p|std::vector<int>::_M_realloc_insert<int>", "n /p|cudaMalloc"}
	sorted    = []string{"n /p|_start", "n /lib/libc.so.6|__libc_start_main", "n /p|p.c:12:main", "n /lib/libc.so.6|stdlib/msort.c:296:qsort_r", "n /p|p.c:8:cmp"}
	openmp    = []string{"n /lib/libc.so.6|clone3", "n /lib/libc.so.6|start_thread", "n /lib/libgomp.so.1.0.0+0x1cd8d", "n /p|p.cc:59:main._omp_fn.0"}
	ownNames  = []string{"n /p|_start", "n /p|p.c:40:main", "n /p|p.c:30:start_thread", "n /p|p.c:9:clone"}
	rustDebug = []string{"n /r|main", "n /r|/rustc/59807616e/library/std/src/rt.rs:171:std::rt::lang_start_internal", "n /r|/rustc/59807616e/library/std/src/sys/backtrace.rs:166:std::sys::backtrace::_rust_begin_short_backtrace",
		"n /r|src/main.rs:9:app::train", "n /r|/rustc/59807616e/library/core/src/slice/iter/macros.rs:301:<core::slice::iter::IterMut<T> as core::iter::Iterator>::for_each", "n /r|src/main.rs:8:<app::Linear<T> as app::Layer>::forward", "n /r|cudaMalloc"}
	rustBare  = []string{"n /lib/libc.so.6|start_thread", "n /r|core::ops::function::FnOnce::call_once{{vtable.shim}}", "n /r|std::sys::backtrace::__rust_begin_short_backtrace", "n /r|cudaMalloc"}
	imported  = []string{"p job.py:3:<module>", "p <frozen importlib._bootstrap>:1360:_find_and_load", "p <frozen importlib._bootstrap>:488:_call_with_frames_removed"}
	pyThread  = []string{"p /usr/lib/python3.12/threading.py:1030:_bootstrap", "p /usr/lib/python3.12/threading.py:1073:_bootstrap_inner", "p /usr/lib/python3.12/threading.py:1010:run", "p /usr/lib/python3.12/concurrent/futures/thread.py:58:run", "p job.py:18:<lambda>"}
	forked    = []string{"p job.py:22:main", "p /usr/lib/python3.12/multiprocessing/popen_fork.py:71:_launch", "p /usr/lib/python3.12/multiprocessing/process.py:314:_bootstrap", "p /usr/lib/python3.12/multiprocessing/process.py:108:run", "p job.py:9:worker"}
	spawned   = []string{"n /usr/bin/python3.12|_start", "n /usr/bin/python3.12|Py_RunMain", "p <string>:1:<module>", "p /usr/lib/python3.12/multiprocessing/spawn.py:122:spawn_main", "p <frozen runpy>:88:_run_code", "p job.py:3:<module>"}
	script    = []string{"p /v/bin/pytest:8:<module>", "p /v/lib/python3.12/site-packages/_pytest/config/__init__.py:201:console_main", "p /v/lib/python3.12/site-packages/pluggy/_hooks.py:513:__call__", "p tests/test_step.py:4:test_step", "p /usr/lib/python3.12/threading.py:5:helper"}
	coroutine = []string{"p aio.py:5:<module>", "p /usr/lib/python3.12/asyncio/runners.py:194:run", "n /usr/lib/python3.12/lib-dynload/_asyncio.so|task_step", "p /usr/lib/python3.12/asyncio/events.py:84:_run", "p aio.py:3:job"}
	notebook  = []string{"p <frozen runpy>:88:_run_code", "p /v/site-packages/ipykernel_launcher.py:18:<module>", "p /v/site-packages/tornado/platform/asyncio.py:203:start", "p /usr/lib/python3.12/asyncio/events.py:84:_run", "n /v/site-packages/uvloop/loop.so|run",
		"p /v/site-packages/ipykernel/kernelbase.py:678:shell_main", "p /v/site-packages/IPython/core/interactiveshell.py:3823:run_code", "p /tmp/ipykernel_3125/3876024082.py:2:<module>"}
	deep  = []string{"l [7 outer frames left out]", "p main.py:5:recurse"}
	ownPy = []string{"p /home/me/threading.py:3:run", "p /home/me/bin/tool:9:<module>", "p /home/me/job.py:5:main"}
	cgo   = []string{"n /job|/go/src/runtime/asm_amd64.s:1771:runtime.goexit", "n /job|/go/src/runtime/proc.go:290:runtime.main", "n /job|main.go:9:main.main", "n /job|train.go:4:main.(*Model).Step", "n /job|<autogenerated>:1:main.Layer.Forward",
		"n /job|layer.go:7:main.(*Layer).Forward", "n /job|_cgo_gotypes.go:55:main._Cfunc_through", "n /job|/go/src/runtime/cgocall.go:185:runtime.cgocall", "n /job|/go/src/runtime/asm_amd64.s:995:runtime.asmcgocall", "n /job|/tmp/go-build/cgo-gcc-prolog:61:_cgo_ab12_Cfunc_through", "n /job|through.h:3:through",
		"n /job|/tmp/go-build/_cgo_export.c:36:again", "n /job|/go/src/runtime/cgo/asm_amd64.s:43:crosscall2", "n /job|/go/src/runtime/asm_amd64.s:1160:runtime.cgocallback", "n /job|/go/src/runtime/cgocall.go:362:runtime.cgocallbackg", "n /job|_cgo_gotypes.go:90:_cgoexp_ab12_again", "n /job|again.go:5:main.again",
		"n /job|_cgo_gotypes.go:78:main._Cfunc_cuMemAlloc", "n /job|/go/src/runtime/cgocall.go:185:runtime.cgocall", "n /job|runtime.asmcgocall.abi0", "n /job|_cgo_ab12_Cfunc_cuMemAlloc", "n /usr/lib/libcuda.so.1+0x5"}
	calledGo = []string{"t loader", "n /lib/libc.so.6|clone3", "n /lib/libc.so.6|start_thread", "n /app|app.c:3:work", "n /lib.so|crosscall2", "n /lib.so|runtime.cgocallback", "n /lib.so|lib.go:3:main.load"}
	cpython  = []string{"n /usr/bin/python3|_start", "n /usr/bin/python3|Py_BytesMain"}
)

func TestView(t *testing.T) {
	for _, c := range []struct {
		name   string
		stack  []string
		view   View
		want   string
		line   bool // known
		method bool // a function's name is
	}{
		{"recorded", autograd[:2], View{}, "[thread pt_autograd_0]; libc.so.6:start_thread", false, false},
		{"auto leaves runpy off", plain, View{Stacks: Auto}, "main.py:3:<module>; /v/site-packages/torch/nn.py:9:call", true, true},
		{"python leaves runpy off", plain, View{Stacks: Python}, "main.py:3:<module>; /v/site-packages/torch/nn.py:9:call", true, true},
		{"python and all frames", plain, View{Stacks: Python, All: true}, "<frozen runpy>:88:_run_code; main.py:3:<module>; /v/site-packages/torch/nn.py:9:call", true, true},
		{"python alone: no native frame", plain, View{Stacks: Native}, "[no native frame]", true, true},
		{"auto of both", merged, View{Stacks: Auto}, "main.py:3:<module>; model.py:7:forward", true, true},
		{"both", merged, View{Stacks: Both}, "main.py:3:<module>; model.py:7:forward; libtorch.so:at::empty(long); libc10.so+0x1234", true, true},
		{"both and all", merged, View{Stacks: Both, All: true}, "python3.12:_start; libc.so.6:__libc_start_main; python3.12:Py_RunMain; main.py:3:<module>; libpython3.12.so.1.0:_PyEval_EvalFrameDefault; model.py:7:forward; " +
			"libpython3.12.so.1.0+0x77; libtorch.so:at::empty(long); libc10.so+0x1234; libcudart.so.12:cudaMalloc; libcudart.so.12+0x99; libcuda.so.1+0x5", true, true},
		{"native of both", merged, View{Stacks: Native}, "libtorch.so:at::empty(long); libc10.so+0x1234", true, true},
		{"a thread without Python", autograd, View{Stacks: Auto}, "[thread pt_autograd_0]; libtorch.so:torch::autograd::Engine::thread_init(int)", false, true},
		{"python of such", autograd, View{Stacks: Python}, "[thread pt_autograd_0]; [no python frame]", false, true},
		{"how many are left out", deep, View{}, "[7 outer frames left out]; main.py:5:recurse", true, true},
		{"how many are left out, and all frames", deep, View{Stacks: Auto, All: true}, "[7 outer frames left out]; main.py:5:recurse", true, true},
		{"left out, at any depth", deep, View{Stacks: Auto}, "[outer frames left out]; main.py:5:recurse", true, true},
		{"one left out", []string{"l [1 outer frame left out]", deep[1]}, View{Stacks: Auto}, "[outer frames left out]; main.py:5:recurse", true, true},
		{"a thread alone", autograd[:1], View{Stacks: Python}, "[thread pt_autograd_0]", false, false},
		{"C++", program, View{Stacks: Auto}, "/home/me/sim.cu:40:main; /home/me/alloc.h:7:Pool::take", true, true},
		{"C++ thread", thread, View{Stacks: Auto}, "p.cc:4:worker", true, true},
		{"C++ thread, inlined", inlined, View{Stacks: Auto}, "p.cc:9:operator()", true, true},
		{"no symbols", stripped, View{Stacks: Auto}, "server+0x1139", false, false},
		{"never all", started, View{Stacks: Auto}, "libc.so.6+0x1", false, false},
		{"Rust", rust, View{Stacks: Auto}, "src/main.rs:3:r::main", true, true},
		{"Go", golang, View{Stacks: Auto}, "/home/me/job/main.go:12:main.main", true, true},
		{"std::async", async, View{Stacks: Auto}, "p.cc:56:operator(); p.cc:19:Buffer<float>::Buffer", true, true},
		{"std::async, all frames", async, View{Stacks: Auto, All: true, Hide: []string{"/usr/include/*", "libstdc*"}}, "../sysdeps/clone3.S:81:__clone3; nptl/pthread_create.c:442:start_thread; nptl/pthread_once.c:116:__pthread_once_slow; p.cc:56:operator(); p.cc:19:Buffer<float>::Buffer; p:cudaMalloc", true, true},
		{"without lines a lambda may be inlined into the library", asyncBare, View{Stacks: Auto}, "p:std::thread::_State_impl<Handle::background()::{lambda()#1}>::_M_run", false, true},
		{"libc's lines are not the program's", asyncNone, View{Stacks: Auto}, "p+0x69b2; p+0x770a; p+0xa93e", false, false},
		{"the innermost of the library, without lines", grow, View{Stacks: Auto}, "p:main; p:std::vector<int>::_M_realloc_insert<int>", false, true},
		{"called back by libc", sorted, View{Stacks: Native}, "p.c:12:main; p.c:8:cmp", true, true},
		{"OpenMP", openmp, View{Stacks: Auto}, "p.cc:59:main._omp_fn.0", true, true},
		{"the program's own functions of such names", ownNames, View{Stacks: Auto}, "p.c:40:main; p.c:30:start_thread; p.c:9:clone", true, true},
		{"Rust with lines", rustDebug, View{Stacks: Auto}, "src/main.rs:9:app::train; src/main.rs:8:<app::Linear<T> as app::Layer>::forward", true, true},
		{"Rust's thread, inlined whole", rustBare, View{Stacks: Auto}, "r:std::sys::backtrace::__rust_begin_short_backtrace", false, true},
		{"an import", imported, View{Stacks: Auto}, "job.py:3:<module>", true, true},
		{"an import, as CuPy shows it", imported, View{Stacks: Auto, All: true}, "job.py:3:<module>; <frozen importlib._bootstrap>:1360:_find_and_load; <frozen importlib._bootstrap>:488:_call_with_frames_removed", true, true},
		{"Python's thread", pyThread, View{Stacks: Auto}, "job.py:18:<lambda>", true, true},
		{"a thread that only starts", pyThread[:2], View{Stacks: Auto}, "/usr/lib/python3.12/threading.py:1073:_bootstrap_inner", true, true},
		{"a forked worker", forked, View{Stacks: Auto}, "job.py:9:worker", true, true},
		{"a spawned worker", spawned, View{Stacks: Both}, "job.py:3:<module>", true, true},
		{"pip's script, and what only its name says", script, View{Stacks: Python}, "tests/test_step.py:4:test_step; /usr/lib/python3.12/threading.py:5:helper", true, true},
		{"a coroutine", coroutine, View{Stacks: Both}, "aio.py:5:<module>; aio.py:3:job", true, true},
		{"a notebook's cell", notebook, View{Stacks: Auto}, "/tmp/ipykernel_3125/3876024082.py:2:<module>", true, true},
		{"the program's own files of such names", ownPy, View{Stacks: Auto}, "/home/me/threading.py:3:run; /home/me/bin/tool:9:<module>; /home/me/job.py:5:main", true, true},
		{"Go, through C and back", cgo, View{Stacks: Auto}, "main.go:9:main.main; train.go:4:main.(*Model).Step; layer.go:7:main.(*Layer).Forward; through.h:3:through; again.go:5:main.again", true, true},
		{"a thread of C's that calls Go", calledGo, View{Stacks: Native}, "[thread loader]; app.c:3:work; lib.go:3:main.load", true, true},
		{"the same and all", calledGo[3:], View{Stacks: Native, All: true}, "app.c:3:work; lib.so:crosscall2; lib.so:runtime.cgocallback; lib.go:3:main.load", true, true},
		{"the interpreter alone", cpython, View{Stacks: Auto}, "[interpreter]", false, false},
		{"hide by file", plain, View{Stacks: Auto, Hide: []string{"*/torch/*", "<frozen*"}}, "main.py:3:<module>", true, true},
		{"hide by module", program, View{Stacks: Auto, Hide: []string{"sim"}}, "[hidden]", true, true},
		{"hide by function", program, View{Stacks: Auto, All: true, Hide: []string{"std::*", "cudaMallo?", "*start*", "libc*"}}, "/home/me/sim.cu:40:main; /home/me/alloc.h:7:Pool::take", true, true},
		{"dots are dots", program, View{Stacks: Auto, Hide: []string{"simxcu", "s.m"}}, "/home/me/sim.cu:40:main; /home/me/alloc.h:7:Pool::take", true, true},
		{"focus", merged, View{Stacks: Both, Focus: []string{"model.py", "libtorch*"}}, "model.py:7:forward; libtorch.so:at::empty(long)", true, true},
		{"focus keeps the thread", autograd, View{Stacks: Auto, Focus: []string{"*torch*"}}, "[thread pt_autograd_0]; libtorch.so:torch::autograd::Engine::thread_init(int)", false, true},
		{"a thread alone in focus", autograd[:1], View{Stacks: Auto, Focus: []string{"*autograd*"}}, "[thread pt_autograd_0]", false, false},
		{"a thread alone out of focus", autograd[:1], View{Stacks: Auto, Focus: []string{"other.py"}}, "[thread pt_autograd_0]", false, false},
		{"a thread alone, hidden", autograd[:1], View{Stacks: Auto, Hide: []string{"[thread*"}}, "[hidden]", false, false},
		{"a thread's name hidden", autograd, View{Stacks: Auto, Hide: []string{"[thread*"}}, "libtorch.so:torch::autograd::Engine::thread_init(int)", false, true},
		{"a thread's name hidden, of no such frame", autograd, View{Stacks: Python, Hide: []string{"[thread*"}}, "[no python frame]", false, true},
		{"out of focus", plain, View{Stacks: Auto, Focus: []string{"other.py"}}, "[out of focus]", true, true},
		{"focus on what is recorded", plain, View{Focus: []string{"main.py:3:*"}}, "main.py:3:<module>", true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := testDefs(t, c.stack)
			c.view.set(d)
			for range 2 { // the second time from memory
				if got := shown(d); got != c.want {
					t.Errorf("shown is\n%s\nwant\n%s", got, c.want)
				}
			}
			if ids, _ := d.Recorded(1, nil); len(ids) != len(c.stack) {
				t.Errorf("%d frames are recorded, want %d", len(ids), len(c.stack))
			}
			if line, function := NewJudge(d).Known(1); line != c.line || function != c.method {
				t.Errorf("known: line %v, function %v; want %v, %v", line, function, c.line, c.method)
			}
		})
	}
}

// TestViewLater looks at a stack before its frames are defined, as in a trace
// that grows.
func TestViewLater(t *testing.T) {
	d := format.NewDefs()
	(&View{Stacks: Auto}).set(d)
	d.PutStack(format.Stack{ID: 1, Frame: 1})
	d.Walk(1, nil)
	d.PutFrame(testFrame(t, 1, "p a.py:1:f"))
	if got := shown(d); got != "a.py:1:f" {
		t.Errorf("shown is %s", got)
	}
}

func TestInterpreter(t *testing.T) {
	for name, want := range map[string]bool{"/usr/bin/python3.12": true, "python": true, "/x/libpython3.13t.so.1.0": true, "libpython3.9.so": true, "/x/python3-dbg": true,
		"/x/python3.11 (deleted)": true, "/x/pythonista": false, "/x/_python.cpython-312.so": false, "/python3/libfoo.so": false, "": false, "[vdso]": false} {
		if got := Interpreter(&format.Frame{Kind: format.FrameNative, Module: name}); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
}

// Each rule has a frame that it is for, and that no other row of its kind takes;
// words that programs use too are theirs.
func TestFrameRules(t *testing.T) {
	hit := map[*frameRule]bool{}
	for _, c := range []struct {
		frame string
		want  frameIs
	}{
		{"n /p|_start", isLauncher},
		{"n /lib/libc.so.6|__libc_start_call_main", isLauncher | isSystem},
		{"n /lib/libstdc++.so.6|execute_native_thread_routine", isLauncher | isSystem},
		{"n /lib64/ld-linux-x86-64.so.2|_dl_init", isSystem},
		{"n /lib/libgomp.so.1|GOMP_parallel", isSystem},
		{"n /p|/opt/conda/x86_64-conda-linux-gnu/include/c++/11.4.0/future:3:f", isSystem},
		{"n /p|../../../../../src/libstdc++-v3/src/c++11/thread.cc:3:f", isSystem},
		{"n /p|/usr/lib/llvm-17/include/c++/v1/thread:3:f", isSystem},
		{"n /p|std::function<void()>::operator()", isStd},
		{"n /p+0x5", isEntry},
		{"n /r|std::sys::backtrace::__rust_begin_short_backtrace::hfe", isLauncher | isStd},
		{"n /r|/home/me/.rustup/toolchains/x/lib/rustlib/src/rust/library/core/src/ops/function.rs:250:call_once", isSystem},
		{"n /r|<alloc::boxed::Box<F,A> as core::ops::function::FnOnce<Args>>::call_once", isStd},
		{"g /usr/local/go/src/runtime/proc.go:283:runtime.main", isLauncher | isSystem},
		{"n /p|runtime.goexit", isLauncher | isSystem},
		{"n /p|/usr/local/go/src/sync/once.go:78:sync.(*Once).doSlow", isSystem},
		{"n /p|_cgo_gotypes.go:55:main._Cfunc_cuMemAlloc", isSystem},
		{"n /p|_cgo_677986c51933_Cfunc_cuMemAlloc", isSystem},
		{"n /p|crosscall2", isSystem},
		{"n /p|/tmp/go-build/_cgo_export.c:36:again", isSystem},
		{"n /p|main.go:3:main.main.deferwrap1", isSystem},
		{"n /p|/home/me/go/pkg/mod/github.com/ebitengine/purego@v0.11.3/sys_amd64.s:117:syscallX", isSystem},
		{"n /p|<autogenerated>:1:main.(*T).Step", isSystem},
		{"n /usr/lib/libcuda.so.580.1+0x7", isDriver | isEntry},
		{"n /p|cudaMalloc", isDriver},
		{"n /p|/usr/local/cuda/include/cuda_runtime.h:5:cudaMalloc<float>", isDriver},
		{"n /usr/lib/libpython3.12.so.1.0|_PyEval_EvalFrameDefault", isInterp},
		{"p <frozen importlib._bootstrap>:3:_find_and_load", isSystem},
		{"p /usr/lib/python3.12/importlib/__init__.py:90:import_module", isSystem},
		{"p <string>:1:<module>", isEntry},
		{"p /usr/lib/python3.12/multiprocessing/process.py:314:_bootstrap", isLauncher | isOuter},
		{"p python3.12/threading.py:5:run", isOuter}, // redacted
		{"p <frozen runpy>:88:_run_code", isSystem},
		{"p /usr/lib/python3.12/asyncio/events.py:84:_run", isSystem},
		{"n /usr/lib/python3.12/lib-dynload/_asyncio.cpython-312-x86_64-linux-gnu.so|task_step", isInterp},
		{"n /lib/libffi.so.8.1.2+0x7", isSystem | isEntry},
		{"p /v/site-packages/torch/distributed/elastic/multiprocessing/api.py:5:start", isOuter},
		{"p /v/site-packages/_pytest/python.py:5:pytest_pyfunc_call", isOuter},
		{"p /v/site-packages/IPython/core/interactiveshell.py:5:run_code", isOuter},
		{"p /v/site-packages/gunicorn/arbiter.py:5:spawn_worker", isOuter},
		{"p /usr/lib/python3.12/cProfile.py:5:run", isOuter},

		{"n /p|start_thread", 0},
		{"n /p|core::Engine::run", 0},
		{"n /p|<app::Drop as core::ops::drop::Drop>::drop", 0},
		{"n /p|stdx::f", 0},
		{"n /p|/src/wrap.cu:5:cudaCheckedMalloc", 0},
		{"n /p|cudahelpers::take", 0},
		{"n /v/libcudnn.so.9|cudnnCreate", 0},
		{"n /v/libtorch.so|c10::cuda::CUDACachingAllocator::malloc", 0},
		{"p /v/lib/python3.12/site-packages/threading.py:5:run", 0},
		{"p /home/me/multiprocessing/process.py:5:_bootstrap", 0},
		{"p /v/site-packages/torch/nn/modules/module.py:5:_call_impl", 0},
		{"p /home/me/trace.py:5:main", 0},
		{"g /home/me/runtime/x.go:5:myruntime.main", 0},
		{"n /p|/home/me/sync/x.go:5:example.com/sync.Do", 0},
		{"n /p|x.go:5:main.unwrap1", 0},
	} {
		f := testFrame(t, 1, c.frame)
		got := judge(&f)
		if got &= isLauncher | isOuter | isEntry | isSystem | isStd | isDriver | isInterp; got != c.want {
			t.Errorf("%s: %b, want %b", c.frame, got, c.want)
		}
		for i, m := range matchers() {
			if m.of&judge(&f) != 0 && m.matches(&f, judge(&f)) {
				hit[matchers()[i].frameRule] = true
			}
		}
	}
	for i := range frameRules {
		if !hit[&frameRules[i]] {
			t.Errorf("no frame for the rule of %s", frameRules[i].why)
		}
	}
}

// What a pattern is not asked for its literals is what it would not match.
func TestPatternsNeed(t *testing.T) {
	r, some := rand.New(rand.NewSource(1)), 0
	for _, m := range matchers() {
		for _, p := range []*pattern{m.modules, m.files, m.functions} {
			if p == nil {
				continue
			}
			if len(p.needs) > 0 {
				some++
			}
			for range 300 {
				words := append([]string{"/", "/lib/", "x", "python3.12/", ".so.1", "::", "."}, p.needs...)
				s := ""
				for range 1 + r.Intn(4) {
					s += words[r.Intn(len(words))]
				}
				if got, want := p.matches(s), p.re.MatchString(s); got != want {
					t.Errorf("%s of %q: %v with its literals %q", p.re, s, got, p.needs)
				}
			}
		}
	}
	if some < 20 {
		t.Errorf("%d patterns have literals", some)
	}
	for re, want := range map[string][]string{"a|bc": {"a", "bc"}, "a|b*": nil, "(^|/)lib(c|m)\\.": {"lib"}, "(ab)+c?": {"ab"}, "[ab]": nil, "": nil, "x?": nil, "(?i)ab": nil} {
		tree, err := syntax.Parse(re, syntax.Perl)
		if err != nil {
			t.Fatal(err)
		}
		if got := needed(tree.Simplify()); !slices.Equal(got, want) {
			t.Errorf("%s needs %q, want %q", re, got, want)
		}
	}
}

// A thread that nobody named has its program's name, which says nothing but where
// there is nothing else, or where it is Python's.
func TestProgramsThread(t *testing.T) {
	for _, c := range []struct{ name, executable, command, python, want string }{
		{"its program's", "/home/me/a_rather_long_name", "x", "", "a.cc:3:worker"},
		{"by the command, through a link", "/home/me/build/v2", "./a_rather_long_name --x 3", "", "a.cc:3:worker"},
		{"another's", "/home/me/other", "other", "", "[thread a_rather_long_n]; a.cc:3:worker"},
		{"Python's", "/home/me/a_rather_long_name", "x", "3.12.1", "[thread a_rather_long_n]; a.cc:3:worker"},
	} {
		frames := []string{"t a_rather_long_n", "n /p|a.cc:3:worker"}
		d := testDefs(t, frames)
		d.PutProcess(format.Process{ID: 1, Executable: c.executable, Command: c.command, Python: c.python})
		(&View{Stacks: Auto}).set(d)
		if got := shown(d); got != c.want {
			t.Errorf("%s: %s", c.name, got)
		}
		d = testDefs(t, frames[:1])
		d.PutProcess(format.Process{ID: 1, Executable: c.executable, Command: c.command, Python: c.python})
		(&View{Stacks: Auto}).set(d)
		if got := shown(d); got != "[thread a_rather_long_n]" {
			t.Errorf("%s, alone: %s", c.name, got)
		}
	}
}

// AsCuPy leaves Python's frames as they are, and natives' as the view has them.
func TestAsCuPy(t *testing.T) {
	for _, c := range []struct {
		stack []string
		want  string
	}{
		{plain, "<frozen runpy>:88:_run_code; main.py:3:<module>; /v/site-packages/torch/nn.py:9:call"},
		{spawned, "<string>:1:<module>; /usr/lib/python3.12/multiprocessing/spawn.py:122:spawn_main; <frozen runpy>:88:_run_code; job.py:3:<module>"},
		{async, "p.cc:56:operator(); p.cc:19:Buffer<float>::Buffer"},
	} {
		d := testDefs(t, c.stack)
		p := Pass{view: (&View{Stacks: Auto}).set(d)}
		p.AsCuPy()
		if got := shown(d); got != c.want {
			t.Errorf("%s", got)
		}
	}
	new(Pass).AsCuPy()
}

// Of random stacks a view shows frames that are in them, in their order, words of
// ours last; something of each; and whichever the view, the same is known of it.
func TestViewsOfRandomStacks(t *testing.T) {
	var all []string
	for _, s := range [][]string{plain, merged, autograd, program, thread, inlined, stripped, rust, golang, cpython, async, asyncBare, grow, rustDebug, imported, pyThread, forked, spawned, script, coroutine, notebook} {
		all = append(all, s...)
	}
	patterns := [][]string{nil, {"*torch*"}, {"*.py", "p"}, {"[thread*"}, {"*"}, {"main"}}
	for seed := range int64(1000) {
		r := rand.New(rand.NewSource(seed))
		stack := make([]string, 1+r.Intn(12))
		for i := range stack {
			stack[i] = all[r.Intn(len(all))]
		}
		d := testDefs(t, stack)
		whole, _ := d.Recorded(1, nil)
		line, function := NewJudge(d).Known(1)
		v := View{Stacks: Stacks(r.Intn(int(Both) + 1)), Focus: patterns[r.Intn(len(patterns))], Hide: patterns[r.Intn(len(patterns))], All: r.Intn(4) == 0}
		v.set(d)
		ids, ok := d.Walk(1, nil)
		fail := func(what string) {
			t.Errorf("seed %d: %s: %+v\n%s\nof %s", seed, what, v, shown(d), strings.Join(stack, "; "))
		}
		if !ok || len(ids) == 0 {
			fail("nothing")
		}
		at := 0
		for i, id := range ids {
			for at < len(whole) && whole[at] != id {
				at++
			}
			if f, _ := d.Frame(id); at == len(whole) && (f.Kind != format.FrameLabel || i != len(ids)-1) {
				fail("a frame that is not there, or not in its order")
			}
			at++
		}
		if l, fn := NewJudge(d).Known(1); l != line || fn != function {
			fail("known otherwise")
		}
	}
}
