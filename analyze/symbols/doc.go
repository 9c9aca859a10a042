// Package symbols names the native frames of a trace, which are recorded as a
// module, its build id and an address: by function, file and line, from ELF's
// symbol tables and DWARF, on any machine that has the binaries or their debug
// files.
//
//	symbols.go   Trace: the frames of a trace, module by module, and what they become
//	lock_*.go    one at a time changes a trace in place
//	expand.go    an inlined call as nodes of the stack trie
//	find.go      which files are a module's; the build id decides
//	afford.go    what a file may say of itself before it is believed
//	elf.go       one file: its build id, its symbols, read as a stream
//	pclntab.go   Go's functions and lines, which a stripped program has too
//	packed.go    symbols packed in a file (.gnu_debugdata)
//	debug.go     one file's debug information, for the package dwarf
//	split.go     what of it is in other files: .dwo, .dwp, dwz's
//
// It promises: a file is believed only if its build id is the recorded one; what
// was not found is said of each module; reading is bounded by Options and ends when
// it is told to; a file may hold anything. It refuses the network, and frames that
// are no file's: those of the kernel's page and of code made at run time.
package symbols
