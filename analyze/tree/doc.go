// Package tree groups what was live: as a tree of lines, and flat by line, own
// line, function, scope, size and process. It is no answer; peak, oom, leaks and others
// share it.
//
//	tree.go   Tree, Node: stacks as a tree of lines
//	fold.go   recursions as one line
//	line.go   what a frame is in a tree, looked at once
//	text.go   a Node as text
//	set.go    Set: live bytes by Key, and what they were at the highest moment
//	watch.go  Watch: a Set for each device or process, in step with the fold
//	paths.go  Paths: scopes as paths of names
//	flat.go   Flat: a Set's bytes by one thing
//	names.go  Names: what stacks are called there
//	cross.go  Cross: lines by scopes
//	own.go    which line of a stack is the program's own
//
// Bytes are class device's, as two numbers: used and acquired (Amount). A tree's
// root and the sum of a flat table's rows are the Set's total, to the byte.
//
// Memory is bounded by what is live and by what was live at the highest moment,
// however many stacks and scopes come by: a cell that holds nothing at either is
// forgotten.
package tree
