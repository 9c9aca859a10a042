// Package dwarf finds, in DWARF's sections, which functions an address lies in,
// inlined ones too, and at which lines.
//
//	dwarf.go   Sections in, Places out: the units, and the walk through those that hold an address
//	unit.go    what a unit says of itself, and where its numbers count from
//	abbrev.go  the shapes of entries, which say how to read and how to pass them
//	entry.go   one entry: the attributes that are asked for
//	ranges.go  the addresses of an entry
//	line.go    line tables
//	name.go    a function's name, which another entry, unit or file may have
//	index.go   the index of a package of split units (.dwp)
//
// It reads DWARF 2 to 5 of 32 and 64 bits, GNU's split units of version 4 and those of
// version 5, and what dwz moved to another file. It knows bytes alone: who calls it
// finds files, and decides which are believed. It promises to end, within work that
// grows with the bytes it is given and not with what they claim, and never to panic.
//
// debug/dwarf of Go's library reads neither split units, whose strings, addresses and
// ranges count from what another file says, nor references into another file, and
// makes an entry of every type and variable on the way to a function.
package dwarf
