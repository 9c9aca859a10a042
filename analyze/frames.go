package analyze

import (
	"path"
	"regexp"
	"strings"

	"github.com/gpurec/gpurec/format"
)

// frameIs is what a frame is by its names.
type frameIs uint16

const (
	isPython   frameIs = 1 << iota // or Go's: a line of a program that needs no symbols
	isNative                       //
	isNote                         // a thread's name, or a word of ours
	isLauncher                     // it started the program or the thread: nothing outside of it is the program's
	isOuter                        // the same where nothing but such is outside of it
	isPyOuter                      // isOuter, of Python's
	isInterp                       // of the interpreter, which runs Python's frames
	isDriver                       // without a name, of the libraries that a driver's call goes through
	isLine                         // its line is known
	isNamed                        // its function is
	isFocus                        // a viewer's
	isHidden                       // a viewer's
)

// interpreter is the file name of CPython or its library, of any version and build.
var interpreter = regexp.MustCompile(`^(lib)?python([0-9]+(\.[0-9]+)*)?[tdmu]*(-dbg)?(\.so[.0-9]*)?( \(deleted\))?$`)

// launchers start a process or a thread: C's, C++'s, Go's.
var launchers = map[string]bool{
	"_start": true, "__libc_start_main": true, "__libc_start_main_impl": true, "__libc_start_main_alias_2": true, "__libc_start_call_main": true,
	"clone": true, "__clone": true, "clone3": true, "__clone3": true, "__clone_internal": true, "start_thread": true, "thread_start": true,
	"execute_native_thread_routine": true,
	"runtime.goexit":                true, "runtime.goexit.abi0": true, "runtime.main": true, "runtime.rt0_go": true, "runtime.rt0_go.abi0": true,
}

// outers are what launchers call on the way to the program's own code.
var outers = []string{"std::thread::_", "std::__invoke", "std::rt::lang_start", "std::panicking::", "std::panic::", "core::ops::function::Fn", "std::sys::backtrace::", "std::sys_common::backtrace::"}

// pyOuters are files of what runs a Python program.
var pyOuters = []string{"<frozen runpy>", "/runpy.py", "/torchrun", "/torch/distributed/run.py", "/torch/distributed/launcher/api.py", "/torch/distributed/elastic/"}

// judge says what a frame is.
func judge(f *format.Frame) (is frameIs) {
	switch f.Kind {
	case format.FramePython:
		for _, file := range pyOuters {
			if strings.Contains(f.File, file) {
				is |= isPyOuter
			}
		}
		return is | isPython | isLine | isNamed
	case format.FrameGo:
		if launchers[f.Function] {
			is |= isLauncher
		}
		return is | isPython | isLine | isNamed
	case format.FrameNative:
	default:
		return isNote
	}
	is = isNative
	library := path.Base(f.Module)
	if interpreter.MatchString(library) {
		is |= isInterp
	}
	if f.Function == "" {
		for _, lib := range []string{"libc.so", "libc-2.", "libpthread", "ld-linux", "ld-2.", "libstdc++.so"} {
			if strings.HasPrefix(library, lib) {
				is |= isOuter
			}
		}
		if IsRuntime(library) {
			is |= isDriver
		}
		return is
	}
	is |= isNamed
	if f.Line > 0 {
		is |= isLine
	}
	if launchers[f.Function] || strings.Contains(f.Function, "__rust_begin_short_backtrace") {
		is |= isLauncher
	}
	for _, prefix := range outers {
		if strings.HasPrefix(f.Function, prefix) {
			is |= isOuter
		}
	}
	if strings.Contains(f.File, "/include/c++/") { // what std::thread calls, inlined: its names are of every kind
		is |= isOuter
	}
	return is
}

// Interpreter reports whether a frame is one of those that run Python's.
func Interpreter(f *format.Frame) bool { return f.Kind == format.FrameNative && judge(f)&isInterp != 0 }

// IsRuntime reports whether a library, by its file's name, calls the driver on
// another's behalf.
func IsRuntime(library string) bool {
	for _, name := range []string{"libcuda.so", "libcudart", "libgpurec"} {
		if strings.HasPrefix(library, name) {
			return true
		}
	}
	return false
}

// mostOuter is how many frames of a stack there are at most outside of what the
// program's or the thread's launcher calls: Rust's has 17.
const mostOuter = 32

// bounds are the frames that are left of a stack, outermost first, without
// launchers outside and the driver's libraries inside, but never without all:
// notes lead, then from..to.
func bounds(kinds []frameIs, outer frameIs) (lead, from, to int) {
	for lead < len(kinds) && kinds[lead]&isNote != 0 {
		lead++
	}
	from, to = lead, len(kinds)
	for i := lead; i < to && i < lead+mostOuter; i++ {
		start := i == lead && kinds[i]&(isNative|isNamed) == isNative && i+1 < to && kinds[i+1]&isOuter != 0 // _start, without symbols
		if kinds[i]&isLauncher != 0 || start || kinds[i]&outer != 0 && from == i {
			from = i + 1
		}
	}
	from = max(lead, min(from, to-1))
	for to > from+1 && kinds[to-1]&isDriver != 0 {
		to--
	}
	return lead, from, to
}

// Known reports whether a stack, outermost frame first, names a line of the
// program's, and whether a function: of what a launcher calls, the interpreter
// not counted.
func Known(frames []format.Frame) (line, function bool) {
	kinds := make([]frameIs, 0, 64)
	for i := range frames {
		if is := judge(&frames[i]); is&isInterp == 0 {
			kinds = append(kinds, is)
		}
	}
	if len(kinds) == 0 {
		return false, false
	}
	_, from, to := bounds(kinds, isOuter)
	var all frameIs
	for _, is := range kinds[from:to] {
		if is&isLauncher == 0 {
			all |= is
		}
	}
	return all&isLine != 0, all&isNamed != 0
}
