package formattest

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "rewrite goldens instead of comparing with them")

// Golden compares got with the file testdata/NAME of the test's package, or
// makes the file so with -update. An empty golden is an error: it would hold
// nothing.
func Golden(t testing.TB, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", filepath.FromSlash(name))
	if len(got) == 0 {
		t.Errorf("%s: nothing to compare with", path)
		return
	}
	if *update {
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err == nil {
			err = os.WriteFile(path, got, 0o644)
		}
		if err != nil {
			t.Errorf("update a golden: %v", err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Errorf("read a golden: %v (make it with -update)", err)
		return
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s: %s", path, firstDifference(got, want))
	}
}

// Each runs f as a subtest for every file that pattern finds, and fails where
// it finds none.
func Each(t *testing.T, pattern string, f func(t *testing.T, path string)) {
	t.Helper()
	paths, err := filepath.Glob(filepath.FromSlash(pattern))
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s: no file found (%v)", pattern, err)
	}
	for _, p := range paths {
		t.Run(filepath.Base(p), func(t *testing.T) { f(t, p) })
	}
}

// firstDifference shows the first lines that differ.
func firstDifference(got, want []byte) string {
	for line := 1; ; line++ {
		g, gmore, gok := bytes.Cut(got, []byte("\n"))
		w, wmore, wok := bytes.Cut(want, []byte("\n"))
		if !bytes.Equal(g, w) || gok != wok {
			end := func(more bool) string {
				if more {
					return ""
				}
				return " (and ends)"
			}
			return fmt.Sprintf("line %d differs (rewrite with -update):\n got %q%s\nwant %q%s", line, g, end(gok), w, end(wok))
		}
		got, want = gmore, wmore
	}
}
