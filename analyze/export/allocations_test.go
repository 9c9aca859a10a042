package export

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format/formattest"
)

// --scope asks in which scope an allocation was taken, wherever it ends.
func TestAllocationsOfScope(t *testing.T) {
	const text = `
device 0
process 1 pid=11
name 1 "step"
name 2 "inner"
part
50 Live thread=5 api=cuMemAlloc_v2 device=0 address=0x80 size=80 scope=7
40 Live thread=5 api=cuMemAlloc_v2 device=0 address=0x90 size=90
45 LiveScope thread=5 api=nvtx scope=7 name=1 object=0
60 CheckpointEnd size=3
100 Alloc thread=5 api=cuMemAlloc_v2 device=0 address=0x10 size=10
110 ScopeEnd thread=5 api=nvtx scope=7
120 Alloc thread=5 api=cuMemAlloc_v2 device=0 address=0x20 size=20
130 ScopeBegin thread=5 api=nvtx scope=8 name=1
140 Alloc thread=5 api=cuMemAlloc_v2 device=0 address=0x30 size=30
150 Alloc thread=6 api=cuMemAlloc_v2 device=0 address=0x40 size=40
160 Free thread=5 api=cuMemFree_v2 address=0x20
170 ScopeBegin thread=5 api=nvtx scope=9 parent=8 name=2
180 Alloc thread=5 api=cuMemAlloc_v2 device=0 address=0x50 size=50
190 ScopeEnd thread=5 api=nvtx scope=9
200 ScopeEnd thread=5 api=nvtx scope=8
210 Free thread=6 api=cuMemFree_v2 address=0x30
220 Free thread=5 api=cuMemFree_v2 address=0x10
230 Free thread=5 api=cuMemFree_v2 address=0x80
`
	for _, row := range []struct{ scope, want string }{
		{"step", "10 30 50 80"}, {"step#1", "10 80"}, {"8", "30 50"}, {"inner", "50"}, {"", "10 20 30 40 50 80 90"},
	} {
		var q analyze.Query
		if row.scope != "" {
			s, err := analyze.ParseScope(row.scope)
			if err != nil {
				t.Fatal(err)
			}
			q.Scopes = []analyze.ScopeRef{s}
		}
		out := filepath.Join(t.TempDir(), "out")
		write(t, out, "arrow", q, formattest.Text(t, text))
		s, _ := readArrow(t, filepath.Join(out, "allocations.arrow"))
		slices.Sort(s["size"])
		if got := strings.Join(s["size"], " "); got != row.want {
			t.Errorf("--scope %s: sizes %q, want %q", row.scope, got, row.want)
		}
	}
}

// An allocation has the moments since which it is live and until which: of what
// a checkpoint tells, the checkpoint's end; of what was live before the window,
// the number before the window's first event; of what a refused free gave back,
// the refusal.
func TestAllocations(t *testing.T) {
	const text = `
device 0 uuid="GPU-a"
process 1 pid=11
name 1 "step"
frame 1 python "/app/site-packages/torch.py" 3 "empty"
frame 2 python "/app/main.py" 42 "<module>"
stack 10 0 2
stack 11 10 1
part 3
1000 Live api=cuMemAlloc_v2 device=0 address=0x10 size=100 scope=8
900 LiveScope thread=5 api=nvtx scope=8 name=1 object=0
1050 CheckpointEnd size=2
1100 Alloc thread=5 api=cuMemAlloc_v2 device=0 address=0x20 size=7 stack=11
1200 Free thread=5 api=cuMemFree_v2 address=0x20
1210 FreeFailed thread=5 api=cuMemFree_v2 device=0 address=0x20 size=7 stack=11 status=1
1300 Free thread=5 api=cuMemFree_v2 address=0x10
1400 AllocFailed thread=5 api=cuMemAlloc_v2 device=0 requested=99999 status=2 stack=11
`
	from, _ := analyze.ParseMoment("1250ns")
	for _, row := range []struct {
		name string
		q    analyze.Query
		want []string
	}{
		{"whole", analyze.Query{}, []string{
			"3 4 1100 1200 Free 1100 7 7 7 1 /app/site-packages/torch.py:3:empty /app/main.py:42:<module>",
			"2 6 1050 1300 Free 1000 100 100 100 1 [no line] [no line]",
			"5 -1 1210 -1  1100 7 7 7 1 /app/site-packages/torch.py:3:empty /app/main.py:42:<module>",
			"no row 3"}},
		{"window", analyze.Query{From: from}, []string{
			"5 6 1250 1300 Free 1000 100 100 100 1 [no line] [no line]",
			"5 -1 1210 -1  1100 7 7 7 1 /app/site-packages/torch.py:3:empty /app/main.py:42:<module>",
			"no row 2"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out")
			write(t, out, "arrow", row.q, formattest.Text(t, text))
			s, _ := readArrow(t, filepath.Join(out, "allocations.arrow"))
			for i, want := range row.want {
				if got := s.line(i, "begin_row", "end_row", "begin_ns", "end_ns", "ended_by", "time_ns", "size", "used", "acquired", "blocks", "site", "own_site"); got != want {
					t.Errorf("row %d: %q, want %q", i, got, want)
				}
			}
			f, _ := readArrow(t, filepath.Join(out, "failures.arrow"))
			const want = "1400 told cuMemAlloc_v2 11 0 99999 99999 1 -1 /app/main.py:42:<module>"
			if got := f.line(0, "time_ns", "outcome", "reporter", "pid", "device", "asked", "asked_driver", "refusals", "free", "own_site"); got != want {
				t.Errorf("failure %q, want %q", got, want)
			}
		})
	}
}
