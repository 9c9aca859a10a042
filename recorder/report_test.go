package recorder

import "testing"

// The texts and the arithmetic of fastai's GPUMemTrace (spec/semantics.md §4.4, §4.5).
func TestReportText(t *testing.T) {
	const mb = 1 << 20
	for _, tc := range []struct {
		name             string
		begin, end, peak float64 // MB
		scope            string
		named            bool
		note             []string
		want             string
	}{
		{"zero", 0, 0, 0, "", false, nil, "△Used Peaked MB:      0      0"},
		{"named", 0, 0, 0, "foobar", true, nil, "△Used Peaked MB:      0      0 (foobar)"},
		{"named and noted", 0, 0, 0, "foobar", true, []string{"1st try"}, "△Used Peaked MB:      0      0 (foobar: 1st try)"},
		{"noted", 0, 0, 0, "", false, []string{"exit"}, "△Used Peaked MB:      0      0 (exit)"},
		{"function", 0, 0, 0, "some_func", true, []string{"exit"}, "△Used Peaked MB:      0      0 (some_func: exit)"},
		{"empty name", 0, 0, 0, "", true, nil, "△Used Peaked MB:      0      0 ()"},
		{"empty note", 0, 0, 0, "", false, []string{""}, "△Used Peaked MB:      0      0 ()"},
		{"both empty", 0, 0, 0, "", true, []string{""}, "△Used Peaked MB:      0      0 (: )"},
		{"peak", 1000, 1100, 1250, "foobar", true, []string{"a"}, "△Used Peaked MB:    100    150 (foobar: a)"},
		{"freed", 1000, 900, 1250, "foobar", true, []string{"c"}, "△Used Peaked MB:   -100    250 (foobar: c)"},
		{"thousands", 0, 2567, 4004, "", false, nil, "△Used Peaked MB:  2,567  1,437"},
		{"five digits", 0, 65536, 131072, "", false, nil, "△Used Peaked MB: 65,536 65,536"},
		{"big", 0, 99000, 100000, "foobar", true, []string{"big"}, "△Used Peaked MB: 99,000  1,000 (foobar: big)"},
		{"wider than six", 199700, 0, 199700, "", false, nil, "△Used Peaked MB: -199,700      0"},
		{"big negative", 1899900, 0, 1899900, "foobar", true, []string{"big neg"}, "△Used Peaked MB: -1,899,900      0 (foobar: big neg)"},

		// §4.4, by the row: cut to MB before subtracting.
		{"10, 15", 1000, 1010, 1025, "", false, nil, "△Used Peaked MB:     10     15"},
		{"0, 25", 1000, 1000, 1025, "", false, nil, "△Used Peaked MB:      0     25"},
		{"-10, 0", 1010, 1000, 1010, "", false, nil, "△Used Peaked MB:    -10      0"},
		{"20, 0", 1000, 1020, 1020, "", false, nil, "△Used Peaked MB:     20      0"},
		{"-50, 400", 500, 450, 900, "", false, nil, "△Used Peaked MB:    -50    400"},
		{"100, 300", 500, 600, 900, "", false, nil, "△Used Peaked MB:    100    300"},
		{"0.2 becomes 1", 1000.9, 1001.1, 1001.1, "", false, nil, "△Used Peaked MB:      1      0"},
		{"a hair becomes -1", 1000, 999.9999, 1000, "", false, nil, "△Used Peaked MB:     -1      0"},
		{"0.9 becomes 1 of peak", 1000.5, 1000.5, 1001.4, "", false, nil, "△Used Peaked MB:      0      1"},
		{"2, 1", 1000.6, 1002.4, 1003.5, "", false, nil, "△Used Peaked MB:      2      1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := Data{int64(tc.begin * mb), int64(tc.end * mb), int64(tc.peak * mb), 0}
			if got := d.String() + under(tc.scope, tc.named, tc.note); got != tc.want {
				t.Errorf("%q\nwant %q", got, tc.want)
			}
			if d.Peaked() < 0 || d.MB().Peaked() < 0 {
				t.Errorf("a negative peak: %d, %d MB", d.Peaked(), d.MB().Peaked())
			}
		})
	}
}

// Numbers that lack events say so, behind the line that fastai prints.
func TestReportOfLostEvents(t *testing.T) {
	d := Data{Lost: 12}
	if got, want := d.missing(), " [partial: 12 events are missing]"; got != want || d.MB().Lost != 12 {
		t.Errorf("%q, want %q", got, want)
	}
	if got := (Data{}).missing(); got != "" {
		t.Errorf("%q where none is missing", got)
	}
}

func TestReportField(t *testing.T) {
	for n, want := range map[int64]string{
		0: "     0", -5: "    -5", 999: "   999", 1000: " 1,000", -1000: "-1,000", 12345: "12,345", -12345: "-12,345", 1234567: "1,234,567",
		-999: "  -999", -100: "  -100", 1 << 62: "4,611,686,018,427,387,904", -1 << 63: "-9,223,372,036,854,775,808",
	} {
		if got := field(n); got != want {
			t.Errorf("field(%d) is %q, want %q", n, got, want)
		}
	}
}
