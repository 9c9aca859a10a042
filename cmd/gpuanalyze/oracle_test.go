package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
)

var oracleTraces = flag.Int("oracle", 150, "compare this many random traces with testdata/oracle.py")

// An oracle is what testdata/oracle.py says of a trace. It shares no code with
// us: it was written in another language, from the definitions.
type oracle struct {
	Peaks        map[string][2]int64   // "device 0 used" → bytes, when
	Unknown      int64                 `json:"unknown_frees"`
	Lost         int64                 `json:"lost_frees"`
	LiveAtEnd    map[string]int64      `json:"live_at_end"` // by pid
	Scopes       map[string]scopeTruth // by id
	Total        map[string][2]int64   // path of lines → used, acquired
	AtPeak       map[string]lineSums   `json:"at_peak"` // by device
	ScopesAtPeak map[string]scopeSums  `json:"scopes_at_peak"`
	AtEnd        lineSums              `json:"at_end"`
	Leaks        map[string]int64      // "pid layer class"
	History      map[string][][2]int64 // device → when, used
	Taken        [3]int64              // bytes, allocations, largest
	Filtered     map[string]*oracle    // by flags, of random traces
}

type scopeTruth struct{ Used, Acquired [3]int64 } // begin, end, max

type (
	lineSums  map[string][2]int64 // line → used, acquired
	scopeSums map[string]int64
)

// oracles runs the oracle, whose answers come a line each.
func oracles(t *testing.T, each func(text string, want *oracle), args ...string) {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3")
	}
	cmd := exec.Command(python, append([]string{"-B", "testdata/oracle.py"}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReaderSize(out, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			break
		}
		var row struct {
			Text    string
			Answers oracle
		}
		if err := json.Unmarshal(line, &row); err != nil {
			t.Fatal(err)
		}
		each(row.Text, &row.Answers)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
}

// Every answer of random traces is the oracle's, to the byte.
func TestOracleOfRandomTraces(t *testing.T) {
	seen := 0
	root := t.TempDir()
	var before *oracle
	oracles(t, func(text string, want *oracle) {
		dir := filepath.Join(root, fmt.Sprint(seen%2)) // two, for diff
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := format.ReadText(strings.NewReader(text), dir); err != nil {
			t.Fatal(err)
		}
		bad := append(judge(t, dir, want), judgeParts(t, dir, want)...)
		if before != nil {
			bad = append(bad, judgeDiff(t, filepath.Join(root, fmt.Sprint((seen+1)%2)), dir, before, want)...)
		}
		before = want
		if len(bad) > 0 {
			t.Fatalf("trace %d:\n%s\n%s", seen, strings.Join(bad, "\n"), text)
		}
		seen++
	}, "random", "0", strconv.Itoa(*oracleTraces))
	if !t.Skipped() && seen != *oracleTraces {
		t.Fatalf("%d traces were compared", seen)
	}
}

// The same of the recordings of an H200.
func TestOracleOfH200(t *testing.T) {
	for _, name := range []string{"train", "cupy", "flavours"} {
		dir := filepath.Join(h200, name+".gpurec")
		code, text, stderr := command1(t, "events", "-q", dir)
		if code != 0 {
			t.Fatalf("exit %d\n%s", code, stderr)
		}
		twin := filepath.Join(t.TempDir(), name+".txt")
		if err := os.WriteFile(twin, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		oracles(t, func(_ string, want *oracle) {
			for _, bad := range judge(t, dir, want) {
				t.Errorf("%s: %.2000s", name, bad)
			}
		}, "replay", twin)
	}
}

// judge compares all answers with the oracle's, and says what differs.
func judge(t *testing.T, dir string, want *oracle) (bad []string) {
	same := func(what string, got, want any) {
		if !reflect.DeepEqual(got, want) {
			bad = append(bad, fmt.Sprintf("%s: got %v, the oracle says %v", what, got, want))
		}
	}
	judgeSummary(t, dir, want, same)
	judgeScopes(t, dir, want, same)
	judgeLines(t, dir, want, same)
	judgePeak(t, dir, want, same)
	judgeTimeline(t, dir, want, same)
	judgeLeaks(t, dir, want, same)
	judgeRanks(t, dir, want, same)
	return bad
}

type compare func(what string, got, want any)

type peakJSON struct{ Bytes, At_ns int64 }

func (p peakJSON) pair() [2]int64 {
	if p.Bytes == 0 {
		return [2]int64{}
	}
	return [2]int64{p.Bytes, p.At_ns}
}

func judgeSummary(t *testing.T, dir string, want *oracle, same compare) {
	var r struct {
		Traces []struct {
			Unknown int64 `json:"unknown_frees"`
			Unseen  int64 `json:"lost_frees"`
			Devices []struct {
				Device         int
				Used, Acquired peakJSON
				PeakUsed       peakJSON `json:"peak_used"`
				PeakAcquired   peakJSON `json:"peak_acquired"`
			}
			Processes []struct {
				PID          int
				PeakUsed     peakJSON `json:"peak_used"`
				PeakAcquired peakJSON `json:"peak_acquired"`
				LiveAtEnd    int64    `json:"live_at_end"`
			}
		}
	}
	answer(t, &r, "summary", dir)
	tr := r.Traces[0]
	same("unknown frees", tr.Unknown, want.Unknown)
	same("lost frees", tr.Unseen, want.Lost)
	for _, d := range tr.Devices {
		same(fmt.Sprintf("summary: device %d used", d.Device), d.PeakUsed.pair(), want.Peaks[fmt.Sprintf("device %d used", d.Device)])
		same(fmt.Sprintf("summary: device %d acquired", d.Device), d.PeakAcquired.pair(), want.Peaks[fmt.Sprintf("device %d acquired", d.Device)])
	}
	for _, p := range tr.Processes {
		same(fmt.Sprintf("summary: pid %d used", p.PID), p.PeakUsed.pair(), want.Peaks[fmt.Sprintf("pid %d used", p.PID)])
		same(fmt.Sprintf("summary: pid %d acquired", p.PID), p.PeakAcquired.pair(), want.Peaks[fmt.Sprintf("pid %d acquired", p.PID)])
		same(fmt.Sprintf("summary: pid %d live at its end", p.PID), p.LiveAtEnd, want.LiveAtEnd[fmt.Sprint(p.PID)])
	}
}

func judgeScopes(t *testing.T, dir string, want *oracle, same compare) {
	for _, curve := range []string{"used", "acquired"} {
		var r struct {
			Scopes []struct {
				ID    uint64
				Bytes struct{ Used, Peaked, Begin, End, Max int64 }
			}
		}
		answer(t, &r, "contexts", dir, "--curve", curve)
		same("scopes", len(r.Scopes), len(want.Scopes))
		for _, s := range r.Scopes {
			w := want.Scopes[fmt.Sprint(s.ID)].Used
			if curve == "acquired" {
				w = want.Scopes[fmt.Sprint(s.ID)].Acquired
			}
			b := s.Bytes
			same(fmt.Sprintf("scope %d %s", s.ID, curve), [5]int64{b.Begin, b.End, b.Max, b.Used, b.Peaked},
				[5]int64{w[0], w[1], w[2], w[1] - w[0], w[2] - max(w[0], w[1])})
		}
	}
}

type nodeJSON struct {
	File, Function string
	Kind           string
	Line           int
	Used, Acquired int64
	Children       []*nodeJSON
}

func (n *nodeJSON) label() string {
	if n.Kind == "thread" || n.Kind == "label" {
		return n.Function
	}
	return fmt.Sprintf("%s:%d:%s", n.File, n.Line, n.Function)
}

// paths are a tree's bytes by path.
func (n *nodeJSON) paths(at string, into map[string][2]int64) {
	if n.Used != 0 || n.Acquired != 0 {
		into[at] = [2]int64{n.Used, n.Acquired}
	}
	for _, c := range n.Children {
		path := c.label()
		if at != "" {
			path = at + "\n" + path
		}
		c.paths(path, into)
	}
}

// leaves adds up what was taken on each line itself.
func (n *nodeJSON) leaves(into lineSums) {
	own := [2]int64{n.Used, n.Acquired}
	for _, c := range n.Children {
		own[0] -= c.Used
		own[1] -= c.Acquired
		c.leaves(into)
	}
	if own != [2]int64{} {
		name := "[no line]"
		if n.Kind != "" {
			name = n.label()
		}
		sum := into[name]
		into[name] = [2]int64{sum[0] + own[0], sum[1] + own[1]}
	}
}

func judgeLines(t *testing.T, dir string, want *oracle, same compare) {
	type report struct {
		Trees []struct {
			Device *int
			Tree   *nodeJSON
		}
	}
	var total, end, peak report
	answer(t, &total, "lines", dir)
	paths := map[string][2]int64{}
	total.Trees[0].Tree.paths("", paths)
	same("lines, total", paths, want.Total)

	answer(t, &end, "lines", dir, "--at", "end")
	sums := lineSums{}
	end.Trees[0].Tree.leaves(sums)
	same("lines at the end", sums, want.AtEnd)

	answer(t, &peak, "lines", dir, "--at", "peak")
	for _, tree := range peak.Trees {
		if tree.Device == nil || want.Peaks[fmt.Sprintf("device %d used", *tree.Device)][0] == 0 {
			continue // acquired alone has no highest moment of its own
		}
		sums := lineSums{}
		tree.Tree.leaves(sums)
		same(fmt.Sprintf("lines at the peak of device %d", *tree.Device), sums, want.AtPeak[fmt.Sprint(*tree.Device)])
	}
}

func judgePeak(t *testing.T, dir string, want *oracle, same compare, flags ...string) {
	type row struct {
		Name           string
		Used, Acquired int64
	}
	var r struct {
		Devices []struct {
			Device int
			At_ns  int64
			Used   int64
			Lines  []row
			Scopes []row
		}
	}
	answer(t, &r, "peak", dir, flags...)
	seen := 0
	for _, d := range r.Devices {
		if d.Used == 0 {
			continue
		}
		seen++
		same(fmt.Sprintf("peak of device %d", d.Device), [2]int64{d.Used, d.At_ns}, want.Peaks[fmt.Sprintf("device %d used", d.Device)])
		lines, scopes := lineSums{}, scopeSums{}
		for _, l := range d.Lines {
			if l.Used != 0 || l.Acquired != 0 {
				lines[l.Name] = [2]int64{l.Used, l.Acquired}
			}
		}
		for _, s := range d.Scopes {
			if s.Used != 0 {
				scopes[s.Name] = s.Used
			}
		}
		same(fmt.Sprintf("lines of device %d", d.Device), lines, want.AtPeak[fmt.Sprint(d.Device)])
		same(fmt.Sprintf("scopes of device %d", d.Device), scopes, want.ScopesAtPeak[fmt.Sprint(d.Device)])
	}
	same("devices with a peak", seen, len(want.AtPeak))
}

func judgeTimeline(t *testing.T, dir string, want *oracle, same compare) {
	var r struct {
		Traces []struct {
			Bucket int64 `json:"bucket_ns"`
			Series []struct {
				Name        string
				Max         int64
				Least, Most []int64
			}
		}
	}
	answer(t, &r, "timeline", dir, "--points", "9")
	tr := r.Traces[0]
	same("series", len(tr.Series), len(want.History))
	for _, s := range tr.Series {
		history := want.History[strings.TrimPrefix(s.Name, "device ")]
		for i := range s.Most {
			from, to := int64(i)*tr.Bucket, int64(i+1)*tr.Bucket
			if i == len(s.Most)-1 {
				to++ // the last moment is in it
			}
			carried, least, most := int64(0), int64(-1), int64(0)
			for _, h := range history {
				switch {
				case h[0] < from:
					carried = h[1]
				case h[0] < to:
					most = max(most, h[1])
					if least < 0 || h[1] < least {
						least = h[1]
					}
				}
			}
			if least < 0 || carried < least {
				least = carried
			}
			same(fmt.Sprintf("%s, bucket %d", s.Name, i), [2]int64{s.Least[i], s.Most[i]}, [2]int64{least, max(most, carried)})
		}
		same("most of "+s.Name, s.Max, want.Peaks[s.Name+" used"][0])
	}
}

func judgeLeaks(t *testing.T, dir string, want *oracle, same compare, flags ...string) {
	var r struct {
		Traces []struct {
			Processes []struct {
				PID   int
				AtEnd struct {
					Sums []struct {
						Layer, Class string
						Bytes        int64
					}
				} `json:"at_end"`
			}
		}
	}
	answer(t, &r, "leaks", dir, flags...)
	got := map[string]int64{}
	for _, p := range r.Traces[0].Processes {
		for _, s := range p.AtEnd.Sums {
			if s.Bytes != 0 {
				got[fmt.Sprintf("%d %s %s", p.PID, s.Layer, s.Class)] = s.Bytes
			}
		}
	}
	for k, v := range got { // of layers and classes that leaks looks at
		same("leaks: "+k, v, want.Leaks[k])
	}
	for pid, v := range want.LiveAtEnd {
		same("leaks of pid "+pid, max(got[pid+" pool device"], got[pid+" driver device"]) >= v, true)
	}
}

// judgeDiff compares what each of two traces comes to.
func judgeDiff(t *testing.T, dirA, dirB string, a, b *oracle) (bad []string) {
	var r struct {
		A, B struct {
			Bytes struct{ Peak, End, Taken, Count, Largest int64 }
		}
	}
	answer(t, &r, "diff", dirA, dirB)
	for i, want := range []*oracle{a, b} {
		got := r.A.Bytes
		if i == 1 {
			got = r.B.Bytes
		}
		end := int64(0)
		for _, v := range want.AtEnd {
			end += v[0]
		}
		g, w := [5]int64{got.Peak, got.End, got.Taken, got.Count, got.Largest}, [5]int64{want.Peaks["all used"][0], end, want.Taken[0], want.Taken[1], want.Taken[2]}
		if g != w {
			bad = append(bad, fmt.Sprintf("diff, side %d: got %v, the oracle says %v", i, g, w))
		}
	}
	return bad
}
