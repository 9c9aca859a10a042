package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format/formattest"
)

// imported is a trace of testdata/h200, in the test's directory under its name.
func imported(t *testing.T, twin string) string {
	t.Helper()
	out := strings.TrimSuffix(filepath.Base(twin), ".txt.zst") + ".gpurec"
	if got := gpuanalyze("import", "-q", "text", twin, "-o", out); got != (try{}) {
		t.Fatalf("%+v", got)
	}
	return out
}

// Runs of one small model on an H200: diff and leaks name what its author knows
// of them.
func TestWidthsOfH200(t *testing.T) {
	here, err := filepath.Abs(h200)
	if err != nil {
		t.Fatal(err)
	}
	golden, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	narrow, again, wide, leak := imported(t, here+"/widths/narrow.txt.zst"), imported(t, here+"/widths/again.txt.zst"),
		imported(t, here+"/widths/wide.txt.zst"), imported(t, here+"/widths/leak.txt.zst")
	list := imported(t, here+"/oom/list.txt.zst")
	reports := map[string]string{}
	for _, row := range []struct {
		name string
		args []string
		code int
		want string // contained in stdout
	}{
		{"two runs of one program", []string{"diff", "--fail-above", "0", narrow, again}, 0, "\nno difference\n"},
		{"a layer twice as wide", []string{"diff", "--by", "line,function,scope", narrow, wide}, 0, "\n  widths.py:49:main: 60.17 MiB (63088128) → 108.19 MiB (113444352)"},
		{"a layer twice as wide, as Markdown", []string{"diff", "--markdown", "--fail-above", "5%", narrow, wide}, exitGate, "Gate **failed**"},
		{"within the limit", []string{"diff", "--fail-above", "50%", narrow, wide}, 0, "not more than 50%"},
		{"a step and a later one", []string{"diff", "--a", "scope:step#5", "--b", "scope:step#19", narrow}, 0, "\nno difference\n"},
		{"no leak", []string{"leaks", narrow}, 0, "none of 15 sites holds more and more\n"},
		{"no leak, by line", []string{"leaks", "--by", "line", wide}, 0, "none of 10 sites holds more and more\n"},
		{"a leak of 20 KiB a step", []string{"leaks", leak}, 0, "1 of 15 sites holds more and more (inferred)\n  +20.00 KiB (20480) a turn, 95 % sure of 20.00 KiB to 20.00 KiB"},
		{"a list of losses", []string{"leaks", "--by", "line", list}, 0, "2 of 2 sites hold more and more (inferred)\n  +1.00 GiB (1073742336) a turn"},
	} {
		got := gpuanalyze(row.args...)
		if got.code != row.code || !strings.Contains(got.stdout, row.want) {
			t.Errorf("%s: %+v", row.name, got)
		}
		reports[row.name] = got.stdout
	}
	t.Chdir(filepath.Dir(golden))
	formattest.Golden(t, "h200/widths.diff.txt", []byte(reports["a layer twice as wide"]))
	formattest.Golden(t, "h200/widths.diff.md", []byte(reports["a layer twice as wide, as Markdown"]))
	formattest.Golden(t, "h200/widths.leaks.txt", []byte(reports["a leak of 20 KiB a step"]))
	formattest.Golden(t, "h200/list.leaks.txt", []byte(reports["a list of losses"]))
}
