// Package diff answers what changed between two traces, or two ranges, scopes,
// ranks or processes of one: gpuanalyze diff.
//
//	side.go      Side: what one of the two comes to, in one pass
//	match.go     which function and which line of the one is which of the other
//	report.go    Report: both beside each other
//	gate.go      a rise that is too much
//	text.go      the Report as text
//	markdown.go  and for a pull request
//
// Bytes are used bytes, or with a layer asked for those of that layer. Every
// stack is its own line's (tree.OwnFrames), so the bytes of all lines at the peak
// add up to the peak. What is compared is what the two have in common: lines,
// functions and paths of scopes by name, devices by UUID or else in their order;
// never addresses, times, ids or NVML's readings. So two runs of one program
// show no difference.
//
// Lines move: where the same function has lines that only one side has, they are
// put together in their order, by how alike they are in number and size of
// allocations. That is inferred, and such a row names both lines.
//
// Memory is bounded by the live set, the definitions and a row a line, function
// and path of scopes.
package diff
