package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A twin as gpuanalyze writes it. Two processes, two devices, an address with all of its 64 bits, a scope.
const smallTwin = `gpurec 1
meta trace_id="5a" command="./x" start=2026-11-30T10:00:00.000000001Z start_monotonic=1000
device 0 uuid="GPU-a" name="H200" total=1000 nvml=1
device 1 uuid="GPU-b" name="H200" total=1000 nvml=0
process 1 pid=11 rank=3 command="python <train>.py"
process 2 pid=22 command="./c"
frame 1 python "/app/main.py" 42 "<module>"
stack 10 0 1
name 1 "epoch"
part
1100 ScopeBegin process=1 thread=5 api=nvtx scope=8 name=1
1200 Alloc process=1 thread=5 api=cuMemAlloc_v2 device=0 address=0xffffeaab54e00000 size=512 requested=500 stack=10 scope=8
1400 Alloc process=2 thread=6 api=cuMemAlloc_v2 device=1 address=0x10 size=100 requested=100
1500 Free process=1 thread=5 api=cuMemFree_v2 address=0xffffeaab54e00000 scope=8
1600 Free process=2 thread=6 api=cuMemFree_v2 address=0x10
sample 1100 device=0 total=1000 used=600 free=390 reserved=10 peak_used=650
sample 1100 device=1 total=1000 used=600 free=390 reserved=10
sample 1350 device=1 total=1000 used=500 free=490 reserved=10
`

// A try is one run of gpuanalyze in a directory with the trace small.gpurec.
type try struct {
	code           int
	stdout, stderr string
}

func gpuanalyze(args ...string) try {
	var out, err bytes.Buffer
	code := run(context.Background(), &out, &err, args)
	return try{code, out.String(), err.String()}
}

func inSmall(t *testing.T) {
	t.Helper()
	t.Chdir(t.TempDir())
	if err := os.WriteFile("small.txt", []byte(smallTwin), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := gpuanalyze("import", "text", "small.txt", "-o", "small.gpurec"); got != (try{}) {
		t.Fatalf("import: %+v", got)
	}
}

func TestTwinThereAndBack(t *testing.T) {
	inSmall(t)
	first := gpuanalyze("events", "small.gpurec")
	if first.code != 0 || first.stderr != "complete\n" {
		t.Fatalf("%+v", first)
	}
	if err := os.WriteFile("again.txt", []byte(first.stdout), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := gpuanalyze("import", "text", "again.txt", "-o", "again.gpurec"); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	if again := gpuanalyze("events", "again.gpurec"); again.stdout != first.stdout {
		t.Errorf("the twin of the twin differs:\n%s\n%s", first.stdout, again.stdout)
	}
	if first.stdout != smallTwin {
		t.Errorf("got\n%s\nwant\n%s", first.stdout, smallTwin)
	}
}

func TestTables(t *testing.T) {
	for _, row := range []struct {
		name   string
		args   string
		code   int
		stdout string // contained
		stderr string // contained
	}{
		{"events of one device, frees too", "events --device 1 small.gpurec", 0,
			"1400 Alloc process=2 thread=6 api=cuMemAlloc_v2 device=1 address=0x10 size=100 requested=100\n1600 Free process=2 thread=6 api=cuMemFree_v2 address=0x10\n", "complete"},
		{"events of a window", "events --from 350ns --to 450ns small.gpurec", 0, "1400 Alloc process=2", ""},
		{"events of no thread", "events --thread 1 small.gpurec", 1, "", "no thread 1; there are 5, 6"},
		{"export of no scope", "export --scope nope small.gpurec -o x.arrow", 1, "", "no scope nope; there is epoch"},
		{"export of an empty window", "export --from 2s --until 1s small.gpurec -o x.arrow", 2, "", "the window is empty"},
		{"events as JSON", "events --json --scope epoch small.gpurec", 0,
			`{"time_ns":200,"kind":"Alloc","api":"cuMemAlloc_v2","layer":"driver","class":"device","pid":11,"thread":5,"device":0,"address":"0xffffeaab54e00000","size":512,"requested":500,"scope":8,"stack":["/app/main.py:42:<module>"]}` + "\n", ""},
		{"events of two traces", "events small.gpurec small.gpurec", 2, "", "one trace at a time"},
		{"devices", "devices small.gpurec", 0, "from         to  device  free at start  min  max", "complete"},
		{"devices of two traces", "devices small.gpurec copy.gpurec", 0, "\ncopy.gpurec\n", "note: small.gpurec and copy.gpurec have one trace id"},
		{"a trace twice", "devices small.gpurec small.gpurec", 2, "", "small.gpurec is given twice"},
		{"a trace twice by other names", "summary small.gpurec ./x/../small.gpurec/trace.json", 2, "", "small.gpurec is given twice"},
		{"a trace and its link", "lines small.gpurec link.gpurec", 2, "", "small.gpurec and link.gpurec are one trace"},
		{"devices by UUID", "devices --device GPU-b small.gpurec", 0, "device 1  H200  GPU-b  nvml 0  total 1000\n2 samples, the last at 0.000000s, NVML's memory call v2\n", ""},
		{"devices as JSON", "devices --json small.gpurec", 0, `"free_at_start": 490`, ""},
		{"verify", "verify small.gpurec", 0, "\nsound\n", ""},
		{"verify as JSON", "verify --json small.gpurec", 0, `"faults": []`, ""},
		{"verify nothing", "verify", 2, "", "no trace given"},
		{"export", "export small.gpurec --to arrow -o out", 0, "", "out: 5 events, 3 samples, 1 scopes, 2 allocations, 0 failures, 2 devices, 2 processes, 1 traces\ncomplete\n"},
		{"export of events alone, quiet", "export -q small.gpurec -o e.arrow", 0, "", ""},
		{"export as JSON", "export --json small.gpurec -o e2.arrow", 0, `"events": 5`, ""},
		{"export over something", "export small.gpurec --to arrow -o small.txt", 1, "", "small.txt: it exists already"},
		{"export to nothing", "export small.gpurec --to arrow", 2, "", "-o OUT is missing"},
		{"export to two formats", "export small.gpurec --to arrow -o x.parquet", 2, "", "--to arrow and -o x.parquet disagree"},
		{"import, quiet", "import -q text small.txt -o again.gpurec", 0, "", ""},
		{"export to an unknown format", "export small.gpurec -o x.xls", 2, "", `--to "xls"`},
		{"export of a window", "export small.gpurec --until 250ns -o w.arrow", 0, "", "w.arrow: 2 events\n"},
		{"export of no trace", "export small.txt -o n.arrow", 1, "", "not a gpurec trace"},
		{"import over something", "import text small.txt -o small.gpurec", 1, "", "gpuanalyze import: small.gpurec: it exists already; name another output or remove it\n"},
		{"import to nowhere", "import text small.txt -o none/t", 1, "", "gpuanalyze import: create a trace: mkdir none/t: no such file or directory\n"},
		{"import what is no number", "import text number.txt -o n.gpurec", 1, "", "gpuanalyze import: number.txt: line 2: process: \"x\" is no number\n"},
		{"import what is no id", "import text id.txt -o n.gpurec", 1, "", "gpuanalyze import: id.txt: line 2: id: \"4294967296\" does not fit in 32 bits\n"},
		{"export to nowhere", "export small.gpurec -o none/x.arrow", 1, "", "gpuanalyze export: create none/x.arrow: no such file or directory\n"},
		{"a flag that is no number", "summary --process x small.gpurec", 2, "", "gpuanalyze summary: invalid argument \"x\" for \"--process\" flag: invalid syntax\n"},
		{"a thread beyond all", "summary --thread 4294967303 small.gpurec", 2, "", "--thread 4294967303: a thread's number has 32 bits"},
		{"a path that would steer a terminal", "summary a\x1b[2Jb", 1, "", "gpuanalyze summary: a\ufffd[2Jb: not a gpurec trace: no such file or directory\n"},
		{"a flag that would steer a terminal", "summary --a\x1b[2Jb", 2, "", "unknown flag: --a\ufffd[2Jb\n"},
		{"summary of an unknown start", "summary nothing.gpurec", 0, "recorded     at an unknown time, closed in good order\n", ""},
		{"import nothing", "import text none.txt -o n.gpurec", 1, "", "none.txt"},
		{"import the unknown", "import xls small.txt -o n.gpurec", 2, "", `cannot import "xls"`},
		{"import without output", "import text small.txt", 2, "", "-o TRACE is missing"},
		{"import with a fault", "import text bad.txt -o bad.gpurec", 1, "", "bad.txt: line 2"},
	} {
		t.Run(row.name, func(t *testing.T) {
			inSmall(t)
			if err := os.WriteFile("bad.txt", []byte("gpurec 1\n5 Explode\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.CopyFS("copy.gpurec", os.DirFS("small.gpurec")); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink("small.gpurec", "link.gpurec"); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir("x", 0o700); err != nil {
				t.Fatal(err)
			}
			for name, text := range map[string]string{"number.txt": "gpurec 1\n5 Mark process=x\n", "id.txt": "gpurec 1\nframe 4294967296 python f 1 g\n", "nothing.txt": "gpurec 1\n"} {
				if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if got := gpuanalyze("import", "text", "nothing.txt", "-o", "nothing.gpurec"); got != (try{}) {
				t.Fatalf("%+v", got)
			}
			got := gpuanalyze(strings.Fields(row.args)...)
			if got.code != row.code || !strings.Contains(got.stdout, row.stdout) || !strings.Contains(got.stderr, row.stderr) {
				t.Errorf("%+v\nwant exit %d, stdout with %q, stderr with %q", got, row.code, row.stdout, row.stderr)
			}
			if got.code != 0 && got.stdout != "" {
				t.Errorf("a failure printed data: %q", got.stdout)
			}
			hidden, err := filepath.Glob(".*")
			if err != nil || len(hidden) > 0 {
				t.Errorf("%v is left behind, %v", hidden, err)
			}
		})
	}
}

// What is damaged is answered as far as it is whole, and the exit says so.
func TestTablesOfADamagedTrace(t *testing.T) {
	cut := func(t *testing.T, n int) {
		inSmall(t)
		path := filepath.Join("small.gpurec", "00000", "events.arrow")
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b[:len(b)-n], 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range []struct {
		name, args string
		cut        int
		code       int
		stdout     string
	}{
		{"verify without footer", "verify small.gpurec", 20, 3, "sound, but partial"},
		{"events without footer", "events small.gpurec", 20, 3, "1600 Free"},
		{"devices without footer", "devices small.gpurec", 20, 3, "device 1"},
		{"export without footer", "export small.gpurec -o e.arrow --json", 20, 3, `"events": 5`},
		{"events without their batch", "events small.gpurec", 1500, 3, "sample 1350"},
		{"verify of no trace", "verify small.txt", 0, 1, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			cut(t, row.cut)
			got := gpuanalyze(strings.Fields(row.args)...)
			if got.code != row.code || !strings.Contains(got.stdout, row.stdout) {
				t.Errorf("%+v, want exit %d and %q", got, row.code, row.stdout)
			}
			if row.code == 3 && !strings.Contains(got.stdout+got.stderr, "events.arrow: truncated at batch") {
				t.Errorf("nobody says where: %+v", got)
			}
		})
	}
	t.Run("verify of a faulty one", func(t *testing.T) {
		inSmall(t)
		path := filepath.Join("small.gpurec", "00000", "stacks.arrow")
		if err := os.WriteFile(path, []byte("no table at all, but long enough to look"), 0o600); err != nil {
			t.Fatal(err)
		}
		got := gpuanalyze("verify", "--json", "small.gpurec")
		var r struct{ Traces []struct{ Faults []string } }
		if err := json.Unmarshal([]byte(got.stdout), &r); err != nil || got.code != 1 || len(r.Traces) != 1 || len(r.Traces[0].Faults) == 0 {
			t.Errorf("%+v, %v", got, err)
		}
	})
}
