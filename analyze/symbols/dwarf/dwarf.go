package dwarf

import (
	"errors"
	"fmt"
	"math"
	"sort"
)

// A Place is a function, and where in it the address or the call within is.
type Place struct {
	Function string // demangled; of what the linker has no name of, with what it lies in; "" where it has none
	Last     string // the last part of that, where the linker has no name of it; else ""
	File     string
	Line     int32
}

// A Skeleton is a unit of which the most is in another file.
type Skeleton struct {
	Name   string // of that file
	Folder string // in which it was made, where Name is relative
	ID     uint64 // that its unit there has, too
}

// A Query is addresses, and where their functions are looked for.
type Query struct {
	Addrs    []uint64                            // sorted, of the file
	Check    func() error                        // an error ends the work; it is asked often
	Progress func(done, of int)                  // units; nil: nobody listens
	Demangle func(name string) string            // of a name as the linker or a compiler has it
	Split    func(s Skeleton) (*Sections, error) // those of another file, of which one unit has the id
	Other    func() (*Sections, error)           // those that dwz made of several files; nil: there are none
}

// An Answer is what was found, and what was not.
type Answer struct {
	Places [][]Place // of each address, outermost first, with its line in the innermost and of each other the line of the call
	Units  int       // that hold an address,
	Whole  int       // and were understood, with all that belongs to them
	Why    error     // the first reason why one was not
	Other  error     // why what dwz made of several files is not there
}

// MostInlined is how many functions an address may lie in.
const MostInlined = 256

// MostWork bounds what sections may make of us, in entries and their attributes,
// rows and files of line tables, ranges looked at and bytes of names: most take a byte
// at least, and are looked at for the addresses in them; some may be shared.
func MostWork(size int64, addrs int) int64 {
	return 1_000_000 + 16*size + 4*MostInlined*int64(addrs)
}

// A lookup is a query on its way.
type lookup struct {
	Query
	answer Answer
	lines  []line // of each address
	names  map[ref]called
	owners int   // functions so far
	owner  []int // of each address, the one with code of its own
	work   int64
	most   int64 // see MostWork
}

// A line is an address' by a line table.
type line struct {
	file string
	line int32
}

// Find answers a query about a file:
//
//  1. its units are listed, and those that hold an address opened;
//  2. their line tables say the line of each address;
//  3. their entries, or those of their split units, say the functions.
//
// An error is of the whole; what is the matter with a unit is in the answer.
func Find(s *Sections, q Query) (*Answer, error) {
	l := &lookup{Query: q, lines: make([]line, len(q.Addrs)), names: map[ref]called{}, most: MostWork(s.Size(), len(q.Addrs)), owner: make([]int, len(q.Addrs))}
	l.answer.Places = make([][]Place, len(q.Addrs))
	f, err := newFile(s, l.did)
	if err != nil && (len(f.units) == 0 || l.Check() != nil) {
		return nil, err
	}
	l.fail(err)
	if q.Other != nil {
		f.other = l.other()
	}
	for i, u := range f.units {
		if err := l.did(1); err != nil {
			return nil, err
		}
		if q.Progress != nil {
			q.Progress(i, len(f.units))
		}
		if u.kind != unitCompile && u.kind != unitSkeleton {
			continue
		}
		if err := l.unit(u); err != nil {
			if errors.As(err, new(fatal)) {
				return nil, err
			}
			l.fail(fmt.Errorf("the unit at %#x: %w", u.at, err))
		}
		u.scopes, u.scoped = nil, false
	}
	for i, chain := range l.answer.Places {
		if at := l.lines[i]; len(chain) == 0 && at.line > 0 { // a function in assembly
			l.answer.Places[i] = []Place{{File: at.file, Line: at.line}}
		}
	}
	return &l.answer, nil
}

// fail keeps the first reason why something was not understood.
func (l *lookup) fail(err error) {
	if l.answer.Why == nil {
		l.answer.Why = err
	}
}

// other opens what dwz made of several files when it is first asked for.
func (l *lookup) other() func() *file {
	var f *file
	asked := false
	return func() *file {
		if asked {
			return f
		}
		asked = true
		s, err := l.Other()
		if err == nil {
			l.most += 16 * s.Size()
			f, err = newFile(s, l.did)
		}
		if err != nil {
			l.answer.Other = err
		}
		return f
	}
}

// A fatal error ends the whole work.
type fatal struct{ error }

func (f fatal) Unwrap() error { return f.error }

// did counts work.
func (l *lookup) did(n int) error {
	before := l.work >> 12
	if l.work += int64(n); l.work > l.most {
		return fatal{errors.New("it is more than any program has")}
	}
	if l.work>>12 != before {
		if err := l.Check(); err != nil {
			return fatal{err}
		}
	}
	return nil
}

// first is the first address in an extent, if there is one.
func (l *lookup) first(x extent) (i int, ok bool) {
	n := len(l.Addrs)
	if n == 0 || x.to <= l.Addrs[0] || x.from > l.Addrs[n-1] {
		return 0, false
	}
	i = sort.Search(n, func(i int) bool { return l.Addrs[i] >= x.from })
	return i, i < n && l.Addrs[i] < x.to
}

// each calls f for every address in an extent, until it fails.
func (l *lookup) each(x extent, f func(i int) error) error {
	for i, ok := l.first(x); ok && i < len(l.Addrs) && l.Addrs[i] < x.to; i++ {
		err := l.did(1)
		if err == nil {
			err = f(i)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// held calls f for every address that an entry holds, until it fails.
func (l *lookup) held(u *unit, e *entry, f func(i int) error) (err error) {
	work := u.extents(e, func(x extent) bool {
		err = l.each(x, f)
		return err == nil
	})
	if err == nil {
		err = l.did(work)
	}
	return err
}

// unit looks a unit's addresses up, if it has any.
func (l *lookup) unit(u *unit) error {
	if err := u.open(); err != nil {
		return err
	}
	var e entry
	if err := e.read(u, u.first); err != nil || e.shape == nil || e.shape.tag == tagPartialUnit || e.shape.tag == tagTypeUnit {
		return err
	}
	some := false
	work := u.extents(&e, func(x extent) bool {
		_, some = l.first(x)
		return !some
	})
	if err := l.did(1 + e.fields + work); err != nil || !some {
		return err
	}
	l.answer.Units++
	t, lineErr := u.lines(l.did)
	if lineErr == nil && t != nil {
		lineErr = t.run(l.did, func(from row, to uint64) error {
			return l.each(extent{from.addr, to}, func(i int) (err error) {
				if l.lines[i].file == "" {
					l.lines[i].line = int32(min(from.line, math.MaxInt32))
					l.lines[i].file, err = l.path(t, from.file)
				}
				return err
			})
		})
	}
	if errors.As(lineErr, new(fatal)) {
		return lineErr
	}
	of, splitErr := u, error(nil)
	if u.dwo != "" {
		if of, splitErr = l.split(u); splitErr != nil {
			of = u // a skeleton may have what is inlined
		}
	}
	err := l.walk(of, t)
	if of != u { // its file is not kept for the names of its entries
		l.names = map[ref]called{}
	}
	for _, e := range []error{splitErr, lineErr} {
		if err == nil {
			err = e
		}
	}
	if err == nil {
		l.answer.Whole++
	}
	return err
}

// split opens the unit that a skeleton stands for.
func (l *lookup) split(u *unit) (*unit, error) {
	if l.Split == nil {
		return nil, errors.New("it is split, and the other half is not looked for")
	}
	s, err := l.Split(Skeleton{u.dwo, u.folderText, u.id})
	if err != nil {
		return nil, err
	}
	l.most += 16 * s.Size()
	f, err := newFile(s, l.did)
	if of := f.split(u.id); of != nil {
		of.skeleton = u
		return of, nil
	}
	if err == nil {
		err = fmt.Errorf("%s has no unit %016x: it is of another build", u.dwo, u.id)
	}
	return nil, err
}

// Walking, what an entry lies in: the function with code of its own, 0 where none
// holds an address; any function; or nothing that is asked for.
type level struct {
	owner  int
	within bool
	skip   bool
}

// walk goes over a unit's entries:
//
//  1. A function with code of its own takes the addresses in it, unless another
//     has.
//  2. What is inlined in it, entries below, adds itself to those it holds.
func (l *lookup) walk(u *unit, t *lineTable) error {
	var e entry
	var in []level
	for at := u.first; at < u.end; at = e.next {
		if err := e.read(u, at); err != nil {
			return err
		}
		if err := l.did(1 + e.fields); err != nil {
			return err
		}
		if e.shape == nil { // the end of what an entry has below it
			if len(in) > 0 {
				in = in[:len(in)-1]
			}
			continue
		}
		var on level
		if len(in) > 0 {
			on = in[len(in)-1]
		}
		if !on.skip {
			if err := l.function(u, t, &e, &on); err != nil {
				return err
			}
		}
		if !e.shape.children {
			continue
		}
		if on.skip {
			if next, ok := e.after(u); ok {
				e.next = next
				continue
			}
		}
		if in = append(in, on); len(in) > nested {
			return fmt.Errorf("at %#x more than %d entries lie in each other", at, nested)
		}
	}
	return nil
}

// function is an entry's part in a walk; below it on holds.
func (l *lookup) function(u *unit, t *lineTable, e *entry, on *level) (err error) {
	switch e.shape.tag {
	case tagStructureType, tagClassType, tagUnionType:
		on.skip = !on.within // in a function they may be a lambda's, with its code
	case tagEnumerationType, tagSubroutineType, tagArrayType:
		on.skip = true
	case tagSubprogram:
		l.owners++
		on.owner, on.within = 0, true
		err = l.held(u, e, func(i int) error {
			on.owner = l.owners
			if len(l.answer.Places[i]) > 0 {
				return nil
			}
			l.owner[i] = l.owners
			return l.add(i, u, e, "", 0)
		})
	case tagInlinedSubroutine:
		alone := on.owner == 0 // GCC may leave out the function that it is inlined in
		if alone {
			l.owners++
			on.owner = l.owners
		}
		err = l.held(u, e, func(i int) error {
			if alone && len(l.answer.Places[i]) == 0 {
				l.owner[i] = on.owner
				l.answer.Places[i] = []Place{{File: l.lines[i].file, Line: l.lines[i].line}}
			}
			if l.owner[i] != on.owner || len(l.answer.Places[i]) >= MostInlined {
				return nil
			}
			file, err := l.path(t, e.values[callFile].u)
			if err != nil {
				return err
			}
			return l.add(i, u, e, file, e.values[callLine].u)
		})
	}
	return err
}

// path is a file's of a line table.
func (l *lookup) path(t *lineTable, file uint64) (string, error) {
	s, made := t.path(file)
	return s, l.did(made)
}

// add puts a function below those an address lies in: the line so far is its own,
// and that of who calls it the call's.
func (l *lookup) add(i int, u *unit, e *entry, file string, call uint64) error {
	n, err := l.name(ref{u.f, e.at}, 0)
	if err != nil {
		return err
	}
	chain := l.answer.Places[i]
	if len(chain) > 0 {
		chain[len(chain)-1].File, chain[len(chain)-1].Line = file, int32(min(call, math.MaxInt32))
	}
	l.answer.Places[i] = append(chain, Place{Function: n.whole, Last: n.last, File: l.lines[i].file, Line: l.lines[i].line})
	return nil
}
