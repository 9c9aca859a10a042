// Package ring is the lane: one ring buffer in shared memory with one writer
// and one reader.
//
//	traced thread ── Producer ──►  [ header | record | record | … ]  ──► Consumer ── recorder
//	                 head, busy, dropped, seq ─►      ◄─ tail, heartbeat, epoch, on full
//
//	record.go    a record copied out of a lane, checked and decoded
//	consumer.go  the reader: maps a lane from a descriptor, copies records, checks them
//	producer.go  the writer in Go, for Go programs and for tests; the hook has its own in C
//	define.go    definitions as records, for the writer
//
// It promises that the reader survives any bytes and any cursors in a lane,
// with a *CorruptError and without reading outside the lane; that a record is
// seen whole or not at all; and that a refused record shows as a gap in seq and
// in the lane's counter.
// It refuses to interpret: what records mean, in which order lanes are merged,
// and what a loss means is package recorder's.
//
// Why one ring a thread and not one for all: with a single writer and a single
// reader no cursor is contended and nothing half written needs repair when the
// writer dies. Measured on the H200's host, a record of 64 bytes costs 27 ns in
// a ring per thread, on 1 or 8 threads, and 51 to 758 ns in a shared one.
package ring
