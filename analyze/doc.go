// Package analyze makes one pass over traces and feeds an answer.
//
//	pass.go      Run, Pass, Answer: parts in order, fold, samples merged in by time
//	prescan.go   what must be known before the pass: who has a pool, where a scope begins and ends
//	query.go     the filters and the moments that every answer takes
//	enclosing.go the scope around what a thread without scopes takes: inferred
//	view.go      which frames of a stack an answer shows
//	frames.go    what a frame is: the program's, a launcher's, a language's library's
//	framerules.go the table of names by which it is judged
//	memo.go      what is known of frames and stacks, by id
//	complete.go  is anything missing, and what is worth knowing
//
// It promises: a stream, with memory bounded by the live set, the definitions
// and what the answer keeps; a trace that is damaged, growing or thinned out is
// answered from what is whole, and what is missing is said. It refuses to
// interpret: what an event means for memory is the fold's, what it means for a
// question is the answer's.
package analyze
