package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format/formattest"
)

func TestFragmentationCommand(t *testing.T) {
	whole := formattest.Text(t, traceText).Path()
	for _, row := range []struct {
		name           string
		args           []string
		code           int
		stdout, stderr string
	}{
		{"worst", []string{"fragmentation", whole}, 0, "process 4711 on device 0 (H200), at 0.002999s, when most was pinned\n", "complete\n"},
		{"end", []string{"fragmentation", "--at", "end", whole}, 0, "  whole segments                  4.00 KiB (4096)  100.0 %", "complete\n"},
		{"a time", []string{"fragmentation", "--at", "3.5ms", whole}, 0, "  pinned                          3.00 KiB (3072)   75.0 %", "complete\n"},
		{"before the first segment", []string{"fragmentation", "--at", "1.5ms", whole}, 0, "no pool had a segment\n", "complete\n"},
		{"as JSON", []string{"fragmentation", "--json", whole}, 0, `"largest_hole": 3072`, "complete\n"},
		{"of nothing, as JSON", []string{"fragmentation", "--json", formattest.Text(t, "part\n").Path()}, 0, `"pools": []`, "complete\n"},
		{"two ends", []string{"fragmentation", "--at", "1s", "--to", "2s", whole}, exitUsage, "", "exclude each other"},
		{"no such time", []string{"fragmentation", "--at", "noon", whole}, exitUsage, "", `--at: time "noon"`},
		{"a scope limits nothing", []string{"fragmentation", "--scope", "step", whole}, 0, "when most was pinned", "a pool is a process's on a device"},
	} {
		t.Run(row.name, func(t *testing.T) {
			code, stdout, stderr := command1(t, row.args...)
			if code != row.code || !strings.Contains(stdout, row.stdout) || !strings.Contains(stderr, row.stderr) {
				t.Errorf("exit %d\n%s\n%s", code, stdout, stderr)
			}
		})
	}
}

// The two programs on the H200 that had much cached and free: one could not use
// it, the other's was in whole segments, which the retry gave back.
func TestFragmentationOnH200(t *testing.T) {
	for _, name := range []string{"fragments", "retried"} {
		dir := filepath.Join(t.TempDir(), name+".gpurec")
		if code, _, stderr := command1(t, "import", "text", filepath.Join(h200, "oom", name+".txt.zst"), "-o", dir); code != 0 {
			t.Fatalf("import: exit %d\n%s", code, stderr)
		}
		code, stdout, stderr := command1(t, "fragmentation", "--most", "4", dir)
		if code != 0 {
			t.Errorf("exit %d\n%s", code, stderr)
		}
		formattest.Golden(t, "h200/fragmentation."+name+".txt", []byte(strings.ReplaceAll(stdout, dir, name+".gpurec")))
	}
}

// However a recording is cut into parts, the failures and the pools are the same.
func TestPartsDoNotMatterToPools(t *testing.T) {
	failures := 0
	for seed := range int64(3) {
		one, many := writeRandom(t, seed, 0), writeRandom(t, seed, 90+int(seed)*100)
		for _, args := range []string{"oom --all", "oom --json", "oom --from 5ms --process 101", "fragmentation --most 0", "fragmentation --json", "fragmentation --at end", "fragmentation --at 7ms",
			"fragmentation --json --from 4ms --to 9ms"} {
			a := strings.Fields(args)
			code1, out1, err1 := command1(t, append(a[:len(a):len(a)], one)...)
			code2, out2, err2 := command1(t, append(a[:len(a):len(a)], many)...)
			failures += strings.Count(out1, "OUT OF MEMORY")
			out1, out2 = partWords.ReplaceAllString(out1, ""), partWords.ReplaceAllString(out2, "")
			if code1 != 0 || code2 != 0 || out1 != out2 || err1 != err2 {
				t.Errorf("seed %d, %s: exit %d and %d\n%s%s", seed, args, code1, code2, firstDifference(out1, out2), firstDifference(err1, err2))
			}
		}
	}
	if failures < 10 {
		t.Errorf("%d failures only", failures)
	}
}
