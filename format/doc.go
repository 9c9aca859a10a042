// Package format is the language of gpurec: the vocabulary of events, how they
// travel from a traced program to the recorder, and how they lie on disk.
//
//	kind.go     kinds, layers, classes, flags: the tables everything else is driven by
//	api.go      the one list of functions and sources that cause events
//	event.go    Event and the rows beside it: Frame, Stack, Process, Device, Sample, Meta
//	wire.go     records in a lane and the lane's header (generates the C header and the Python constants)
//	schema.go   the same rows as Arrow tables: the columns, each a field of its row's struct
//	batch.go, shape.go, compress.go, frame.go   rows as columns, the bytes around them, one table's file
//	seq.go      the numbers of events, which mostly go up by one, on disk
//	defs.go     what events refer to, by id; forget.go  which of them a writer lets go of
//	writer.go, part.go, reader.go    a trace's directory and its parts; retain.go  which of them stay; redact.go  what others are not to see
//	repair.go   a trace that was never closed, closed
//	text.go, textread.go, textdefs.go, textfield.go    the text twin, out and in
//	errors.go   what can be wrong with a trace, and where
//
// It promises that a kind, a size, a name or a layout stands here once and is
// generated elsewhere; that a reader survives any bytes with a typed error and
// bounded memory; and that what it accepts it writes back the same.
// It refuses to know how events are caught, moved or interpreted: it imports
// nothing of ours, holds no state, and logs nothing.
//
// Units are bytes and nanoseconds everywhere. Unknown is -1 for a signed
// quantity and 0 for an identifier, never a null: a null would turn a 64-bit
// integer column into floating point in pandas, and an address would lose its
// low bits.
package format

//go:generate go run ./internal/gen

// Version is the version of the trace directory, of its text twin and of the
// wire. A reader refuses a newer one, and one older than oldest, with a
// *VersionError.
//
// Whoever changes a column, a kind, a layer, a class, a frame's kind, a flag or a
// word that stands in a schema raises it: readers compare schemas byte for byte,
// and a test holds their bytes. Each of them changes what replay means, and so
// does a Space. What is older must stay readable then: a table's schema of an
// older version is what it is now without what came later.
//
// Whoever adds a function or a source to APIs does not raise it: a reader that
// lacks it takes its name from trace.json, and what replay needs from its number.
const Version = 1

// oldest is the first version that was frozen. Traces of version 0 are of many
// kinds, each read by the build that wrote it; their text twins are the text of
// version 1.
const (
	oldest     = 1
	oldestText = 0
)
