// Command gpurec records GPU memory: every event that takes or gives back
// memory in a command and its children, with the stack that caused it.
//
//	main.go   the table of commands      flags.go  flags that the environment may set too
//	run.go    gpurec run                 words.go  what is said after a command
//	demo.go   gpurec demo                info.go   gpurec info
//	sample.go gpurec sample              setup.go  hook, NVML and the trace's name
//	simulate.go the simulated GPU        collect.go when garbage is collected
//	variables.go words about variables and places that are not right
//	metrics.go what Prometheus may ask
//
// It promises that the command's output, signals and exit status are the same
// with and without it. It refuses to analyze: that is gpuanalyze.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
)

// A command is one row of the table.
type command struct {
	name, words string
	run         func(ctx context.Context, stdout, stderr io.Writer, args []string) int
}

func commands() []command {
	return []command{
		{"run", "record a command and all its children", run},
		{"sample", "record NVML's history only", sample},
		{"demo", "record the built-in example", demo},
		{"info", "what can be recorded here, and what can't", info},
	}
}

// failed is the status of a failure of our own, as env(1) has it: the command's
// own statuses go up to 124 by convention.
const failed = 125

func main() {
	collectLater()
	os.Exit(dispatch(context.Background(), os.Stdout, os.Stderr, os.Args[1:]))
}

func dispatch(ctx context.Context, stdout, stderr io.Writer, args []string) int {
	if len(args) == 0 {
		usage(stderr)
		return 2
	}
	for _, c := range commands() {
		if c.name == args[0] {
			return c.run(ctx, stdout, stderr, args[1:])
		}
	}
	switch args[0] {
	case "help", "-h", "--help":
		usage(stdout)
		return 0
	case "--version":
		fmt.Fprintln(stdout, version())
		return 0
	}
	fmt.Fprintf(stderr, "gpurec: no command %q; to record a program type: gpurec run -- %s\n", args[0], args[0])
	return 2
}

func usage(w io.Writer) {
	fmt.Fprint(w, "gpurec records GPU memory; gpuanalyze answers from what it recorded.\n\nCommands:\n")
	for _, c := range commands() {
		fmt.Fprintf(w, "  gpurec %-8s %s\n", c.name, c.words)
	}
	fmt.Fprint(w, `
Examples:
  gpurec run -- python train.py
  gpurec demo -o demo.gpurec && gpuanalyze lines --at peak demo.gpurec

gpurec COMMAND --help says more.
`)
}
