package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
)

// A flagSet is a command's flags, and its help.
type flagSet struct {
	*pflag.FlagSet
	command *command
}

// helpWidth is the columns that the lines of flags in a help take at most.
const helpWidth = 100

func newFlagSet(c *command, stdout io.Writer) *flagSet {
	f := &flagSet{pflag.NewFlagSet(c.name, pflag.ContinueOnError), c}
	f.SortFlags = false
	f.SetOutput(io.Discard)
	f.Usage = func() {
		fmt.Fprintf(stdout, "%s\n\nusage: %s\n", c.short, c.usage())
		if c.long != "" {
			fmt.Fprintf(stdout, "\n%s\n", strings.TrimSpace(c.long))
		}
		fmt.Fprintf(stdout, "\nflags:\n%s", f.FlagUsagesWrapped(helpWidth))
		if len(c.examples) > 0 {
			fmt.Fprint(stdout, "\nexamples:\n")
			for _, e := range c.examples {
				fmt.Fprintf(stdout, "  %s\n", e)
			}
		}
	}
	return f
}

// parse parses args; the rest must be at least one trace.
func (f *flagSet) parse(args []string) error {
	if err := f.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return err
		}
		return usagef("%s", goWords.ReplaceAllString(err.Error(), ""))
	}
	return nil
}

// goWords are what Go says of a number that is none, in front of the reason.
var goWords = regexp.MustCompile(`strconv\.\w+: parsing ".*": `)

// An analysis is what every command that reads traces takes.
type analysis struct {
	*flagSet
	json  bool
	quiet bool

	processes, ranks []int32
	threads          []uint
	devices          []string
	layers           []string
	scopes           []string
	infer            string
	from, to         string
	view             *stackView // nil: its frames are as recorded
}

func newAnalysis(c *command, stdout io.Writer) *analysis { return newAnalysisUntil(c, stdout, "to") }

// newAnalysisUntil names the flag for the window's end: of an export, --to is
// the format.
func newAnalysisUntil(c *command, stdout io.Writer, until string) *analysis {
	a := &analysis{flagSet: newFlagSet(c, stdout)}
	a.BoolVar(&a.json, "json", false, "print JSON")
	a.Int32SliceVar(&a.processes, "process", nil, "only these processes, by `PID`")
	a.StringSliceVar(&a.devices, "device", nil, "only these devices, by `INDEX` in the trace, or UUID or its beginning")
	a.UintSliceVar(&a.threads, "thread", nil, "only these threads, by `TID`")
	a.Int32SliceVar(&a.ranks, "rank", nil, "only these `RANK`s of a distributed job")
	a.StringSliceVar(&a.layers, "layer", nil, "only these `LAYER`s: driver, pool, host")
	a.StringArrayVar(&a.scopes, "scope", nil, "only what the thread of a scope did inside it, by `ID|NAME[#N]`")
	a.StringVar(&a.infer, "infer", analyze.InferMark.String(), "`HOW`: what a thread without scopes takes, as PyTorch's backward pass does, is in the scope of its process's only other thread with some: mark shows it as inferred, off doesn't, scope takes it into --scope too")
	a.StringVar(&a.from, "from", "", "from this `TIME` on: 12.5s since the start, RFC 3339, or scope:NAME#3")
	a.StringVar(&a.to, until, "", "up to this `TIME`")
	a.BoolVarP(&a.quiet, "quiet", "q", false, "on stderr only errors, and what is missing")
	for _, name := range []string{"process", "thread", "rank"} {
		a.Lookup(name).DefValue = "" // the help would call an empty list a default
	}
	return a
}

// query parses args, and returns what they ask for and the traces.
func (a *analysis) query(args []string) (*analyze.Query, []string, error) {
	if err := a.parse(args); err != nil {
		return nil, nil, err
	}
	if a.NArg() == 0 {
		return nil, nil, usagef("no trace given")
	}
	q := &analyze.Query{Processes: a.processes, Ranks: a.ranks, Devices: a.devices}
	for _, t := range a.threads {
		if t > math.MaxUint32 {
			return nil, nil, usagef("--thread %d: a thread's number has 32 bits", t)
		}
		q.Threads = append(q.Threads, uint32(t))
	}
	for _, s := range a.layers {
		l, err := format.ParseLayer(s)
		if err != nil || l == format.LayerNone {
			return nil, nil, usagef("--layer %s: it is driver, pool or host", s)
		}
		q.Layers = append(q.Layers, l)
	}
	for _, s := range a.scopes {
		r, err := analyze.ParseScope(s)
		if err != nil {
			return nil, nil, usagef("--scope: %v", err)
		}
		q.Scopes = append(q.Scopes, r)
	}
	var err error
	if q.Infer, err = analyze.ParseInfer(a.infer); err != nil {
		return nil, nil, usagef("--infer: %v", err)
	}
	if q.From, err = parseMoment("--from", a.from); err != nil {
		return nil, nil, err
	}
	if q.To, err = parseMoment("--to", a.to); err != nil {
		return nil, nil, err
	}
	if a.view != nil {
		if q.View, err = a.view.view(); err != nil {
			return nil, nil, err
		}
		q.Short = !a.json && !a.view.full && a.Lookup("full-paths") != nil
	}
	return q, a.Args(), nil
}

func parseMoment(flag, s string) (analyze.Moment, error) {
	if s == "" {
		return analyze.Moment{}, nil
	}
	m, err := analyze.ParseMoment(s)
	if err != nil {
		return m, usagef("%s: %v", flag, err)
	}
	return m, nil
}

// answer runs an answer over the traces, with a progress bar where somebody
// looks and it takes long.
func (a *analysis) answer(ctx context.Context, stderr io.Writer, traces []string, q *analyze.Query, ans analyze.Answer) (*analyze.Completeness, error) {
	var progress func(done, of int64)
	if bar := newProgress(stderr, "events"); bar != nil {
		progress = bar.show
		defer bar.clear()
	}
	c, err := analyze.Run(ctx, traces, q, ans, progress)
	var empty *analyze.EmptyWindowError
	var repeated *analyze.RepeatedError
	if errors.As(err, &empty) || errors.As(err, &repeated) {
		return nil, usageError{err}
	}
	return c, err
}

// write writes a report as JSON, a deep tree on one line, or as text does.
func (a *analysis) write(stdout io.Writer, r any, text func(io.Writer) error) error {
	tree, ok := r.(interface{ Depth() int })
	switch {
	case a.json && ok && tree.Depth() > deep:
		return writeJSONLine(stdout, r)
	case a.json:
		return writeJSON(stdout, r)
	}
	return text(stdout)
}

// print writes a report, and concludes.
func (a *analysis) print(stdout, stderr io.Writer, c *analyze.Completeness, r any, text func(io.Writer) error) error {
	if err := a.write(stdout, r, text); err != nil {
		return err
	}
	return a.conclude(stderr, c)
}

// conclude says on stderr how complete the answer is. Its error is the exit
// status.
func (a *analysis) conclude(stderr io.Writer, c *analyze.Completeness) error {
	if !a.quiet || !c.Complete {
		fmt.Fprintln(stderr, c)
	}
	if !a.quiet {
		for _, n := range c.Notes {
			fmt.Fprintf(stderr, "note: %s\n", analyze.Line(n))
		}
	}
	if !c.Complete {
		return errPartial
	}
	return nil
}

// writeJSON prints v indented. It escapes nothing that JSON does not need
// escaped: names are data, and their readers are not browsers.
func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// writeJSONLine prints v on one line.
func writeJSONLine(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// A progress is one line that overwrites itself.
type progress struct {
	w     io.Writer
	what  string // of which there are so many
	start time.Time
	last  time.Time
}

const (
	progressAfter = time.Second            // how long work may take before it is worth a line
	progressEvery = 200 * time.Millisecond // between two lines
)

func newProgress(stderr io.Writer, what string) *progress {
	f, ok := stderr.(*os.File)
	if !ok {
		return nil
	}
	if fi, err := f.Stat(); err != nil || fi.Mode()&os.ModeCharDevice == 0 {
		return nil
	}
	return &progress{w: stderr, what: what, start: time.Now()}
}

func (p *progress) show(done, of int64) {
	now := time.Now()
	if now.Sub(p.start) < progressAfter || now.Sub(p.last) < progressEvery {
		return
	}
	p.last = now
	if of >= done {
		fmt.Fprintf(p.w, "\r%d %% of %d %s", 100*done/max(of, 1), of, p.what)
		return
	}
	fmt.Fprintf(p.w, "\r%d %s", done, p.what)
}

func (p *progress) clear() {
	if !p.last.IsZero() {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
