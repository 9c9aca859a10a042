package cuda

import (
	"testing"
)

// TestPythonSubinterpreters: each interpreter of a process counts its code objects
// anew, and their addresses are used again.
func TestPythonSubinterpreters(t *testing.T) {
	for version, python := range interpreters(t) {
		if version == "3.9" || version == "3.10" || version == "3.11" {
			continue // a thread shows the frames of its first interpreter alone
		}
		for _, kind := range []string{"legacy", "isolated"} {
			if version == "3.12" && kind == "isolated" {
				continue // ctypes does not go there
			}
			t.Run(version+"/"+kind, func(t *testing.T) {
				t.Parallel()
				t.Log(comparePython(t, program{args: []string{python, "testdata/subinterpreters.py", "8", kind}}, python))
			})
		}
	}
}
