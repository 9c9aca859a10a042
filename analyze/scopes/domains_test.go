package scopes

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format/formattest"
)

// Ranges of libraries can be left out: what lies in them moves out, numbers and
// measures stay, and what is missing is said.
func TestDomains(t *testing.T) {
	const text = `
device 0
process 1 pid=1
part
1000 ScopeBegin thread=1 api=nvtx scope=1 name="step"
1010 ScopeBegin thread=1 api=nvtx scope=2 parent=1 name="op" note="NCCL"
1020 ScopeBegin thread=1 api=nvtx scope=3 parent=2 name="inner" note="NCCL"
1030 ScopeBegin thread=1 api=scope scope=4 parent=3 name="op"
1040 Alloc thread=1 api=torch device=0 address=0x10 size=512
1050 ScopeEnd thread=1 api=scope scope=4
1060 ScopeEnd thread=1 api=nvtx scope=3
1070 ScopeEnd thread=1 api=nvtx scope=2
1080 ScopeBegin thread=1 api=nvtx scope=5 parent=1 name="plan" note="cuBLAS"
1090 ScopeEnd thread=1 api=nvtx scope=5
1100 ScopeEnd thread=1 api=nvtx scope=1
`
	for _, row := range []struct {
		name          string
		only, without []string
		want          string // name#n depth parent used
		note          string
	}{
		{"all", nil, nil, "step#1 0 0 512, op#1 1 1 512, inner#1 2 2 512, op#2 3 3 512, plan#1 1 1 0", ""},
		{"the program's own", []string{"default"}, nil, "step#1 0 0 512, op#2 1 1 512", "contexts left out: 1 of domain cuBLAS, 2 of domain NCCL"},
		{"without one", nil, []string{"NCCL"}, "step#1 0 0 512, op#2 1 1 512, plan#1 1 1 0", "contexts left out: 2 of domain NCCL"},
		{"one alone", []string{"NCCL"}, nil, "op#1 0 0 512, inner#1 1 2 512", "contexts left out: 1 of domain cuBLAS, 2 of domain default"},
		{"two, less one", []string{"NCCL", "default"}, []string{"default"}, "op#1 0 0 512, inner#1 1 2 512", "contexts left out: 1 of domain cuBLAS, 2 of domain default"},
		{"of no such domain", []string{"nccl"}, nil, "", "contexts left out: 1 of domain cuBLAS, 2 of domain NCCL, 2 of domain default"},
	} {
		t.Run(row.name, func(t *testing.T) {
			a := New(Used, 1).Domains(row.only, row.without)
			c, err := analyze.Run(context.Background(), []string{formattest.Text(t, text).Path()}, &analyze.Query{}, a, nil)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, s := range a.Report(c).Scopes {
				got = append(got, fmt.Sprintf("%s#%d %d %d %d", s.Name, s.N, s.Depth, s.Parent, s.Measure.Used))
			}
			if text := strings.Join(got, ", "); text != row.want {
				t.Errorf("got  %s\nwant %s", text, row.want)
			}
			if notes := strings.Join(c.Notes, "; "); notes != row.note {
				t.Errorf("notes %q, want %q", notes, row.note)
			}
		})
	}
}
