package analyze

import (
	"strings"

	"github.com/gpurec/gpurec/format"
)

// frameIs is what a frame is: its kind, what is known of it, and what the rules
// say of its names.
type frameIs uint32

const (
	isPython   frameIs = 1 << iota
	isGo               //
	isNative           //
	isNote             // a thread's name, or a word of ours
	isCut              // the word for outer frames that were left out
	isLine             // its line is known
	isNamed            // its function is
	isLauncher         // it started the program or the thread: nothing outside of it is the program's
	isOuter            // the same where nothing but such, and libraries, is outside of it
	isEntry            // the same where it is outermost and a launcher or libc is what it calls
	isSystem           // of a language's library, and all of it: never the program's
	isStd              // of a language's library, but the program's code may be inlined into it
	isDriver           // of what a request goes through on its way to the driver
	isInterp           // of the interpreter, which runs Python's frames
	isProcess          // a thread's name that is its program's
	isFocus            // a viewer's
	isHidden           // a viewer's

	isSource = isPython | isGo // whose frames need no symbols
)

// judge says what a frame is. A thread's name is judged by viewer.is.
func judge(f *format.Frame) (is frameIs) {
	switch f.Kind {
	case format.FramePython:
		is = isPython | isLine | isNamed
	case format.FrameGo:
		is = isGo | isLine | isNamed
	case format.FrameNative:
		is = isNative
		if f.Function != "" {
			is |= isNamed
			if f.Line > 0 {
				is |= isLine
			}
		}
	default:
		return isNote
	}
	all := matchers()
	for i := range all {
		if all[i].of&is != 0 && all[i].matches(f, is) {
			is |= all[i].is
		}
	}
	return is
}

func (m *matcher) matches(f *format.Frame, known frameIs) bool {
	switch m.where {
	case lined:
		if known&isLine == 0 {
			return false
		}
	case unlined:
		if known&(isLine|isNamed) != isNamed {
			return false
		}
	case unnamed:
		if known&isNamed != 0 {
			return false
		}
	}
	module := f.Module
	if !m.path {
		module = module[strings.LastIndexByte(module, '/')+1:]
	}
	return m.modules.matches(module) && m.functions.matches(f.Function) && m.files.matches(f.File)
}

// Interpreter reports whether a frame is one of those that run Python's.
func Interpreter(f *format.Frame) bool { return f.Kind == format.FrameNative && judge(f)&isInterp != 0 }

// Foreign reports whether a frame is, by the rules, none of a program's code: a
// language's library, the interpreter, CUDA's runtime or what started the program.
func Foreign(f *format.Frame) bool {
	return judge(f)&(isLauncher|isSystem|isStd|isDriver|isInterp) != 0
}

// IsRuntime reports whether a library, by its file's name, calls the driver on
// another's behalf.
func IsRuntime(library string) bool {
	return judge(&format.Frame{Kind: format.FrameNative, Module: library})&isDriver != 0
}

// ofProgram appends to at which frames of a stack, outermost first, are the
// program's and its libraries', notes left out:
//
//  1. what started the program or the thread goes, and all outside of it;
//  2. the way to the driver goes, inside;
//  3. languages' libraries go, wherever they stand; but what the program's code may
//     be inlined into stays where it is innermost;
//  4. where nothing is left, one frame stays: what the program's code may be inlined
//     into, else a launcher, else the name of the request, else the innermost.
func ofProgram(kinds []frameIs, at []int) []int {
	const passed = isOuter | isSystem | isStd
	lead := 0
	for lead < len(kinds) && kinds[lead]&isNote != 0 {
		lead++
	}
	from, to := lead, len(kinds)
	for i := lead; i < to; i++ {
		entry := kinds[i]&isEntry != 0 && i+1 < to && (i == lead && kinds[i+1]&(isNative|isSystem|isNamed) == isNative|isSystem ||
			i == from && kinds[i+1]&isPython != 0 && kinds[i+1]&(isOuter|isLauncher) != 0)
		if kinds[i]&isLauncher != 0 || entry || kinds[i]&passed != 0 && from == i {
			from = i + 1
		}
	}
	for to > from && kinds[to-1]&(isDriver|isSystem) != 0 {
		to--
	}
	for i := from; i < to; i++ {
		if kinds[i]&(isSystem|isNote) == 0 && (kinds[i]&isStd == 0 || i == to-1) {
			at = append(at, i)
		}
	}
	if len(at) > 0 {
		return at
	}
	best, rank := -1, 0
	for i := lead; i < len(kinds); i++ {
		if r := last(kinds[i]); r >= rank {
			best, rank = i, r
		}
	}
	if best >= 0 {
		at = append(at, best)
	}
	return at
}

// last is how good a frame is where it is the only one to show.
func last(is frameIs) int {
	switch {
	case is&isNote != 0:
		return 0
	case is&isSource != 0:
		return 5
	case is&(isStd|isNamed) == isStd|isNamed:
		return 4
	case is&(isDriver|isNamed) == isDriver|isNamed:
		return 3
	case is&isDriver == 0:
		return 2
	}
	return 1
}

// A Judge says of a trace's stacks what is known of them.
type Judge struct {
	defs  *format.Defs
	seen  Memo[format.FrameID, frameIs]
	all   frameIs // of seen
	ids   []format.FrameID
	kinds []frameIs
	at    []int
}

// NewJudge returns a Judge of these definitions.
func NewJudge(defs *format.Defs) *Judge {
	return &Judge{defs: defs}
}

// Of reports whether these are its definitions.
func (j *Judge) Of(defs *format.Defs) bool { return j != nil && j.defs == defs }

// Known reports whether a stack names a line of the program's or its libraries',
// and whether a function, whatever a view shows of it: what ofProgram leaves of it,
// the interpreter not counted.
func (j *Judge) Known(stack format.StackID) (line, function bool) {
	var whole bool
	if j.ids, whole = j.defs.Recorded(stack, j.ids[:0]); !whole {
		return false, false
	}
	j.kinds = j.kinds[:0]
	for _, id := range j.ids {
		if is := j.is(id); is&isInterp == 0 {
			j.kinds = append(j.kinds, is)
		}
	}
	j.at = ofProgram(j.kinds, j.at[:0])
	for _, i := range j.at {
		is := j.kinds[i]
		line = line || is&isSource != 0 || is&isLine != 0 && is&(isLauncher|isSystem|isDriver) == 0
		function = function || is&isSource != 0 || is&isNamed != 0 && (is&isStd != 0 || is&(isLauncher|isSystem|isDriver) == 0)
	}
	return line, function
}

// is judges a frame. One whose definition is yet to come is asked for again.
func (j *Judge) is(id format.FrameID) frameIs {
	if is := j.seen.At(id); is != 0 {
		return is
	}
	f, ok := j.defs.Frame(id)
	if !ok {
		return 0
	}
	return j.saw(id, judge(&f))
}

func (j *Judge) saw(id format.FrameID, is frameIs) frameIs {
	next, _ := j.defs.Next()
	j.seen.Put(id, is, next)
	j.all |= is
	return is
}
