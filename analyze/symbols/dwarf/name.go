package dwarf

import (
	"errors"
	"sort"
)

// A ref is an entry of a file.
type ref struct {
	f  *file
	at int
}

// refer is where an attribute leads: within the unit, the file, or to the other
// file of dwz's.
func (u *unit) refer(v value) (ref, bool) {
	switch v.form {
	case 0:
		return ref{}, false
	case formRefAddr:
		return ref{u.f, int(min(v.u, uint64(len(u.f.Info))))}, true
	case formGNURefAlt, formRefSup4, formRefSup8:
		if o := u.f.supplement(); o != nil {
			return ref{o, int(min(v.u, uint64(len(o.Info))))}, true
		}
		return ref{}, false
	}
	at, ok := u.local(v)
	return ref{u.f, at}, ok
}

// A called is a function's name.
type called struct {
	whole string // as the linker has it, or with what it lies in
	last  string // the last part of a name that the linker does not have; else ""
}

// deepest is how many entries one name may be told by, one by another, or how many
// lie in each other.
const (
	deepest = 16
	nested  = 4096
)

// name is the function's of an entry, which may be told by another entry that it
// comes from.
func (l *lookup) name(at ref, depth int) (n called, err error) {
	if depth > deepest {
		return called{}, nil
	}
	if n, known := l.names[at]; known {
		return n, nil
	}
	defer func() { l.names[at] = n }()
	u := at.f.unitAt(at.at)
	if u == nil {
		return called{}, nil
	}
	if err := u.open(); err != nil {
		if errors.As(err, new(fatal)) {
			return called{}, err
		}
		return called{}, nil
	}
	var e entry
	if e.read(u, at.at) != nil || e.shape == nil {
		return called{}, nil
	}
	if err := l.did(1 + e.fields); err != nil {
		return called{}, err
	}
	if s := u.string(e.values[linkageName]); s != "" {
		return called{whole: l.Demangle(s)}, l.did(len(s))
	}
	for _, s := range []slot{origin, declaration} {
		if to, ok := u.refer(e.values[s]); ok {
			if n, err := l.name(to, depth+1); err != nil || n.whole != "" {
				return n, err
			}
		}
	}
	plain := l.Demangle(u.string(e.values[name]))
	if plain == "" {
		return called{}, nil
	}
	n = called{whole: plain, last: plain}
	if err := l.did(len(plain)); err != nil {
		return n, err
	}
	within, err := l.within(u, at.at, plain, depth)
	if err == nil && within != "" {
		n.whole = within + "::" + plain
	}
	if len(n.whole) > maxText {
		n.whole = plain
	}
	return n, err
}

// A scope is an entry that others lie in and are named after.
type scope struct {
	from, to int
	parent   int // in the unit's scopes; -1: none
	tag      uint16
}

// within is what a function lies in: namespaces, classes, another function.
func (l *lookup) within(u *unit, at int, plain string, depth int) (string, error) {
	if err := l.scopes(u); err != nil {
		return "", err
	}
	i := sort.Search(len(u.scopes), func(i int) bool { return u.scopes[i].from >= at }) - 1
	text := ""
	for ; i >= 0; i = u.scopes[i].parent {
		s := &u.scopes[i]
		if err := l.did(1 + len(text)); err != nil {
			return "", err
		}
		if at >= s.to {
			continue
		}
		var part string
		if s.tag == tagSubprogram {
			n, err := l.name(ref{u.f, s.from}, depth+1)
			if err != nil {
				return "", err
			}
			part = n.whole
			text = joined(part, text)
			break // it has what it lies in itself
		}
		var e entry
		if e.read(u, s.from) != nil || e.shape == nil {
			continue
		}
		part = u.string(e.values[name])
		switch {
		case part != "":
		case s.tag == tagNamespace:
			part = "(anonymous namespace)"
		case plain == "operator()" && text == "":
			part = "{lambda}"
		default:
			part = "{unnamed}"
		}
		if text = joined(part, text); len(text) > maxText {
			return "", nil
		}
	}
	return text, nil
}

func joined(outer, inner string) string {
	if outer == "" || inner == "" {
		return outer + inner
	}
	return outer + "::" + inner
}

// scopes finds a unit's, once.
func (l *lookup) scopes(u *unit) error {
	if u.scoped {
		return nil
	}
	u.scoped = true
	var e entry
	var open []int // scopes, or -1
	for at := u.first; at < u.end; at = e.next {
		if e.read(u, at) != nil {
			return nil
		}
		if err := l.did(1 + e.fields); err != nil {
			return err
		}
		if e.shape == nil {
			if n := len(open); n > 0 {
				if i := open[n-1]; i >= 0 {
					u.scopes[i].to = e.at
				}
				open = open[:n-1]
			}
			continue
		}
		if !e.shape.children {
			continue
		}
		is := -1
		switch e.shape.tag {
		case tagNamespace, tagModule, tagClassType, tagStructureType, tagUnionType, tagSubprogram:
			is = len(u.scopes)
			parent := -1
			for i := len(open) - 1; i >= 0 && parent < 0; i-- {
				parent = open[i]
			}
			u.scopes = append(u.scopes, scope{from: e.at, to: u.end, parent: parent, tag: e.shape.tag})
		case tagEnumerationType, tagArrayType, tagSubroutineType:
			if next, ok := e.after(u); ok {
				e.next = next
				continue
			}
		}
		if open = append(open, is); len(open) > nested {
			return nil
		}
	}
	return nil
}
