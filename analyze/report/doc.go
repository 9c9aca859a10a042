// Package report makes one page of all answers: gpuanalyze report.
//
//	report.go    Report: the answers, made in two passes beside each other; the page, made small enough
//	together.go  several answers in one pass
//	moments.go   what was live at chosen times: the highest moment of each stretch
//	flame.go     trees of many views as one bounded table of nodes
//	page.go      Page: what the browser gets
//	fill.go      from the answers to a Page
//	tables.go    rows, contexts and cards, cut to what a page can hold
//	exact.go     JSON in which no integer is a number
//	html.go      the page's frame, its styles and scripts, and who may run
//	assets/      the frame, the styles and the scripts, as they are shipped
//
// It promises one file that needs nothing else: no network, no other file, and
// a size that is bounded whatever the trace's is. What is left out of a list is
// summed up in its last row, and peaks stay: a bucket of a curve has the least
// and the most of its time. Every byte is exact: 64-bit values are text in the
// page's data, and BigInt where the scripts add them up.
//
// It promises, too, that names are only names. They come from the recorded
// program: the page holds them as JSON in which no < stands, its scripts put
// them into the document as text only, and its policy runs the scripts that
// are in it by their hashes and nothing else.
//
// The answers are the other packages' own, so that the page says what the
// commands say; it computes none of its own but what was live at other moments
// than the peak.
package report
