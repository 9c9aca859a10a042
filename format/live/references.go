package live

import "github.com/gpurec/gpurec/format"

// References tells which definitions rows to come may need though no event to
// come brings them: those of what is live, of open scopes, and of what a refused
// call would make live again.
func (s *State) References(stack func(format.StackID), name func(format.NameID)) {
	row := func(a *Allocation) {
		stack(a.Stack)
		name(a.Name)
		name(a.Note)
	}
	for _, p := range s.processes {
		for i := p.first; i != none; i = s.allocs[i].next {
			row(&s.allocs[i])
		}
		for i := range p.reset {
			row(&p.reset[i])
		}
	}
	for i := range s.ended.graves {
		row(&s.ended.graves[i].alloc)
	}
	for _, sc := range s.scopes {
		stack(sc.Stack)
		name(sc.Name)
		name(sc.Domain)
	}
}
