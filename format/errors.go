package format

import (
	"errors"
	"fmt"
)

// ErrTruncated is what errors.Is finds in a *TruncatedError.
var ErrTruncated = errors.New("truncated")

// A TruncatedError says that a table ends before its footer: it is still being
// written, its writer died, or it was cut. Everything before Offset was whole
// and was delivered.
type TruncatedError struct {
	Path   string
	Batch  int   // the first batch that is not whole
	Offset int64 // where it begins, in bytes
	Left   int64 // bytes there are from Offset on; 0 where the table ends between two batches
}

func (e *TruncatedError) Error() string {
	what := "no footer, so it is still being written or was cut; the batches before are whole"
	if e.Left > 0 {
		what = fmt.Sprintf("%d bytes of it are left; the batches before are whole", e.Left)
	}
	return fmt.Sprintf("%s: truncated at batch %d (byte %d): %s", e.Path, e.Batch, e.Offset, what)
}

func (e *TruncatedError) Is(target error) bool { return target == ErrTruncated }

// A CorruptError says that a table holds what no writer of this version wrote.
// Everything before Offset was whole and was delivered.
type CorruptError struct {
	Path   string
	Batch  int
	Offset int64 // where the batch begins, in bytes
	Err    error
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s: corrupt at batch %d (byte %d): %v; the batches before are whole", e.Path, e.Batch, e.Offset, e.Err)
}

func (e *CorruptError) Unwrap() error { return e.Err }

// A VersionError says that a trace was written by a newer gpurec, or by one
// from before the format was frozen.
type VersionError struct {
	Path    string
	Version int
}

func (e *VersionError) Error() string {
	if e.Version < Version {
		return fmt.Sprintf("%s: format version %d is older than %d, the first that was frozen; with the gpuanalyze that came with its gpurec `gpuanalyze events -q TRACE > t.txt`, and with this one `gpuanalyze import text t.txt -o NEW`", e.Path, e.Version, oldest)
	}
	return fmt.Sprintf("%s: format version %d is newer than %d, the newest this build reads; read it with the gpurec that wrote it", e.Path, e.Version, Version)
}

// A NotTraceError says that a path is no trace at all.
type NotTraceError struct {
	Path string
	Err  error
}

func (e *NotTraceError) Error() string {
	return fmt.Sprintf("%s: not a gpurec trace: %v", e.Path, e.Err)
}

func (e *NotTraceError) Unwrap() error { return e.Err }

// A SyntaxError says where a text twin could not be read.
type SyntaxError struct {
	Line int
	Err  error
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }
func (e *SyntaxError) Unwrap() error { return e.Err }
