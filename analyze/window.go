package analyze

import "github.com/gpurec/gpurec/format"

// Whole reports whether the window begins where the trace does.
func (p *Pass) Whole() bool { return !p.from.set }

// Ends reports whether the window ends before the trace does, or may.
func (p *Pass) Ends() bool { return p.to.set }

// From is the time at which the window begins, and whether that is known
// beforehand: a scope's begin is not, until Enter.
func (p *Pass) From() (format.Time, bool) { return p.from.time, p.from.set && p.from.byTime }

// To is the last time that is in the window, and whether it ends at a time.
func (p *Pass) To() (format.Time, bool) { return p.to.time, p.to.set && p.to.byTime }

// Past reports whether the trace has an event after the window.
func (p *Pass) Past() bool { return p.past }

// End is the last moment there is to speak of: where the window ends, or the
// recording, or what was seen last.
func (p *Pass) End(last format.Time) format.Time {
	switch {
	case p.past && p.to.byTime:
		return p.to.time
	case p.to.set && p.to.byTime:
		return min(p.to.time, max(last, p.State.Now(), p.Trace.Meta().End))
	case p.to.set:
		return p.State.Now()
	}
	return max(last, p.State.Now(), p.Trace.Meta().End)
}
