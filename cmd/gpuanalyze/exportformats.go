package main

import (
	"context"
	"io"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/export"
	"github.com/gpurec/gpurec/analyze/export/perfetto"
	"github.com/gpurec/gpurec/analyze/export/stacks"
	"github.com/gpurec/gpurec/analyze/export/torch"
)

// An exportFormat is one that export writes.
type exportFormat struct {
	name    string
	endings []string // of OUT that mean it, beside its name
	what    string
	tables  bool // a directory of them
	create  func(context.Context, *exportOptions) (*making, error)
}

// exportOptions are what an export is asked to be.
type exportOptions struct {
	format string
	out    string
	traces int
	by     []string
	value  stacks.Value
	stdout io.Writer
}

// A making is an export in the making.
type making struct {
	answer analyze.Answer
	close  func() error
	abort  func()
	counts func() []export.Count
}

var exportFormats = []exportFormat{
	{"arrow", nil, "tables: Arrow IPC (Feather)", true, makeTables},
	{"parquet", nil, "tables: Parquet", true, makeTables},
	{"csv", nil, "tables: CSV", true, makeTables},
	{"jsonl", nil, "tables: JSON lines", true, makeTables},
	{"duckdb", nil, "tables: Parquet, with the SQL that loads them and answers", true, makeTables},
	{"pprof", []string{"pb.gz"}, "bytes by stack: go tool pprof", false, makeStacks(func(a *stacks.Answer, w io.Writer, _ stacks.Value) error { return a.WritePprof(w) })},
	{"folded", nil, "bytes by stack: flamegraph.pl, inferno", false, makeStacks((*stacks.Answer).WriteFolded)},
	{"speedscope", []string{"speedscope.json"}, "bytes by stack: speedscope.app", false, makeStacks(func(a *stacks.Answer, w io.Writer, _ stacks.Value) error { return a.WriteSpeedscope(w) })},
	{"perfetto", []string{"pftrace", "perfetto-trace"}, "timeline: ui.perfetto.dev", false, makePerfetto},
	{"torch", []string{"pickle"}, "PyTorch's memory snapshot: torch.cuda._memory_viz", false, makeTorch},
}

func exportNames() (names []string) {
	for _, f := range exportFormats {
		names = append(names, f.name)
	}
	return names
}

func exportFormatNamed(name string) *exportFormat {
	i := slices.IndexFunc(exportFormats, func(f exportFormat) bool { return f.name == name })
	if i < 0 {
		return nil
	}
	return &exportFormats[i]
}

// exportFormatOf is the format that the ending of OUT says.
func exportFormatOf(out string) *exportFormat {
	for i := range exportFormats {
		f := &exportFormats[i]
		for _, e := range append(f.endings, f.name) {
			if strings.HasSuffix(out, "."+e) {
				return f
			}
		}
	}
	return nil
}

func makeTables(ctx context.Context, o *exportOptions) (*making, error) {
	x, err := export.Create(ctx, o.out, o.format, o.by...)
	if err != nil {
		return nil, err
	}
	return &making{x, x.Close, x.Abort, x.Counts}, nil
}

// makeStacks makes a file of what is known when all traces are read.
func makeStacks(write func(*stacks.Answer, io.Writer, stacks.Value) error) func(context.Context, *exportOptions) (*making, error) {
	return func(ctx context.Context, o *exportOptions) (*making, error) {
		f, err := export.CreateFile(ctx, o.out, o.stdout)
		if err != nil {
			return nil, err
		}
		a := stacks.New()
		finish := func() error {
			if err := write(a, f, o.value); err != nil {
				return err
			}
			return f.Close()
		}
		return &making{a, finish, f.Abort, func() []export.Count { return []export.Count{{What: "stacks", N: a.Stacks()}} }}, nil
	}
}

func makePerfetto(ctx context.Context, o *exportOptions) (*making, error) {
	f, err := export.CreateFile(ctx, o.out, o.stdout)
	if err != nil {
		return nil, err
	}
	a := perfetto.New(f, o.traces)
	finish := func() error {
		if err := a.Close(); err != nil {
			return err
		}
		return f.Close()
	}
	return &making{a, finish, f.Abort, func() []export.Count { return []export.Count{{What: "packets", N: a.Packets()}} }}, nil
}

func makeTorch(ctx context.Context, o *exportOptions) (*making, error) {
	f, err := export.CreateFile(ctx, o.out, o.stdout)
	if err != nil {
		return nil, err
	}
	a := torch.New()
	finish := func() error {
		if err := a.Write(f); err != nil {
			return err
		}
		return f.Close()
	}
	abort := func() {
		f.Abort()
		a.Close()
	}
	return &making{a, finish, abort, func() []export.Count { return []export.Count{{What: "entries", N: a.Entries()}} }}, nil
}

// run feeds the export and makes it whole.
func (m *making) run(ctx context.Context, a *analysis, stderr io.Writer, q *analyze.Query, traces []string) (*analyze.Completeness, error) {
	defer m.abort()
	c, err := a.answer(ctx, stderr, traces, q, m.answer)
	if err != nil {
		return nil, err
	}
	return c, m.close()
}
