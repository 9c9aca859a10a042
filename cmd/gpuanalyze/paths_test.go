package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format/formattest"
)

// TestShortPaths: a file has one short name in all that people read, its whole one in
// what programs read, in CuPy's text and where somebody asks.
func TestShortPaths(t *testing.T) {
	dir := formattest.Text(t, stacksText).Path()
	page := filepath.Join(t.TempDir(), "page.html")
	const whole, name = "/home/me/", "model.py"
	for _, row := range []struct {
		args        []string
		whole, text bool // text: it has no --json
	}{
		{[]string{"lines"}, true, false}, // to the character CuPy's
		{[]string{"lines", "--by-scope"}, false, false},
		{[]string{"lines", "--at", "peak"}, false, false},
		{[]string{"lines", "--at", "end"}, false, false},
		{[]string{"lines", "--at", "1ms"}, false, false},
		{[]string{"peak"}, false, false},
		{[]string{"leaks"}, false, false},
		{[]string{"oom"}, false, false},
		{[]string{"stats"}, false, false},
		{[]string{"timeline", "--by", "own-line"}, false, false},
		{[]string{"timeline", "--by", "own-line", "--rows"}, false, true},
		{[]string{"diff", "--a", "..1050us", "--b", "1050us.."}, false, false},
		{[]string{"diff", "--a", "..1050us", "--b", "1050us..", "--markdown"}, false, true},
		{[]string{"report", "-o", page}, false, false},
		{[]string{"export", "--to", "folded", "-o", "-"}, true, true},
	} {
		for _, with := range []string{"", "--full-paths", "--json"} {
			if with != "" && row.args[0] == "export" || with == "--json" && (row.text || row.args[0] == "report") {
				continue
			}
			args := append(append([]string(nil), row.args...), dir)
			if with != "" {
				args = append(args, with)
			}
			code, out, stderr := command1(t, args...)
			if row.args[0] == "report" {
				b, err := os.ReadFile(page)
				if err != nil {
					t.Fatal(err)
				}
				out = string(b)
			}
			if want := row.whole || with != ""; code != 0 || !strings.Contains(out, name) || strings.Contains(out, whole+name) != want {
				t.Errorf("%q: status %d, whole names: want %v\n%s%s", args, code, want, out, stderr)
			}
		}
	}
	for _, pattern := range []string{"model.py", "model.py:8:forward", "/home/me/model.py:8:forward", "m?del.py", "me/model.py"} {
		if code, out, stderr := command1(t, "lines", "--at", "end", "--hide", pattern, dir); code != 0 || strings.Contains(out, name) || !strings.Contains(out, "train.py") || strings.Contains(stderr, "no frame") {
			t.Errorf("--hide %s: %s%s", pattern, out, stderr)
		}
	}
	for _, pattern := range []string{"odel.py", "home/me/model.p", "/me/model.py"} {
		if _, out, stderr := command1(t, "lines", "--at", "end", "--hide", pattern, dir); !strings.Contains(out, name) || !strings.Contains(stderr, "no frame matches --hide") {
			t.Errorf("--hide %s: %s%s", pattern, out, stderr)
		}
	}
}

// TestShortPathsMoved: a program in another folder has the same names, and that they are
// of another is said.
func TestShortPathsMoved(t *testing.T) {
	a := formattest.Text(t, stacksText).Path()
	b := formattest.Text(t, strings.NewReplacer("/home/me/", "/ci/build/", "size=4096", "size=8192").Replace(stacksText)).Path()
	for _, row := range []struct{ flag, want string }{
		{"--quiet", "\n  model.py:8:forward (of another folder, inferred): 4.00 KiB (4096) → 8.00 KiB (8192)"},
		{"--full-paths", "\n  /ci/build/model.py:8:forward (inferred to be /home/me/model.py:8:forward of A): 4.00 KiB"},
	} {
		if _, out, _ := command1(t, "diff", row.flag, a, b); !strings.Contains(out, row.want) {
			t.Errorf("%s: %s", row.flag, out)
		}
	}
}
