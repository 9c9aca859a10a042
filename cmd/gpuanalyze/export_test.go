package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format/formattest"
)

// Every format makes something of a trace, and says how much.
func TestExportFormats(t *testing.T) {
	tr := formattest.Text(t, traceText).Path()
	for _, f := range exportFormats {
		t.Run(f.name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out")
			code, _, stderr := command1(t, "export", tr, "--to", f.name, "-o", out)
			if fi, err := os.Stat(out); code != 0 || err != nil || fi.IsDir() != f.tables || fi.Size() == 0 || !strings.HasPrefix(stderr, out+": ") {
				t.Errorf("exit %d, %v, %s", code, err, stderr)
			}
			if code, _, stderr := command1(t, "export", tr, "--to", f.name, "-o", out); code != exitFailed || !strings.Contains(stderr, "exists already") {
				t.Errorf("over a file: exit %d, %s", code, stderr)
			}
			for _, ending := range append(f.endings, f.name) {
				if o := (exportOptions{out: "x." + ending}); ending != "" {
					if got, err := o.choose(); err != nil || got.name != f.name {
						t.Errorf("an OUT that ends in .%s is %v, %v", ending, got, err)
					}
				}
			}
			code, stdout, stderr := command1(t, "export", tr, "--to", f.name, "-o", "-")
			if f.tables != (code == exitUsage) || f.tables != (stdout == "") {
				t.Errorf("to stdout: exit %d, %d bytes, %s", code, len(stdout), stderr)
			}
		})
	}
}

func TestExportUsage(t *testing.T) {
	tr := formattest.Text(t, traceText).Path()
	for _, row := range []struct{ args, want string }{
		{"--to folded --value nothing -o x", `"nothing" is none of alloc_objects, `},
		{"--value alloc_space -o x.pb.gz", "--value is for --to folded"},
		{"--to folded --json -o -", "both want stdout"},
		{"--to arrow -o x.pb.gz", "--to arrow and -o x.pb.gz disagree"},
	} {
		code, _, stderr := command1(t, append([]string{"export", tr}, strings.Fields(row.args)...)...)
		if code != exitUsage || !strings.Contains(stderr, row.want) {
			t.Errorf("%s: exit %d, %s", row.args, code, stderr)
		}
	}
}

func TestExportExamples(t *testing.T) {
	tr := formattest.Text(t, traceText).Path()
	other := formattest.Text(t, traceText).Path()
	for _, example := range exportCommand().examples {
		t.Run(example, func(t *testing.T) {
			t.Chdir(t.TempDir())
			line, _, _ := strings.Cut(example, "#")
			args := strings.Fields(line)[1:]
			for i, a := range args {
				switch {
				case a == "rank1.gpurec":
					args[i] = other
				case strings.HasSuffix(a, ".gpurec"):
					args[i] = tr
				}
			}
			if code, _, stderr := command1(t, args...); code != 0 {
				t.Errorf("exit %d: %s", code, stderr)
			}
		})
	}
}

func TestExportPartitions(t *testing.T) {
	tr := formattest.Text(t, traceText).Path()
	out := filepath.Join(t.TempDir(), "out")
	if code, _, stderr := command1(t, "export", tr, "--to", "csv", "--partition", "trace,device", "-o", out); code != 0 {
		t.Fatalf("exit %d, %s", code, stderr)
	}
	b, err := os.ReadFile(filepath.Join(out, "events", "trace="+filepath.Base(tr), "device=0", "events.csv"))
	if err != nil || !strings.HasPrefix(string(b), "row,timestamp,time_ns,") || strings.Count(string(b), "\n") < 2 {
		t.Errorf("%v, %.200s", err, b)
	}
	for _, row := range []struct{ args, want string }{
		{"--to csv --partition thread -o x", "--partition thread: it is trace, process, pid, rank, device"},
		{"--partition rank -o x.csv", "--partition is for a directory of tables"},
		{"--to duckdb --partition rank -o x", "--partition is for a directory of tables"},
		{"--to pprof --partition rank -o x", "--partition is for a directory of tables"},
	} {
		code, _, stderr := command1(t, append([]string{"export", tr}, strings.Fields(row.args)...)...)
		if code != exitUsage || !strings.Contains(stderr, row.want) {
			t.Errorf("%s: exit %d, %s", row.args, code, stderr)
		}
	}
}
