package scopes

import (
	"bytes"
	"testing"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format/formattest"
)

func fastaiText(t *testing.T, r *Report) string {
	t.Helper()
	var b bytes.Buffer
	if skipped, err := r.WriteFastai(&b); err != nil || skipped > 0 {
		t.Fatalf("%d skipped, %v", skipped, err)
	}
	return b.String()
}

// spec/semantics.md §4.5: the text of a line.
func TestFastaiText(t *testing.T) {
	name, sub, empty := "foobar", "1st try", ""
	for _, row := range []struct {
		name, sub    *string
		used, peaked int64
		want         string
	}{
		{nil, nil, 0, 0, "△Used Peaked MB:      0      0"},
		{&name, nil, 0, 0, "△Used Peaked MB:      0      0 (foobar)"},
		{&name, &sub, 0, 0, "△Used Peaked MB:      0      0 (foobar: 1st try)"},
		{nil, &sub, 0, 0, "△Used Peaked MB:      0      0 (1st try)"},
		{&empty, nil, 0, 0, "△Used Peaked MB:      0      0 ()"},
		{&empty, &empty, 0, 0, "△Used Peaked MB:      0      0 (: )"},
		{&name, &sub, 100, 150, "△Used Peaked MB:    100    150 (foobar: 1st try)"},
		{&name, &sub, -100, 250, "△Used Peaked MB:   -100    250 (foobar: 1st try)"},
		{nil, nil, 2567, 1437, "△Used Peaked MB:  2,567  1,437"},
		{nil, nil, 65536, 65536, "△Used Peaked MB: 65,536 65,536"},
		{&name, nil, 99000, 1000, "△Used Peaked MB: 99,000  1,000 (foobar)"},
		{nil, nil, -199700, 0, "△Used Peaked MB: -199,700      0"},
		{&name, nil, -1899900, 0, "△Used Peaked MB: -1,899,900      0 (foobar)"},
	} {
		s := &Scope{}
		if row.name != nil {
			s.Name, s.hasName = *row.name, true
		}
		begin := max(0, -row.used) * mb
		m := Measure{Known: true, Begin: begin, End: begin + row.used*mb}
		m.Max = max(m.Begin, m.End) + row.peaked*mb
		s.Measure = m
		l := &line{scope: s}
		if row.sub != nil {
			l.report = &ScopeReport{Subcontext: row.sub, Measure: m}
		}
		if got := fastaiText(t, &Report{lines: []*line{l}}); got != row.want+"\n" {
			t.Errorf("got  %q\nwant %q", got, row.want)
		}
	}
	for n, want := range map[int64]string{0: "     0", -5: "    -5", 999: "   999", 1000: " 1,000", -1000: "-1,000", 12345: "12,345",
		-12345: "-12,345", 1234567: "1,234,567"} {
		if got := field(n); got != want {
			t.Errorf("field(%d) = %q, want %q", n, got, want)
		}
	}
}

// spec/semantics.md §4.6: what the decorator prints.
func TestFastaiDecorator(t *testing.T) {
	c := newCourse()
	for i, name := range []string{"f", "C.m", "outer.<locals>.inner"} {
		c.begin(i+1, name)
		c.report(i+1, "exit")
		c.end(i + 1)
	}
	want := "△Used Peaked MB:      0      0 (f: exit)\n△Used Peaked MB:      0      0 (C.m: exit)\n△Used Peaked MB:      0      0 (outer.<locals>.inner: exit)\n"
	if got := fastaiText(t, ask(t, formattest.Text(t, c.String()), Used, &analyze.Query{})); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// spec/semantics.md §4.7: the whole example, and a scope without a report.
func TestFastaiExample(t *testing.T) {
	c := newCourse()
	c.to(1000 * mb)
	c.begin(1, "foobar")
	c.reportPlain(1)
	c.to(1250 * mb)
	c.to(1100 * mb)
	c.report(1, "a")
	c.to(1000 * mb)
	c.report(1, "b")
	c.to(900 * mb)
	c.report(1, "c")
	c.end(1)
	c.to(5 * mb)
	c.report(1, "frozen")
	c.say("ScopeReset thread=7 api=scope scope=1") // alters nothing of what has stopped
	c.begin(2, "quiet")
	c.to(7 * mb)
	c.end(2)
	want := `△Used Peaked MB:      0      0 (foobar)
△Used Peaked MB:    100    150 (foobar: a)
△Used Peaked MB:      0    250 (foobar: b)
△Used Peaked MB:   -100    250 (foobar: c)
△Used Peaked MB:   -100    250 (foobar: frozen)
△Used Peaked MB:      2      0 (quiet)
`
	tr := formattest.Text(t, c.String())
	if got := fastaiText(t, ask(t, tr, Used, &analyze.Query{})); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
