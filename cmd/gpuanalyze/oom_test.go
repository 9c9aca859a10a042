package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/oom"
	"github.com/gpurec/gpurec/format/formattest"
)

// oomOf is the report on one of the programs of testdata/h200/oom.py.
func oomOf(t *testing.T, name string) (r *oom.Report, page string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name+".gpurec")
	if code, _, stderr := command1(t, "import", "text", filepath.Join(h200, "oom", name+".txt.zst"), "-o", dir); code != 0 {
		t.Fatalf("import: exit %d\n%s", code, stderr)
	}
	code, page, stderr := command1(t, "oom", dir)
	if code != 0 {
		t.Errorf("exit %d\n%s", code, stderr)
	}
	_, out, _ := command1(t, "oom", "--json", dir)
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	return r, strings.ReplaceAll(page, dir, name+".gpurec")
}

// Each program of oom.py ran out of memory for one reason, which the headline
// names. One did not: its retry worked.
func TestCausesOnH200(t *testing.T) {
	for name, want := range map[string]string{
		"list": oom.KeptTensors, "activation": oom.LargerThanGPU, "fragments": oom.Fragmentation, "neighbour": oom.OtherProcess,
		"fraction": oom.OwnLimit, "pool-limit": oom.OwnLimit, "retried": "",
	} {
		t.Run(name, func(t *testing.T) {
			r, page := oomOf(t, name)
			formattest.Golden(t, "h200/oom."+name+".txt", []byte(page))
			tr := r.Traces[0]
			if want == "" {
				if len(tr.Failures) != 0 || len(tr.Retried) != 1 || tr.Retried[0].Count != 1 {
					t.Errorf("%d failures, %+v", len(tr.Failures), tr.Retried)
				}
				return
			}
			if len(tr.Failures) != 1 || tr.Failures[0].Count != 1 || len(tr.Retried) != 0 {
				t.Fatalf("%d failures, %d retried", len(tr.Failures), len(tr.Retried))
			}
			f := tr.Failures[0]
			if f.Causes[0].ID != want || f.Outcome != oom.Fatal {
				t.Errorf("%s, %s", f.Causes[0].ID, f.Outcome)
			}
			if m := f.Memory; m.Free+m.Process+m.Others != m.Total || m.Segments+m.Outside != m.Acquired || m.Used+m.Cached != m.Segments {
				t.Errorf("parts do not add up: %+v", m)
			}
		})
	}
}

// More of them. Those of padding.py and views.py were written, with the right
// answer, by somebody who had not seen this program: a document that pads a whole
// batch, and views that keep the arrays they are of.
func TestMoreCausesOnH200(t *testing.T) {
	for _, row := range []struct {
		name    string
		cause   string // of the first failure; "" for none
		outcome oom.Outcome
		times   int64
		retried int
		says    []string
	}{
		{"padding", oom.HugeRequest, oom.Fatal, 1, 1, []string{"padding.py:95:compute_loss", "inside      step 20 > forward"}},
		{"views", oom.GrowingMemory, oom.Fatal, 1, 0, []string{"+117.18 GiB", "views.py:41:standardise"}},
		{"backward", oom.HugeRequest, oom.Fatal, 1, 0, []string{"[thread pt_autograd_0]"}},
		{"ranks", oom.OtherProcess, oom.Open, 1, 0, []string{"pid 807"}},
		{"caught", oom.LargerThanGPU, oom.Survived, 2, 0, nil},
		// cuMemCreate refuses the first with 800, not permitted: PyTorch asks for a handle that the fabric can share, and does without.
		{"expandable", "", "", 0, 0, []string{"never out of device memory", "also failed: 1 × cuMemCreate of pid 913, status 800, which is not out of memory"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			r, page := oomOf(t, row.name)
			formattest.Golden(t, "h200/oom."+row.name+".txt", []byte(page))
			tr := r.Traces[0]
			times := int64(0)
			for _, f := range tr.Failures {
				times += f.Count
			}
			if times != row.times || len(tr.Retried) != row.retried {
				t.Fatalf("%d failures, %d retried", times, len(tr.Retried))
			}
			if times > 0 && (tr.Failures[0].Causes[0].ID != row.cause || tr.Failures[0].Outcome != row.outcome) {
				t.Errorf("%s, %s", tr.Failures[0].Causes[0].ID, tr.Failures[0].Outcome)
			}
			for _, s := range row.says {
				if !strings.Contains(page, s) {
					t.Errorf("it does not say %q", s)
				}
			}
		})
	}
}

// What the frameworks' own messages said in the same runs is what the report
// says, as exactly as they print it.
func TestOOMMessagesOfH200(t *testing.T) {
	number := `([\d.]+ (?:bytes|KiB|MiB|GiB))`
	message := regexp.MustCompile(`Tried to allocate ` + number + `\. GPU 0 has a total capacity of ` + number + ` of which ` + number + ` is free\. .*this process has ` + number +
		` memory in use\..* Of the allocated memory ` + number + ` is allocated by PyTorch, and ` + number + ` is reserved by PyTorch but unallocated`)
	compared := 0
	same := func(t *testing.T, what, said string, bytes, slack int64) {
		t.Helper()
		compared++
		if n, half := parsed(t, said); bytes < n-half-slack || bytes > n+half+slack {
			t.Errorf("%s: PyTorch said %s, the report says %d", what, said, bytes)
		}
	}
	for _, name := range []string{"list", "activation", "fragments", "neighbour", "fraction"} {
		t.Run(name, func(t *testing.T) {
			out := text(t, filepath.Join(h200, "oom", name+".out"))
			r, _ := oomOf(t, name)
			f, said := r.Traces[0].Failures[0], message.FindStringSubmatch(out)
			if said == nil {
				t.Fatalf("no message in %s", out)
			}
			same(t, "asked for", said[1], f.Asked, 1<<20) // PyTorch prints what it asked the driver for
			same(t, "total", said[2], f.Memory.Total, 0)
			same(t, "free", said[3], f.Memory.Free, 0)
			same(t, "this process", said[4], f.Memory.Process, 0)
			same(t, "live", said[5], f.Memory.Used, 0)
			same(t, "cached", said[6], f.Memory.Cached, 0)
			if other := regexp.MustCompile(`Process \d+ has ` + number).FindStringSubmatch(out); other != nil {
				same(t, "another process", other[1], f.Memory.Others, 16<<20) // and the driver itself, 9 MiB
			}
			if allowed := regexp.MustCompile(number + ` allowed`).FindStringSubmatch(out); allowed != nil {
				n, half := parsed(t, allowed[1])
				if f.Memory.Segments > n+half || f.Memory.Segments+f.Asked < n-half {
					t.Errorf("%s allowed, and %d taken with %d asked for", allowed[1], f.Memory.Segments, f.Asked)
				}
			}
		})
	}
	cupy := regexp.MustCompile(`allocating ([\d,]+) bytes \(allocated so far: ([\d,]+) bytes, limit set to: ([\d,]+) bytes`).FindStringSubmatch(text(t, filepath.Join(h200, "oom", "pool-limit.out")))
	r, _ := oomOf(t, "pool-limit")
	for i, want := range []int64{r.Traces[0].Failures[0].Asked, r.Traces[0].Failures[0].Memory.Segments, r.Traces[0].Failures[0].Causes[0].Bytes} {
		if n, err := strconv.ParseInt(strings.ReplaceAll(cupy[i+1], ",", ""), 10, 64); err != nil || n != want {
			t.Errorf("CuPy said %s, the report says %d", cupy[i+1], want)
		}
		compared++
	}
	if compared < 30 {
		t.Errorf("compared %d numbers only", compared)
	}
}

// parsed is a size as PyTorch prints it, and half of its last digit.
func parsed(t *testing.T, s string) (n, half int64) {
	t.Helper()
	number, unit, _ := strings.Cut(s, " ")
	f, err := strconv.ParseFloat(number, 64)
	scale, ok := map[string]float64{"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}[unit]
	if err != nil || !ok {
		t.Fatalf("size %q: %v", s, err)
	}
	return int64(f * scale), int64(scale*0.005) + 1
}

func text(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestOOMCommand(t *testing.T) {
	for _, row := range []struct {
		name           string
		args           []string
		code           int
		stdout, stderr string
	}{
		{"nothing failed", []string{"oom", formattest.Text(t, traceText).Path()}, 0, ": never out of device memory\n", "complete\n"},
		{"nothing failed, as JSON", []string{"oom", "--json", formattest.Text(t, traceText).Path()}, 0, `"failures": []`, "complete\n"},
		{"empty", []string{"oom", formattest.Text(t, "part\n").Path()}, 0, ": never out of device memory\n", "complete\n"},
		{"partial", []string{"oom", "-q", formattest.Text(t, traceText+"6000000 Lost thread=7 size=3\n").Path()}, exitPartial, "never", "partial: 3 events lost"},
		{"help", []string{"oom", "--help"}, 0, "fragmentation       what is cached and free is enough", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			code, stdout, stderr := command1(t, row.args...)
			if code != row.code || !strings.Contains(stdout, row.stdout) || !strings.Contains(stderr, row.stderr) {
				t.Errorf("exit %d\n%s\n%s", code, stdout, stderr)
			}
		})
	}
}
