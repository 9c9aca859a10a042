package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/apache/arrow/go/v15/arrow/ipc"

	"github.com/gpurec/gpurec/format"
)

// A recorder newer than we are knew cuMemNew, which takes device memory, and a
// function whose name steers a terminal; of 4606 nobody knows a name.
const ofNewer = `gpurec 1
meta start_monotonic=1
api 4607 "cuMemNew"
api 8702 "cuMem\x1b[2J\u202eHostNew"
device 0 uuid="GPU-0" total=1000
process 1 pid=7 command="x"
part
2 ProcessBegin thread=7
10 Alloc duration=5 thread=7 api="cuMemNew" layer=driver class=device device=0 address=0x10 size=512
20 Free thread=7 api=cuMemFree_v2 address=0x10
30 Alloc thread=7 api="api 4606" layer=driver class=device device=0 address=0x10 size=256
40 Free thread=7 api=cuMemFree_v2 address=0x10
50 AllocFailed thread=7 api="cuMem\x1b[2J\u202eHostNew" layer=host class=pinned requested=99 status=2
51 AllocFailed thread=7 api="cuMemNew" layer=driver class=device device=0 requested=2048 status=2
60 ProcessEnd thread=7 status=1
`

func TestFunctionsOfANewerRecorder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "newer.gpurec")
	if err := format.ReadText(strings.NewReader(ofNewer), dir); err != nil {
		t.Fatal(err)
	}
	slice, out := filepath.Join(t.TempDir(), "slice.gpurec"), filepath.Join(t.TempDir(), "out")
	for _, c := range []struct {
		args string
		want []string
	}{
		{"events --from 0s", []string{`api="cuMemNew"`, `api="api 4606"`, `api="cuMem\x1b[2J\u202eHostNew"`}},
		{"events --json", []string{`"api":"cuMemNew"`, `"api":"api 4606"`, `"api":"cuMem\u001b[2J`}},
		{"stats", []string{"\ncuMemNew ", "\napi 4606 ", "\ncuMem\uFFFD[2J\uFFFDHostNew "}},
		{"summary", []string{"cuMemNew 2", "api 4606 1", "cuMem\uFFFD[2J\uFFFDHostNew 1", "odd frees    none"}},
		{"oom", []string{"by cuMemNew", "cuMem\uFFFD[2J\uFFFDHostNew"}},
		{"leaks", []string{"nothing"}},
		{"verify", []string{"\nsound\n"}},
		{"export --to arrow -o " + out, nil},
		{"slice -o " + slice, nil},
	} {
		got := gpuanalyze(append(strings.Fields(c.args), dir)...)
		for _, want := range c.want {
			if !strings.Contains(got.stdout, want) {
				t.Errorf("%s: there is no %q in\n%s%s", c.args, want, got.stdout, got.stderr)
			}
		}
		if c.args != "events --json" && strings.ContainsFunc(got.stdout, func(r rune) bool { return r != '\n' && unicode.IsControl(r) || r == '\u202e' }) {
			t.Errorf("%s lets a name steer the terminal: %q", c.args, got.stdout)
		}
	}
	if got := gpuanalyze("events", "-q", dir); got.stdout != ofNewer {
		t.Errorf("the text twin is another: %s", got.stdout)
	}
	if got := gpuanalyze("events", "-q", slice); !strings.Contains(got.stdout, "\napi 4607 \"cuMemNew\"\n") {
		t.Errorf("a slice has lost the names: %s", got.stdout)
	}
	f, err := os.Open(filepath.Join(out, "events.arrow"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := ipc.NewFileReader(f)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	rec, err := r.Record(0)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(rec.Column(rec.Schema().FieldIndices("api")[0])), `["none" "cuMemNew" "cuMemFree_v2" "api 4606" `; !strings.HasPrefix(got, want) {
		t.Errorf("the exported names are %s, want %s", got, want)
	}
}
