package analyze

import (
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/gpurec/gpurec/format"
)

// A View is which frames of a stack an answer shows. It changes no number: what
// is hidden counts for what is shown, and a stack of which nothing is left is one
// frame that says so. The zero View shows what was recorded.
type View struct {
	Stacks Stacks
	Focus  []string // only frames that match one; see newPatterns
	Hide   []string // no frame that matches one
	All    bool     // what frameRules leave off too
}

// Stacks are the kinds of frames that are shown. Go's, and the names of threads,
// always are.
type Stacks uint8

const (
	Recorded Stacks = iota
	Auto            // Python's; native ones of a stack that has none
	Python
	Native
	Both
)

var stackNames = [...]string{"recorded", "auto", "python", "native", "both"}

// ParseStacks reads auto, python, native or both.
func ParseStacks(s string) (Stacks, error) {
	for i, name := range stackNames {
		if s == name && Stacks(i) != Recorded {
			return Stacks(i), nil
		}
	}
	return 0, fmt.Errorf("%q is none of %s", s, strings.Join(stackNames[1:], ", "))
}

// A viewer is a View of one trace's definitions.
type viewer struct {
	View
	Judge
	focus, hide *regexp.Regexp // nil: no pattern
	asCuPy      bool
	notes       map[string]format.FrameID
	programs    map[string]bool // names of threads that are their program's; nil before one is asked for
}

// set makes the view that of defs; nil where it shows what was recorded.
func (v *View) set(defs *format.Defs) *viewer {
	if v.Stacks == Recorded && len(v.Focus)+len(v.Hide) == 0 {
		return nil
	}
	w := &viewer{View: *v, Judge: *NewJudge(defs), focus: newPatterns(v.Focus), hide: newPatterns(v.Hide), notes: map[string]format.FrameID{}}
	defs.SetView(w.view)
	return w
}

// newPatterns are patterns of a file, a module or a function, where * is any text
// and ? any character; nil where there are none. Each also matches by the last parts
// of its path, so that a name does that is printed short, and a frame as it is printed.
func newPatterns(globs []string) *regexp.Regexp {
	if len(globs) == 0 {
		return nil
	}
	var any []string
	for _, g := range globs {
		g = regexp.QuoteMeta(g)
		any = append(any, strings.ReplaceAll(strings.ReplaceAll(g, `\*`, `.*`), `\?`, `.`))
	}
	return regexp.MustCompile(`(?s)^(?:.*/)?(?:` + strings.Join(any, "|") + `)$`)
}

func matchesFrame(r *regexp.Regexp, f *format.Frame) bool {
	for _, s := range []string{f.File, f.Module, f.Function, f.String()} {
		if s != "" && r.MatchString(s) {
			return true
		}
	}
	return false
}

// is judges a frame. One whose definition is yet to come is asked for again.
func (w *viewer) is(id format.FrameID) frameIs {
	if is := w.seen.At(id); is != 0 {
		return is
	}
	return w.look(id)
}

func (w *viewer) look(id format.FrameID) frameIs {
	f, ok := w.defs.Frame(id)
	if !ok {
		return 0
	}
	is := judge(&f)
	if w.focus != nil && matchesFrame(w.focus, &f) {
		is |= isFocus
	}
	if w.hide != nil && matchesFrame(w.hide, &f) {
		is |= isHidden
	}
	if f.Kind == format.FrameThread && w.isProgram(f.Function) {
		is |= isProcess
	}
	if f.IsCut() {
		is |= isCut
	}
	return w.saw(id, is)
}

// judge notes patterns that match nothing, as misspelt ones do.
func (w *viewer) judge(c *Completeness) {
	if w.focus != nil && w.all != 0 && w.all&isFocus == 0 {
		c.note("no frame matches --focus")
	}
	if w.hide != nil && w.all != 0 && w.all&isHidden == 0 {
		c.note("no frame matches --hide")
	}
}

// isProgram reports whether a thread's frame says no more than which program it is
// of: nobody gave the thread a name. In Python's programs it says that no Python
// ran there.
func (w *viewer) isProgram(frame string) bool {
	if w.programs == nil {
		w.programs = map[string]bool{}
		for _, p := range w.defs.Processes() {
			argv0, _, _ := strings.Cut(p.Command, " ")
			for _, file := range []string{p.Executable, argv0} {
				if name := path.Base(file); p.Python == "" && file != "" {
					w.programs["[thread "+name[:min(len(name), mostComm)]+"]"] = true
				}
			}
		}
	}
	return w.programs[frame]
}

// mostComm is how long Linux lets the name of a thread be.
const mostComm = 15

// view makes of a stack's frames, outermost first and in their own memory, what
// is shown:
//
//  1. native frames go where Python's are to be shown;
//  2. what the rules say is not the program's goes, unless all are wanted: the
//     interpreter's own frames, launchers, languages' libraries, the way to the driver;
//  3. Python's go where native ones are to be shown;
//  4. what is hidden, or out of focus, goes;
//  5. a thread's name goes that is its program's, where there is something else;
//  6. how many outer frames are left out goes: else each depth of a recursion would
//     be a tree of its own.
func (w *viewer) view(ids []format.FrameID) []format.FrameID {
	ids = w.frames(ids)
	if w.All || w.Stacks == Recorded {
		return ids
	}
	for i, id := range ids {
		if w.is(id)&isCut != 0 {
			ids[i] = w.label(format.CutLabel(0))
		}
	}
	for _, id := range ids {
		if w.is(id)&isProcess == 0 {
			return w.without(ids, isProcess)
		}
	}
	return ids
}

func (w *viewer) frames(ids []format.FrameID) []format.FrameID {
	all := frameIs(0)
	for _, id := range ids {
		all |= w.is(id)
	}
	if all&(isSource|isNative) == 0 {
		if ids = w.without(ids, isHidden); len(ids) == 0 && all != 0 {
			return w.note(ids, "[hidden]")
		}
		return ids
	}
	auto := w.Stacks == Auto && all&isSource != 0
	if w.Stacks == Python || auto { // first: C functions stand between launchers too
		ids, all = w.without(ids, isNative), isSource
	}
	if !w.All && w.Stacks != Recorded && !(auto && w.asCuPy) {
		if ids = w.without(ids, isInterp); all&isNative != 0 && !w.any(ids) {
			return w.note(ids, "[interpreter]")
		}
		ids = w.trim(ids)
	}
	if w.Stacks == Native {
		ids = w.without(ids, isPython)
	}
	if !w.any(ids) {
		return w.note(ids, "[no "+w.Stacks.String()+" frame]")
	}
	if ids = w.without(ids, isHidden); !w.any(ids) {
		return w.note(ids, "[hidden]")
	}
	if w.focus != nil {
		kept := ids[:0]
		for _, id := range ids {
			if w.is(id)&(isFocus|isNote) != 0 {
				kept = append(kept, id)
			}
		}
		if ids = kept; !w.any(ids) {
			return w.note(ids, "[out of focus]")
		}
	}
	return ids
}

func (s Stacks) String() string { return stackNames[s] }

func (w *viewer) without(ids []format.FrameID, drop frameIs) []format.FrameID {
	kept := ids[:0]
	for _, id := range ids {
		if w.is(id)&drop == 0 {
			kept = append(kept, id)
		}
	}
	return kept
}

// any reports whether there is a frame that is no note.
func (w *viewer) any(ids []format.FrameID) bool {
	for _, id := range ids {
		if w.is(id)&isNote == 0 {
			return true
		}
	}
	return false
}

// note appends a frame that says why there is no other, to what is no frame of a
// program and not hidden.
func (w *viewer) note(ids []format.FrameID, text string) []format.FrameID {
	return append(w.without(ids, isHidden), w.label(text))
}

// label is the frame of a word of ours.
func (w *viewer) label(text string) format.FrameID {
	id, ok := w.notes[text]
	if !ok {
		for id = ^format.FrameID(0); ; id-- { // recorders number from 1 up
			if _, taken := w.defs.Frame(id); !taken {
				break
			}
		}
		w.defs.PutFrame(format.Frame{ID: id, Kind: format.FrameLabel, Function: text})
		w.notes[text] = id
	}
	return id
}

// trim leaves notes, and what the rules leave of the others.
func (w *viewer) trim(ids []format.FrameID) []format.FrameID {
	w.kinds = w.kinds[:0]
	for _, id := range ids {
		w.kinds = append(w.kinds, w.is(id))
	}
	w.at = ofProgram(w.kinds, w.at[:0])
	kept, next := ids[:0], 0
	for i, id := range ids {
		if next < len(w.at) && w.at[next] == i {
			next++
		} else if w.kinds[i]&isNote == 0 {
			continue
		}
		kept = append(kept, id)
	}
	return kept
}
