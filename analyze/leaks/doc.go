// Package leaks answers what was not given back: gpuanalyze leaks.
//
//	report.go    Report, Rules: what is said, and by which thresholds
//	leaks.go     Answer: sites and what they hold
//	end.go       from sites a Report
//	clock.go     stretches of the run, and the least that a site held in each
//	turns.go     which scope's turns the stretches are
//	growth.go    from these a slope, and how sure it is
//	suppress.go  what somebody has looked at and accepted
//	text.go      the Report as text
//
// A site is a place that takes memory: a stack, or all stacks of one line or
// function of the program, at one layer and class of one process. There are
// three readings of it:
//
//   - live at the end: what it held just before its process ended, or at the
//     window's end. That is a fact and no verdict: a program that ends need not
//     tidy up.
//   - growth: the least it held in each stretch of the run. What is taken and
//     given back within a stretch does not raise this floor, and what is kept
//     does. A stretch is a turn of a scope that is repeated, or a length of
//     time where there is none. The verdict is inferred, and says how sure it is.
//   - temporaries: what was given back almost at once, which is churn and no leak.
//
// The layers are the one that used bytes are of, and host; the driver layer of a
// process with a pool holds the pool's segments, which are kept on purpose, and
// is looked at only where it is asked for.
//
// One pass; memory is bounded by the live set, the definitions and 32 numbers a
// site and clock.
package leaks
