package analyze

import (
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
)

// A joint is where a part follows the one before. Its checkpoint repeats what
// is known: when it does not, the parts are not what stood there when they were
// recorded. Time and the number of live allocations are looked at, which costs
// next to nothing; verify compares every row.
type joint struct {
	index  int // of the part; -1 where it follows nothing that was read whole
	latest format.Time
	any    bool // latest is known
	live   int64
	rows   int64 // Live rows so far; -1 before the first of the checkpoint
}

// begin comes before a part.
func (j *joint) begin(index int, follows bool) {
	j.rows, j.index = -1, -1
	if follows {
		j.index = index
	}
}

// event looks at an event before the fold has it.
func (j *joint) event(p *Pass, e *format.Event) {
	if !e.Kind.Checkpoint() {
		if !j.any || e.Time > j.latest {
			j.latest, j.any = e.Time, true
		}
		return
	}
	if j.index < 0 {
		return
	}
	if j.rows < 0 {
		j.live, j.rows = 0, 0
		p.State.Each(func(*live.Allocation) bool { j.live++; return true })
	}
	switch {
	case e.Kind == format.Live:
		j.rows++
	case e.Kind != format.CheckpointEnd:
	case j.any && e.Time < j.latest:
		p.comp.partial("part %d begins at %s, and the part before it ends at %s: they do not belong together; gpuanalyze verify says more",
			j.index, Seconds(p.Since(e.Time)), Seconds(p.Since(j.latest)))
	case j.rows != j.live:
		p.comp.partial("part %d begins with %d live allocations, and the part before it ends with %d: they do not belong together; gpuanalyze verify says more",
			j.index, j.rows, j.live)
	}
}
