package cuda

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
)

// TestEntryPoints calls every function that the hook wraps, with success, with
// failure and with odd arguments, and frees across families (A4, A5, A8, A9): what
// each returns and does to the device is the same without the hook, and its
// events are those of the golden.
func TestEntryPoints(t *testing.T) {
	entry := cc(t, "entry", programs+"entry.c", "-ldl")
	_, without := program{args: []string{entry}}.run(t, nil)
	lanes, out := program{args: []string{entry}}.run(t, newReceiver(t))
	if out != without {
		t.Errorf("with the hook it printed\n%s\nwithout\n%s", out, without)
	}

	// The lane that has the marks is the program's own; the other process's is beside it.
	steps := map[string][]string{}
	for _, l := range lanes {
		names, step := map[uint64]string{}, ""
		for _, r := range l.records {
			switch {
			case r.Kind() == format.WireName:
				d, s := r.Name()
				names[d.Hash] = string(s)
			case r.Kind() == format.Mark && strings.HasPrefix(names[r.Scope().Name], "#"):
				step = names[r.Scope().Name]
				if step == "#" {
					step = "" // the end of a call: what comes prepares the next
				}
			case step == "" || r.Definition() || r.Kind() == format.ThreadBegin || r.Kind() == format.FreeDone:
			case r.Kind() == format.Mark:
				name, _, _ := strings.Cut(names[r.Scope().Name], " ")
				steps[step] = append(steps[step], "Mark "+name)
			default:
				line := text(r)
				if e, c := r.Event(), r.Call(); e.B != 0 || c.Pool != 0 {
					line += fmt.Sprintf(" object=%v pool=%v", e.B != 0, c.Pool != 0)
				}
				steps[step] = append(steps[step], line)
			}
		}
	}
	if len(steps) < 200 {
		t.Errorf("marks of %d calls", len(steps))
	}

	var got []string
	cases := map[string][]string{}
	for line := range strings.Lines(out) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		number, function, kind, call, status := f[0], f[1], f[2], f[3], f[4]
		if !slices.Contains(cases[function], kind) {
			cases[function] = append(cases[function], kind)
		}
		got = append(got, fmt.Sprintf("%s %s: %s = %s", function, kind, call, status))
		for _, e := range steps["#"+number] {
			got = append(got, "\t"+e)
		}
		if fails := status != "0"; kind == "failure" && !fails || kind == "success" && fails {
			t.Errorf("%s is no %s: %s", call, kind, status)
		}
	}
	golden(t, "entry.txt", got)

	hooked := slices.Clone(format.Watched)
	for _, a := range format.APIs {
		if a.Hook {
			hooked = append(hooked, a.Name)
		}
	}
	for _, name := range hooked {
		for _, kind := range []string{"success", "failure", "odd"} {
			if !slices.Contains(cases[name], kind) {
				t.Errorf("%s has no case of %s in entry.c", name, kind)
			}
		}
	}
}
