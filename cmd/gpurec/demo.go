package main

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"

	"github.com/gpurec/gpurec/cuda"
	"github.com/gpurec/gpurec/cuda/nvml"
)

const demoHelp = `gpurec demo [-o TRACE]

Records a small program that takes memory on one or two devices for about two
seconds. On a machine without a GPU it runs on gpurec's simulated one. Needs
python3.

Example:
  gpurec demo -o demo.gpurec && gpuanalyze lines --at peak demo.gpurec
`

func demo(ctx context.Context, stdout, stderr io.Writer, args []string) int {
	var o settings
	flags := o.flags("demo")
	if status, done := parse(flags, demoHelp, stdout, stderr, args); done {
		return status
	}
	if err := o.check(); err != nil {
		fmt.Fprintf(stderr, "gpurec: %v; see gpurec demo --help\n", err)
		return 2
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		fmt.Fprintln(stderr, "gpurec: the demo needs python3, which is not in PATH")
		return 1
	}
	dir, err := cuda.PythonDir("")
	if err != nil {
		fmt.Fprintf(stderr, "gpurec: %v\n", err)
		return 1
	}
	if o.simulate == 0 && !hasDevice() {
		if !o.quiet {
			fmt.Fprintln(stderr, "gpurec: no GPU here, so the demo runs on a simulated one with 2 devices")
		}
		o.simulate = 2
	}
	if o.output == "" {
		o.output = "demo-%h-%p-%t.gpurec"
	}
	o.verbose = !o.quiet
	status := o.record(stderr, []string{python, filepath.Join(dir, "gpurec", "demo.py")}, append(args, python, "demo.py"))
	if status == failed {
		return 1
	}
	return status
}

// hasDevice asks NVML in a process of its own: a library once loaded stays the
// one of its process, and the demo may want the simulated one.
func hasDevice() bool {
	lib, err := nvml.Open("")
	if err != nil {
		return false
	}
	defer lib.Close()
	return len(lib.Devices()) > 0
}
