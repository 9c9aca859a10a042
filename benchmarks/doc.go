// Command benchmarks measures gpurec beside its rivals and beside what is
// physically possible: always in the same run, always in turns A B A B, because
// two runs on a machine that others use differ by more than what is asked for.
//
//	main.go      the tables there are, and which are wanted
//	sheet.go     benchmark lines in, medians and ratios with their intervals out
//	tools.go     programs: the C ones built here, gpurec and gpuanalyze as users have them
//	hook.go      an event in the traced program, a lane's birth
//	record.go    from lanes to the disk; replay.go is the traced program there
//	size.go      bytes of an event on disk
//	commands.go  start of the commands, the sampler
//	reading.go   gpuanalyze on millions of events
//	gpu.go       PyTorch and CuPy on a real GPU, with workers of gpu/
//	stream.go    the training trace of testdata, repeated
//
// It prints Go benchmark lines, NAME/key=value/who=CONTENDER, which benchstat
// reads (benchstat -col /who FILE), and after each table the medians as
// comments. A line is one round. Results are kept in results/, by date.
//
// It promises no verdict: a time is no test, and no number here fails a build.
package main
