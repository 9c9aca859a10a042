package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/gpurec/gpurec/format"
)

// importers read another tool's file into a new trace, by its name.
var importers = []struct {
	name string
	read func(r io.Reader, dir string) error
}{
	{"text", format.ReadText},
}

func importCommand() *command {
	return &command{
		name:  "import",
		args:  "text FILE -o TRACE",
		short: "make a trace from a text twin",
		long: `
A text twin is what gpuanalyze events prints, or what you write by hand; it may
be compressed with zstd. FILE - is standard input.`,
		examples: []string{"gpuanalyze import text case.txt -o case.gpurec", "gpuanalyze events a.gpurec | gpuanalyze import text - -o b.gpurec"},
		run:      runImport,
	}
}

func runImport(ctx context.Context, stdout, stderr io.Writer, args []string) error {
	f := newFlagSet(importCommand(), stdout)
	out := f.StringP("output", "o", "", "the `TRACE` to make; it must not exist")
	if err := f.parse(args); err != nil {
		return err
	}
	if f.NArg() != 2 {
		return usagef("want what it is and a file, got %d arguments", f.NArg())
	}
	if *out == "" {
		return usagef("-o TRACE is missing")
	}
	for _, i := range importers {
		if i.name != f.Arg(0) {
			continue
		}
		path, in := f.Arg(1), os.Stdin
		if path == "-" {
			path = "standard input"
		} else {
			var err error
			if in, err = os.Open(path); err != nil {
				return fmt.Errorf("import: %w", err)
			}
			defer in.Close()
		}
		if err := i.read(in, *out); err != nil {
			return fmt.Errorf("import %s: %w", path, err)
		}
		return nil
	}
	return usagef("cannot import %q", f.Arg(0))
}
