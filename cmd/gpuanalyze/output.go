package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/gpurec/gpurec/format"
)

// outside refuses an output in the directory of a trace that is read: it would
// replace a file of the trace, or be taken for a part of it.
func outside(out string, traces []string) error {
	at := realDir(out)
	for _, path := range traces {
		dir, err := traceDir(path)
		if err != nil {
			continue // who reads it will say so
		}
		for up := at; ; up = filepath.Dir(up) {
			if fi, err := os.Stat(up); err == nil && os.SameFile(fi, dir) {
				return fmt.Errorf("%s: it is in the trace %s; name an output elsewhere", out, path)
			}
			if up == filepath.Dir(up) {
				break
			}
		}
	}
	return nil
}

// realDir is the directory that a file is in, or will be, links followed.
func realDir(path string) string {
	if at, err := filepath.EvalSymlinks(path); err == nil {
		path = at
	}
	dir := filepath.Dir(path)
	if at, err := filepath.EvalSymlinks(dir); err == nil {
		dir = at
	}
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	return dir
}

// traceDir is the directory of a trace, also where path names one part of it.
func traceDir(path string) (os.FileInfo, error) {
	t, err := format.Open(path)
	if err != nil {
		return nil, err
	}
	dir := t.Path()
	if t.Alone() {
		if _, err := os.Stat(filepath.Join(dir, "..", format.MetaFile)); err == nil {
			dir = filepath.Join(dir, "..")
		}
	}
	return os.Stat(dir)
}
