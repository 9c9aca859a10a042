package format

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSchemasAreFrozen holds the bytes that every table of this version has: its
// head, what its batches have in common, its footer. A reader compares them, so
// that another build's traces are readable only while they stay.
func TestSchemasAreFrozen(t *testing.T) {
	path := filepath.Join("testdata", fmt.Sprintf("schemas-%d.txt", Version))
	var got strings.Builder
	for _, tab := range tableOrder {
		s := tab.shape()
		fmt.Fprintf(&got, "%s %x\n", tab.name, sha256.Sum256(bytes.Join([][]byte{s.head, s.meta, s.footer}, nil)))
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; a new version's is\n%s", err, got.String())
	}
	if got.String() != string(want) {
		t.Errorf("the tables are no longer those of version %d: take back what changed a column, a kind, a function or a word of a schema, or raise Version. They are\n%swant\n%s", Version, got.String(), want)
	}
}

// TestFrozenTraces reads a trace of each version as it was when it was frozen.
func TestFrozenTraces(t *testing.T) {
	for v := oldest; v <= Version; v++ {
		t.Run(fmt.Sprintf("v%d", v), func(t *testing.T) {
			path := fmt.Sprintf("../testdata/frozen/v%d.gpurec", v)
			want, err := os.ReadFile(strings.TrimSuffix(path, ".gpurec") + ".txt")
			if err != nil {
				t.Fatal(err)
			}
			tr := open(t, path)
			if tr.Meta().Version != v {
				t.Errorf("it is of version %d", tr.Meta().Version)
			}
			_, got, _ := strings.Cut(toText(t, tr), "\n") // the first line says the text's version
			_, rest, _ := strings.Cut(string(want), "\n")
			if got != rest {
				t.Errorf("it is read as\n%.4000s", got)
			}
			for k := Alloc; v == Version && k < kindCount; k++ {
				if !strings.Contains(rest, " "+k.String()+" ") {
					t.Errorf("no event is a %s", k)
				}
			}
		})
	}
}
