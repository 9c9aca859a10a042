package export

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v15/parquet"
	"github.com/apache/arrow/go/v15/parquet/file"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format/formattest"
)

func readParquet(t *testing.T, path string) sheet {
	t.Helper()
	r, err := file.OpenParquetFile(path, false)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s := sheet{}
	for g := range r.NumRowGroups() {
		group := r.RowGroup(g)
		for c := range r.MetaData().Schema.NumColumns() {
			col := r.MetaData().Schema.Column(c)
			unsigned := strings.Contains(col.LogicalType().String(), "isSigned=false")
			n := int(group.NumRows())
			read, err := group.Column(c)
			if err != nil {
				t.Fatal(err)
			}
			switch read := read.(type) {
			case *file.Int64ColumnChunkReader:
				v := make([]int64, n)
				total := 0
				for total < n {
					_, k, err := read.ReadBatch(int64(n-total), v[total:], nil, nil)
					if err != nil || k == 0 {
						t.Fatal(k, err)
					}
					total += k
				}
				for _, v := range v {
					if unsigned {
						s[col.Name()] = append(s[col.Name()], fmt.Sprint(uint64(v)))
					} else {
						s[col.Name()] = append(s[col.Name()], fmt.Sprint(v))
					}
				}
			case *file.Int32ColumnChunkReader:
				v := make([]int32, n)
				total := 0
				for total < n {
					_, k, err := read.ReadBatch(int64(n-total), v[total:], nil, nil)
					if err != nil || k == 0 {
						t.Fatal(k, err)
					}
					total += k
				}
				for _, v := range v {
					if unsigned {
						s[col.Name()] = append(s[col.Name()], fmt.Sprint(uint32(v)))
					} else {
						s[col.Name()] = append(s[col.Name()], fmt.Sprint(v))
					}
				}
			case *file.ByteArrayColumnChunkReader:
				v := make([]parquet.ByteArray, n)
				total := 0
				for total < n {
					_, k, err := read.ReadBatch(int64(n-total), v[total:], nil, nil)
					if err != nil || k == 0 {
						t.Fatal(k, err)
					}
					for _, v := range v[total : total+k] {
						s[col.Name()] = append(s[col.Name()], string(v))
					}
					total += k
				}
			default:
				t.Fatalf("column %s is read by a %T", col.Name(), read)
			}
		}
	}
	return s
}

func TestParquetEqualsArrow(t *testing.T) {
	tr, other := formattest.Text(t, twoProcesses), formattest.Text(t, twoProcesses)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a"), "arrow", analyze.Query{}, tr, other)
	write(t, filepath.Join(dir, "p"), "parquet", analyze.Query{}, tr, other)
	for _, table := range []struct {
		name string
		rows int
		cols int
	}{{"events", 20, len(eventColumns)}, {"samples", 4, len(sampleColumns)}, {"scopes", 4, len(scopeColumns)}} {
		a, schema := readArrow(t, filepath.Join(dir, "a", table.name+".arrow"))
		p := readParquet(t, filepath.Join(dir, "p", table.name+".parquet"))
		if len(a) != table.cols || len(p) != table.cols {
			t.Errorf("%s: %d and %d columns, want %d", table.name, len(a), len(p), table.cols)
		}
		for name, col := range a {
			if len(col) != table.rows || fmt.Sprint(col) != fmt.Sprint(p[name]) {
				t.Errorf("%s.%s: arrow %v, parquet %v, want %d rows", table.name, name, col, p[name], table.rows)
			}
		}
		if i := schema.Metadata().FindKey("gpurec.units"); i < 0 || schema.Metadata().Values()[i] != units {
			t.Errorf("%s: units are not in the schema: %v", table.name, schema.Metadata())
		}
	}
}
