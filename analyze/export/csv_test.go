package export

import (
	"bytes"
	"encoding/csv"
	"testing"
)

// What is written is what encoding/csv writes, and reads back, of any text.
func TestCSVIsThatOfTheLibrary(t *testing.T) {
	texts := []string{"", " ", "a", "a b", " a", "\ta", "\u00a0a", "\u2003a", "a,b", `"`, `a"b""`, `"a"`, "a\nb", "a\rb", "\r\n", `\.`, `\.a`, `a\.`, "é", "\xff", "\xffa,", ",", "a;b", "-1"}
	b := &batch{table: "t", cols: []cells{{name: "a,b", typ: text}, {name: "n", typ: i64}, {name: "c", typ: text}}}
	var got, want bytes.Buffer
	s, err := openCSV(&got, b)
	if err != nil {
		t.Fatal(err)
	}
	library := csv.NewWriter(&want)
	if err := library.Write([]string{"a,b", "n", "c"}); err != nil {
		t.Fatal(err)
	}
	for _, x := range texts {
		for _, y := range texts {
			b.rows++
			b.cols[0].str, b.cols[1].num, b.cols[2].str = append(b.cols[0].str, x), append(b.cols[1].num, -7), append(b.cols[2].str, y)
			if err := library.Write([]string{x, "-7", y}); err != nil {
				t.Fatal(err)
			}
		}
	}
	library.Flush()
	if err := s.write(b); err != nil {
		t.Fatal(err)
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	if got.String() != want.String() {
		t.Errorf("got\n%q\nwant\n%q", got.String(), want.String())
	}
}
