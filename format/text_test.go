package format_test

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
)

const sample = `gpurec 0
meta trace_id="t" command="python" command="train.py" start=2026-11-30T10:00:00Z start_monotonic=1000
device 0 uuid="GPU-0" name="H200" total=150754820096 nvml=0
process 1 pid=4711 start_time=99 begin=10 command="python train.py"
frame 1 python "/app/main.py" 42 "<module>"
frame 2 native "" 0 "malloc" module="/lib/libc.so.6" build_id="ab" address=0x1234
stack 10 0 1
stack 11 10 2
name 3 "forward"
part
1000 ScopeBegin thread=7 api=scope size=0 scope=1 name=3
1200 Alloc duration=20 thread=7 api=cupy device=0 address=0x7f00 object=0x55 size=1024 requested=1000 stack=10
1300 Alloc thread=7 api=torch device=0 address=0xffffffffffffffff size=9223372036854775807 allocated=1 reserved=2 stack=11 flags=nested|inpool
1400 Free thread=7 api=cuMemFree_v2 layer=pool class=managed device=0 status=-5
sample 1300 device=0 total=100 used=10 free=90 reserved=0
sample 1300 device=0 process=1 total=100 used=10 free=90 reserved=0 process_used=7 peak_used=12 api=1
part
2000 CheckpointEnd size=0
`

func write(t *testing.T, text string) *format.Trace {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "t.gpurec")
	if err := format.ReadText(strings.NewReader(text), dir); err != nil {
		t.Fatal(err)
	}
	tr, err := format.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func TestTextRoundTrip(t *testing.T) {
	var out bytes.Buffer
	if err := format.WriteText(&out, write(t, sample)); err != nil {
		t.Fatal(err)
	}
	if out.String() != sample {
		t.Errorf("got\n%s\nwant\n%s", out.String(), sample)
	}
}
