// Package fragmentation answers what of a pool's memory is free and cannot be
// used: gpuanalyze fragmentation.
//
//	report.go         Report, Pool, Segment: what is said
//	fragmentation.go  Answer: how it comes together
//	remember.go       what was there at the worst moment so far, at O(1) an event
//	history.go        the sums over time, in a bounded number of stretches
//	text.go           the Report as text
//
// A pool is a process's on a device; what holds its segments and which memory is
// pinned package segments says. The worst moment is the one with most pinned
// bytes: free in segments that hold a block.
//
// Streams, private pools and sizes for which a pool keeps segments apart are not
// recorded: what still fits is an upper bound.
package fragmentation
