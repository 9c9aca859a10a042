package report

import (
	"testing"

	"github.com/gpurec/gpurec/analyze/scopes"
)

// Bands come from all of the time, the longest first wherever they are.
func TestSpread(t *testing.T) {
	var in []*scopes.Scope
	for i := range int64(100_000) {
		in = append(in, &scopes.Scope{Name: "step", Begin: i * 100, End: i*100 + 90}, &scopes.Scope{Name: "load", Begin: i*100 + 1, End: i*100 + 5})
	}
	long := &scopes.Scope{Name: "epoch", Begin: 5_000_000, End: 9_000_000}
	in = append(in, long)
	first, last, steps, found := in[0], in[0], 0, false
	out := spread(in, 1000)
	for _, s := range out {
		if s.Begin < first.Begin {
			first = s
		}
		if s.Begin > last.Begin {
			last = s
		}
		if s.Name == "step" {
			steps++
		}
		found = found || s == long
	}
	if len(out) != 1000 || !found || steps != 999 || first.Begin != 0 || last.Begin < 9_900_000 {
		t.Errorf("%d bands, %d of steps, from %d to %d, the longest: %v", len(out), steps, first.Begin, last.Begin, found)
	}
	if got := spread(in[:7], 7); len(got) != 7 {
		t.Errorf("%d of 7", len(got))
	}
}
