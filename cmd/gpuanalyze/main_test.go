package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format/formattest"
)

// trace is a small whole trace; its name is what examples call theirs.
const traceText = `
meta command=python command=train.py start=2026-11-30T10:00:00Z start_monotonic=1000
device 0 uuid=GPU-0 name=H200 total=100000
process 1 pid=4711 command="python train.py"
frame 1 python train.py 3 "<module>"
stack 10 0 1
part
1000000 ScopeBegin thread=7 api=nvtx scope=1 name="step"
2000000 Alloc thread=7 api=cuMemAlloc_v2 device=0 address=0x10 size=4096 stack=10
3000000 Alloc thread=7 api=torch device=0 address=0x10 size=1024 stack=10
sample 3500000 device=0 total=100000 used=9000 free=91000
4000000 Free thread=7 api=torch address=0x10
5000000 ScopeEnd thread=7 api=nvtx scope=1
`

func command1(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = run(context.Background(), &out, &err, args)
	return code, out.String(), err.String()
}

func TestCommands(t *testing.T) {
	whole := formattest.Text(t, traceText).Path()
	lossy := formattest.Text(t, traceText+"6000000 Lost thread=7 size=3\n").Path()
	huge := formattest.Text(t, traceText+"6000000 Lost thread=7 size=9223372036854775807\n6000001 Lost thread=7 size=9223372036854775807\n6000002 Lost thread=7\n").Path()
	none := filepath.Join(t.TempDir(), "none.gpurec")
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name           string
		args           []string
		code           int
		stdout, stderr string // contained
	}{
		{"nothing", nil, exitUsage, "", "usage: gpuanalyze COMMAND"},
		{"help", []string{"help"}, 0, "  lines ", ""},
		{"help of a command", []string{"help", "lines"}, 0, "usage: gpuanalyze lines [flags] TRACE...", ""},
		{"--help of a command", []string{"contexts", "--help"}, 0, "gpuanalyze contexts --units fastai train.gpurec", ""},
		{"no such command", []string{"line"}, exitUsage, "", `no command "line"`},
		{"a trace and no command", []string{whole}, exitUsage, "", "type: gpuanalyze summary " + whole},
		{"patterns that match nothing", []string{"lines", "--focus", "tran.py", "--hide", "tran.py", whole}, 0, "[out of focus] (1.00KB, 4.00KB)", "note: no frame matches --focus\nnote: no frame matches --hide\n"},
		{"patterns that match", []string{"lines", "--focus", "train.py", "--hide", "main", whole}, 0, "train.py:3:<module> (1.00KB, 4.00KB)", "complete\n"},
		{"version", []string{"--version"}, 0, "gpuanalyze ", ""},
		{"two shapes of contexts", []string{"contexts", "--units", "fastai", "--by", "name", whole}, exitUsage, "", "exclude each other"},
		{"contexts of two traces", []string{"contexts", whole, lossy}, exitPartial, "  n  ", "partial"},
		{"lines of every depth", []string{"lines", "--max-depth", "-1", whole}, 0, "_root (1.00KB, 4.00KB)\n  train.py:3:<module> (1.00KB, 4.00KB)\n", "complete\n"},
		{"verify, quiet", []string{"verify", "-q", whole}, 0, "", ""},
		{"verify, quiet and partial", []string{"verify", "-q", lossy}, exitPartial, "", lossy + ": 3 events lost\n"},
		{"no trace", []string{"lines"}, exitUsage, "", "no trace given"},
		{"a text twin", []string{"lines", filepath.Join(h200, "oom", "list.txt.zst")}, exitFailed, "", "list.txt.zst -o list.gpurec makes one of a text twin"},
		{"import of what", []string{"import", "a.txt", "-o", "a"}, exitUsage, "", "want the word text and a file, got 1 argument\n"},
		{"no such flag", []string{"lines", "--deep", whole}, exitUsage, "", "unknown flag: --deep"},
		{"no such layer", []string{"lines", "--layer", "soft", whole}, exitUsage, "", "it is driver, pool or host"},
		{"no such time", []string{"lines", "--at", "noon", whole}, exitUsage, "", `--at: neither total, peak nor end: time "noon"`},
		{"two ends", []string{"lines", "--at", "1s", "--to", "2s", whole}, exitUsage, "", "exclude each other"},
		{"no such curve", []string{"contexts", "--curve", "free", whole}, exitUsage, "", "none of used, acquired, nvml"},
		{"no such unit", []string{"contexts", "--units", "gb", whole}, exitUsage, "", "it is bytes or fastai"},
		{"no such scope", []string{"lines", "--at", "scope:step#2", whole}, exitFailed, "", "there is no scope step#2"},
		{"a trace that is not there", []string{"lines", none}, exitFailed, "", none},
		{"a file that is no trace", []string{"summary", file}, exitFailed, "", file},
		{"lines", []string{"lines", whole}, 0, "_root (1.00KB, 4.00KB)\n  train.py:3:<module> (1.00KB, 4.00KB)\n", "complete\n"},
		{"lines, quiet", []string{"lines", "-q", whole}, 0, "_root (1.00KB, 4.00KB)\n", ""},
		{"lines at the peak", []string{"lines", "--at", "peak", whole}, 0, "_root (1.00KB, 4.00KB)\n", "device 0 (H200): peak of 1024 bytes used at 0.002999s"},
		{"lines at a time", []string{"lines", "--at", "2ms", whole}, 0, "_root (0.00B, 4.00KB)\n", "complete"},
		{"lines at the end", []string{"lines", "--at", "end", "--max-depth", "1", whole}, 0, "_root (0.00B, 4.00KB)\n", "complete"},
		{"lines of a scope", []string{"lines", "--scope", "step#1", whole}, 0, "_root (1.00KB, 4.00KB)\n", "complete"},
		{"contexts", []string{"contexts", whole}, 0, "step     1       7  0.000999s  0.004999s     0    1024      0    0  1024\n", "complete"},
		{"contexts by name", []string{"contexts", "--by", "name", whole}, 0, "step         1", "complete"},
		{"contexts by name as JSON", []string{"contexts", "--by", "name", "--json", whole}, 0, `"names": [`, "complete"},
		{"contexts in fastai's words", []string{"contexts", "--units", "fastai", "--curve", "used", whole}, 0, "△Used Peaked MB:      0      0 (step)\n", "complete"},
		{"contexts in fastai's words, sampled", []string{"contexts", "--units", "fastai", whole}, 0, "△Used Peaked MB:      0      0 (step)\n", "sampled"},
		{"no such process", []string{"contexts", "--process", "1", whole}, exitFailed, "", "no process 1; there is 4711"},
		{"an empty window", []string{"summary", "--from", "2s", "--to", "1s", whole}, exitUsage, "", "the window is empty"},
		{"contexts of nothing", []string{"contexts", "--from", "1h", whole}, 0, "context", "there are no contexts"},
		{"summary", []string{"summary", whole}, 0, "peak NVML      8.79 KiB (9000)", "complete"},
		{"partial", []string{"lines", lossy}, exitPartial, "_root (1.00KB, 4.00KB)\n", "partial: 3 events lost on 1 thread\n"},
		{"partial, quiet", []string{"contexts", "-q", lossy}, exitPartial, "step", "partial: 3 events lost on 1 thread\n"},
		{"partial as JSON", []string{"summary", "--json", lossy}, exitPartial, `"complete": false`, "partial"},
		{"partial by any loss", []string{"summary", huge}, exitPartial, "lost         9223372036854775807 events\n", "partial: at least 9223372036854775807 events lost on 1 thread\n"},
		{"verify agrees", []string{"verify", huge}, exitPartial, "lost 9223372036854775807,", "gpuanalyze verify: sound, but events are missing\n"},
		{"diff of a trace with itself", []string{"diff", whole, whole}, 0, "\nno difference\n", "complete\n"},
		{"diff that is too much", []string{"diff", "--fail-above", "0", "--a", "..1.5ms", "--b", "..3ms", whole}, exitGate, "peak used        0 B → 1.00 KiB (1024), +1.00 KiB", "gpuanalyze diff: the peak of used bytes went"},
		{"a limit without a unit is bytes", []string{"diff", "--fail-above", "5", "--a", "..1.5ms", "--b", "..3ms", whole}, exitGate, "peak used", ", more than 5 B\n"},
		{"export of no format", []string{"export", whole, "-o", "out"}, exitUsage, "", "-o out does not say the format: add --to arrow|"},
		{"diff that is too much, and partial", []string{"diff", "-q", "--fail-above", "100%", "--a", "..1.5ms", whole, lossy}, exitGate, "peak used", "partial: B: 3 events lost"},
		{"diff that is not too much, and partial", []string{"diff", "-q", "--fail-above", "1KiB", whole, lossy}, exitPartial, "no difference", "partial: B: 3 events lost"},
		{"diff of scopes", []string{"diff", "--a", "scope:step#1", "--b", "process:4711", whole}, 0, "no difference", "complete\n"},
		{"diff as JSON", []string{"diff", "--json", "--a", "..1.5ms", whole, whole}, 0, `"b": "train.py:3:<module>"`, "complete\n"},
		{"diff as Markdown", []string{"diff", "--markdown", "--a", "..1.5ms", whole, whole}, 0, "| `train.py:3:<module> (only in B)` | 0 B | 1.00 KiB (1024) |", "complete\n"},
		{"diff of one", []string{"diff", whole}, exitUsage, "", "nothing to compare it with"},
		{"diff of three", []string{"diff", whole, lossy, huge}, exitUsage, "", "not 3"},
		{"diff of no range", []string{"diff", "--a", "step", "--b", "2ms", whole}, exitUsage, "", "--a step: it is none of scope:NAME#N, FROM..TO, rank:N, process:PID"},
		{"diff of a range twice", []string{"diff", "--a", "1ms..2ms", "--to", "3ms", whole}, exitUsage, "", "there is a window already"},
		{"diff by a limit that a script forgot", []string{"diff", "--fail-above", "", whole, whole}, exitUsage, "", `--fail-above: "" is neither bytes`},
		{"diff of two processes in one", []string{"diff", "--a", "process:1", "--a", "process:2", whole}, exitUsage, "", "there is a process already"},
		{"diff of no rank", []string{"diff", "--a", "rank:x", whole}, exitUsage, "", `"x" is no number of a rank`},
		{"diff above nothing", []string{"diff", "--fail-above", "much", whole, whole}, exitUsage, "", "neither bytes"},
		{"leaks", []string{"leaks", "--temporary-time", "1s", whole}, 0, "1 of 1 allocations (100.0 %)", "complete\n"},
		{"leaks of no site", []string{"leaks", "--by", "file", whole}, exitUsage, "", "none of stack, line, function"},
		{"leaks without suppressions", []string{"leaks", "--suppress", none, whole}, exitFailed, "", none},
		{"two traces", []string{"lines", whole, lossy}, exitPartial, "_root (2.00KB, 8.00KB)\n", lossy + ": 3 events lost"},
	} {
		t.Run(row.name, func(t *testing.T) {
			code, stdout, stderr := command1(t, row.args...)
			if code != row.code || !strings.Contains(stdout, row.stdout) || !strings.Contains(stderr, row.stderr) || row.stderr == "" && stderr != "" || row.stdout == "" && stdout != "" {
				t.Errorf("exit %d, want %d\nstdout %q, want %q\nstderr %q, want %q", code, row.code, stdout, row.stdout, stderr, row.stderr)
			}
		})
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var out, err bytes.Buffer
	if code := run(ctx, &out, &err, []string{"lines", formattest.Text(t, traceText).Path()}); code != exitInterrupted || out.Len() > 0 {
		t.Errorf("exit %d, stdout %q, stderr %q", code, out.String(), err.String())
	}
}

// Every command has help with examples, and every example parses and runs: on
// a trace of that name, where the name of a file to write is free.
func TestExamples(t *testing.T) {
	ran := 0
	for _, c := range commands() {
		if c.short == "" || len(c.examples) == 0 {
			t.Errorf("%s has no help", c.name)
		}
		code, help, _ := command1(t, c.name, "--help")
		if code != 0 || !strings.Contains(help, "examples:") {
			t.Errorf("%s --help: exit %d\n%s", c.name, code, help)
		}
		for _, example := range c.examples {
			switch c.name {
			case "devices", "events", "verify", "repair", "export", "import", "slice", "report", "symbolize":
				continue // theirs are tested beside them
			}
			t.Run(example, func(t *testing.T) {
				// The examples speak of the third forward and the 200th step.
				text := traceText
				for i := range 220 {
					for j, name := range []string{"step", "forward"} {
						text += strings.NewReplacer("TIME", strconv.Itoa(7000000+1000*i), "SCOPE", strconv.Itoa(10+2*i+j), "NAME", name).
							Replace("TIME ScopeBegin thread=7 api=nvtx scope=SCOPE name=\"NAME\"\nTIME ScopeEnd thread=7 api=nvtx scope=SCOPE\n")
					}
				}
				tr := formattest.Text(t, text).Path()
				args := strings.Fields(example)
				if args[0] != "gpuanalyze" {
					t.Fatalf("%q is no command of ours", example)
				}
				for i := range args {
					if strings.HasSuffix(args[i], ".gpurec") {
						args[i] = tr
					}
				}
				if code, stdout, stderr := command1(t, args[1:]...); code != 0 || stdout == "" {
					t.Errorf("exit %d\n%s%s", code, stdout, stderr)
				} else {
					ran++
				}
			})
		}
	}
	if ran < 8 {
		t.Errorf("only %d examples ran", ran)
	}
}

func TestJSON(t *testing.T) {
	tr := formattest.Text(t, traceText).Path()
	for _, c := range []string{"summary", "lines", "contexts", "leaks", "stats", "ranks"} {
		code, stdout, _ := command1(t, c, "--json", tr)
		var v struct{ Completeness struct{ Complete bool } }
		if err := json.Unmarshal([]byte(stdout), &v); code != 0 || err != nil || !v.Completeness.Complete {
			t.Errorf("%s: exit %d, %v\n%s", c, code, err, stdout)
		}
	}
}

// What used means is said once, whatever the number of processes and traces.
func TestUsedIsSaidOnce(t *testing.T) {
	const text = `process 1 pid=PID1
process 2 pid=PID2
part
1000 ScopeBegin process=1 thread=7 api=nvtx scope=1 name="a"
1001 ScopeBegin process=2 thread=8 api=nvtx scope=2 name="a"
1100 Alloc process=1 thread=7 api=cuMemAlloc_v2 device=0 address=0x100 size=600
1101 Alloc process=2 thread=8 api=cuMemAlloc_v2 device=0 address=0x100 size=600
`
	var traces []string
	for _, pids := range [][2]string{{"11", "12"}, {"13", "14"}} {
		traces = append(traces, formattest.Text(t, strings.NewReplacer("PID1", pids[0], "PID2", pids[1]).Replace(text)).Path())
	}
	for _, args := range []string{"lines", "lines --at peak", "lines --at end", "contexts", "contexts --by name"} {
		_, _, stderr := command1(t, append(strings.Fields(args), traces...)...)
		const note = "note: of processes that use no pool, used is what they took from the driver: pid 11, 12, 13, 14\n"
		if strings.Count(stderr, "use no pool") != 1 || !strings.Contains(stderr, note) {
			t.Errorf("%s: %s", args, stderr)
		}
	}
}
