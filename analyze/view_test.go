package analyze

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
)

// testFrame reads p or g file:line:function, n module|function, n
// module|file:line:function, n module+address, or t NAME.
func testFrame(t *testing.T, id format.FrameID, s string) format.Frame {
	kind, rest, _ := strings.Cut(s, " ")
	f := format.Frame{ID: id}
	var ok bool
	switch kind {
	case "t":
		f.Kind, f.Function = format.FrameThread, "[thread "+rest+"]"
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
	program  = []string{"n /home/me/sim|_start", "n /lib/libc.so.6+0x29d90", "n /lib/libc.so.6|__libc_start_call_main", "n /home/me/sim|/home/me/sim.cu:40:main", "n /home/me/sim|/usr/include/vector:9:std::vector<int>::push_back",
		"n /home/me/sim|cudaMalloc"}
	thread   = []string{"n /lib/libc.so.6|clone3", "n /lib/libc.so.6|start_thread", "n /lib/libstdc++.so.6|execute_native_thread_routine", "n /p|std::thread::_State_impl<int>::_M_run()", "n /p|p.cc:4:worker"}
	inlined  = []string{"n /lib/libc.so.6|start_thread", "n /lib/libstdc++.so.6+0xd44", "n /p|/usr/include/c++/12/bits/std_thread.h:259:operator()", "n /p|p.cc:9:operator()"}
	stripped = []string{"n /opt/app/server+0x1040", "n /lib/libc.so.6+0x29d90", "n /lib/libc.so.6+0x29e40", "n /opt/app/server+0x1139"}
	started  = []string{"n /lib/libc.so.6|__libc_start_main", "n /lib/libc.so.6+0x1"}
	rust     = []string{"n /r|_start", "n /r|main", "n /r|std::rt::lang_start::h1", "n /r|std::panicking::try", "n /r|std::sys::backtrace::__rust_begin_short_backtrace", "n /r|core::ops::function::FnOnce::call_once", "n /r|src/main.rs:3:r::main"}
	golang   = []string{"g /usr/local/go/src/runtime/asm_amd64.s:1700:runtime.goexit", "g /usr/local/go/src/runtime/proc.go:283:runtime.main", "g /home/me/job/main.go:12:main.main"}
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
		{"auto is CuPy's of Python, runpy too", plain, View{Stacks: Auto}, "<frozen runpy>:88:_run_code; main.py:3:<module>; /v/site-packages/torch/nn.py:9:call", true, true},
		{"python leaves runpy off", plain, View{Stacks: Python}, "main.py:3:<module>; /v/site-packages/torch/nn.py:9:call", true, true},
		{"python and all frames", plain, View{Stacks: Python, All: true}, "<frozen runpy>:88:_run_code; main.py:3:<module>; /v/site-packages/torch/nn.py:9:call", true, true},
		{"python alone: no native frame", plain, View{Stacks: Native}, "[no native frame]", true, true},
		{"auto of both", merged, View{Stacks: Auto}, "main.py:3:<module>; model.py:7:forward", true, true},
		{"both", merged, View{Stacks: Both}, "main.py:3:<module>; model.py:7:forward; libtorch.so:at::empty(long); libc10.so+0x1234; libcudart.so.12:cudaMalloc", true, true},
		{"both and all", merged, View{Stacks: Both, All: true}, "python3.12:_start; libc.so.6:__libc_start_main; python3.12:Py_RunMain; main.py:3:<module>; libpython3.12.so.1.0:_PyEval_EvalFrameDefault; model.py:7:forward; " +
			"libpython3.12.so.1.0+0x77; libtorch.so:at::empty(long); libc10.so+0x1234; libcudart.so.12:cudaMalloc; libcudart.so.12+0x99; libcuda.so.1+0x5", true, true},
		{"native of both", merged, View{Stacks: Native}, "libtorch.so:at::empty(long); libc10.so+0x1234; libcudart.so.12:cudaMalloc", true, true},
		{"a thread without Python", autograd, View{Stacks: Auto}, "[thread pt_autograd_0]; libtorch.so:torch::autograd::Engine::thread_init(int)", false, true},
		{"python of such", autograd, View{Stacks: Python}, "[thread pt_autograd_0]; [no python frame]", false, true},
		{"a thread alone", autograd[:1], View{Stacks: Python}, "[thread pt_autograd_0]", false, false},
		{"C++", program, View{Stacks: Auto}, "/home/me/sim.cu:40:main; /usr/include/vector:9:std::vector<int>::push_back; sim:cudaMalloc", true, true},
		{"C++ thread", thread, View{Stacks: Auto}, "p.cc:4:worker", true, true},
		{"C++ thread, inlined", inlined, View{Stacks: Auto}, "p.cc:9:operator()", true, true},
		{"no symbols", stripped, View{Stacks: Auto}, "server+0x1139", false, false},
		{"never all", started, View{Stacks: Auto}, "libc.so.6+0x1", false, false},
		{"Rust", rust, View{Stacks: Auto}, "src/main.rs:3:r::main", true, true},
		{"Go", golang, View{Stacks: Auto}, "/home/me/job/main.go:12:main.main", true, true},
		{"the interpreter alone", cpython, View{Stacks: Auto}, "[interpreter]", false, false},
		{"hide by file", plain, View{Stacks: Auto, Hide: []string{"*/torch/*", "<frozen*"}}, "main.py:3:<module>", true, true},
		{"hide by module", program, View{Stacks: Auto, Hide: []string{"sim"}}, "[hidden]", true, true},
		{"hide by function", program, View{Stacks: Auto, Hide: []string{"std::*", "cudaMallo?"}}, "/home/me/sim.cu:40:main", true, true},
		{"dots are dots", program, View{Stacks: Auto, Hide: []string{"simxcu", "s.m"}}, "/home/me/sim.cu:40:main; /usr/include/vector:9:std::vector<int>::push_back; sim:cudaMalloc", true, true},
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
			ids, _ := d.Recorded(1, nil)
			var frames []format.Frame
			for _, id := range ids {
				f, _ := d.Frame(id)
				frames = append(frames, f)
			}
			if len(frames) != len(c.stack) {
				t.Errorf("%d frames are recorded, want %d", len(frames), len(c.stack))
			}
			if line, function := Known(frames); line != c.line || function != c.method {
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
