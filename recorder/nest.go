package recorder

import "github.com/gpurec/gpurec/format"

// maxOpen is how many scopes a process may have open; a further one is Lost.
const maxOpen = 1 << 16

// A scope is one that is open.
type scope struct {
	id     format.ScopeID
	domain uint64 // of a push
	depth  int64  // of a push
	number uint64 // of a range or scope with an id of its own, 0 for a push
}

// A nest is the scopes that a thread is in, outermost first: pushes of every
// domain and scopes with an id of their own, but no ranges, which belong to no
// thread.
type nest []scope

// innermost is the scope that an event of the thread is in, 0 none.
func (n nest) innermost() format.ScopeID {
	if len(n) == 0 {
		return 0
	}
	return n[len(n)-1].id
}

// pop takes out the pushes of a domain from depth on, innermost first. One pop
// takes out more than one where records of pops were lost: depths come with
// every push and pop, so a lost record does not unbalance the nest.
//
// A negative depth is one that the writer could not follow (too many domains on
// one thread): then a pop takes out the innermost push of that kind alone.
func (n *nest) pop(domain uint64, depth int64) (out []scope) {
	kept := len(*n)
	if depth < 0 {
		for i := kept - 1; i >= 0; i-- {
			if s := (*n)[i]; s.number == 0 && s.domain == domain && s.depth < 0 {
				*n = append((*n)[:i], (*n)[i+1:]...)
				return []scope{s}
			}
		}
		return nil
	}
	for i := kept - 1; i >= 0; i-- {
		if s := (*n)[i]; s.number == 0 && s.domain == domain && s.depth >= depth {
			out = append(out, s)
			copy((*n)[i:], (*n)[i+1:])
			kept--
			*n = (*n)[:kept]
		}
	}
	return out
}

// remove takes out the scope of a number, wherever it stands: scopes overlap.
func (n *nest) remove(number uint64) {
	for i := len(*n) - 1; i >= 0; i-- {
		if (*n)[i].number == number {
			*n = append((*n)[:i], (*n)[i+1:]...)
			return
		}
	}
}
