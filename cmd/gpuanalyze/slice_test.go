package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// A slice of a real training answers what the window of the whole does.
func TestSliceAnswersLikeItsWindow(t *testing.T) {
	whole := filepath.Join(h200, "train.gpurec")
	for _, row := range []struct{ name, window string }{
		{"of scopes", "--from scope:step#3 --to scope:step#5"},
		{"of time", "--from 9.5s --to 9.6s"},
		{"of the beginning", "--to 9.4s"},
		{"of the end", "--from scope:evaluation#1"},
	} {
		t.Run(row.name, func(t *testing.T) {
			window := strings.Fields(row.window)
			out := filepath.Join(t.TempDir(), "slice.gpurec")
			if got := gpuanalyze(append(append([]string{"slice", whole, "-o", out}, window...), "-q")...); got != (try{}) {
				t.Fatalf("%+v", got)
			}
			if got := gpuanalyze("verify", out); got.code != 0 || !strings.HasSuffix(got.stdout, "\nsound\n") {
				t.Errorf("%+v", got)
			}
			for _, report := range []string{"lines", "lines --at peak", "lines --at end", "devices"} {
				args := strings.Fields(report)
				want := gpuanalyze(append(append(args, whole), window...)...)
				got := gpuanalyze(append(args, out)...)
				if strings.ReplaceAll(got.stdout, out, whole) != want.stdout || want.stdout == "" || got.code != 0 {
					t.Errorf("%s: exit %d, got\n%s\nwant\n%s", report, got.code, got.stdout, want.stdout)
				}
			}
		})
	}
}

func TestSlice(t *testing.T) {
	inSmall(t)
	for _, row := range []struct {
		args   string
		code   int
		stdout string // contained
		stderr string // contained
	}{
		{"slice --from 250ns small.gpurec -o a.gpurec", 0, "", "a.gpurec: 3 events, 1 samples\ncomplete\n"},
		{"slice --json --from scope:epoch#1 --process 11 small.gpurec -o b.gpurec", 0, `"events": 3`, "complete"},
		{"events b.gpurec", 0, "1500 Free thread=5", "note: a slice of a recording"},
		{"slice small.gpurec -o a.gpurec", 1, "", "a.gpurec: it exists already"},
		{"slice small.gpurec", 2, "", "-o SLICE is missing"},
		{"slice small.gpurec a.gpurec -o c.gpurec", 2, "", "one trace, not of 2"},
		{"slice --device 0 small.gpurec -o c.gpurec", 2, "", "limited by --from, --to, --process and --rank only"},
		{"slice --process 5 small.gpurec -o c.gpurec", 1, "", "no process 5"},
		{"slice none.gpurec -o c.gpurec", 1, "", "none.gpurec"},
		{"summary c.gpurec", 1, "", "no such file"}, // nothing is left of what failed
	} {
		got := gpuanalyze(strings.Fields(row.args)...)
		if got.code != row.code || !strings.Contains(got.stdout, row.stdout) || !strings.Contains(got.stderr, row.stderr) {
			t.Errorf("%s: %+v", row.args, got)
		}
	}
}

// However a recording is cut into parts, its slice is the same.
func TestPartsDoNotMatterToSlices(t *testing.T) {
	for seed := range int64(3) {
		var twins []string
		for _, every := range []int{0, 90 + int(seed)*100} {
			dir, out := writeRandom(t, seed, every), filepath.Join(t.TempDir(), "slice.gpurec")
			if got := gpuanalyze("slice", "-q", "--from", "3ms", "--to", "scope:scope1#9", dir, "-o", out); got.code != 0 {
				t.Fatalf("%+v", got)
			}
			got := gpuanalyze("events", "-q", out)
			if got.code != 0 || strings.Count(got.stdout, " Live ") < 10 {
				t.Fatalf("%+v", got)
			}
			twins = append(twins, partWords.ReplaceAllString(strings.SplitN(got.stdout, "\ndevice", 2)[1], ""))
		}
		if twins[0] != twins[1] {
			t.Errorf("seed %d: %s", seed, firstDifference(twins[0], twins[1]))
		}
	}
}
