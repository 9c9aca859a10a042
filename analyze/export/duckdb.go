package export

import (
	_ "embed"
	"fmt"
	"strings"
)

//go:embed sql/views.sql
var views string

// loading is how the SQL is run.
const loading = `-- In this directory:   duckdb trace.db < load.sql
-- From Python:         connection.execute(open("load.sql").read())
-- From elsewhere:      SET file_search_path = 'DIRECTORY';  first
`

// writeSQL writes three files: the tables, the views, and both with the loading
// of the Parquet files in between.
func (x *Exporter) writeSQL() error {
	var schema, load strings.Builder
	for _, t := range x.tables {
		b := t.shape()
		writeTable(&schema, b)
		fmt.Fprintf(&load, "INSERT INTO %s BY NAME SELECT * FROM read_parquet('%[1]s.parquet');\n", b.table)
	}
	for _, f := range []struct{ name, text string }{
		{"schema.sql", schema.String()},
		{"views.sql", views},
		{"load.sql", loading + "\n" + schema.String() + "\n" + load.String() + "\n" + views},
	} {
		out, err := x.create(f.name)
		if err != nil {
			return err
		}
		x.files = append(x.files, out)
		if _, err := out.WriteString(f.text); err != nil {
			return err
		}
	}
	return nil
}

func writeTable(w *strings.Builder, b *batch) {
	fmt.Fprintf(w, "CREATE TABLE %s (", b.table)
	for i := range b.cols {
		sep := ","
		if i == 0 {
			sep = ""
		}
		fmt.Fprintf(w, "%s\n  %q %s NOT NULL", sep, b.cols[i].name, sqlType(b.cols[i].typ))
	}
	w.WriteString("\n);\n")
	fmt.Fprintf(w, "COMMENT ON TABLE %s IS '%s';\n", b.table, units)
	for i := range b.cols {
		if doc := b.cols[i].doc; doc != "" {
			fmt.Fprintf(w, "COMMENT ON COLUMN %s.%q IS '%s';\n", b.table, b.cols[i].name, strings.ReplaceAll(doc, "'", "''"))
		}
	}
}

func sqlType(t colType) string {
	switch t {
	case text:
		return "VARCHAR"
	case u64:
		return "UBIGINT"
	case i32:
		return "INTEGER"
	case u32:
		return "UINTEGER"
	case i16:
		return "SMALLINT"
	case naive:
		return "TIMESTAMP_NS"
	}
	return "BIGINT"
}
