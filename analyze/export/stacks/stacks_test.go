package stacks

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/lines"
	"github.com/gpurec/gpurec/analyze/tree"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/formattest"
)

func of(t *testing.T, q analyze.Query, paths ...string) *Answer {
	t.Helper()
	a := New()
	if _, err := analyze.Run(context.Background(), paths, &q, a, nil); err != nil {
		t.Fatal(err)
	}
	return a
}

// Process 1 has a pool on device 0, process 2 none, on device 1. The peaks are
// at 1300 and 1400; process 2 ends, process 1 does not.
const small = `
meta start=2026-11-30T10:00:00.000000001Z start_monotonic=1000
device 0 uuid="GPU-a" name="H200" total=1000
device 1 uuid="GPU-b" name="H200" total=1000
process 1 pid=11 command="python train.py" rank=3
process 2 pid=22 command="./c"
frame 1 python "/app/main.py" 42 "<module>"
frame 2 python "/app/a;b.py" 7 "forward\nx"
frame 3 thread "" 0 "[thread loader]"
stack 10 0 1
stack 11 10 2
stack 12 0 3
1200 Alloc process=1 thread=5 api=cuMemAlloc_v2 device=0 address=0x1000 size=512 requested=500 stack=10
1300 Alloc process=1 thread=5 api=cupy device=0 address=0x1000 object=1 size=256 requested=200 stack=11
1350 AllocFailed process=1 thread=5 api=cuMemAlloc_v2 device=0 requested=99999 status=2 stack=11
1400 Alloc process=2 thread=6 api=cuMemAlloc_v2 device=1 address=0x10 size=100 requested=100 stack=12
1500 Free process=1 thread=5 api=cupy address=0x1000 object=1
1600 Alloc process=1 thread=5 api=cupy device=0 address=0x1000 object=1 size=128 requested=100 stack=10
1650 Alloc process=1 thread=5 api=cupy device=0 address=0x1100 object=2 size=7 requested=7
1700 ProcessEnd process=2 status=0
`

func TestRows(t *testing.T) {
	a := of(t, analyze.Query{}, formattest.Text(t, small).Path())
	var got []string
	for i := range a.rows {
		r := &a.rows[i]
		labels := r.where(a.several())
		for _, f := range r.frames {
			labels = append(labels, a.frames.all[f].label())
		}
		got = append(got, strings.Trim(fmt.Sprint(r.process.PID, labels, r.values), ""))
	}
	want := []string{ // objects and bytes: taken, at the end, at the peak; acquired: the same
		"11 [device 0 [no line]] [1 7 1 7 0 0 0 0 0]",
		"11 [device 0 /app/main.py:42:<module>] [1 128 1 128 0 0 512 512 512]",
		"11 [device 0 /app/main.py:42:<module> /app/a;b.py:7:forward�x] [1 256 0 0 1 256 0 0 0]",
		"22 [device 1 [thread loader]] [1 100 1 100 1 100 100 100 100]",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestFolded(t *testing.T) {
	a := of(t, analyze.Query{}, formattest.Text(t, small).Path())
	for _, row := range []struct {
		v    Value
		want string
	}{
		{AllocSpace, "device 0;/app/main.py:42:<module> 128\ndevice 0;/app/main.py:42:<module>;/app/a,b.py:7:forward�x 256\ndevice 0;[no line] 7\ndevice 1;[thread loader] 100\n"},
		{AcquiredPeak, "device 0;/app/main.py:42:<module> 512\ndevice 1;[thread loader] 100\n"},
	} {
		t.Run(row.v.String(), func(t *testing.T) {
			var b bytes.Buffer
			if err := a.WriteFolded(&b, row.v); err != nil || b.String() != row.want {
				t.Errorf("%v, got\n%s\nwant\n%s", err, b.String(), row.want)
			}
		})
	}
}

// A directory may have any name, and a device, and each is on one line of UTF-8.
func TestNamesOfTraces(t *testing.T) {
	var paths []string
	for _, n := range []string{"a\nb;\x1b[31m\u202e.gpurec", "\xff\xfe.gpurec"} {
		path := filepath.Join(t.TempDir(), n)
		if err := os.Rename(formattest.Text(t, strings.Replace(small, `name="H200"`, `name="H\n\u202e200"`, 1)).Path(), path); err != nil {
			t.Skip(err) // not every file system takes every name
		}
		paths = append(paths, path)
	}
	a := of(t, analyze.Query{}, paths...)
	var folded, scope bytes.Buffer
	if err := a.WriteFolded(&folded, PeakSpace); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(folded.String(), "\n"), "\n")
	for _, l := range lines {
		if !regexp.MustCompile(`^[^;]+;device \d;.* \d+$`).MatchString(l) || l != analyze.Printable(l) {
			t.Errorf("%q", l)
		}
	}
	if err := a.WriteSpeedscope(&scope); err != nil {
		t.Fatal(err)
	}
	var file scopeFile
	if err := json.Unmarshal(scope.Bytes(), &file); err != nil {
		t.Fatal(err)
	}
	for _, p := range file.Profiles {
		if p.Name != analyze.Printable(p.Name) {
			t.Errorf("%q", p.Name)
		}
	}
}

func TestEmptyTrace(t *testing.T) {
	a := of(t, analyze.Query{}, formattest.Text(t, "process 1 pid=1\n").Path())
	for name, write := range map[string]func(io.Writer) error{"pprof": a.WritePprof, "speedscope": a.WriteSpeedscope,
		"folded": func(w io.Writer) error { return a.WriteFolded(w, PeakSpace) }} {
		if err := write(io.Discard); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// traces are recordings of an H200.
func traces(t *testing.T) (paths []string) {
	for _, name := range []string{"train", "cupy", "steps", "flavours"} {
		p := filepath.Join("..", "..", "..", "testdata", "h200", name+".gpurec")
		if _, err := os.Stat(p); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, p)
	}
	return paths
}

// On real traces every node of lines' trees is what the rows add up to.
func TestAgreesWithLines(t *testing.T) {
	step, err := analyze.ParseMoment("scope:step#3")
	if err != nil {
		t.Fatal(err)
	}
	still, err := analyze.ParseMoment("9.6s")
	if err != nil {
		t.Fatal(err)
	}
	const whole, window, moment, layer = "whole", "window", "moment", "layer"
	queries := map[string]analyze.Query{whole: {}, window: {From: step, To: step}, moment: {From: still, To: still}, layer: {Layers: []format.Layer{format.LayerDriver}}}
	for _, path := range traces(t) {
		for _, row := range []struct {
			query          string
			at             lines.At
			used, acquired Value
		}{{whole, lines.Peak, PeakSpace, AcquiredPeak}, {whole, lines.End, InuseSpace, AcquiredInuse}, {window, lines.Peak, PeakSpace, AcquiredPeak},
			{window, lines.End, InuseSpace, AcquiredInuse}, {moment, lines.Peak, PeakSpace, AcquiredPeak}, {layer, lines.Peak, PeakSpace, AcquiredPeak}} {
			if (row.query == window || row.query == moment) && !strings.HasPrefix(filepath.Base(path), "train") {
				continue // it has steps
			}
			t.Run(filepath.Base(path)+"/"+row.query+"/"+row.at.String(), func(t *testing.T) {
				q := queries[row.query]
				a := of(t, q, path)
				l := lines.New(row.at, 0, 1)
				c, err := analyze.Run(context.Background(), []string{path}, &q, l, nil)
				if err != nil {
					t.Fatal(err)
				}
				want := map[string][2]int64{}
				nodes := 0
				for _, tr := range l.Report(c).Trees {
					nodes += add(want, "", tr.Root)
				}
				got := map[string][2]int64{}
				for i := range a.rows {
					r := &a.rows[i]
					used, acquired := r.values[row.used], r.values[row.acquired]
					if used == 0 && acquired == 0 {
						continue
					}
					at := ""
					got[at] = [2]int64{got[at][0] + used, got[at][1] + acquired}
					for _, f := range r.frames {
						if fr := a.frames.all[f]; fr.function != tree.NoLineName {
							at += "\n" + fmt.Sprint(fr)
							got[at] = [2]int64{got[at][0] + used, got[at][1] + acquired}
						}
					}
				}
				if nodes < 2 && row.at == lines.Peak {
					t.Fatalf("%d nodes: there is nothing to compare", nodes)
				}
				for at, n := range want {
					if got[at] != n && n != [2]int64{} {
						t.Errorf("%s: %v, want %v", at, got[at], n)
					}
				}
				for at, n := range got {
					if want[at] != n {
						t.Errorf("%s: %v, and lines has %v", at, n, want[at])
					}
				}
			})
		}
	}
}

func add(to map[string][2]int64, at string, n *tree.Node) int {
	if n.Function != "" || n.File != "" {
		at += "\n" + fmt.Sprint(frame{n.Function, n.File, n.Line})
	}
	to[at] = [2]int64{to[at][0] + n.Used, to[at][1] + n.Acquired}
	nodes := 1
	for _, c := range n.Children {
		nodes += add(to, at, c)
	}
	return nodes
}

// pprof's own package reads the profile, and what it adds up to are the rows.
func TestPprof(t *testing.T) {
	paths := append(traces(t), formattest.Text(t, small).Path())
	a := of(t, analyze.Query{}, paths...)
	var b bytes.Buffer
	if err := a.WritePprof(&b); err != nil {
		t.Fatal(err)
	}
	p, err := profile.Parse(&b)
	if err != nil {
		t.Fatal(err)
	}
	var got, want [valueCount]int64
	byTrace := map[string]int64{}
	for _, s := range p.Sample {
		for v, n := range s.Value {
			got[v] += n
		}
		byTrace[s.Label["trace"][0]+" device "+s.Label["device"][0]] += s.Value[PeakSpace]
	}
	for i := range a.rows {
		for v, n := range a.rows[i].values {
			want[v] += n
		}
	}
	if got != want || p.DefaultSampleType != "peak_space" {
		t.Errorf("sums %v, want %v; default %s", got, want, p.DefaultSampleType)
	}
	for where, n := range map[string]int64{"train.gpurec device 0": 1405545984, "cupy.gpurec device 0": 93870080, "text.gpurec device 1": 100} { // what peak prints
		if byTrace[where] != n {
			t.Errorf("%s: %d at the peak, want %d", where, byTrace[where], n)
		}
	}
	leaf := p.Sample[0].Location[0].Line[0]
	if leaf.Function.Name == "" || leaf.Line == 0 {
		t.Errorf("the innermost frame is %v", leaf)
	}
}

// go tool pprof prints the numbers, and its web view has its pages.
func TestGoToolPprof(t *testing.T) {
	a := of(t, analyze.Query{}, traces(t)[0])
	path := filepath.Join(t.TempDir(), "train.pb.gz")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.WritePprof(f); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if out, err := exec.Command("go", "tool", "pprof", "-h").CombinedOutput(); !strings.Contains(string(out), "-top") {
		t.Skipf("no go tool pprof here: %v", err)
	}
	for v := range valueCount {
		out, err := exec.Command("go", "tool", "pprof", "-top", "-nodefraction=0", "-lines", "-unit=B", "-sample_index="+v.String(), path).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v: %s", v, err, out)
		}
		var got, want int64
		for _, m := range regexp.MustCompile(`(?m)^\s*(\d+)B?\s+[\d.e-]+%`).FindAllStringSubmatch(string(out), -1) {
			n, _ := strconv.ParseInt(m[1], 10, 64)
			got += n
		}
		for i := range a.rows {
			want += a.rows[i].values[v]
		}
		if v == PeakSpace && (!strings.Contains(string(out), "<module> /tmp") || !strings.Contains(string(out), "<lambda> /opt")) {
			t.Errorf("names are not what they are in Python:\n%s", out)
		}
		if got != want || want == 0 {
			t.Errorf("%v: pprof's flat numbers add up to %d, want %d\n%s", v, got, want, out)
		}
	}
	web(t, path)
}

// web starts the web view and looks at its pages.
func web(t *testing.T, path string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	l.Close()
	cmd := exec.Command("go", "tool", "pprof", "-no_browser", "-http="+at, path)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Signal(os.Interrupt)
	get := func(page string) (status int, body string, err error) {
		r, err := http.Get("http://" + at + page)
		if err != nil {
			return 0, "", err
		}
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		return r.StatusCode, string(b), err
	}
	for until := time.Now().Add(time.Minute); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
		if _, _, err := get("/ui/top"); err == nil {
			break
		}
	}
	for page, want := range map[string]string{"/ui/flamegraph?si=peak_space": "train.py", "/ui/top?si=alloc_space": "loss_of"} {
		if status, body, err := get(page); err != nil || status != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %v, status %d, %d bytes without %q", page, err, status, len(body), want)
		}
	}
}

// What speedscope.app reads: each sample is a list of frames and has a weight.
func TestSpeedscope(t *testing.T) {
	a := of(t, analyze.Query{}, formattest.Text(t, small).Path())
	var b bytes.Buffer
	if err := a.WriteSpeedscope(&b); err != nil {
		t.Fatal(err)
	}
	var f scopeFile
	if err := json.Unmarshal(b.Bytes(), &f); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range f.Profiles {
		for i, s := range p.Samples {
			line := fmt.Sprintf("%s, %s, %d of %d:", p.Name, p.Unit, p.Weights[i], p.End)
			for _, n := range s {
				line += " " + f.Shared.Frames[n].Name
			}
			got = append(got, line)
		}
	}
	const first = "peak_space of device 0 (H200), bytes, 256 of 256: <module> (main.py:42) forward�x (a;b.py:7)"
	const last = "alloc_objects of device 1 (H200), none, 1 of 1: [thread loader]"
	if len(f.Profiles) != 18 || len(got) == 0 || got[0] != first || got[len(got)-1] != last {
		t.Errorf("%d profiles:\n%s", len(f.Profiles), strings.Join(got, "\n"))
	}
}
