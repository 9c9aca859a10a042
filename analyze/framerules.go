package analyze

import (
	"regexp"
	"sync"
)

// The rules that say what a frame is, by its names: one table, which views and
// the share of bytes without a line read. A row holds where all its patterns match:
// regular expressions, "" for any. Of an unnamed frame only the module is known;
// --redact leaves the last two elements of a file.
//
// A name alone can mislead, so that a row of common words also asks for the module
// or the file: a program may well have its own start_thread or threading.py. What
// is judged wrongly is off the page, not out of a sum, and --all-frames shows it.

type frameRule struct {
	is       frameIs
	of       frameIs // isPython, isGo or isNative
	where    place
	module   string // of the last part of its path
	file     string
	function string
	why      string
}

// place is where a row holds besides.
type place uint8

const (
	anywhere place = iota
	lined          // its line is known: calls that the compiler inlined are frames of their own
	unlined        // it is named at most: code of others may be inlined into it
	unnamed
)

const (
	libc = `^(libc|libm|libdl|librt|libpthread|ld|ld-linux[^.]*)[.-]`
	// stdlib is CPython's library in Python, and not what is installed below it.
	stdlib = `(^|/)python[23][^/]*/`
)

var frameRules = []frameRule{
	// C and C++.
	{isLauncher, isNative, anywhere, ``, ``, `^_start$`, "the program's first instruction, which calls libc"},
	{isLauncher, isNative, anywhere, libc, ``, `^(__libc_start_(main|call_main)|clone3?$|__clone|start_thread$|thread_start$)`, "libc starts the program or a thread"},
	{isLauncher, isNative, anywhere, `^libstdc\+\+\.`, ``, `^execute_native_thread_routine`, "what std::thread hands to pthread_create"},
	{isSystem, isNative, anywhere, libc, ``, ``, "qsort, pthread_once, exit, dlopen call the program back; their own lines are not the program's"},
	{isSystem, isNative, anywhere, `^(libstdc\+\+|libc\+\+|libc\+\+abi|libgcc_s|libunwind)\.`, ``, ``, "the C++ runtime between the program's frames"},
	{isSystem, isNative, anywhere, `^(libgomp|libi?omp5?|libtbb|libtbb12)[.-]`, ``, ``, "OpenMP's and TBB's schedulers run the program's loop bodies"},
	{isSystem, isNative, lined, ``, `/include/(.*/)?c\+\+/|/cuda/std/`, ``, "std::function, std::invoke, containers: templates of the C++ library, inlined or not; what calls and what they call is shown"},
	{isStd, isNative, unlined, ``, ``, `^(std|__gnu_cxx|__cxxabiv1)::`, "the same without debug information: a lambda of the program may be inlined into it"},
	{isEntry, isNative, unnamed, ``, ``, ``, "_start of a stripped program, where libc is what it calls"},

	// Rust.
	{isLauncher | isStd, isNative, anywhere, ``, ``, `_?_rust_begin_short_backtrace`, "Rust's own mark for where a backtrace of main or of a thread begins"},
	{isSystem, isNative, lined, ``, `^/rustc/[^/]*/library/|/lib/rustlib/src/rust/library/`, ``, "Rust's library: iterators, Box<dyn FnOnce>, catch_unwind"},
	{isStd, isNative, unlined, ``, ``, `^<?(core::(any|array|cell|fmt|iter|mem|ops|option|panic|panicking|pin|ptr|result|slice|str|task)|alloc::(alloc|borrow|boxed|collections|rc|slice|string|sync|vec))::|^<std::|^__rust_try`, "the same without debug information: a closure may be inlined into it"},

	// Go.
	{isLauncher, isGo, anywhere, ``, ``, `^runtime\.(goexit|main|rt0_go)(\.abi0)?$`, "Go's runtime starts main and every goroutine"},

	// CUDA.
	{isDriver, isNative, anywhere, `^(libcuda\.so|libcudart|libgpurec|libnvidia-)`, ``, ``, "the driver, CUDA's runtime and our hook: the request is the call outside of them"},
	{isDriver, isNative, unlined, ``, ``, `^(cuda[A-Z]|__cuda|cudart::|libcudart_static)`, "CUDA's runtime, linked into the program"},
	{isDriver, isNative, lined, ``, `/cuda_runtime(_api)?\.h$`, ``, "its templates: cudaMalloc<float>"},

	// CPython. Its own functions are for Python's frames to stand for.
	{isInterp, isNative, anywhere, `^(lib)?python([0-9]+(\.[0-9]+)*)?[tdmu]*(-dbg)?(\.so[.0-9]*)?( \(deleted\))?$`, ``, ``, "CPython or its library, of any version and build"},
	{isSystem, isPython, anywhere, ``, `^<frozen (importlib|zipimport)|` + stdlib + `importlib/__init__\.py$`, ``, "an import is the line that imports, as in CPython's own tracebacks"},
	{isEntry, isPython, anywhere, ``, `^<string>$|/bin/[^/.]+$`, `^<module>$`, "-c of a child process, or a script that pip made, where a launcher is what it calls"},
	{isLauncher, isPython, anywhere, ``, stdlib + `multiprocessing/process\.py$`, `^(BaseProcess\.)?_bootstrap$`, "a worker begins: of a forked one what is outside is what its parent was doing"},
	{isOuter, isPython, anywhere, ``, stdlib + `(multiprocessing|concurrent/futures)/|/torch/multiprocessing/|/torch/utils/data/_utils/worker\.py$|/loky/|/billiard/`, ``, "worker processes and pools, before the program's own function"},
	{isOuter, isPython, anywhere, ``, stdlib + `threading\.py$`, ``, "a thread's, before its target"},
	{isOuter, isPython, anywhere, ``, `^<frozen runpy>|` + stdlib + `runpy\.py$`, ``, "python -m"},
	{isOuter, isPython, anywhere, ``, `/torchrun$|/torch/distributed/(run|launch|launcher/api)\.py$|/torch/distributed/elastic/|/accelerate/commands/|/deepspeed/launcher/|/horovod/runner/|/mpi4py/run\.py$|/ray/_private/`, ``, "launchers of distributed jobs"},
	{isOuter, isPython, anywhere, ``, `(^|/)(_pytest|pluggy|pytest|unittest)/`, ``, "test runners, before the test"},
	{isOuter, isPython, anywhere, ``, `(^|/)(IPython|ipykernel|traitlets|tornado|jupyter_client)/|/ipykernel_launcher\.py$|` + stdlib + `asyncio/`, ``, "a notebook's kernel and its event loop, before the cell"},
	{isOuter, isPython, anywhere, ``, `(^|/)(gunicorn|uvicorn)/`, ``, "servers, before the application"},
	{isOuter, isPython, anywhere, ``, stdlib + `(pdb|bdb|cProfile|profile|trace|timeit)\.py$|(^|/)(debugpy|coverage|line_profiler)/|/kernprof(\.py)?$`, ``, "debuggers and profilers that run a program"},
}

// A matcher is a frameRule, compiled.
type matcher struct {
	*frameRule
	modules, files, functions *regexp.Regexp // nil: any
}

var matchers = sync.OnceValue(func() []matcher {
	compile := func(s string) *regexp.Regexp {
		if s == "" {
			return nil
		}
		return regexp.MustCompile(s)
	}
	out := make([]matcher, len(frameRules))
	for i := range frameRules {
		r := &frameRules[i]
		out[i] = matcher{r, compile(r.module), compile(r.file), compile(r.function)}
	}
	return out
})

func is(r *regexp.Regexp, s string) bool { return r == nil || s != "" && r.MatchString(s) }
