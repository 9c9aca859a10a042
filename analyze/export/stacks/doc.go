// Package stacks exports memory by stack, for tools that draw profiles:
// gpuanalyze export --to pprof, folded and speedscope.
//
//	stacks.go      Answer: nine sums (Value) for each device, process and stack
//	frames.go      stacks as frames with names, one table for all traces
//	pprof.go       the profile that go tool pprof reads
//	folded.go      a line for each stack, for flame graphs
//	speedscope.go  speedscope's own file, with each device and value
//
// Bytes are class device's. What was taken is what succeeded: lines --at total
// counts attempts, as CuPy does. The end is that of each process, or of the
// window. The peak is each device's own, the same as lines --at peak and peak
// show; two devices' peaks are two moments, so tools are given the device with
// each stack, as a label or as the outermost frame.
package stacks
