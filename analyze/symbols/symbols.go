package symbols

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/gpurec/gpurec/analyze/symbols/dwarf"
	"github.com/gpurec/gpurec/format"
)

// Options are where symbols are looked for and how much is read for them.
type Options struct {
	Search   []string // modules or their debug files, and folders with them, at any depth or by build id
	Debug    []string // folders laid out as one of DebugDirs, which belong to them
	MaxDWARF int64    // the most debug information of a file, as it is in memory; 0: read none
	Stop     func() bool
	Progress func(done, of int64) // addresses; nil: nobody listens
}

// A Module is what became of the frames of one mapped file.
type Module struct {
	Path    string `json:"module"`
	BuildID string `json:"build_id,omitempty"`
	Frames  int    `json:"frames"` // addresses that were recorded
	Named   int    `json:"named"`  // of these, with a function
	Lines   int    `json:"lines"`  // of these, with a line
	Inlined int    `json:"inlined"`
	From    string `json:"from,omitempty"` // files read
	Why     string `json:"why,omitempty"`  // what could not be read

	addrs []uint64
}

// A Report is what Trace did.
type Report struct {
	Modules []*Module `json:"modules"`
	Frames  int       `json:"frames"`
	Named   int       `json:"named"`
	Lines   int       `json:"lines"`
	Inlined int       `json:"inlined"` // calls that were inlined, each a frame more
	Changed bool      `json:"changed"` // something was learned
	Stopped bool      `json:"stopped"` // it was told to stop before it was through
	Notes   []string  `json:"notes,omitempty"`
}

// A place is a function, and where in it the address or the call within is.
type place struct {
	function string
	file     string
	line     int32
}

// errStopped ends reading when Options.Stop says so.
var errStopped = errors.New("there was no more time")

// A budget ends long work, and is told how far a module's is.
type budget struct {
	ctx      context.Context
	stop     func() bool
	progress func(done, of int) // nil: nobody listens
}

func (b *budget) check() error {
	if err := b.ctx.Err(); err != nil {
		return err
	}
	if b.stop != nil && b.stop() {
		return errStopped
	}
	return nil
}

// Trace names the native frames of the closed trace at path, in the new trace
// out or, where out is "", in place: each table is written beside and renamed. It
// may be done again, when more files are there; what is known stays.
func Trace(ctx context.Context, path, out string, opt Options) (*Report, error) {
	t, err := format.Open(path)
	if err != nil {
		return nil, err
	}
	if t.Alone() {
		return nil, fmt.Errorf("symbolize %s: it is one part of a trace; name the trace", path)
	}
	if out == "" {
		unlock, err := lock(t.Path())
		if err != nil {
			return nil, fmt.Errorf("symbolize %s: %w", path, err)
		}
		defer unlock()
	}
	b := &budget{ctx: ctx, stop: opt.Stop}
	defs, err := load(b, t)
	if errors.Is(err, errStopped) {
		return &Report{Modules: []*Module{}, Stopped: true}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("symbolize %s: %w", path, err)
	}
	find := &finder{search: opt.Search, debug: opt.Debug}
	r := &Report{Modules: []*Module{}, Notes: find.files()}
	stacks, inlined, expanded := done(defs)
	known := map[key][]place{}
	r.Modules = modules(defs, inlined)
	passed, all := int64(0), int64(0)
	for _, m := range r.Modules {
		all += int64(m.Frames)
	}
	for _, m := range r.Modules {
		if opt.Progress != nil {
			b.progress = func(done, of int) { opt.Progress(passed+int64(m.Frames)*int64(done)/int64(of), all) }
			b.progress(0, 1)
		}
		chains := m.resolve(b, find, opt.MaxDWARF)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		for j, chain := range chains {
			if len(chain) > 0 {
				known[key{m.Path, m.BuildID, m.addrs[j]}] = chain
			}
		}
		passed += int64(m.Frames)
	}
	r.Stopped = b.check() != nil
	for id, files := range find.ids {
		if !slices.ContainsFunc(r.Modules, func(m *Module) bool { return m.BuildID == id }) {
			for _, file := range files {
				r.Notes = append(r.Notes, fmt.Sprintf("%s is of no module of the trace: its build id is %s", file, id))
			}
		}
	}
	slices.Sort(r.Notes)
	for _, dir := range find.full {
		r.Notes = append(r.Notes, fmt.Sprintf("%s: it has more than %d files, the others were not looked at", dir, mostFiles))
	}
	x := &expansion{defs: defs, out: &format.Restatement{Frames: map[format.FrameID]format.Frame{}, Stacks: map[format.StackID][]format.Stack{}},
		chains: map[format.FrameID][]place{}, inner: map[format.FrameID][]format.FrameID{}, nextFrame: 1, nextStack: format.StackBeforeRecording + 1}
	defs.Each(func(f format.Frame) {
		if chain := known[keyOf(&f)]; f.Kind == format.FrameNative && len(chain) > 0 && !inlined[f.ID] && !worse(&f, chain, expanded[keyOf(&f)]) {
			x.frame(f, chain)
		}
	}, func(format.Stack) {}, func(format.NameID, string) {})
	x.stacks(stacks)
	r.Changed = len(x.out.Frames)+len(x.out.Stacks) > 0
	r.count(defs, x.out, inlined)
	if !r.Changed && out == "" {
		return r, nil
	}
	return r, format.Restate(ctx, path, out, x.out)
}

// load has the definitions of all parts; none where no frame is native: a long
// recording has many, and most have no such frame.
func load(b *budget, t *format.Trace) (*format.Defs, error) {
	defs, native := format.NewDefs(), false
	for _, p := range t.Parts() {
		if err := b.check(); err != nil {
			return nil, err
		}
		if err := p.EachFrame(func(f format.Frame) { native = native || f.Kind == format.FrameNative }); err != nil {
			return nil, err
		}
	}
	for _, p := range t.Parts() {
		if err := b.check(); err != nil || !native {
			return defs, err
		}
		if err := p.LoadDefs(defs); err != nil {
			return nil, err
		}
	}
	return defs, nil
}

// worse reports whether a frame says more already: a line, or what is inlined, that
// was found where there was debug information.
func worse(f *format.Frame, chain []place, expanded bool) bool {
	return expanded && len(chain) == 1 || f.Function != "" && chain[0].function == "" || f.Line > 0 && chain[len(chain)-1].line == 0
}

// modules are the mapped files of native frames, those with most first.
func modules(defs *format.Defs, inlined map[format.FrameID]bool) []*Module {
	type id struct{ path, build string }
	all := map[id]*Module{}
	seen := map[key]bool{}
	out := []*Module{}
	defs.Each(func(f format.Frame) {
		if f.Kind != format.FrameNative || f.Module == "" || seen[keyOf(&f)] || inlined[f.ID] {
			return
		}
		seen[keyOf(&f)] = true
		m := all[id{f.Module, f.BuildID}]
		if m == nil {
			m = &Module{Path: f.Module, BuildID: f.BuildID}
			all[id{f.Module, f.BuildID}] = m
			out = append(out, m)
		}
		m.addrs = append(m.addrs, f.Address)
	}, func(format.Stack) {}, func(format.NameID, string) {})
	for _, m := range out {
		sort.Slice(m.addrs, func(i, j int) bool { return m.addrs[i] < m.addrs[j] })
		m.Frames = len(m.addrs)
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].Frames > out[j].Frames })
	return out
}

// resolve looks a module's addresses up:
//
//  1. the files that are the module's are found;
//  2. functions come from their symbol tables, the whole one, in the file or packed
//     in it, before the dynamic one;
//  3. functions, inlined ones too, and lines come from the first with debug
//     information that is not too large;
//  4. what Go's own table knows besides, that of a stripped program too.
//
// A reader of files that dies of one, which none is known to do, takes no more
// than this module's names with it.
func (m *Module) resolve(b *budget, find *finder, maxDWARF int64) (out [][]place) {
	defer func() {
		if p := recover(); p != nil {
			out, m.Why = nil, fmt.Sprintf("its files were not understood: %v", p)
		}
	}()
	if strings.HasPrefix(m.Path, "[") {
		m.Why = "it is no file"
		return nil
	}
	if err := b.check(); err != nil {
		m.Why = "it was not looked for: " + err.Error()
		return nil
	}
	images, why := find.images(b, m.Path, m.BuildID)
	if len(images) == 0 {
		switch m.Why = why; {
		case why != "":
		case m.BuildID == "":
			m.Why = "it is not here: --search takes the folder where it is"
		default:
			m.Why = "it is not here: --search takes the folder where it or its debug file is, with build id " + m.BuildID
		}
		return nil
	}
	var from []string
	for _, img := range images {
		defer img.close()
		from = append(from, img.path)
	}
	m.From = strings.Join(from, ", ")
	names := make([]string, len(m.addrs))
	look := func(img *image, table elf.SectionType) {
		if err := img.symbols(b, table, m.addrs, names); err != nil {
			m.Why = err.Error()
		}
	}
	for _, img := range images {
		look(img, elf.SHT_SYMTAB)
	}
	for _, img := range images {
		if !slices.Contains(names, "") {
			break
		}
		packed, err := img.packed(b)
		if err != nil {
			m.Why = err.Error()
		} else if packed != nil {
			look(packed, elf.SHT_SYMTAB)
		}
	}
	for _, img := range images {
		look(img, elf.SHT_DYNSYM)
	}
	out = make([][]place, len(m.addrs))
	for i, name := range names {
		if name != "" {
			out[i] = []place{{function: name}}
		}
	}
	m.lines(b, find, images, maxDWARF, names, out)
	m.golines(b, images, maxDWARF, out)
	if m.BuildID == "" && m.Why == "" {
		m.Why = "unverified: it has no build id"
	}
	return out
}

// lines adds what the first of the images with debug information says of the
// addresses.
func (m *Module) lines(b *budget, find *finder, images []*image, maxDWARF int64, names []string, out [][]place) {
	for _, img := range images {
		size := img.debugSize()
		if size == 0 {
			continue
		}
		if size > uint64(maxDWARF) {
			m.Why = "lines were not read: " + tooLarge(img.path, size, maxDWARF).Error()
			continue
		}
		answer, err := img.places(b, find, m, maxDWARF)
		if err != nil {
			m.Why = err.Error()
			continue
		}
		for i, found := range answer.Places {
			if chain := chainOf(found, names[i]); len(chain) > 0 {
				out[i] = chain
			}
		}
		m.Why = ""
		switch {
		case answer.Why != nil && answer.Units > 1:
			m.Why = fmt.Sprintf("%d of %d units of its debug information were not understood: %v", answer.Units-answer.Whole, answer.Units, answer.Why)
		case answer.Why != nil:
			m.Why = fmt.Sprintf("its debug information was not understood: %v", answer.Why)
		case answer.Other != nil:
			m.Why = fmt.Sprintf("names of inlined functions may be left out: %v", answer.Other)
		}
		return
	}
}

// chainOf is what debug information found at an address, where the symbol tables
// have that function.
func chainOf(found []dwarf.Place, symbol string) []place {
	if len(found) == 0 {
		return nil
	}
	chain := make([]place, len(found))
	for i, p := range found {
		if chain[i] = (place{p.Function, p.File, p.Line}); p.Function == "" && i > 0 {
			chain[i].function = "[inlined]"
		}
	}
	// Of a function that only its file sees, DWARF has no more than the last part of
	// its name.
	if outer := found[0]; outer.Function == "" || outer.Last != "" && strings.HasSuffix(symbol, "::"+outer.Last) {
		chain[0].function = symbol
	}
	if chain[0].function == "" && chain[0].line == 0 {
		return nil
	}
	return chain
}

// count adds up what is known, after the change.
func (r *Report) count(defs *format.Defs, out *format.Restatement, inlined map[format.FrameID]bool) {
	type id struct{ path, build string }
	of := map[id]*Module{}
	for _, m := range r.Modules {
		of[id{m.Path, m.BuildID}] = m
	}
	seen := map[key]bool{}
	see := func(f format.Frame) {
		m := of[id{f.Module, f.BuildID}]
		if m == nil || f.Kind != format.FrameNative {
			return
		}
		if _, old := defs.Frame(f.ID); !old || inlined[f.ID] {
			m.Inlined++
			return
		}
		if seen[keyOf(&f)] {
			return
		}
		seen[keyOf(&f)] = true
		if f.Function != "" {
			m.Named++
		}
		if f.Line > 0 {
			m.Lines++
		}
	}
	defs.Each(func(f format.Frame) {
		if g, ok := out.Frames[f.ID]; ok {
			f = g
		}
		see(f)
	}, func(format.Stack) {}, func(format.NameID, string) {})
	for fid, f := range out.Frames {
		if _, old := defs.Frame(fid); !old {
			see(f)
		}
	}
	for _, m := range r.Modules {
		r.Frames += m.Frames
		r.Named += m.Named
		r.Lines += m.Lines
		r.Inlined += m.Inlined
	}
}

// String is the report in one sentence.
func (r *Report) String() string {
	s := fmt.Sprintf("native frames: %d in %d modules; with a function %d, with a line %d; inlined calls: %d", r.Frames, len(r.Modules), r.Named, r.Lines, r.Inlined)
	if r.Stopped {
		s += "; stopped before the end"
	}
	return s
}
