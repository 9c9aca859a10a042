package main

import (
	"encoding/json"
	"math"
	"path/filepath"
	"strings"
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

func TestPeakAndTimelineUsage(t *testing.T) {
	for _, row := range []struct {
		args []string
		want string
	}{
		{[]string{"peak", "--by", "color"}, "--by color"},
		{[]string{"peak", "--top", "-1"}, "--top -1"},
		{[]string{"timeline", "--by", "color"}, "--by"},
		{[]string{"timeline", "--curve", "free"}, "--curve"},
		{[]string{"timeline", "--curve", "nvml", "--by", "line"}, "--by device only"},
		{[]string{"timeline", "--points", "0"}, "--points 0"},
		{[]string{"timeline", "--points", "10001"}, "it is 1 to 10000"},
		{[]string{"timeline", "--top", "-2"}, "--top -2"},
		{[]string{"timeline", "--rows", "--json"}, "exclude each other"},
	} {
		code, stdout, stderr := command1(t, append(row.args, filepath.Join(h200, "cupy.gpurec"))...)
		if code != exitUsage || stdout != "" || !strings.Contains(stderr, row.want) {
			t.Errorf("%v: exit %d, %q, %q", row.args, code, stdout, stderr)
		}
	}
}

// Of a trace that lost events the answers are partial, and say so.
func TestPeakAndTimelineOfPartial(t *testing.T) {
	dir := formattest.Text(t, traceText+"6000000 Lost thread=7 size=3\n").Path()
	for _, name := range []string{"peak", "timeline"} {
		code, stdout, stderr := command1(t, name, dir)
		if code != exitPartial || stdout == "" || !strings.Contains(stderr, "3 events lost") {
			t.Errorf("%s: exit %d, %q", name, code, stderr)
		}
	}
}
