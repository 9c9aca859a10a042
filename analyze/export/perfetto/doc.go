// Package perfetto exports a timeline for ui.perfetto.dev: gpuanalyze export --to
// perfetto.
//
//	perfetto.go  Answer: what is drawn where, as the pass goes
//	tracks.go    processes, threads, devices and counters as tracks
//	slices.go    scopes as slices, which must nest on a track
//	proto.go     the few messages of Perfetto's protobuf schema that are used
//
//	process   counters: used and acquired of each device
//	  thread  slices: its scopes; instants: marks, refused requests
//	device    counters: NVML's used and free; used and acquired of all processes, where there are several
//
// Times are the wall clock's, so that traces of several machines lie side by
// side. Counters stand at each event that changes them: nothing is sampled or
// thinned out. It streams; memory is bounded by the live set, the open scopes
// and the tracks.
//
// The messages are written by hand. Perfetto's generated Go code is megabytes,
// and what is needed is a dozen fields, whose numbers are fixed for ever.
package perfetto
