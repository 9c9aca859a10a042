// Package lines answers which line took the memory: gpuanalyze lines.
//
//	lines.go   what is counted: Answer, in total or live at a moment
//	peak.go    live at the highest moment of each device
//	leaves.go  sums by stack, before it is known which of them are used
//	text.go    the tree as CuPy's LineProfileHook prints it
//
// In total it is CuPy's reading, to the character: every attempt counts, failed
// ones too, nothing is subtracted, children stand in the order in which they
// were first seen, and a line has what its callees have. At a moment it is
// what was live then, and children stand by size.
//
// The two numbers are used and acquired: the pool layer, or the driver layer of
// a process without a pool event; and the driver layer. Both count class
// device; what else was taken is said beside. In a scope that our CuPy hook
// opened they are CuPy's own: what its pool handed out, and what that asked of
// its base allocator, whichever that is.
package lines
