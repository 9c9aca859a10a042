// Package ranks answers how the processes of one job differ: gpuanalyze ranks.
//
//	report.go  Report: what is said
//	ranks.go   Answer: a row for each process that took memory, of all traces
//	judge.go   who is far from the others, and who died first
//	text.go    the Report as text
//
// Traces are joined by the hosts' own clocks: within one trace the order is
// exact, between hosts it is as good as their clocks.
package ranks
