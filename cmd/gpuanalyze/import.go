package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/gpurec/gpurec/analyze"
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
	f.BoolP("quiet", "q", false, "on stderr only errors, which is all that import says")
	if err := f.parse(args); err != nil {
		return err
	}
	if f.NArg() != 2 {
		return usagef("want the word text and a file, got %d argument%s", f.NArg(), analyze.Plural(int64(f.NArg())))
	}
	if *out == "" {
		return usagef("-o TRACE is missing")
	}
	for _, i := range importers {
		if i.name != f.Arg(0) {
			continue
		}
		if _, err := os.Lstat(*out); err == nil {
			return fmt.Errorf("%s: it exists already; name another output or remove it", *out)
		}
		path, in := f.Arg(1), os.Stdin
		if path == "-" {
			path = "standard input"
		} else {
			var err error
			if in, err = openInput(path); err != nil {
				return err
			}
			defer in.Close()
		}
		if err := i.read(&interruptible{ctx: ctx, r: in}, *out); err != nil {
			var syntax *format.SyntaxError
			var version *format.VersionError
			if errors.As(err, &syntax) || errors.As(err, &version) {
				return fmt.Errorf("%s: %w", path, err)
			}
			return err
		}
		return nil
	}
	return usagef("cannot import %q", f.Arg(0))
}

// An interruptible is a reader that ends with ctx, also while it waits: a
// terminal or a pipe may have nothing to say for ever.
type interruptible struct {
	ctx  context.Context
	r    io.Reader
	buf  [64 << 10]byte
	left []byte // read and not yet passed on
	got  chan read
}

type read struct {
	n   int
	err error
}

func (i *interruptible) Read(b []byte) (int, error) {
	if err := i.ctx.Err(); err != nil {
		return 0, err
	}
	if len(i.left) == 0 {
		if i.got == nil {
			i.got = make(chan read, 1) // so that a read that nobody waits for ends too
		}
		go func() {
			n, err := i.r.Read(i.buf[:])
			i.got <- read{n, err}
		}()
		select {
		case g := <-i.got:
			if i.left = i.buf[:g.n]; g.n == 0 {
				return 0, g.err
			}
			// An error after bytes comes again at the next read.
		case <-i.ctx.Done():
			return 0, i.ctx.Err()
		}
	}
	n := copy(b, i.left)
	i.left = i.left[n:]
	return n, nil
}

// openInput opens a file to import. A pipe will do where somebody writes to it,
// as in a shell's <(...); one without a writer is empty.
func openInput(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return nil, err
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() && fi.Mode().Type() != os.ModeNamedPipe {
		err = &os.PathError{Op: "open", Path: path, Err: errors.New("it is neither a file nor a pipe")}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
