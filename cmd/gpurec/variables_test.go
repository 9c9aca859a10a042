package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
)

// TestMisspelled: what is nearly a variable of gpurec's is told, what is one or
// somebody else's is not.
func TestMisspelled(t *testing.T) {
	for _, row := range []struct{ variable, want string }{
		{"GPUREC_OUTPUT=x", ""},
		{"GPUREC_OUTPT=x", "GPUREC_OUTPUT"},
		{"GPUREC_ONFULL=wait", "GPUREC_ON_FULL"},
		{"gpurec_quiet=1", "GPUREC_QUIET"},
		{"GPUREC_RETIAN=1h", "GPUREC_RETAIN"},
		{"GPU_REC_STACKS=none", "GPUREC_STACKS"},
		{"GPUREC_SIM_MEMROY=1GiB", "GPUREC_SIM_MEMORY"},
		{"GPUREC_SIM_MEMORY=1GiB", ""},
		{"GPUREC_SOCKET=/x", ""},
		{"GPUREC_MY_OWN_THING=1", ""},
		{"GPU_DEVICE_ORDINAL=0", ""},
		{"PATH=GPUREC_OUTPT", ""},
	} {
		said := strings.Join(misspelled([]string{row.variable}), "; ")
		name, _, _ := strings.Cut(row.variable, "=")
		if row.want == "" && said != "" || row.want != "" && (!strings.Contains(said, row.want+" does") || !strings.Contains(said, name)) {
			t.Errorf("%s: said %q, want %q", row.variable, said, row.want)
		}
	}
	dir := t.TempDir()
	for _, row := range []struct {
		flag string
		want int
	}{{"-v", 1}, {"-q", 0}, {"--no-python", 0}} { // the last: stderr is no terminal
		c := gpurec(t, dir, "run", row.flag, "-o", "t"+row.flag, "--", "true")
		c.Env = append(c.Env, "GPUREC_OUTPT=x")
		var errs bytes.Buffer
		c.Stderr = &errs
		if status := does(t, c); status != 0 || strings.Count(errs.String(), "GPUREC_OUTPT") != row.want {
			t.Errorf("%s: status %d, %q", row.flag, status, errs.String())
		}
		trace, err := format.Open(dir + "/t" + row.flag)
		if err != nil {
			t.Fatal(err)
		}
		if notes := trace.Meta().Notes; len(notes) != 1 || !strings.Contains(notes[0], "GPUREC_OUTPT") {
			t.Errorf("%s: the trace notes %q", row.flag, notes)
		}
	}
}

// TestCannotMake says what to do where no trace can be made, and starts nothing.
func TestCannotMake(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(dir+"/there", 0o700); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct{ output, want string }{
		{"there", "nothing is overwritten: remove it, or name another with -o"},
		{"no/such dir/t.gpurec", "mkdir -p 'no/such dir'"},
		{"/proc/t.gpurec", "/proc/t.gpurec"},
	} {
		for _, command := range [][]string{{"run", "-o", row.output, "--", "touch", "started"}, {"sample", "--simulate-gpu=1", "-o", row.output}} {
			c := gpurec(t, dir, command...)
			var errs bytes.Buffer
			c.Stderr = &errs
			want := map[string]int{"run": 125, "sample": 1}[command[0]]
			if status := does(t, c); status != want || !strings.Contains(errs.String(), row.want) {
				t.Errorf("%s -o %s: status %d, %q, want %q", command[0], row.output, status, errs.String(), row.want)
			}
			if _, err := os.Stat(dir + "/started"); err == nil {
				t.Errorf("-o %s: the command was started", row.output)
			}
		}
	}
}
