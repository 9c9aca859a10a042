package export

import (
	"fmt"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v15/parquet"
	"github.com/apache/arrow/go/v15/parquet/file"
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
				for _, v := range whole(t, n, read.ReadBatch) {
					if unsigned {
						s[col.Name()] = append(s[col.Name()], fmt.Sprint(uint64(v)))
					} else {
						s[col.Name()] = append(s[col.Name()], fmt.Sprint(v))
					}
				}
			case *file.Int32ColumnChunkReader:
				for _, v := range whole(t, n, read.ReadBatch) {
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

// whole reads all n numbers of a column's chunk.
func whole[T int32 | int64](t *testing.T, n int, read func(int64, []T, []int16, []int16) (int64, int, error)) []T {
	t.Helper()
	v := make([]T, n)
	for total := 0; total < n; {
		_, k, err := read(int64(n-total), v[total:], nil, nil)
		if err != nil || k == 0 {
			t.Fatal(k, err)
		}
		total += k
	}
	return v
}
