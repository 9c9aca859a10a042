// Package live is the fold: it turns the order of events into what is
// allocated now, per process and device, and into what each open scope saw.
//
//	live.go        State, Apply: which event does what
//	allocation.go  the live set: begin, end, refused frees
//	vmm.go         handles, references and mappings
//	curve.go       Curve, and the maximum since any earlier moment
//	account.go     sums per process, device, layer and class
//	scope.go       open scopes and what they measure
//	refusals.go    what became of requests that the driver refused
//	checkpoint.go  the state as rows, and back
//	references.go  which definitions rows to come may need
//	forget.go      rows for a trace that begins there
//
// The recorder and the analyzer run the same fold, so a checkpoint equals what
// replay reaches, and an answer while recording equals the answer afterwards.
//
// It promises: replay in row order, never by time; no event is fatal, whatever
// it says; a state read back from its checkpoint gives the same answers. It
// refuses to read or write files, to look at definitions, and to keep what is
// over: memory is bounded by the live set, the open scopes and the number of
// processes, devices and classes.
//
// A sum never mixes classes. The curves used and acquired of a process or a
// device count class device; other classes have their accounts. Nested pool
// blocks (FlagNested) and imported memory are followed but stand in no sum.
// Captured and echoed events change nothing.
package live
