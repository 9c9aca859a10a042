package analyze

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/formattest"
)

// A scoped answer writes down in which scope memory was taken, and what counts.
type scoped struct {
	scopes Scoping
	log    []string
}

func (s *scoped) Needs() Needs                       { return Needs{Scopes: s.scopes} }
func (s *scoped) Begin(*Pass) error                  { return nil }
func (s *scoped) Sample(*Pass, *format.Sample) error { return nil }
func (s *scoped) End(*Pass) error                    { return nil }
func (s *scoped) Event(p *Pass, e *format.Event) error {
	if e.Kind != format.Alloc && e.Kind != format.AllocFailed && e.Kind != format.Free || !p.Matches(e, ByAll) {
		return nil
	}
	mark := ""
	if e.Flags&Inferred != 0 {
		mark = "?"
	}
	s.log = append(s.log, fmt.Sprintf("%d:%d%s", e.Time, e.Scope, mark))
	return nil
}

const helped = `
process 1 pid=5
process 2 pid=50
part
`

// Where a scope is inferred, and where not; N? is scope N, inferred.
func TestEnclosing(t *testing.T) {
	const step = `1000 ScopeBegin process=1 thread=5 api=nvtx scope=1 name="step"
1001 ScopeBegin process=1 thread=5 api=nvtx scope=2 parent=1 name="backward"
`
	helper := func(at int) string {
		return fmt.Sprintf("%d Alloc process=1 thread=6 api=torch device=0 address=%#x size=100\n", at, at)
	}
	for _, row := range []struct {
		name, events, scope string
		infer               Infer
		needs               Scoping
		want, notes         string
	}{
		{"the innermost of the waiting thread", step + helper(1002), "", InferMark, ScopesShown, "1002:2?", ""},
		{"and what is around it, when that has ended", step + "1002 ScopeEnd process=1 thread=5 api=nvtx scope=2\n" + helper(1003), "", InferMark, ScopesShown, "1003:1?", ""},
		{"scopes that overlap: the one begun last", step + "1002 ScopeEnd process=1 thread=5 api=nvtx scope=1\n" + helper(1003), "", InferMark, ScopesShown, "1003:2?", ""},
		{"none when all have ended", step + "1002 ScopeEnd process=1 thread=5 api=nvtx scope=1\n1002 ScopeEnd process=1 thread=5 api=nvtx scope=2\n" + helper(1003), "", InferMark, ScopesShown, "1003:0", ""},
		{"off", step + helper(1002), "", InferOff, ScopesShown, "1002:0", ""},
		{"an answer that has no use for it", step + helper(1002), "", InferMark, ScopesUnused, "1002:0", ""},
		{"nor without a filter", step + helper(1002), "", InferMark, ScopesFiltered, "1002:0", ""},
		{"a failed try and a free", step + "1002 AllocFailed process=1 thread=6 api=torch.oom device=0 requested=5\n1003 Free process=1 thread=6 api=torch address=0x10\n", "", InferMark, ScopesShown, "1002:2? 1003:2?", "1 free of what was allocated before the recording or never seen"},
		{"a thread's own scope is its own", step + "1002 ScopeBegin process=1 thread=6 api=nvtx scope=3 name=\"op\"\n1003 Alloc process=1 thread=6 api=torch device=0 address=0x10 size=1 scope=3\n",
			"", InferMark, ScopesShown, "1003:3", ""},
		{"a thread that had one of its own", step + "1002 ScopeBegin process=1 thread=6 api=nvtx scope=3 name=\"op\"\n1003 ScopeEnd process=1 thread=6 api=nvtx scope=3\n" + helper(1004), "", InferMark, ScopesShown, "1004:0", ""},
		{"a new thread of its number", step + "1002 ScopeBegin process=1 thread=6 api=nvtx scope=3 name=\"op\"\n1003 ScopeEnd process=1 thread=6 api=nvtx scope=3\n1004 ThreadBegin process=1 thread=6 name=\"pt_autograd_0\"\n" + helper(1005),
			"", InferMark, ScopesShown, "1005:2?", ""},
		{"a library's range, on whichever thread, says nothing", step + `1002 ScopeBegin process=1 thread=6 api=nvtx scope=3 name="gemm" note="cuBLAS"
1003 ScopeEnd process=1 thread=6 api=nvtx scope=3
1004 ScopeBegin process=1 thread=7 api=nvtx scope=4 name="allreduce" note="NCCL"
1005 ScopeBegin process=1 thread=5 api=nvtx scope=5 parent=2 name="gemm" note="cuBLAS"
` + helper(1006), "", InferMark, ScopesShown, "1006:2?", ""},
		{"nor does the range of a start and an end", step + "1002 ScopeBegin process=1 thread=5 api=nvtx scope=3 name=\"epoch\" flags=range\n" + helper(1003), "", InferMark, ScopesShown, "1003:2?", ""},
		{"the process's first thread helps nobody", "1000 ScopeBegin process=1 thread=7 api=nvtx scope=1 name=\"load\"\n1001 Alloc process=1 thread=5 api=torch device=0 address=0x10 size=1\n",
			"", InferMark, ScopesShown, "1001:0", ""},
		{"another process's scopes", step + "1002 Alloc process=2 thread=51 api=torch device=0 address=0x10 size=1\n", "", InferMark, ScopesShown, "1002:0", ""},
		{"a process that has ended", step + "1002 ProcessEnd process=1\n" + helper(1003), "", InferMark, ScopesShown, "1003:0", ""},
		{"two threads with scopes: not known, and counted", step + "1002 ScopeBegin process=1 thread=7 api=nvtx scope=3 name=\"load\"\n" + helper(1003) + helper(1004) + "1005 ScopeEnd process=1 thread=7 api=nvtx scope=3\n" + helper(1006),
			"", InferMark, ScopesShown, "1003:0 1004:0 1006:2?",
			"2 allocations of 200 bytes from pools and 0 from the driver, of threads without a scope, are in none: several threads had scopes open, and it is not known for which they worked"},
		{"a filter holds what its thread did, and says what else there is", step + "1002 Alloc process=1 thread=5 api=torch device=0 address=0x10 size=1 scope=2\n" + helper(1003), "step", InferMark, ScopesFiltered, "1002:2",
			"not in it: 1 allocation of 100 bytes from pools and 0 from the driver, of threads without a scope, taken while the scope's thread was in it (inferred); --infer scope counts them"},
		{"or takes it in", step + "1002 Alloc process=1 thread=5 api=torch device=0 address=0x10 size=1 scope=2\n" + helper(1003), "step", InferScope, ScopesFiltered, "1002:2 1003:2?", ""},
		{"but not what lies in another", step + helper(1003), "load", InferScope, ScopesFiltered, "", ""},
		{"open at a checkpoint", "1000 LiveScope process=1 thread=5 api=nvtx scope=1 name=\"step\"\n1000 LiveScope process=1 thread=5 api=nvtx scope=1 name=\"step\"\n1000 CheckpointEnd process=0 size=2\n" + helper(1001), "", InferMark, ScopesShown, "1001:1?", ""},
		{"of what was live before nothing is known", "1000 Live process=1 thread=6 api=torch device=0 address=0x10 size=1\n1000 LiveScope process=1 thread=5 api=nvtx scope=1 name=\"step\"\n1000 CheckpointEnd process=0 size=2\n", "", InferMark, ScopesShown, "", ""},
		{"ended behind a gap between parts", step + "part 2\n2000 LiveScope process=1 thread=5 api=nvtx scope=1 name=\"step\"\n2000 CheckpointEnd process=0 size=1\n" + helper(2001), "", InferMark, ScopesShown, "2001:1?", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			q := &Query{Infer: row.infer}
			if row.scope != "" {
				q.Scopes = []ScopeRef{{Name: row.scope}}
			}
			a := &scoped{scopes: row.needs}
			text := helped + row.events
			if row.scope == "load" {
				text += "2000 ScopeBegin process=1 thread=5 api=nvtx scope=9 name=\"load\"\n"
			}
			c, err := Run(context.Background(), []string{formattest.Text(t, text).Path()}, q, a, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(a.log, " "); got != row.want {
				t.Errorf("got %q, want %q", got, row.want)
			}
			if got := strings.Join(c.Notes, "\n"); got != row.notes {
				t.Errorf("notes\n%s\nwant\n%s", got, row.notes)
			}
		})
	}
}

func TestParseInfer(t *testing.T) {
	for _, i := range []Infer{InferMark, InferOff, InferScope} {
		if got, err := ParseInfer(i.String()); got != i || err != nil {
			t.Errorf("%v is read as %v, %v", i, got, err)
		}
	}
	if _, err := ParseInfer("on"); err == nil || !strings.Contains(err.Error(), "mark, off, scope") {
		t.Errorf("on: %v", err)
	}
}
