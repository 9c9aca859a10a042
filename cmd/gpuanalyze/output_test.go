package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// No output goes into a trace that is read: it would replace a table, or be a
// part of the trace from then on.
func TestOutputInTrace(t *testing.T) {
	dir := writeBatches(t, 3, true)
	before := treeOf(t, dir)
	link := filepath.Join(t.TempDir(), "link.html")
	if err := os.Symlink(filepath.Join(dir, "trace.json"), link); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"report", dir, "-o", filepath.Join(dir, "trace.json")},
		{"report", dir, "-o", link},
		{"report", filepath.Join(dir, "00000"), "-o", filepath.Join(dir, "trace.json")},
		{"export", dir, "--to", "arrow", "-o", filepath.Join(dir, "00007")},
		{"export", dir, "-o", filepath.Join(dir, "00000", "x.folded")},
		{"slice", dir, "-o", filepath.Join(dir, "00007")},
		{"repair", dir, "-o", filepath.Join(dir, "00007")},
	} {
		if code, _, stderr := command1(t, args...); code != exitFailed || !strings.Contains(stderr, "it is in the trace") {
			t.Errorf("%q: exit %d, %s", args, code, stderr)
		}
	}
	if after := treeOf(t, dir); after != before {
		t.Errorf("the trace changed from\n%s\nto\n%s", before, after)
	}
}

// treeOf is every file of a directory with what is in it.
func treeOf(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		b.WriteString(path + "\n" + string(content) + "\n")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// What is made by default lies beside the trace, however the trace is named.
func TestRepairBeside(t *testing.T) {
	dir := writeBatches(t, 3, true)
	want := strings.TrimSuffix(dir, ".gpurec") + "-repaired.gpurec"
	path := filepath.Join(dir, "00000", "events.arrow")
	if err := os.Truncate(path, 4000); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	for _, name := range []string{".", "trace.json", dir + "/", filepath.Join(dir, "trace.json"), "00000/.."} {
		if code, _, stderr := command1(t, "repair", name); code != 0 {
			t.Errorf("%s: exit %d, %s", name, code, stderr)
		}
		if err := os.RemoveAll(want); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(dir, "trace.json-repaired.gpurec")); err == nil {
			t.Errorf("%s: repaired within the trace", name)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(dir), "*")); len(left) != 1 {
		t.Errorf("left: %q", left)
	}
}
