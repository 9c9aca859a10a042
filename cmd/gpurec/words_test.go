package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
)

// TestOutOfMemory: a program that runs out and copes is not disturbed (F5).
func TestOutOfMemory(t *testing.T) {
	dir := t.TempDir()
	c := gpurec(t, dir, "run", "--simulate-gpu=1", "-v", "-o", "t.gpurec", "--", program(t, "oom"))
	c.Env = append(c.Env, "GPUREC_SIM_MEMORY=2GiB")
	var words bytes.Buffer
	c.Stderr = &words
	if status := does(t, c); status != 0 {
		t.Fatalf("status %d\n%s", status, words.String())
	}
	tr := read(t, dir+"/t.gpurec")
	if tr.kinds[format.AllocFailed] == 0 || tr.state.Processes()[0].Acquired().Now != 0 {
		t.Errorf("%d failures, %d bytes live at the end", tr.kinds[format.AllocFailed], tr.state.Processes()[0].Acquired().Now)
	}
	said := strings.Split(strings.TrimSpace(words.String()), "\n")
	var own []string
	for _, l := range said {
		if !strings.Contains(l, "compiling") {
			own = append(own, l)
		}
	}
	if len(own) != 5 || !strings.Contains(words.String(), fmt.Sprintf("out of memory: yes, %d times; gpuanalyze oom says why", tr.kinds[format.AllocFailed])) ||
		!strings.Contains(words.String(), "device 0 ") || !strings.Contains(words.String(), "largest stack near the peak: oom:main, ") {
		t.Errorf("said\n%s", words.String())
	}
}

// TestRefusedOtherwise: what is refused for another reason is not out of memory, in
// the words at the end as in gpuanalyze oom.
func TestRefusedOtherwise(t *testing.T) {
	dir := t.TempDir()
	c := gpurec(t, dir, "run", "--simulate-gpu=1", "-v", "-o", "t.gpurec", "--", program(t, "oom"))
	c.Env = append(c.Env, "GPUREC_SIM_FAIL=cuMemAlloc_v2:800@1")
	var words bytes.Buffer
	c.Stderr = &words
	if status := does(t, c); status != 1 || !strings.Contains(words.String(), "out of memory: no, but 1 time an allocation failed for another reason") {
		t.Errorf("status %d, said\n%s", status, words.String())
	}
}
