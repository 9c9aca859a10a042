package main

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
)

// writeRandom writes one random recording, in one part or with a checkpoint
// after so many events. Two processes, one with a pool; two devices; nested and
// overlapping scopes; VMM memory; failures; samples.
func writeRandom(t *testing.T, seed int64, every int) string {
	t.Helper()
	return writeRandomRetaining(t, seed, every, format.Retention{})
}

func writeRandomRetaining(t *testing.T, seed int64, every int, retain format.Retention) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "random.gpurec")
	w, err := format.Create(dir, format.Meta{Command: []string{"random"}, Monotonic: 1000}, format.WriterOptions{Retain: retain})
	if err != nil {
		t.Fatal(err)
	}
	d := w.Defs()
	for i := range 2 {
		d.PutProcess(format.Process{ID: format.ProcessID(1 + i), PID: int32(101 + i), Rank: -1, Begin: 1000, End: -1, Status: -1, Command: fmt.Sprint("p", i)})
		d.PutDevice(format.DeviceRow{ID: format.Device(i), UUID: fmt.Sprint("GPU-", i), Total: 1 << 30})
	}
	for i := range 6 {
		d.PutFrame(format.Frame{ID: format.FrameID(1 + i), Kind: format.FramePython, File: "a.py", Line: int32(i), Function: "f"})
		d.PutStack(format.Stack{ID: format.StackID(10 + i), Parent: format.StackID(max(0, 10+i-1-i%2) * min(i, 1)), Frame: format.FrameID(1 + i)})
		d.PutName(format.NameID(1+i), fmt.Sprint("scope", i%3))
	}
	r := rand.New(rand.NewSource(seed))
	fold := live.New()
	now, n, scope := format.Time(1000), 0, format.ScopeID(0)
	type open struct {
		id format.ScopeID
		p  format.ProcessID
	}
	var scopes []open
	parents := map[format.ProcessID]format.ScopeID{}
	put := func(k format.Kind, a format.API, p format.ProcessID, set func(*format.Event)) {
		i := a.Info()
		now += format.Time(1000 * r.Intn(30))
		e := format.Event{Time: now, Kind: k, API: a, Layer: i.Layer, Class: i.Class, Process: p, Thread: uint32(p)*10 + uint32(r.Intn(2)),
			Duration: -1, Size: -1, Requested: -1, Allocated: -1, Reserved: -1, Device: format.Device(r.Intn(2)), Stack: format.StackID(10 + r.Intn(6))}
		set(&e)
		fold.Fill(&e)
		fold.Apply(&e)
		if err := w.Event(&e); err != nil {
			t.Fatal(err)
		}
		if n++; every > 0 && n%every == 0 {
			if err := w.Rotate(fold.Checkpoint(now)); err != nil {
				t.Fatal(err)
			}
		}
	}
	value := func(e *format.Event) {
		v := uint64(1 + r.Intn(20))
		e.Address, e.Object, e.Size = v<<12, v, int64(1+r.Intn(9))<<18
	}
	for range 1500 {
		p := format.ProcessID(1 + r.Intn(2))
		api := format.APIMemAlloc
		if p == 1 && r.Intn(3) > 0 {
			api = format.APITorch
		}
		switch c := r.Intn(20); {
		case c < 8:
			if r.Intn(6) == 0 {
				api = format.APIMemCreate
			}
			put(format.Alloc, api, p, value)
		case c < 13:
			if api == format.APIMemAlloc {
				api = format.APIMemFree
			}
			put(format.Free, api, p, func(e *format.Event) { value(e); e.Size, e.Stack = -1, 0 })
			if api == format.APIMemFree && r.Intn(8) == 0 {
				put(format.FreeFailed, api, p, func(e *format.Event) { value(e); e.Size, e.Status = -1, 4 })
			}
		case c < 14:
			put(format.Map, format.APIMemMap, p, func(e *format.Event) { value(e); e.Size = 1 << 12 })
		case c < 15:
			put([]format.Kind{format.Release, format.Unmap}[r.Intn(2)], format.APIMemRelease, p, func(e *format.Event) { value(e); e.Size = 1 << 14 })
		case c < 16:
			put(format.AllocFailed, api, p, func(e *format.Event) { e.Requested, e.Status = 1<<32, 2 })
		case c < 18:
			scope++
			scopes = append(scopes, open{scope, p})
			put(format.ScopeBegin, format.APINVTX, p, func(e *format.Event) {
				e.Scope, e.Parent, e.Name, e.Device = scope, parents[p], format.NameID(1+r.Intn(6)), format.NoDevice
				parents[p] = scope
			})
		default:
			if len(scopes) == 0 {
				continue
			}
			i := r.Intn(len(scopes))
			k := []format.Kind{format.ScopeEnd, format.ScopeEnd, format.ScopeReset, format.ScopeReport}[r.Intn(4)]
			put(k, format.APINVTX, scopes[i].p, func(e *format.Event) { e.Scope, e.Device = scopes[i].id, format.NoDevice })
			if k == format.ScopeEnd {
				parents[scopes[i].p] = 0
				scopes = append(scopes[:i], scopes[i+1:]...)
			}
		}
		if r.Intn(15) == 0 {
			now++
			s := format.Sample{Time: now, Device: format.Device(r.Intn(2)), Total: 1 << 30, Used: int64(r.Intn(1 << 20)), Reserved: -1, ProcessUsed: -1, API: 2}
			s.PeakUsed = s.Used
			fold.Sample(&s)
			if err := w.Sample(&s); err != nil {
				t.Fatal(err)
			}
			now++
		}
	}
	if err := w.Close(nil); err != nil {
		t.Fatal(err)
	}
	return dir
}

var partWords = regexp.MustCompile(`(?m)[^\s"]*/random\.gpurec|"parts": \d+|in \d+ parts?,|^trace .*$|"path": ".*"|"trace_id": ".*"|"start": ".*"|^recorded .*$`)

// However a recording is cut into parts, every answer is the same: checkpoints
// inside a trace repeat what is known.
func TestPartsDoNotMatter(t *testing.T) {
	compared := 0
	for seed := range int64(2) {
		one, many := writeRandom(t, seed, 0), writeRandom(t, seed, 90+int(seed)*100)
		for _, args := range []string{"lines", "lines --at peak", "lines --at end", "lines --at 7ms", "lines --at peak --from 4ms --to 9ms",
			"lines --scope scope1#3", "lines --at peak --device 1", "contexts", "contexts --curve acquired", "contexts --curve nvml",
			"contexts --units fastai --curve used", "contexts --by name", "contexts --device 0 --json", "contexts --from scope:scope1#4 --to 12ms",
			"peak", "peak --json", "peak --json --device 1 --from 4ms --to 9ms", "peak --from scope:scope1#4 --process 101",
			"timeline --json", "timeline --json --by layer", "timeline --json --by class", "timeline --json --by process --curve acquired", "timeline --json --by scope --top 0",
			"timeline --json --by line --from 4ms --to 9ms", "timeline --rows --by own-line --points 7", "timeline --json --curve nvml",
			"leaks", "leaks --json --by function", "leaks --from 5ms --per scope1", "leaks --scope scope1#3",
			"stats", "stats --json", "stats --from 5ms --to 9ms", "ranks --json", "ranks --from 5ms",
			"diff --json --a ..7ms --b 7ms..", "diff --a process:101 --b process:102", "diff --layer driver --a scope:scope1#2..scope:scope1#4 --b 9ms..",
			"summary", "summary --json", "summary --process 101", "summary --from 5ms"} {
			a, b := strings.Fields(args), strings.Fields(args)
			code1, out1, err1 := command1(t, append(a, one)...)
			code2, out2, err2 := command1(t, append(b, many)...)
			out1, out2 = partWords.ReplaceAllString(out1, ""), partWords.ReplaceAllString(out2, "")
			if code1 != 0 || code2 != 0 || out1 != out2 || err1 != err2 {
				t.Fatalf("seed %d, %s: exit %d and %d\n%s%s", seed, args, code1, code2, firstDifference(out1, out2), firstDifference(err1, err2))
			}
			if len(out1) > 50 {
				compared++
			}
		}
	}
	if compared < 25 {
		t.Errorf("only %d comparisons of something", compared)
	}
}

// An event is a row that is no checkpoint's, in every count there is.
func TestEventsAreCountedAlike(t *testing.T) {
	count := func(args ...string) int64 {
		_, stdout, stderr := command1(t, args...)
		var v struct{ Traces []struct{ Events int64 } }
		if err := json.Unmarshal([]byte(stdout), &v); err != nil || len(v.Traces) != 1 {
			t.Fatalf("%v: %v\n%s%s", args, err, stdout, stderr)
		}
		return v.Traces[0].Events
	}
	for _, every := range []int{0, 200} {
		dir := writeRandom(t, 3, every)
		_, text, _ := command1(t, "events", "-q", dir)
		rows := int64(0)
		for _, l := range strings.Split(text, "\n") {
			f := strings.Fields(l)
			if len(f) > 1 && regexp.MustCompile(`^\d+$`).MatchString(f[0]) && !strings.HasPrefix(f[1], "Live") && f[1] != "CheckpointEnd" {
				rows++
			}
		}
		if s, v := count("summary", "--json", dir), count("verify", "--json", dir); rows < 1000 || s != rows || v != rows {
			t.Errorf("parts of %d: summary counts %d, verify %d, rows are %d", every, s, v, rows)
		}
	}
}

// Old parts may be deleted: what is live, and what happened since, stays.
func TestOldPartsDeleted(t *testing.T) {
	for seed := range int64(2) {
		whole, thin := writeRandom(t, seed, 200), writeRandom(t, seed, 200)
		for i := range 3 {
			if err := os.RemoveAll(filepath.Join(thin, fmt.Sprintf("%05d", i))); err != nil {
				t.Fatal(err)
			}
		}
		for _, args := range []string{"lines --at end", "lines --at peak --from 12ms", "peak --from 12ms --by tree", "timeline --from 12ms", "timeline --from 12ms --by process", "contexts --from 12ms", "contexts --from 12ms --curve acquired"} {
			_, out1, _ := command1(t, append(strings.Fields(args), whole)...)
			code, out2, stderr := command1(t, append(strings.Fields(args), thin)...)
			// Names count from what there is, and what has ended around a scope is not known.
			if strings.HasPrefix(args, "peak") {
				open := regexp.MustCompile(`(?m)^ *open then: .*$`)
				out1, out2 = open.ReplaceAllString(out1, "open"), open.ReplaceAllString(out2, "open")
			}
			if strings.HasPrefix(args, "contexts") {
				n := regexp.MustCompile(`(?m)^(\s*\S+(?: \(since reset \d+\))?) +\d+`)
				out1, out2 = n.ReplaceAllString(out1, "$1"), n.ReplaceAllString(out2, "$1")
				space := regexp.MustCompile(` +`)
				out1, out2 = space.ReplaceAllString(out1, " "), space.ReplaceAllString(out2, " ")
			}
			if code != 0 || out1 != out2 || !strings.Contains(stderr, "first part is 3") {
				t.Fatalf("seed %d, %s: exit %d, stderr %s\n%s", seed, args, code, stderr, firstDifference(out1, out2))
			}
		}
	}
}

// A part that is not there is said by every report, wherever it stood, unless
// it is one of the first: those may be deleted on purpose.
func TestPartsMissing(t *testing.T) {
	for _, row := range []struct {
		name    string
		deleted []string
		code    int
		words   string
	}{
		{"none", nil, 0, ""},
		{"the last", []string{"00002"}, exitPartial, "part 2 is missing"},
		{"the last two", []string{"00001", "00002"}, exitPartial, "parts 1 to 2 are missing"},
		{"a middle one", []string{"00001"}, exitPartial, "part 1 is missing"},
		{"the first", []string{"00000"}, 0, ""},
		{"first and last", []string{"00000", "00002"}, exitPartial, "part 2 is missing"},
		{"all", []string{"00000", "00001", "00002"}, exitPartial, "all its parts are missing, of which there were 3"},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir := writeRandom(t, 1, 600)
			for _, p := range row.deleted {
				if err := os.RemoveAll(filepath.Join(dir, p)); err != nil {
					t.Fatal(err)
				}
			}
			for _, args := range []string{"summary", "lines", "lines --at peak", "lines --at end", "contexts", "devices", "leaks", "stats", "ranks", "diff --a 0s..1ms", "events", "events --from 0s", "slice -o " + t.TempDir() + "/x.gpurec", "export -o " + t.TempDir() + "/x.arrow"} {
				code, stdout, stderr := command1(t, append(strings.Fields(args), dir)...)
				if code != row.code || !strings.Contains(stdout+stderr, row.words) {
					t.Errorf("%s: exit %d, want %d with %q\n%s%s", args, code, row.code, row.words, stdout, stderr)
				}
			}
			if row.words == "" || len(row.deleted) == 3 {
				return
			}
			// One part that was named by itself is whole.
			for _, p := range []string{"00000", "00001", "00002"} {
				part := filepath.Join(dir, p)
				if _, err := os.Stat(part); err == nil {
					if code, _, stderr := command1(t, "summary", part); code != 0 {
						t.Errorf("%s alone: exit %d, %s", p, code, stderr)
					}
				}
			}
		})
	}
}

// Parts that do not follow each other are noticed, whichever changed places.
func TestPartsSwapped(t *testing.T) {
	for _, swap := range [][2]int{{0, 1}, {1, 2}, {1, 3}, {2, 3}} {
		dir := writeRandom(t, 1, 400)
		part := func(i int) string { return filepath.Join(dir, fmt.Sprintf("%05d", i)) }
		for _, m := range [][2]string{{part(swap[0]), part(9)}, {part(swap[1]), part(swap[0])}, {part(9), part(swap[1])}} {
			if err := os.Rename(m[0], m[1]); err != nil {
				t.Fatal(err)
			}
		}
		for _, args := range []string{"summary", "lines", "lines --at end", "contexts", "devices"} {
			code, _, stderr := command1(t, append(strings.Fields(args), dir)...)
			if code != exitPartial || !strings.Contains(stderr, "do not belong together; gpuanalyze verify says more") {
				t.Errorf("%v swapped, %s: exit %d, %s", swap, args, code, stderr)
			}
		}
	}
}

func firstDifference(a, b string) string {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range max(len(x), len(y)) {
		var l, m string
		if i < len(x) {
			l = x[i]
		}
		if i < len(y) {
			m = y[i]
		}
		if l != m {
			return fmt.Sprintf("line %d\n- %s\n+ %s\n", i+1, l, m)
		}
	}
	return ""
}
