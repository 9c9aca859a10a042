// Package metrics shows a recording while it goes on: a text that Prometheus
// scrapes, over HTTP.
//
//	metrics.go   the table of metrics, and how they are written
//	snapshot.go  what they are taken from: the recorder's own fold, at one moment
//	serve.go     who may ask, how often, and for how long
//
// It promises numbers of one moment, equal to those that gpuanalyze reads from
// the trace at that moment; as many series as devices and running processes that
// hold device memory, up to a bound, and a count of those beyond it; and that
// nobody who asks, whatever they send, can disturb the recording: it is asked at
// most ten times a second, and what is not scraped costs nothing.
// It refuses to be a dashboard: there is no history here, and nothing by line.
package metrics
