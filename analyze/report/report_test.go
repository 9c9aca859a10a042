package report_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/peak"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/formattest"
)

// made is the page of some traces.
func made(t testing.TB, q analyze.Query, filtered bool, paths ...string) []byte {
	t.Helper()
	run := func(ctx context.Context, a analyze.Answer, _ bool) (*analyze.Completeness, error) {
		return analyze.Run(ctx, paths, &q, a, nil)
	}
	r, err := report.Make(context.Background(), len(paths), filtered, run)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := r.WriteHTML(&b, "gpuanalyze test", ""); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// data is what a page gives its scripts, with the fields that tests look at.
type data struct {
	Traces []struct {
		Curves   []struct{ Device, Curve, Max, Least, Most string }
		OOM      struct{ Failures []struct{ Asked string } }
		Bands    []struct{ Name string }
		Contexts []struct{ Name, Used, Peaked string }
		Leaks    json.RawMessage
		Peaks    []struct {
			Tables map[string][]struct {
				Name, Used, Acquired, Blocks string
				Rest                         bool
			}
		}
	}
	Completeness analyze.Completeness
	Left         int `json:"traces_left_out"`
	Nodes        struct {
		Labels         []string
		Kinds          string
		Parents, Names string
	}
	Views []struct {
		Kind           string
		Trace          int
		Device         *int
		At             string
		Used, Acquired string
		Flame          struct{ Nodes, Used, Acquired string }
	}
	Totals []struct{ Name, Used, Acquired string }
}

func read(t testing.TB, page []byte) (d data) {
	t.Helper()
	_, after, _ := bytes.Cut(page, []byte(`id="data">`))
	text, _, ok := bytes.Cut(after, []byte("</script>"))
	if !ok {
		t.Fatal("the page has no data")
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

func numbers(t testing.TB, s string) (out []int64) {
	t.Helper()
	for _, f := range strings.Fields(s) {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, n)
	}
	return out
}

func sum(ns []int64) (n int64) {
	for _, v := range ns {
		n += v
	}
	return n
}

func number(t testing.TB, s string) int64 {
	t.Helper()
	return sum(numbers(t, s))
}

// check holds for every page: a view's own bytes add up to what it says, so do
// tables; nodes stand after their parents; the highest bucket is the peak.
func check(t testing.TB, page []byte) data {
	t.Helper()
	if len(page) > report.MostBytes {
		t.Errorf("%d bytes", len(page))
	}
	d := read(t, page)
	for i, p := range numbers(t, d.Nodes.Parents) {
		if p > int64(i) {
			t.Fatalf("node %d is below node %d", i+1, p)
		}
	}
	if len(d.Nodes.Kinds) != len(d.Nodes.Labels) {
		t.Errorf("%d kinds of %d labels", len(d.Nodes.Kinds), len(d.Nodes.Labels))
	}
	for _, v := range d.Views {
		nodes := numbers(t, v.Flame.Nodes)
		used, acquired := numbers(t, v.Flame.Used), numbers(t, v.Flame.Acquired)
		if len(nodes) != len(used) || len(nodes) != len(acquired) || sum(used) != number(t, v.Used) || sum(acquired) != number(t, v.Acquired) {
			t.Errorf("view %s at %s: own bytes are %d and %d, it says %s and %s", v.Kind, v.At, sum(used), sum(acquired), v.Used, v.Acquired)
		}
	}
	for _, tr := range d.Traces {
		for _, c := range tr.Curves {
			most := numbers(t, c.Most)
			high := int64(0)
			for i, least := range numbers(t, c.Least) {
				high = max(high, most[i])
				if least > most[i] {
					t.Errorf("%s %s: bucket %d has least %d and most %d", c.Device, c.Curve, i, least, most[i])
				}
			}
			if high != number(t, c.Max) {
				t.Errorf("%s %s: the highest bucket has %d, the peak is %s", c.Device, c.Curve, high, c.Max)
			}
		}
		for _, p := range tr.Peaks {
			sums := map[int64]bool{}
			for _, rows := range p.Tables {
				n := int64(0)
				for _, r := range rows {
					n += number(t, r.Used)
				}
				sums[n] = true
			}
			if len(sums) != 1 || len(p.Tables) != 6 {
				t.Errorf("%d tables of one peak have the sums %v", len(p.Tables), sums)
			}
		}
	}
	return d
}

const h200 = "../../testdata/h200/"

// The page says what gpuanalyze peak says, and its moments reach the peak.
func TestRealTraces(t *testing.T) {
	for _, name := range []string{"train", "cupy", "flavours", "steps"} {
		t.Run(name, func(t *testing.T) {
			path := h200 + name + ".gpurec"
			d := check(t, made(t, analyze.Query{}, false, path))
			a := peak.New(0, 1)
			c, err := analyze.Run(context.Background(), []string{path}, &analyze.Query{}, a, nil)
			if err != nil {
				t.Fatal(err)
			}
			seen := 0
			for _, dev := range a.Report(c).Devices {
				high := map[string]int64{}
				for _, v := range d.Views {
					if v.Device != nil && *v.Device == int(dev.Device) {
						high[v.Kind] = max(high[v.Kind], number(t, v.Used))
						seen++
					}
				}
				if high["peak"] != dev.Used || high["moment"] != dev.Used {
					t.Errorf("device %d: the page's peak is %d, its highest moment %d; gpuanalyze peak says %d", dev.Device, high["peak"], high["moment"], dev.Used)
				}
			}
			if seen < 2 {
				t.Errorf("%d views of devices", seen)
			}
		})
	}
}

func TestRandomTraces(t *testing.T) {
	for seed := range int64(40) {
		b := formattest.New(t)
		b.Process("a")
		b.Device("GPU-0", 1<<40)
		b.RandomPool(rand.New(rand.NewSource(seed)), 400)
		check(t, made(t, analyze.Query{}, false, b.Trace().Path()))
	}
}

// What is asked together is what is asked alone: with filters answers that count
// otherwise get a pass of their own.
func TestFilters(t *testing.T) {
	tr := formattest.Text(t, hostile)
	whole := check(t, made(t, analyze.Query{}, false, tr.Path()))
	one := check(t, made(t, analyze.Query{Threads: []uint32{8}}, true, tr.Path()))
	none := check(t, made(t, analyze.Query{Layers: []format.Layer{format.LayerHost}}, true, tr.Path()))
	if got := one.Traces[0].Contexts; len(got) != 0 {
		t.Errorf("thread 8 has contexts: %v", got)
	}
	if len(whole.Traces[0].Contexts) != 1 || whole.Traces[0].Contexts[0].Used != "9007199254740993" {
		t.Errorf("contexts of all: %v", whole.Traces[0].Contexts)
	}
	used := func(d data) (out []string) {
		for _, v := range d.Views {
			if v.Kind == "peak" {
				out = append(out, v.Used)
			}
		}
		return out
	}
	if got := fmt.Sprint(used(whole), used(one), used(none)); got != "[[9007199254741100] [107] []]" && got != "[9007199254741100] [107] []" {
		t.Errorf("peaks %s", got)
	}
}

// hostile has names that would be markup, that end a script, that turn text
// around, and bytes that no float holds.
const hostile = `meta command="</script><script>window.pwned=1</script>" host="<img src=x onerror=window.pwned=2>" no_samples="<b>none</b>"
device 0 uuid=GPU-0 name="<svg/onload=window.pwned=3>" total=18014398509481984
process 1 pid=4711 command="javascript:window.pwned=4 \u202e <!--<script>"
frame 1 python "</script><script>window.pwned=5</script>" 3 "{{script}}"
frame 2 python "]]><style>*{display:none}</style>" 4 "constructor"
stack 10 0 1
stack 11 10 2
name 3 "__proto__<img src=x onerror=window.pwned=6>"
part
1000 ScopeBegin thread=7 api=scope scope=1 name=3 note=3
1100 Alloc thread=7 api=torch device=0 address=0x100000 size=9007199254740993 stack=11 scope=1
1200 ScopeEnd thread=7 api=scope scope=1
1300 Alloc thread=8 api=torch device=0 address=0x40000000000000 size=107 stack=10
1400 AllocFailed thread=8 api=torch.oom device=0 requested=9007199254740995 size=9007199254740995 status=2 stack=11
1500 Free thread=8 api=torch address=0x40000000000000
`

// Nothing that a trace says is markup, and the policy names what is there.
func TestHostileNames(t *testing.T) {
	page := string(made(t, analyze.Query{}, false, formattest.Text(t, hostile).Path()))
	if n := strings.Count(page, "<script"); n != 2 {
		t.Errorf("%d scripts", n)
	}
	if n := strings.Count(page, "</script"); n != 2 {
		t.Errorf("%d ends of scripts", n)
	}
	for _, bad := range []string{"<img", "<svg", "\u202e", "{{data}}", "{{policy}}"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	policy := regexp.MustCompile(`Content-Security-Policy" content="([^"]*)"`).FindStringSubmatch(page)
	if policy == nil || !strings.HasPrefix(policy[1], "default-src 'none';") || strings.Contains(policy[1], "unsafe") || strings.Contains(policy[1], "http") {
		t.Errorf("the policy is %q", policy)
	}
	if regexp.MustCompile(`https?://(?:[^w]|w[^w])`).MatchString(page) { // but for SVG's namespace, at www.w3.org
		t.Error("the page names another place")
	}
}

// A trace without memory, and one without anything, have a page too.
func TestEmpty(t *testing.T) {
	for _, text := range []string{"part\n", "process 1 pid=1\npart\n1 ProcessBegin\n", "meta ending=failed reason=full\n"} {
		d := check(t, made(t, analyze.Query{}, false, formattest.Text(t, text).Path()))
		if len(d.Traces) != 1 {
			t.Errorf("%d traces", len(d.Traces))
		}
	}
}

// A file may claim any time; one that was not closed does not say when it ended.
func TestTimes(t *testing.T) {
	for _, text := range []string{
		"meta start_monotonic=-9000000000000000000 end_monotonic=9000000000000000000\npart\n-9000000000000000000 Alloc api=torch device=0 address=1 size=100\n9000000000000000000 Alloc api=torch device=0 address=9000 size=100\n",
		"meta start_monotonic=-9223372036854775808 end_monotonic=9223372036854775807\npart\n9223372036854775807 Alloc api=torch device=0 address=1 size=100\n",
		"meta ending=growing\npart\n1 Alloc api=torch device=0 address=1 size=100\n9223372036854775807 Alloc api=torch device=0 address=9000 size=100\n",
	} {
		d := check(t, made(t, analyze.Query{}, false, formattest.Text(t, "process 1 pid=1\n"+text).Path()))
		if len(d.Views) < 4 {
			t.Errorf("%d views", len(d.Views))
		}
	}
	var b strings.Builder
	b.WriteString("meta ending=growing\nprocess 1 pid=1\npart\n")
	for i := range 2000 { // of an unknown length: stretches double
		fmt.Fprintf(&b, "%d Alloc api=torch device=0 address=%d size=%d\n%d Free api=torch address=%d\n", i*1e7, 4096*(i+1), 1+(i*7919)%2000, i*1e7+1, 4096*(i+1))
	}
	d := check(t, made(t, analyze.Query{}, false, formattest.Text(t, b.String()).Path()))
	moments, high := 0, int64(0)
	for _, v := range d.Views {
		if v.Kind == "moment" {
			moments++
			high = max(high, number(t, v.Used))
		}
	}
	if moments < 256 || moments > 512 || high != 2000 {
		t.Errorf("%d moments, the highest with %d bytes", moments, high)
	}
}

// crowded has more of everything than a page can show, under long names.
func crowded() string {
	var b strings.Builder
	long := strings.Repeat("n", 3000)
	b.WriteString("device 0 uuid=GPU-0 total=100000000000\nprocess 1 pid=4711 command=" + long + "\n")
	for i := range many {
		fmt.Fprintf(&b, "frame %d python %s%d %d f\nname %d %s%d\n", i+1, long[:300], i, i, i+1, long[:300], i)
		fmt.Fprintf(&b, "stack %d %d %d\n", i+1, i/20, i+1)
	}
	b.WriteString("part\n")
	for i := range many {
		fmt.Fprintf(&b, "%d ScopeBegin thread=7 api=scope scope=%d name=%d\n", 10*i, i+1, i+1)
		fmt.Fprintf(&b, "%d Alloc thread=7 api=torch device=%d address=%d size=%d stack=%d scope=%d\n", 10*i+1, i%25, 4096*(i+1), 1+i%1000, i+1, i+1)
		fmt.Fprintf(&b, "%d ScopeEnd thread=7 api=scope scope=%d\n", 10*i+2, i+1)
	}
	return b.String()
}

const many = 12_000

// However much there is of everything, the page is small, and its sums are
// those of all.
func TestBounded(t *testing.T) {
	page := made(t, analyze.Query{}, false, formattest.Text(t, crowded()).Path())
	d := check(t, page)
	total := int64(0)
	for _, r := range d.Totals {
		total += number(t, r.Used)
	}
	if want := int64(many / 1000 * 500500); total != want {
		t.Errorf("all that was taken is %d bytes, want %d", total, want)
	}
	if len(page) < report.MostBytes/8 {
		t.Errorf("%d bytes: this test tests nothing, or too little is shown", len(page))
	}
	t.Logf("%d bytes", len(page))
}

// Curves are drawn coarser by pairs; a trace of many parts goes on.
func TestTwoTraces(t *testing.T) {
	d := check(t, made(t, analyze.Query{}, false, h200+"train.gpurec", h200+"cupy.gpurec"))
	if len(d.Traces) != 2 || len(d.Traces[1].Curves) == 0 || len(d.Traces[1].Peaks) == 0 || len(d.Traces[0].Peaks) == 0 {
		t.Fatalf("%d traces", len(d.Traces))
	}
	seen := map[int]bool{}
	for _, v := range d.Views {
		seen[v.Trace] = true
	}
	if !seen[-1] || !seen[0] || !seen[1] {
		t.Errorf("views of traces %v", seen)
	}
}

// twin makes a trace of the evidence's compressed text.
func twin(t testing.TB, name string) string {
	t.Helper()
	f, err := os.Open(h200 + name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	dir := filepath.Join(t.TempDir(), strings.TrimSuffix(filepath.Base(name), ".txt.zst")+".gpurec")
	if err := format.ReadText(f, dir); err != nil {
		t.Fatal(err)
	}
	return dir
}
