package main

import (
	"strings"

	"github.com/gpurec/gpurec/analyze"
)

// A stackView is the flags of a command that prints lines or trees.
type stackView struct {
	stacks      string
	focus, hide []string
	all, full   bool
}

// stackHelp is what the help of those commands says of them all.
const stackHelp = `
--stacks auto shows Python's frames, and native ones of a stack that has no Python:
C++, Rust, Go, PyTorch's own threads. A PATTERN is of a file, a module, a function
or a frame as it is printed, where * is any text: what is hidden counts for what
called it. Left off is what is not the program's: what starts a program, a thread, a
worker or a test (_start, start_thread, runpy, torchrun, pytest), imports, the
interpreter's own functions, the libraries of C, C++, Rust and Go, cgo, CUDA's runtime
and the driver, and the name of a thread that nobody named. --all-frames shows it all.`

// withStacks adds the flags.
func (a *analysis) withStacks() *analysis {
	v := &stackView{}
	a.view = v
	a.command.long = strings.TrimSpace(a.command.long) + "\n" + stackHelp
	a.StringVar(&v.stacks, "stacks", analyze.Auto.String(), "`WHOSE` frames to show: auto, python, native or both")
	a.StringArrayVar(&v.focus, "focus", nil, "show only frames that match a `PATTERN`")
	a.StringArrayVar(&v.hide, "hide", nil, "show no frame that matches a `PATTERN`, as */torch/* or libc.so*")
	if a.command.name != "export" { // which has whole names, as JSON does
		a.BoolVar(&v.full, "full-paths", false, "show whole names of files: else what the program's own files have in common is left out, and where a package is installed")
	}
	a.BoolVar(&v.all, "all-frames", false, "show launchers and the interpreter's own frames too")
	return a
}

// view is what they ask for.
func (v *stackView) view() (out analyze.View, err error) {
	for _, p := range append(append([]string(nil), v.focus...), v.hide...) {
		if p == "" {
			return out, usagef("--focus and --hide want a pattern, as */torch/* or libc.so*")
		}
	}
	if out.Stacks, err = analyze.ParseStacks(v.stacks); err != nil {
		return out, usagef("--stacks: %v", err)
	}
	out.Focus, out.Hide, out.All = v.focus, v.hide, v.all
	return out, nil
}
