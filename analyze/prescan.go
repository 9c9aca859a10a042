package analyze

import (
	"context"
	"fmt"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
)

// A prescan is a look at the events before the pass, for what they say about
// earlier ones. It ends as soon as everything is known, which is soon in
// nearly every trace: processes with a pool use it early.
type prescan struct {
	pooled map[format.ProcessID]bool
	want   int // processes that may yet turn out to have a pool
	from   *scopeBounds
	to     *scopeBounds
}

// scopeBounds are the numbers of the events that begin and end a scope.
type scopeBounds struct {
	ref        ScopeRef
	finder     scopeFinder
	begin, end int64
	found      bool
	id         format.ScopeID
}

func scopeMoment(m Moment) *scopeBounds {
	if m.kind != momentScope {
		return nil
	}
	return &scopeBounds{ref: m.scope, finder: newScopeFinder([]ScopeRef{m.scope}), begin: -1, end: -1}
}

func (b *scopeBounds) see(e *format.Event, n int64, defs *format.Defs) {
	switch {
	case b == nil:
	case !b.found && (e.Kind == format.ScopeBegin || e.Kind == format.LiveScope):
		b.finder.begin(e, defs)
		if _, ok := b.finder.matched[e.Scope]; ok {
			b.found, b.begin, b.id = true, n, e.Scope
		}
	case !b.found && e.Kind == format.ScopeEnd:
		b.finder.end(e)
	case b.found && b.end < 0 && e.Kind == format.ScopeEnd && e.Scope == b.id:
		b.end = n
	}
}

func (b *scopeBounds) done() bool { return b == nil || b.end >= 0 }

func (s *prescan) run(ctx context.Context, t *format.Trace, defs *format.Defs, pooled bool) error {
	known := map[format.ProcessID]bool{}
	for _, p := range defs.Processes() {
		known[p.ID] = true
	}
	s.want = len(known)
	s.pooled = map[format.ProcessID]bool{}
	n := int64(0)
	for _, part := range t.Parts() {
		r, err := part.Events()
		if err != nil {
			continue // the pass says it
		}
		for {
			batch, err := r.Next()
			if err != nil {
				break
			}
			if err := ctx.Err(); err != nil {
				r.Close()
				return err
			}
			for i := range batch {
				e := &batch[i]
				if pooled && live.MarksPool(e) && !s.pooled[e.Process] {
					s.pooled[e.Process] = true
					if known[e.Process] {
						s.want--
					}
				}
				s.from.see(e, n, defs)
				s.to.see(e, n, defs)
				n++
			}
			if (!pooled || s.want == 0 && len(known) > 0) && s.from.done() && s.to.done() {
				r.Close()
				return nil
			}
		}
		r.Close()
	}
	for _, b := range []*scopeBounds{s.from, s.to} {
		if b != nil && !b.found {
			return fmt.Errorf("%s: there is no scope %s; %s", t.Path(), Short(b.ref.String()), b.finder.names.names())
		}
	}
	return nil
}
