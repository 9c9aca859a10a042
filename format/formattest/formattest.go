// Package formattest helps everybody's tests make traces and judge them.
//
// It promises that a trace made here went the way of every trace: through
// text twin, writer and reader. It refuses to know what an event means; that
// is the fold's.
package formattest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
)

// Text is the trace that a text twin describes. The first line "gpurec 1" may
// be left out.
func Text(t testing.TB, text string) *format.Trace {
	t.Helper()
	if !strings.HasPrefix(strings.TrimSpace(text), "gpurec ") {
		text = "gpurec 1\n" + text
	}
	dir := filepath.Join(t.TempDir(), "text.gpurec")
	if err := format.ReadText(strings.NewReader(text), dir); err != nil {
		t.Fatalf("read a text twin: %v", err)
	}
	return Open(t, dir)
}

// File is the trace whose text twin is in a file.
func File(t testing.TB, path string) *format.Trace {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return Text(t, string(b))
}

// Open opens a trace that has to be one.
func Open(t testing.TB, path string) *format.Trace {
	t.Helper()
	tr, err := format.Open(path)
	if err != nil {
		t.Fatalf("open a trace: %v", err)
	}
	return tr
}
