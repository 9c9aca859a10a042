package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format/formattest"
)

// Every answer has something to say of every trace, however little there is in
// it or however strange its numbers are, and its sums hold.
func TestAnswersToStrangeTraces(t *testing.T) {
	const head = "meta command=x start=2026-11-30T10:00:00Z start_monotonic=1000 ending=closed\ndevice 0 uuid=GPU-0 name=H200 total=100000\nprocess 1 pid=7 command=x begin=1000 end=9000 status=0\n"
	alloc := func(n int, size string) string {
		return strings.NewReplacer("N", string(rune('0'+n)), "SIZE", size).Replace("200N Alloc thread=1 api=torch device=0 address=0xN size=SIZE\n")
	}
	for _, row := range []struct {
		name, text string
	}{
		{"B3: no event and no sample", head + "part\n"},
		{"B3: no device either", "meta command=x ending=closed\npart\n"},
		{"B3: one sample", head + "part\nsample 2000 device=0 total=100000 used=9000 free=91000\n"},
		{"B3: a process without memory", head + "part\n1000 ProcessBegin thread=7\n9000 ProcessEnd status=0\n"},
		{"B3: events and no sample", head + "part\n" + alloc(1, "5")},
		{"B6: one event", head + "part\n" + alloc(1, "512")},
		{"B6: all sizes equal", head + "part\n" + alloc(1, "512") + alloc(2, "512") + alloc(3, "512") + alloc(4, "512")},
		{"B6: sizes 0 and 2^63-1", head + "part\n" + alloc(1, "0") + alloc(2, "9223372036854775807") + alloc(3, "0")},
		{"A7: time goes back, and stands", head + "part\n2003 Alloc thread=1 api=torch device=0 address=0x1 size=8\n2001 Free thread=1 api=torch address=0x1\n2001 Alloc thread=1 api=torch device=0 address=0x1 size=8\n"},
		{"D3: numbers beyond 2^53", head + "part\n2000 Alloc thread=1 api=torch device=0 address=18446720620317114368 object=18446744073709551615 size=9007199254740993 status=-1\n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir, trace := t.TempDir(), formattest.Text(t, row.text).Path()
			for _, args := range answers {
				args = slices.Clone(args)
				for i := range args {
					args[i] = strings.Replace(args[i], "OUT", dir, 1)
				}
				code, stdout, stderr := command1(t, append(args, trace)...)
				said := stdout + stderr
				switch {
				case code != 0 && code != exitPartial && !(code == exitFailed && len(stderr) > 20 && (args[0] == "contexts" || args[0] == "export")):
					t.Errorf("%q: exit %d\n%s", args, code, said)
				case said == "" && !slices.Contains(args, "-o"):
					t.Errorf("%q says nothing", args)
				case strings.Contains(said, "NaN") || strings.Contains(said, "Inf") || strings.Contains(said, "%!") || strings.Contains(said, "-9223372036854775808"):
					t.Errorf("%q: %s", args, said)
				}
			}
		})
	}
}

// D3: no export and no page rounds a number of 64 bits.
func TestNumbersOf64Bits(t *testing.T) {
	const address, size = "18446720620317114368", "9007199254740993"
	trace := formattest.Text(t, "device 0 uuid=GPU-0 total=18014398509481985\nprocess 1 pid=7\npart\n2000 Alloc thread=1 api=torch device=0 address="+address+" size="+size+"\nsample 2001 device=0 total=18014398509481985 used=-1 free=-1\n").Path()
	for _, row := range []struct {
		args string
		file string // "" for standard output
		want []string
	}{
		{"export --to csv -o OUT/csv", "csv/events.csv", []string{address, size}},
		{"export --to jsonl -o OUT/jsonl", "jsonl/events.jsonl", []string{address, size}},
		{"peak --json", "", []string{size}},
		{"lines --at peak --json", "", []string{size}},
		{"timeline --json", "", []string{size}},
		{"events", "", []string{"0xffffeaab54e00000", size}},
		{"report -o OUT/r.html", "r.html", []string{size}},
	} {
		dir := t.TempDir()
		code, text, stderr := command1(t, append(strings.Fields(strings.ReplaceAll(row.args, "OUT", dir)), trace)...)
		if row.file != "" {
			b, err := os.ReadFile(filepath.Join(dir, row.file))
			if err != nil {
				t.Errorf("%s: exit %d, %v\n%s", row.args, code, err, stderr)
			}
			text = string(b)
		}
		for _, want := range row.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: exit %d, without %s:\n%.600s", row.args, code, want, text)
			}
		}
	}
}
