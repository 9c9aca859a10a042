// Package stats answers how a program uses memory: gpuanalyze stats.
//
//	report.go  Report: what is said
//	stats.go   Answer: how it comes together
//	counts.go  sizes, lifetimes, functions, lines
//	pools.go   which pool allocations needed the driver
//	recent.go  what was given back lately, and may have been refused
//	kinds.go   weights, gradients, optimizer state, activations: inferred
//	text.go    the Report as text
//
// Sizes and lines are of what was taken in the window, lifetimes of what was
// given back in it. Everything is counted as it comes by, in a bounded number of
// bins; a lifetime is from the moment of one event to that of the other.
package stats
