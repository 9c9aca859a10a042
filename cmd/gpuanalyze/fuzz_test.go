package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// answers are all commands that read a trace, with what makes them go different
// ways. Parquet's compressors take longer to set up than all of them together; its
// rows are those of the other tables.
var answers = [][]string{
	{"summary"}, {"summary", "--json"}, {"lines"}, {"lines", "--at", "peak"}, {"lines", "--at", "end"}, {"contexts"}, {"contexts", "--curve", "nvml"}, {"contexts", "--units", "fastai"},
	{"devices"}, {"peak"}, {"peak", "--by", "parts"}, {"peak", "--by", "scope"}, {"leaks"}, {"oom"}, {"fragmentation"}, {"timeline"}, {"timeline", "--by", "line", "--json"},
	{"stats"}, {"ranks"}, {"events"}, {"verify"},
	{"report", "-o", "OUT/report.html"}, {"slice", "-o", "OUT/slice.gpurec"}, {"repair", "-o", "OUT/repaired.gpurec"},
	{"export", "--to", "csv", "-o", "OUT/csv"}, {"export", "--to", "jsonl", "-o", "OUT/jsonl"}, {"export", "--to", "pprof", "-o", "OUT/pprof"},
	{"export", "--to", "perfetto", "-o", "OUT/perfetto"}, {"export", "--to", "speedscope", "-o", "OUT/speedscope"}, {"export", "--to", "torch", "-o", "OUT/torch"},
}

// FuzzAnswers makes a trace of any text twin and asks some of all questions. An
// enemy can write such a trace: no answer may crash, hang, or be a page that holds
// a text of the trace as it stands there.
func FuzzAnswers(f *testing.F) {
	const some = 4
	f.Add("gpurec 1\n"+traceText, uint8(0))
	texts, _ := filepath.Glob("../../analyze/*/testdata/*.txt")
	if len(texts) < 5 {
		f.Fatalf("only %d texts to begin with", len(texts))
	}
	for i, path := range texts {
		b, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(b), uint8(some*i))
	}
	f.Add("gpurec 1\nmeta start=2026-01-01T00:00:00Z\nprocess 1 pid=7 command=\"</script><img src=x onerror=alert(1)>\"\nname 1 \"</script><script>alert(1)</script>\"\ndevice 0 uuid=GPU-1 total=9223372036854775807\n"+
		"1 ScopeBegin process=1 thread=1 scope=1 name=1\n2 Alloc process=1 thread=1 api=cuMemAlloc_v2 layer=driver class=device device=0 address=0xfffffffffffffff0 size=9223372036854775807\n"+
		"3 Alloc process=1 thread=1 api=torch layer=pool class=device device=0 address=1 size=9223372036854775807\nsample 4 device=0 used=9223372036854775807 total=1 free=-1\n", uint8(slices.IndexFunc(answers, func(a []string) bool { return a[0] == "report" })))
	f.Fuzz(func(t *testing.T, text string, from uint8) {
		dir := t.TempDir()
		in, trace := filepath.Join(dir, "in.txt"), filepath.Join(dir, "t.gpurec")
		if err := os.WriteFile(in, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if code, _, _ := command1(t, "import", "text", in, "-o", trace); code != 0 {
			return
		}
		for i := range some {
			args := slices.Clone(answers[(int(from)+i)%len(answers)])
			for i := range args {
				args[i] = strings.Replace(args[i], "OUT", dir, 1)
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			var stdout, stderr bytes.Buffer
			code := run(ctx, &stdout, &stderr, append(args, trace))
			late := ctx.Err() != nil
			cancel()
			if late || code != 0 && code != exitFailed && code != exitPartial || code == exitFailed && stderr.Len() == 0 {
				t.Fatalf("%q: exit %d, a minute is over: %v\n%s", args, code, late, stderr.String())
			}
		}
		page, err := os.ReadFile(filepath.Join(dir, "report.html"))
		if err == nil && bytes.Contains(page, []byte("<img src=x")) || bytes.Contains(page, []byte("<script>alert")) {
			t.Fatal("the page holds a text of the trace as it stands there")
		}
	})
}

// FuzzImport gives each importer any bytes: it refuses them with a sentence, or
// makes a trace that verify reads.
func FuzzImport(f *testing.F) {
	f.Add(uint8(0), []byte(traceText))
	f.Add(uint8(0), []byte("\x28\xb5\x2f\xfd\x04\x00\x59\x00\x00gpurec 1\n")) // a frame of zstd
	for i := range importers {
		for _, seed := range []string{"", "{}", "[]", "\x80\x04}.", "Timestamp,Action,Pointer,Size,Stream\n1,allocate,0x1,1,0\n"} {
			f.Add(uint8(i), []byte(seed))
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, content []byte) {
		dir := t.TempDir()
		in, trace := filepath.Join(dir, "in"), filepath.Join(dir, "t.gpurec")
		if err := os.WriteFile(in, content, 0o600); err != nil {
			t.Fatal(err)
		}
		code, _, stderr := command1(t, "import", importers[int(which)%len(importers)].name, in, "-o", trace)
		switch {
		case code == exitFailed && stderr != "":
			if _, err := os.Lstat(trace); err == nil {
				t.Fatalf("refused, and a trace is left: %s", stderr)
			}
		case code == 0:
			if code, stdout, stderr := command1(t, "verify", trace); code != 0 && code != exitPartial && code != exitFailed || stderr == "" && stdout == "" {
				t.Fatalf("verify: exit %d\n%s%s", code, stdout, stderr)
			}
		default:
			t.Fatalf("exit %d, %q", code, stderr)
		}
	})
}
