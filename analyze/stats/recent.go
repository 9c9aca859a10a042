package stats

import (
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
)

// A given is what was counted when an allocation was given back.
type given struct {
	process         *process
	time            format.Time // it was taken
	address, object uint64
	bytes, life     int64
	lived           *count
	line            *line // nil where it is not in used bytes, as use
	use             *use
	held            product
}

// recent are the latest that were given back. A refusal comes a call later than
// its Free, so with 64 threads none of them is missed.
type recent struct {
	ring [64]given
	next int
}

func (r *recent) add(g given) {
	r.ring[r.next] = g
	r.next = (r.next + 1) % len(r.ring)
}

// refused takes back what was counted for an allocation that is live again.
func (r *recent) refused(p *process, al *live.Allocation) {
	for i := range r.ring {
		g := &r.ring[i]
		if g.process != p || g.time != al.Time || g.address != al.Address || g.object != al.Object {
			continue
		}
		g.lived.n--
		g.lived.bytes -= g.bytes
		if g.line != nil {
			g.line.given--
			g.line.life -= float64(g.life)
			g.use.count--
			g.use.bytes -= g.bytes
			g.use.held.sub(g.held)
		}
		*g = given{}
		return
	}
}
