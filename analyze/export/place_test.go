package export

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format/formattest"
)

// An interrupt after the traces were read, while the export is made whole, leaves
// nothing, also where nobody gets to tidy up; one that comes later changes nothing.
func TestInterrupted(t *testing.T) {
	trace := formattest.Text(t, twoProcesses)
	tables := func(ctx context.Context, out, as string) (func() error, error) {
		x, err := Create(ctx, out, as)
		if err != nil {
			return nil, err
		}
		_, err = analyze.Run(context.Background(), []string{trace.Path()}, &analyze.Query{}, x, nil)
		return x.Close, err
	}
	for _, row := range []struct {
		name  string
		begin func(ctx context.Context, out string) (finish func() error, err error)
	}{
		{"tables", func(ctx context.Context, out string) (func() error, error) { return tables(ctx, out, "parquet") }},
		{"duckdb", func(ctx context.Context, out string) (func() error, error) { return tables(ctx, out, DuckDB) }},
		{"one table", func(ctx context.Context, out string) (func() error, error) { return tables(ctx, out+".csv", "csv") }},
		{"a file", func(ctx context.Context, out string) (func() error, error) {
			f, err := CreateFile(ctx, out, nil)
			if err != nil {
				return nil, err
			}
			_, err = f.Write([]byte("half"))
			return f.Close, err
		}},
	} {
		for _, when := range []string{"before it is whole", "and nobody tidies up", "afterwards"} {
			t.Run(row.name+" "+when, func(t *testing.T) {
				dir := t.TempDir()
				ctx, interrupt := context.WithCancel(t.Context())
				defer interrupt()
				finish, err := row.begin(ctx, filepath.Join(dir, "out"))
				if err != nil {
					t.Fatal(err)
				}
				want, left := 0, func() int { files, _ := os.ReadDir(dir); return len(files) }
				if left() != 1 {
					t.Fatalf("%d files are being written", left())
				}
				switch when {
				case "before it is whole":
					interrupt()
					if err := finish(); !errors.Is(err, context.Canceled) {
						t.Errorf("error %v, want %v", err, context.Canceled)
					}
				case "and nobody tidies up":
					interrupt()
					for deadline := time.Now().Add(time.Minute); left() > 0 && time.Now().Before(deadline); {
						time.Sleep(time.Millisecond)
					}
				case "afterwards":
					if err := finish(); err != nil {
						t.Fatal(err)
					}
					interrupt()
					want = 1
				}
				if left() != want {
					t.Errorf("%d files are left, want %d", left(), want)
				}
			})
		}
	}
}

// What goes to stdout ends with the interrupt too.
func TestInterruptedStdout(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	var out bytes.Buffer
	f, err := CreateFile(ctx, "-", &out)
	if err != nil {
		t.Fatal(err)
	}
	f.Write([]byte("one"))
	interrupt()
	if _, err := f.Write([]byte("two")); !errors.Is(err, context.Canceled) || out.String() != "one" {
		t.Errorf("wrote %q, error %v", out.String(), err)
	}
}
