package oom

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/formattest"
)

func ask(t *testing.T, tr *format.Trace, q *analyze.Query) *Report {
	t.Helper()
	a := New()
	c, err := analyze.Run(context.Background(), []string{tr.Path()}, q, a, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := a.Report(c)
	for _, f := range r.Traces[0].Failures {
		f.LiveThen = strings.Replace(f.LiveThen, r.Traces[0].Path, "small.gpurec", 1)
		f.SegsThen = strings.Replace(f.SegsThen, r.Traces[0].Path, "small.gpurec", 1)
	}
	r.Traces[0].Path = "small.gpurec"
	return r
}

// words are what a report says in short: a line for each failure, then the
// retries, then what failed for another reason.
func words(r *Report) string {
	var b strings.Builder
	for _, f := range r.Traces[0].Failures {
		var causes []string
		for _, c := range f.Causes {
			causes = append(causes, c.ID)
		}
		fmt.Fprintf(&b, "%d × %s asked %d, refused %d, %s: %s\n", f.Count, f.Reporter, f.Asked, f.Refusals, f.Outcome, strings.Join(causes, " "))
	}
	for _, r := range r.Traces[0].Retried {
		fmt.Fprintf(&b, "retried %d × %s %d, freed %d in %d\n", r.Count, r.API, r.Largest, r.Freed, r.Took)
	}
	for _, o := range r.Traces[0].Other {
		fmt.Fprintf(&b, "other %d × %s %d host=%v\n", o.Count, o.API, o.Status, o.Host)
	}
	return b.String()
}

// head is a device of 1000 bytes, and two processes.
const head = `device 0 uuid=G name=H200 total=1000
process 1 pid=7 command="python a.py"
process 2 pid=8 command="python b.py"
frame 1 python a.py 1 main
frame 2 python a.py 2 step
frame 3 python /x/site-packages/torch/nn.py 3 forward
stack 10 0 1
stack 11 10 2
stack 12 11 3
part
`

// From the events to failures: who refused, who told whom, what came after.
func TestFailures(t *testing.T) {
	for _, row := range []struct{ name, text, want string }{
		{"nothing", ``, ``},
		{"PyTorch: two refusals and a report are one", `
10 Alloc process=1 thread=7 api=cuMemAlloc_v2 device=0 address=0x1000 size=900
11 Alloc process=1 thread=7 api=torch device=0 address=0x1000 size=900
20 AllocFailed process=1 thread=7 api=cuMemAlloc_v2 device=0 requested=200 status=2
21 AllocFailed process=1 thread=7 api=cuMemAlloc_v2 device=0 requested=200 status=2
22 Unhooked process=1 thread=7 name="cuX"
23 AllocFailed process=1 thread=7 api=torch.oom device=0 size=190
30 ProcessEnd process=1 status=1
`, "1 × torch.oom asked 190, refused 2, fatal: live-memory\n"},
		{"the retry works", `
10 Alloc process=1 thread=7 api=cuMemAlloc_v2 device=0 address=0x1000 size=900
20 AllocFailed duration=4 process=1 thread=7 api=cuMemAlloc_v2 device=0 requested=200 status=2
21 Free process=1 thread=7 api=cuMemFree_v2 address=0x1000
25 Alloc process=1 thread=7 api=cuMemAlloc_v2 device=0 address=0x2000 size=200 requested=200
26 Alloc process=1 thread=7 api=torch device=0 address=0x2000 size=190
30 ProcessEnd process=1 status=0
`, "retried 1 × cuMemAlloc_v2 200, freed 900 in 9\n"},
		{"mapped segments: a handle that works is not the request's end", `
10 Alloc process=1 thread=7 api=cuMemCreate device=0 object=1 size=20 requested=20
11 AllocFailed process=1 thread=7 api=cuMemCreate device=0 requested=20 status=2
12 Alloc process=1 thread=7 api=cuMemCreate device=0 object=2 size=20 requested=20
13 AllocFailed process=1 thread=7 api=cuMemCreate device=0 requested=20 status=2
14 AllocFailed process=1 thread=7 api=torch.oom device=0 size=60
30 ProcessEnd process=1 status=1
`, "1 × torch.oom asked 60, refused 2, fatal: unknown\n"},
		{"mapped segments: the pool's alloc is", `
11 AllocFailed process=1 thread=7 api=cuMemCreate device=0 requested=20 status=2
12 Alloc process=1 thread=7 api=cuMemCreate device=0 object=2 size=20 requested=20
13 Map process=1 thread=7 api=cuMemMap device=0 object=2 address=0x1000 size=20
14 Alloc process=1 thread=7 api=torch device=0 address=0x1000 size=20
`, "retried 1 × cuMemCreate 20, freed 0 in 3\n"},
		{"a program without a pool is told by the driver, and goes on", `
10 AllocFailed process=1 thread=7 api=cuMemAlloc_v2 device=0 requested=2000 status=2
11 Alloc process=1 thread=7 api=cuMemAlloc_v2 device=0 address=0x1000 size=100 requested=100
12 Alloc process=1 thread=7 api=cuMemAlloc_v2 device=0 address=0x2000 size=100 requested=100
30 ProcessEnd process=1 status=0
`, "1 × cuMemAlloc_v2 asked 2000, refused 1, survived: larger-than-device\n"},
		{"a program that asks for less until it gets it", `
10 AllocFailed process=1 thread=7 api=cuMemAlloc_v2 device=0 requested=2000 status=2
11 AllocFailed process=1 thread=7 api=cuMemAlloc_v2 device=0 requested=1900 status=2
12 Alloc process=1 thread=7 api=cuMemAlloc_v2 device=0 address=0x1000 size=100 requested=100
30 ProcessEnd process=1 status=3
`, "2 × cuMemAlloc_v2 asked 1900, refused 1, survived: larger-than-device\n"},
		{"killed", `
10 AllocFailed process=1 thread=7 api=cuMemAlloc_v2 device=0 requested=2000 status=2
30 ProcessEnd process=1 status=137
`, "1 × cuMemAlloc_v2 asked 2000, refused 1, fatal: larger-than-device\n"},
		{"the recording ends", `
10 AllocFailed process=1 thread=7 api=cuMemAlloc_v2 device=0 requested=2000 status=2
`, "1 × cuMemAlloc_v2 asked 2000, refused 1, open: larger-than-device\n"},
		{"ended well without another allocation", `
10 AllocFailed process=1 thread=7 api=cuMemAlloc_v2 device=0 requested=2000 status=2
30 ProcessEnd process=1 status=0
`, "1 × cuMemAlloc_v2 asked 2000, refused 1, survived: larger-than-device\n"},
		{"caught, and the next one is fatal", `
5 Alloc process=1 thread=7 api=cuMemAlloc_v2 device=0 address=0x1000 size=900 stack=11
6 Alloc process=1 thread=7 api=torch device=0 address=0x1000 size=900 stack=11
10 AllocFailed process=1 thread=7 api=torch.oom device=0 size=50 stack=10
11 AllocFailed process=1 thread=7 api=torch.oom device=0 size=40 stack=11
30 ProcessEnd process=1 status=1
`, "1 × torch.oom asked 40, refused 0, fatal: own-limit live-memory\n1 × torch.oom asked 50, refused 0, survived: own-limit live-memory\n"},
		{"CuPy collects garbage between its tries", `
10 Alloc process=1 thread=7 api=cuMemAlloc_v2 device=0 address=0x1000 size=900 flags=inpool
11 Alloc process=1 thread=7 api=cupy device=0 address=0x1000 object=5 size=100
11 Alloc process=1 thread=7 api=cupy device=0 address=0x1064 object=6 size=750
20 AllocFailed process=1 thread=7 api=cuMemAlloc_v2 device=0 requested=200 status=2 flags=inpool
21 AllocFailed process=1 thread=7 api=cupy.alloc device=0 requested=200 status=2 flags=echo|inpool
22 Free process=1 thread=7 api=cupy object=5
23 AllocFailed process=1 thread=7 api=cuMemAlloc_v2 device=0 requested=200 status=2 flags=inpool
24 AllocFailed process=1 thread=7 api=cupy device=0 size=200 requested=200 status=-1
30 ProcessEnd process=1 status=1
`, "1 × cupy asked 200, refused 2, fatal: live-memory\n"},
		{"two threads at once", `
20 AllocFailed process=1 thread=7 api=cuMemAlloc_v2 device=0 requested=2000 status=2
21 AllocFailed process=1 thread=9 api=cuMemAlloc_v2 device=0 requested=3000 status=2
22 Alloc process=1 thread=9 api=cuMemAlloc_v2 device=0 address=0x1000 size=3000 requested=3000
23 AllocFailed process=1 thread=7 api=torch.oom device=0 size=2000
30 ProcessEnd process=1 status=1
`, "1 × torch.oom asked 2000, refused 1, fatal: larger-than-device\nretried 1 × cuMemAlloc_v2 3000, freed 0 in 1\n"},
		{"the driver's refusal is not of a later request", `
20 AllocFailed process=1 thread=7 api=cuMemAlloc_v2 device=0 requested=2000 status=2 stack=10
21 ScopeBegin process=1 thread=7 api=nvtx scope=1 name="x"
22 Alloc process=1 thread=7 api=cuMemAlloc_v2 device=0 address=0x1000 size=300 requested=300 stack=11
22 Alloc process=1 thread=7 api=torch device=0 address=0x1000 size=300 stack=11
23 AllocFailed process=1 thread=7 api=torch.oom device=0 size=100 stack=11
30 ProcessEnd process=1 status=1
`, "1 × torch.oom asked 100, refused 0, fatal: own-limit live-memory\n1 × cuMemAlloc_v2 asked 2000, refused 1, survived: larger-than-device\n"},
		{"other reasons, and pinned memory", `
20 AllocFailed process=1 thread=7 api=cuMemAlloc_v2 device=0 requested=2000 status=201
21 AllocFailed process=1 thread=7 api=cuMemHostAlloc requested=2000 status=2
22 AllocFailed process=1 thread=7 api=cuMemHostAlloc requested=2000 status=2
30 ProcessEnd process=1 status=1
`, "other 1 × cuMemAlloc_v2 201 host=false\nother 2 × cuMemHostAlloc 2 host=true\n"},
		{"PyTorch over the driver's own pool", `
20 AllocFailed process=1 thread=7 api=cuMemAllocAsync device=0 requested=2000 status=2
23 AllocFailed process=1 thread=7 api=torch.oom device=0 size=2000
30 ProcessEnd process=1 status=1
`, "1 × torch.oom asked 2000, refused 1, fatal: larger-than-device\n"},
		{"a report without any driver call on record is no proof of a limit", `
23 AllocFailed process=1 thread=7 api=torch.oom device=0 size=10
30 ProcessEnd process=1 status=1
`, "1 × torch.oom asked 10, refused 0, fatal: unknown\n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := ask(t, formattest.Text(t, head+strings.TrimPrefix(row.text, "\n")), &analyze.Query{})
			if got := words(r); got != row.want {
				t.Errorf("got\n%swant\n%s", got, row.want)
			}
		})
	}
}

// refusal is a request of 200 that the driver and PyTorch refuse.
const refusal = `
100 AllocFailed process=1 thread=7 api=cuMemAlloc_v2 device=0 requested=200 status=2 stack=12
101 AllocFailed process=1 thread=7 api=torch.oom device=0 size=200 stack=12
sample 102 device=0 total=1000 used=USED free=FREE
sample 102 device=0 process=1 total=1000 used=USED free=FREE process_used=OURS
`

// What is on the device is one number for each cause; the first is the headline.
func TestCauses(t *testing.T) {
	pool := func(segment int64, blocks ...int64) (s string) {
		s = fmt.Sprintf("10 Alloc process=1 thread=7 api=cuMemAlloc_v2 device=0 address=0x1000 size=%d stack=11\n", segment)
		at := int64(0x1000)
		for i, n := range blocks { // every second place is a hole
			if i%2 == 0 {
				s += fmt.Sprintf("11 Alloc process=1 thread=7 api=torch device=0 address=%#x size=%d stack=11\n", at, n)
			}
			at += n
		}
		return s
	}
	for _, row := range []struct {
		name, text       string
		used, free, ours string
		want             string
	}{
		{"live memory", pool(850, 850), "870", "130", "860", "live-memory"},
		{"fragmentation before live memory", pool(900, 150, 150, 150, 150, 150, 150), "910", "90", "905", "fragmentation live-memory"},
		{"little is cached: live memory first", pool(900, 700, 100, 100), "910", "90", "905", "live-memory"},
		{"cached and free memory is together enough", pool(900, 700, 80, 20, 100), "910", "90", "905", "live-memory fragmentation"},
		{"a piece would do, and was not used", pool(900, 150, 250, 150, 350), "910", "90", "905", "unreachable-cache live-memory"},
		{"another process", pool(100, 100), "900", "100", "110", "other-process"},
		{"another process, and all that this one has", pool(300, 300), "900", "100", "310", "other-process live-memory"},
		{"without the other it would not fit either", pool(795, 795), "930", "70", "810", "live-memory"},
		{"a limit below the device", pool(100, 100), "110", "890", "110", "limit-below-device"},
		{"just enough free is no sign of a limit", pool(240, 240), "760", "240", "260", "other-process"},
	} {
		t.Run(row.name, func(t *testing.T) {
			text := head + row.text + strings.NewReplacer("USED", row.used, "FREE", row.free, "OURS", row.ours).Replace(refusal[1:])
			f := ask(t, formattest.Text(t, text), &analyze.Query{}).Traces[0].Failures[0]
			var got []string
			for _, c := range f.Causes {
				got = append(got, c.ID)
			}
			if g := strings.Join(got, " "); g != row.want {
				t.Errorf("got %s, want %s\n%+v", g, row.want, f.Memory)
			}
			if m := f.Memory; m.Free+m.Process+m.Others != m.Total || m.Acquired+m.Untracked != m.Process || m.Used+m.Cached != m.Segments {
				t.Errorf("parts do not add up: %+v", m)
			}
		})
	}
}

// What no call took may be the CUcontext and modules: on a MIG slice that is most of it.
func TestUntracked(t *testing.T) {
	const mib = 1 << 20
	for _, row := range []struct {
		name                        string
		total, live, context, asked int64 // MiB
		want, says                  string
	}{
		{"a CUcontext on 1 GiB, and live memory", 1024, 300, 512, 220, "live-memory", "29.3 %"},
		{"a CUcontext on 1 GiB, and a huge request", 1024, 100, 512, 500, "huge-request", "48.8 %"},
		{"a CUcontext that is all there is on 1 GiB", 1024, 100, 800, 200, "unknown", "800.00 MiB (838860800), 78.1 % of the device, may all be this process's CUcontext and modules"},
		{"a CUcontext and modules on 5 GiB, and live memory", 5120, 4000, 700, 600, "live-memory", "78.1 %"},
		{"much of 5 GiB, but no more than modules may have", 5120, 1200, 1500, 2500, "huge-request", ""},
		{"more than modules can have on 5 GiB", 5120, 200, 4600, 400, "untracked-use", "2.99 GiB (3212836864) more than is known of it, 59.8 % of the device (threshold 10 %), the 1.50 GiB left out"},
		{"what is not recorded, on a large device", 80000, 1000, 70000, 12000, "untracked-use", "85.6 %"},
	} {
		t.Run(row.name, func(t *testing.T) {
			total, live, context, asked := row.total*mib, row.live*mib, row.context*mib, row.asked*mib
			readings := fmt.Sprintf("total=%d used=%d free=%d", total, live+context, total-live-context)
			text := strings.Replace(head, "total=1000", fmt.Sprintf("total=%d", total), 1) + fmt.Sprintf(`
10 Alloc process=1 thread=7 api=cuMemAlloc_v2 device=0 address=0x1000 size=%[1]d stack=11
11 Alloc process=1 thread=7 api=torch device=0 address=0x1000 size=%[1]d stack=11
100 AllocFailed process=1 thread=7 api=cuMemAlloc_v2 device=0 requested=%[2]d status=2 stack=12
101 AllocFailed process=1 thread=7 api=torch.oom device=0 size=%[2]d stack=12
sample 102 device=0 %[3]s
sample 102 device=0 process=1 %[3]s process_used=%[4]d
`, live, asked, readings, live+context)[1:]
			f := ask(t, formattest.Text(t, text), &analyze.Query{}).Traces[0].Failures[0]
			if c := f.Causes[0]; c.ID != row.want || !strings.Contains(c.Why, row.says) {
				t.Errorf("got %+v, want %s, %s\n%+v", f.Causes, row.want, row.says, f.Memory)
			}
			if n := f.Causes[0].Bytes; row.want == UntrackedUse && n != context-thresholds.Context {
				t.Errorf("stands for %d bytes", n)
			}
		})
	}
}

func TestHugeRequest(t *testing.T) {
	text := func(stacks ...int) string {
		s := head
		for i, st := range stacks {
			s += fmt.Sprintf("10 Alloc process=1 thread=7 api=cuMemAlloc_v2 device=0 address=%#x size=300 stack=%d\n11 Alloc process=1 thread=7 api=torch device=0 address=%#x size=300 stack=%d\n",
				0x1000*(i+1), st, 0x1000*(i+1), st)
		}
		return s + "100 AllocFailed process=1 thread=7 api=cuMemAlloc_v2 device=0 requested=450 status=2\n101 AllocFailed process=1 thread=7 api=torch.oom device=0 size=450\n"
	}
	for _, row := range []struct {
		text, want string
	}{
		{text(10, 11), "huge-request live-memory"}, // no line holds as much as is asked for
		{text(10, 10), "live-memory huge-request"},
	} {
		r := ask(t, formattest.Text(t, row.text), &analyze.Query{})
		if got := words(r); !strings.HasSuffix(got, ": "+row.want+"\n") {
			t.Errorf("got %swant %s", got, row.want)
		}
	}
}

// The reading before was taken before 300 bytes more were, the one after shows
// what is true then.
func TestReadings(t *testing.T) {
	for _, row := range []struct {
		name, after string
		free        int64
		want        Reading
		process     int64
	}{
		{"nothing was taken after", "sample 130 device=0 total=1000 used=700 free=250 reserved=50\nsample 130 device=0 process=1 total=1000 process_used=640\n", 250, Reading{Distance: 29}, 640},
		{"no reading after", "", 240, Reading{Distance: -41, Corrected: 300}, 610},
		{"much was given back before the reading after", "120 Free process=1 thread=7 api=cuMemFree_v2 address=0x1000\n121 Free process=1 thread=7 api=cuMemFree_v2 address=0x2000\n" +
			"sample 130 device=0 total=1000 used=100 free=850 reserved=50\n", 240, Reading{Distance: -41, Corrected: 300}, 610},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := ask(t, formattest.Text(t, head+`50 Alloc process=1 thread=7 api=cuMemAlloc_v2 device=0 address=0x1000 size=300
sample 60 device=0 total=1000 used=410 free=540 reserved=50
sample 60 device=0 process=1 total=1000 used=410 free=540 reserved=50 process_used=310
70 Alloc process=1 thread=7 api=cuMemAlloc_v2 device=0 address=0x2000 size=300
100 AllocFailed process=1 thread=7 api=cuMemAlloc_v2 device=0 requested=400 status=2
101 AllocFailed process=1 thread=7 api=torch.oom device=0 size=400
`+row.after), &analyze.Query{})
			m := r.Traces[0].Failures[0].Memory
			if m.Free != row.free || m.Total != 950 || *m.Reading != row.want || m.Process != row.process || m.Others != 950-row.free-row.process {
				t.Errorf("%+v, reading %+v", m, m.Reading)
			}
		})
	}
}

// The hook may know at a refusal what was free: then no sample is asked.
func TestFreeByTheDriver(t *testing.T) {
	r := ask(t, formattest.Text(t, head+`50 Alloc process=1 thread=7 api=cuMemAlloc_v2 device=0 address=0x1000 size=300
sample 60 device=0 total=1000 used=410 free=540 reserved=50
100 AllocFailed process=1 thread=7 api=cuMemAlloc_v2 device=0 requested=400 status=2 reserved=390
101 AllocFailed process=1 thread=7 api=cuMemAlloc_v2 device=0 requested=400 status=2 reserved=395
102 AllocFailed process=1 thread=7 api=torch.oom device=0 size=400 allocated=300 reserved=300
`), &analyze.Query{})
	if m := r.Traces[0].Failures[0].Memory; m.Free != 395 || m.Reading != nil || m.Total != 950 || m.Others != 255 || m.Reserved != 300 {
		t.Errorf("%+v", m)
	}
}

// A free on another thread that has not returned; two that had, of which one
// was told late; one whose end is not told, because it took less than 10 µs.
func TestBeingFreed(t *testing.T) {
	r := ask(t, formattest.Text(t, head+`10 Alloc process=1 thread=7 api=cuMemAlloc_v2 device=0 address=0x1000 size=100
11 Alloc process=1 thread=7 api=cuMemAlloc_v2 device=0 address=0x2000 size=30
12 Alloc process=1 thread=7 api=cuMemAlloc_v2 device=0 address=0x3000 size=7
13 Alloc process=1 thread=7 api=cuMemAlloc_v2 device=0 address=0x4000 size=3
20 Free process=1 thread=8 api=cuMemFree_v2 address=0x3000
30 Free process=1 thread=9 api=cuMemFree_v2 address=0x2000
40 FreeDone process=1 thread=9 api=cuMemFree_v2 address=0x2000 duration=10
90 Free process=1 thread=9 api=cuMemFree_v2 address=0x1000
91 Free process=1 thread=10 api=cuMemFree_v2 address=0x4000
100 AllocFailed process=1 thread=7 api=cuMemAlloc_v2 device=0 requested=2000 status=2
99 FreeDone process=1 thread=10 api=cuMemFree_v2 address=0x4000 duration=8
20000 FreeDone process=1 thread=9 api=cuMemFree_v2 address=0x1000 duration=19910
`), &analyze.Query{})
	if n := r.Traces[0].Failures[0].Memory.BeingFreed; n != 100 {
		t.Errorf("%d being freed, want 100", n)
	}
}

func TestOtherProcessesAreNamed(t *testing.T) {
	r := ask(t, formattest.Text(t, head+`10 Alloc process=2 thread=8 api=cuMemAlloc_v2 device=0 address=0x1000 size=700
sample 20 device=0 total=1000 used=720 free=280
100 AllocFailed process=1 thread=7 api=cuMemAlloc_v2 device=0 requested=400 status=2
`), &analyze.Query{})
	f := r.Traces[0].Failures[0]
	if got := f.Causes[0].ID; got != OtherProcess || !f.Memory.AtMost {
		t.Errorf("%s, %+v", got, f.Memory)
	}
	if got := fmt.Sprint(f.Memory.Recorded); got != "[{8 python b.py 700}]" || !strings.Contains(strings.Join(f.Remedies, "\n"), "pid 8 (python b.py, acquired 700 B)") {
		t.Errorf("%s, %q", got, f.Remedies)
	}
}

func TestFilters(t *testing.T) {
	text := head + `10 AllocFailed process=1 thread=7 api=cuMemAlloc_v2 device=0 requested=2000 status=2
20 AllocFailed process=2 thread=8 api=cuMemAlloc_v2 device=0 requested=3000 status=2
30 Mark process=2 thread=8 api=nvtx name="m"
`
	at := func(s string) analyze.Moment {
		m, err := analyze.ParseMoment(s)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	for _, row := range []struct {
		q    *analyze.Query
		want string
	}{
		{&analyze.Query{}, "3000 2000"},
		{&analyze.Query{Processes: []int32{7}}, "2000"},
		{&analyze.Query{Threads: []uint32{8}}, "3000"},
		{&analyze.Query{From: at("15ns")}, "3000"},
		{&analyze.Query{To: at("15ns")}, "2000"},
		{&analyze.Query{Layers: []format.Layer{format.LayerPool}}, ""},
	} {
		var got []string
		for _, f := range ask(t, formattest.Text(t, text), row.q).Traces[0].Failures {
			got = append(got, fmt.Sprint(f.Asked))
		}
		if g := strings.Join(got, " "); g != row.want {
			t.Errorf("%+v: got %q, want %q", row.q, g, row.want)
		}
	}
}

// Failures without end are counted, and cost a look each only as long as looks
// are cheap beside the events.
func TestVeryManyFailures(t *testing.T) {
	b := formattest.New(t)
	b.Process("many")
	b.Device("G", 1<<40)
	for i := range 3000 {
		b.Alloc(format.APITorch, uint64(i+1)*4096, 512)
	}
	const n = 2000
	for range n {
		b.AllocFailed(format.APITorchOOM, 1<<41).Reserved = format.Unknown
	}
	r := ask(t, b.Trace(), &analyze.Query{})
	tr := r.Traces[0]
	if len(tr.Failures) != 1 || tr.Failures[0].Count != n || tr.Skipped == 0 || tr.Skipped > n-100 {
		t.Errorf("%d rows, %d × , %d skipped", len(tr.Failures), tr.Failures[0].Count, tr.Skipped)
	}
}

func TestText(t *testing.T) {
	r := ask(t, formattest.Text(t, page), &analyze.Query{})
	for name, all := range map[string]bool{"page": false, "all": true} {
		var b bytes.Buffer
		if err := r.WriteText(&b, all); err != nil {
			t.Fatal(err)
		}
		formattest.Golden(t, name+".golden", b.Bytes())
	}
	b, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	formattest.Golden(t, "json.golden", b)
	var empty bytes.Buffer
	if err := ask(t, formattest.Text(t, "part\n"), &analyze.Query{}).WriteText(&empty, true); err != nil || empty.String() != "small.gpurec: never out of device memory\n" {
		t.Errorf("%q, %v", empty.String(), err)
	}
}

// What may be the process's own context is no other process's.
func TestOwnContextIsNobodyElses(t *testing.T) {
	const total = 8 << 30
	for others, want := range map[int]string{5 << 28: "live-memory", 5 << 30: "other-process live-memory"} {
		r := ask(t, formattest.Text(t, fmt.Sprintf(`device 0 uuid=G total=%d
process 1 pid=7
part
10 Alloc thread=7 api=cuMemAlloc_v2 device=0 address=0x1000 size=%d
100 AllocFailed thread=7 api=cuMemAlloc_v2 device=0 requested=%d status=2
sample 110 device=0 total=%d used=%d
`, total, total-others, 1<<30, total, total)), &analyze.Query{})
		if got := words(r); !strings.HasSuffix(got, ": "+want+"\n") {
			t.Errorf("%d: got %swant %s", others, got, want)
		}
	}
}

// A reading from before the process had its context says more is free than was.
// It is no proof of a limit, and the page says that it cannot be.
func TestCorrectedReadingProvesNoLimit(t *testing.T) {
	r := ask(t, formattest.Text(t, head+`sample 5 device=0 total=1000 free=1000
10 Alloc process=1 thread=7 api=cuMemAlloc_v2 device=0 address=0x1000 size=300
100 AllocFailed process=1 thread=7 api=cuMemAlloc_v2 device=0 requested=200 status=2
`), &analyze.Query{})
	if got := words(r); got != "1 × cuMemAlloc_v2 asked 200, refused 1, open: live-memory\n" {
		t.Error(got)
	}
	var b bytes.Buffer
	if err := r.WriteText(&b, false); err != nil || !strings.Contains(b.String(), "corrected by the 300 B acquired in between; too much, for the driver refused less") {
		t.Errorf("%v\n%s", err, b.String())
	}
}
