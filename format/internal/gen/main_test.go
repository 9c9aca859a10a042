package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// The generated files must be what the tables say today.
func TestGeneratedFilesAreFresh(t *testing.T) {
	for _, f := range files {
		got, err := os.ReadFile(filepath.Join("../../..", f.path))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, f.make()) {
			t.Errorf("%s is stale: run go generate ./format", f.path)
		}
	}
}
