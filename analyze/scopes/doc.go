// Package scopes answers what each context used and peaked at: gpuanalyze
// contexts. A context is a scope: an NVTX range, or a scope of gpurec's own.
//
//	scopes.go   Answer: scopes measured on the curve that was asked for
//	text.go     the table
//	names.go    the scopes of each name together
//	fastai.go   the lines that fastai's GPUMemTrace prints
//
// used is U(end) − U(begin), peaked is max U over the scope, both ends
// included, less the higher end: what it needed beyond what stays. On the curves
// used and acquired both are exact and peaked is never negative; the curve nvml
// is sampled. The curve is the process's, for nvml the device's (all sampled
// devices where the scope has none). Scopes nest and overlap freely.
package scopes
