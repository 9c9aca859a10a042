package main

import (
	"encoding/json"
	"math"
	"path/filepath"
	"testing"

	"github.com/gpurec/gpurec/format/formattest"
)

// mostUnexplained is how much of NVML's used bytes may be left of the parts.
const mostUnexplained = 0.02

// On recordings of PyTorch and CuPy the parts of a peak explain NVML's number;
// peak, timeline and summary agree on it, to the byte; so do a table's sum and
// the tree.
func TestPeaksOfH200(t *testing.T) {
	for _, name := range []string{"train", "cupy"} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(h200, name+".gpurec")
			code, out, stderr := command1(t, "peak", "--by", "parts", dir)
			if code != 0 {
				t.Fatalf("exit %d\n%s", code, stderr)
			}
			formattest.Golden(t, filepath.Join("h200", name+".peak.txt"), []byte(out))
			var peak struct {
				Devices []struct {
					Used  int64
					Tree  struct{ Used int64 }
					Lines []struct{ Used int64 }
					Parts struct {
						Used int64 `json:"nvml_used"`
						Sum  int64
						Rows []struct {
							Part  string
							Bytes int64
						} `json:"parts"`
					}
				}
			}
			answer(t, &peak, "peak", dir)
			if len(peak.Devices) != 1 {
				t.Fatalf("%d devices", len(peak.Devices))
			}
			d := peak.Devices[0]
			lines, parts := int64(0), int64(0)
			for _, l := range d.Lines {
				lines += l.Used
			}
			for _, p := range d.Parts.Rows {
				parts += p.Bytes
			}
			left := d.Parts.Rows[len(d.Parts.Rows)-1]
			if share := math.Abs(float64(left.Bytes)) / float64(d.Parts.Used); left.Part != "unexplained" || share >= mostUnexplained {
				t.Errorf("%s is %d bytes, %.2f %% of what NVML read as used", left.Part, left.Bytes, 100*share)
			}
			if parts != d.Parts.Sum || lines != d.Used || d.Tree.Used != d.Used {
				t.Errorf("parts add up to %d of %d, lines to %d and the tree to %d of %d", parts, d.Parts.Sum, lines, d.Tree.Used, d.Used)
			}
			var timeline struct {
				Traces []struct{ Series []struct{ Max int64 } }
			}
			answer(t, &timeline, "timeline", dir)
			if got := timeline.Traces[0].Series[0].Max; got != d.Used {
				t.Errorf("the timeline reaches %d, the peak is %d", got, d.Used)
			}
			var summary struct {
				Traces []struct {
					Devices []struct {
						Used struct{ Bytes int64 } `json:"peak_used"`
					}
				}
			}
			answer(t, &summary, "summary", dir)
			if got := summary.Traces[0].Devices[0].Used.Bytes; got != d.Used {
				t.Errorf("the summary says %d, the peak is %d", got, d.Used)
			}
		})
	}
}

// answer reads a command's JSON.
func answer(t *testing.T, into any, name, dir string, flags ...string) {
	t.Helper()
	code, out, stderr := command1(t, append([]string{name, "--json", dir}, flags...)...)
	if code != 0 {
		t.Fatalf("%s: exit %d\n%s", name, code, stderr)
	}
	if err := json.Unmarshal([]byte(out), into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}
