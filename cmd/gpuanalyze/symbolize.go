package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/symbols"
)

func symbolizeCommand() *command {
	return &command{
		name:  "symbolize",
		args:  "TRACE",
		short: "name native frames: functions, files, lines, inlined calls, from the binaries",
		long: `
gpurec run names them when a recording ends, within little time; this does it again,
also on another machine, where the binaries or their debug files are, and with
large ones. What is known stays. TRACE itself is changed, its events not; with -o a
copy is. The table says of each module how many of its addresses have a name and a
line, from which files, and what could not be read.

A file counts only if its build id is the recorded one. Looked for are the module
where it was, what --search names, in the --search folders (its path below them, NAME and NAME.debug at
any depth, .build-id/xx/yyy.debug, a debuginfod cache), its .gnu_debuglink, and by
build id the debug folders and what debuginfod's clients have fetched
($DEBUGINFOD_CACHE_PATH, ~/.cache/debuginfod_client); nothing is fetched. Split debug
information (.dwo, .dwp) and what dwz moved to a file of its own are looked for
beside them and in the --search folders. Symbol tables, packed ones too, are read
whatever their size, debug information up to --max-dwarf of each file.`,
		examples: []string{
			"gpuanalyze symbolize train.gpurec",
			"gpuanalyze symbolize --search ./binaries -o named.gpurec train.gpurec",
			"gpuanalyze symbolize --search server.debug server.gpurec",
			"gpuanalyze symbolize --debug-dir /mnt/image/usr/lib/debug --max-dwarf 8GiB train.gpurec",
		},
		run: runSymbolize,
	}
}

func runSymbolize(ctx context.Context, stdout, stderr io.Writer, args []string) error {
	f := newFlagSet(symbolizeCommand(), stdout)
	out := f.StringP("output", "o", "", "the `TRACE` to make, instead of changing this one; it must not exist")
	search := f.StringArray("search", nil, "look for modules and debug files in this `DIR` and below too, or take this FILE for one")
	debug := f.StringArray("debug-dir", nil, "a `DIR` laid out as "+symbols.DebugDir+", which is one")
	limit := f.String("max-dwarf", "2GiB", "of a file read at most so many `BYTES` of debug information, which take as much memory; 0 reads none: functions without lines")
	asJSON := f.Bool("json", false, "print JSON")
	quiet := f.BoolP("quiet", "q", false, "on stderr only errors")
	if err := f.parse(args); err != nil {
		return err
	}
	if f.NArg() != 1 {
		return usagef("want one trace, got %d", f.NArg())
	}
	most, err := analyze.ParseBytes(*limit)
	if err != nil {
		return usagef("--max-dwarf: %v", err)
	}
	path := f.Arg(0)
	for _, name := range *search {
		if fi, err := os.Stat(name); err != nil || !fi.IsDir() && !fi.Mode().IsRegular() {
			return usagef("--search %s: it is no folder and no file", name)
		}
	}
	for _, dir := range *debug {
		if fi, err := os.Stat(dir); err != nil || !fi.IsDir() {
			return usagef("--debug-dir %s: it is no folder", dir)
		}
	}
	if *out != "" {
		if _, err := os.Lstat(*out); err == nil {
			return fmt.Errorf("%s: it exists already; name another output or remove it", *out)
		}
		if err := outside(*out, []string{path}); err != nil {
			return err
		}
	}
	if err := unattended(path, time.Now()); err != nil {
		return err
	}
	opt := symbols.Options{Search: *search, Debug: append(*debug, symbols.DebugDirs()...), MaxDWARF: most}
	if bar := newProgress(stderr, "addresses"); bar != nil {
		opt.Progress = bar.show
		defer bar.clear()
	}
	r, err := symbols.Trace(ctx, path, *out, opt)
	if err != nil {
		return err
	}
	if *asJSON {
		err = writeJSON(stdout, r)
	} else {
		err = writeModules(stdout, r)
	}
	if err != nil || *quiet {
		return err
	}
	for _, n := range r.Notes {
		fmt.Fprintf(stderr, "note: %s\n", analyze.Line(n))
	}
	switch {
	case r.Frames == 0:
		fmt.Fprintln(stderr, "it has no native frames; gpurec run --stacks native or both records them")
	case !r.Changed:
		fmt.Fprintf(stderr, "%s; nothing that was not known\n", r)
	default:
		fmt.Fprintln(stderr, r)
	}
	return nil
}

func writeModules(w io.Writer, r *symbols.Report) error {
	b := bufio.NewWriter(w)
	if len(r.Modules) > 0 {
		fmt.Fprintf(b, "%9s  %9s  %9s  %9s  %s\n", "addresses", "named", "lines", "inlined", "module")
	}
	for _, m := range r.Modules {
		fmt.Fprintf(b, "%9d  %9d  %9d  %9d  %s\n", m.Frames, m.Named, m.Lines, m.Inlined, analyze.Line(m.Path))
		why := m.Why
		if why == "" && m.Lines == 0 {
			why = "it has no debug information for them: --search takes its debug file, or the folder of it"
		}
		for _, s := range []struct{ what, text string }{{"from", m.From}, {"but", why}} {
			if s.text != "" && s.text != m.Path {
				fmt.Fprintf(b, "%44s  %s %s\n", "", s.what, analyze.Line(s.text))
			}
		}
	}
	return b.Flush()
}
