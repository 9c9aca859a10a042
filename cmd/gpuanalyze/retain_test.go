package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpurec/gpurec/format"
)

// Scopes of a name are numbered from what there is, a scope that had ended around
// an open one is not known, and the notes say since when.
var retainedWords = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{partWords, ""},
	{regexp.MustCompile(`(?m)^ *open then: .*$`), "open"},
	{regexp.MustCompile(`(?m)\S+ > \S+ > .*$`), "open"},
	{regexp.MustCompile(`(?m)^ *nothing grew steadily between.*\n\s*`), ""},
	{regexp.MustCompile(`"n": ?\d+`), ""},
	{regexp.MustCompile(`(?m)^ *what to do`), "what to do"},
	{regexp.MustCompile(`"notes": ?\[[^]]*\]`), "notes"},
	{regexp.MustCompile(`(?m)^\s*(scope\d(?: \(since reset \d+\))?) +\d+ +`), "$1 "},
}

func unnumbered(s string) string {
	for _, w := range retainedWords {
		s = w.pattern.ReplaceAllString(s, w.with)
	}
	return s
}

func sorted(s string) string {
	lines := strings.Split(s, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// Every question about what was retained has the answer that the whole recording
// gives with --from: scopes open at the window's begin, what was live then and all
// sums and peaks since are the same. A device's free bytes are known from the
// first reading on, and what grew is judged by the turns that there are.
func TestRetained(t *testing.T) {
	for seed := range int64(3) {
		whole := writeRandom(t, seed, 0)
		thin := writeRandomRetaining(t, seed, 120, format.Retention{Time: 7 * time.Millisecond})
		tr, err := format.Open(thin)
		if err != nil {
			t.Fatal(err)
		}
		m := tr.Meta()
		if tr.Parts()[0].Index() < 3 || m.Since == 0 {
			t.Fatalf("seed %d: the first part is %d, since %d", seed, tr.Parts()[0].Index(), m.Since)
		}
		since := time.Duration(m.Since-m.Monotonic) + 1
		const kept = 7 * time.Millisecond // and somewhat more
		for _, q := range []string{"lines", "lines --at peak", "lines --at end", "lines --at peak --device 1", "lines --process 101 --layer driver",
			"peak", "peak --by tree --device 1", "timeline", "timeline --by process", "timeline --json --by layer", "timeline --json --by line --curve acquired",
			"contexts", "contexts --curve acquired", "contexts --json", "contexts --units fastai --curve used", "leaks", "leaks --process 102", "ranks", "oom", "stats", "summary", "devices"} {
			for _, from := range []time.Duration{since, since + kept/2} {
				if q == "stats" && seed == 2 {
					continue // a free that was under way when the first part began was refused: the block's age begins then
				}
				if q == "devices" {
					from = since + kept*2/3
				}
				args := append(strings.Fields(q), fmt.Sprintf("--from=%dns", from))
				code1, want, _ := command1(t, append(args, whole)...)
				code2, got, stderr := command1(t, append(args, thin)...)
				want, got = unnumbered(want), unnumbered(got)
				if strings.HasPrefix(q, "leaks") { // sites of equal bytes stand in the order in which they were met
					want, got = sorted(want), sorted(got)
				}
				if got != want || code1 != code2 || len(want) < 40 || !strings.Contains(stderr, "complete since") && q != "ranks" {
					t.Errorf("seed %d, %s from %v: exit %d and %d\n%s%s", seed, q, from, code1, code2, firstDifference(want, got), stderr)
				}
			}
		}
	}
}
