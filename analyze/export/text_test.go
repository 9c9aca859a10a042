package export

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format/formattest"
)

func readCSV(t *testing.T, path string) sheet {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	s := sheet{}
	for _, row := range rows[1:] {
		for i, name := range rows[0] {
			s[name] = append(s[name], instantNumber(name, row[i]))
		}
	}
	return s
}

func readJSONL(t *testing.T, path string) sheet {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s := sheet{}
	for _, line := range strings.SplitAfter(string(b), "\n") {
		if line == "" {
			continue
		}
		d := json.NewDecoder(strings.NewReader(line))
		d.UseNumber()
		row := map[string]any{}
		if err := d.Decode(&row); err != nil || !strings.HasSuffix(line, "}\n") {
			t.Fatalf("%v: %q", err, line)
		}
		for name, v := range row {
			s[name] = append(s[name], instantNumber(name, fmt.Sprint(v)))
		}
	}
	return s
}

// instantNumber is a timestamp as the other formats have it.
func instantNumber(name, v string) string {
	if name != "timestamp" {
		return v
	}
	at, err := time.Parse(time.RFC3339Nano, v)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(at.UnixNano())
}

// Whatever the format, the tables say the same.
func TestFormatsAreEqual(t *testing.T) {
	tr, other := formattest.Text(t, twoProcesses), formattest.Text(t, twoProcesses)
	dir := t.TempDir()
	for _, f := range Formats {
		write(t, filepath.Join(dir, f.Name), f.Name, analyze.Query{}, tr, other)
	}
	for _, table := range []struct {
		name string
		rows int
		cols int
	}{{"events", 20, len(eventColumns)}, {"samples", 4, len(sampleColumns)}, {"scopes", 4, len(scopeColumns)}, {"allocations", 6, len(allocationColumns)},
		{"failures", 2, len(failureColumns)}, {"devices", 4, len(deviceColumns)}, {"processes", 4, len(processColumns)}, {"traces", 2, len(traceColumns)}} {
		a, schema := readArrow(t, filepath.Join(dir, "arrow", table.name+".arrow"))
		if i := schema.Metadata().FindKey("gpurec.units"); i < 0 || schema.Metadata().Values()[i] != units {
			t.Errorf("%s: units are not in the schema: %v", table.name, schema.Metadata())
		}
		for _, f := range Formats {
			p := readers[f.Name](t, filepath.Join(dir, f.Name, table.name+"."+f.Name))
			if len(p) != table.cols {
				t.Errorf("%s: %d columns of %s, want %d", table.name, len(p), f.Name, table.cols)
			}
			for name, col := range a {
				if len(col) != table.rows || fmt.Sprint(col) != fmt.Sprint(p[name]) {
					t.Errorf("%s.%s: arrow %v, %s %v, want %d rows", table.name, name, col, f.Name, p[name], table.rows)
				}
			}
		}
	}
}

// A directory's name need not be UTF-8; what is in a table is.
func TestNameOfTrace(t *testing.T) {
	for given, want := range map[string]string{"a/\xff\"\n.gpurec": "\uFFFD\"\n.gpurec", "größe.gpurec": "größe.gpurec"} {
		if got := name(given); got != want {
			t.Errorf("%q is %q, want %q", given, got, want)
		}
	}
}
