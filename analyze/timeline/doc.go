// Package timeline answers how live bytes went over time: gpuanalyze timeline.
//
//	series.go    a step function in a bounded number of buckets
//	timeline.go  Answer: which series an allocation stands in
//	report.go    Report
//	text.go      the Report as rows, and as a plot
//
// Time is cut into buckets of equal width. A bucket says the least and the most
// of its time, what it began with included, so that no peak is hidden however
// wide it is: the most of all buckets is the peak, to the byte, and its moment is
// kept beside. Where a recording's end is not known, buckets double their width
// when there would be too many.
//
// Series are kept for everything that ever held memory, because which are the
// largest is known at the end; their number is that of devices, processes, paths
// of scopes, or lines.
package timeline
