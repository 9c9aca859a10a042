package recorder

import "testing"

func TestQuoteArguments(t *testing.T) {
	for _, row := range []struct{ name, cmdline, want string }{
		{"a process that is ending has none", "", ""},
		{"plain", "python3\x00train.py\x00--lr=1e-3\x00", "python3 train.py --lr=1e-3"},
		{"one empty argument", "prog\x00\x00", "prog ''"},
		{"a space and a quote", "sh\x00-c\x00echo it's\x00", `sh -c 'echo it'\''s'`},
	} {
		if got := quoteArguments([]byte(row.cmdline)); got != row.want {
			t.Errorf("%s: %q, want %q", row.name, got, row.want)
		}
	}
}
