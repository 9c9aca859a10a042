// Package verify reads all of a trace and says whether it holds together:
// gpuanalyze verify.
//
//	verify.go      what is read, part by part, and the Report
//	checks.go      lanes' numbering, checkpoints against the fold, PyTorch's sums
//	text.go        the Report as text
//
// Findings are of three kinds. A fault is what no writer of this format writes:
// damage, an id without its definition in a closed part, a gap in a lane's
// numbering that no Lost row counts, a checkpoint that is not the fold of what
// came before it. Partial means that the trace is sound and events are
// missing, which is known and counted. A note is legal and worth knowing:
// rows older than the one before (the order of rows is the order of effect, and
// time is an attribute), frees of what was never seen, first parts
// that retention deleted.
//
// It promises to read on after damage as far as parts are independent of each
// other, with memory bounded by the live set and the number of different ids in
// a part. It refuses to repair.
package verify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
)

// A Report is what was found. Times are nanoseconds since the start of the
// recording.
type Report struct {
	Path        string        `json:"path"`
	Version     int           `json:"version"`
	Ending      format.Ending `json:"ending"`
	Parts       []Part        `json:"parts"`
	Events      int64         `json:"events"` // rows that are no checkpoint's
	Lost        int64         `json:"lost"`   // by Lost rows, or by the recorder's own count where that is larger
	Gaps        int64         `json:"seq_gaps"`
	Unaccounted int64         `json:"seq_unaccounted"` // missing numbers that no Lost row counts
	Regressions int64         `json:"order_regressions"`
	Unknown     Unknown       `json:"unknown_ids"`
	Checkpoints int           `json:"checkpoints_compared"`
	Differ      int           `json:"checkpoints_differ"`
	Torch       Torch         `json:"pytorch_sums"`
	Faults      []string      `json:"faults"`
	Partial     []string      `json:"partial"`
	Notes       []string      `json:"notes"`
}

// A Part is what was found in one part.
type Part struct {
	Index          int    `json:"index"`
	Batches        int    `json:"batches"`
	Rows           int64  `json:"rows"`
	CheckpointRows int64  `json:"checkpoint_rows"`
	Samples        int64  `json:"samples"`
	First          *int64 `json:"first_ns,omitempty"`
	Last           *int64 `json:"last_ns,omitempty"`
	Regressions    int64  `json:"order_regressions"` // rows older than the one before
	Closed         bool   `json:"closed"`            // every table has its footer
}

// Unknown counts rows that refer to an id without a definition in their part.
type Unknown struct {
	Stacks    int64 `json:"stacks"`
	Frames    int64 `json:"frames"`
	Names     int64 `json:"names"`
	Processes int64 `json:"processes"`
	Devices   int64 `json:"devices"`
}

func (u *Unknown) sum() int64 { return u.Stacks + u.Frames + u.Names + u.Processes + u.Devices }

// Verify reads t. The error is not about the trace: the context's end. progress,
// where not nil, hears how many parts are done.
func Verify(ctx context.Context, t *format.Trace, progress func(done, of int)) (*Report, error) {
	m := t.Meta()
	v := &verifier{r: &Report{Path: t.Path(), Version: m.Version, Ending: m.Ending, Parts: []Part{}, Faults: []string{}, Partial: []string{}, Notes: []string{}},
		start: m.Monotonic, lanes: map[laneKey]*lane{}, next: -1}
	v.fold = live.New()
	v.torch.watch(v.fold)
	for i, p := range t.Parts() {
		if gap, missing := t.Missing(i); missing {
			v.partial("%v: deleted by hand", gap)
		}
		if err := v.part(ctx, p); err != nil {
			return nil, err
		}
		if progress != nil {
			progress(i+1, len(t.Parts()))
		}
	}
	switch gap, missing := t.Missing(len(t.Parts())); {
	case missing && len(t.Parts()) == 0:
		v.partial("all its parts are missing, of which there were %d", gap.Last+1)
	case missing:
		v.partial("%v: the trace had %d when it was closed", gap, m.Parts)
	case len(t.Parts()) == 0:
		v.fault("%s: the trace has no part", t.Path())
	}
	v.conclude(&m)
	return v.r, nil
}

type verifier struct {
	r       *Report
	start   format.Time
	fold    *live.State
	lanes   map[laneKey]*lane
	torch   torchSums
	next    int  // index of the part that would continue the fold; -1 before the first
	unknown bool // a Lost row does not say how many
	broken  bool // the part before was not read to its end
}

func (v *verifier) fault(f string, a ...any)   { find(&v.r.Faults, f, a) }
func (v *verifier) partial(f string, a ...any) { find(&v.r.Partial, f, a) }
func (v *verifier) note(f string, a ...any)    { find(&v.r.Notes, f, a) }

// maxFindings bounds each list: a trace of a hundred thousand damaged parts
// needs no line for each.
const maxFindings = 100

func find(list *[]string, f string, a []any) {
	switch n := len(*list); {
	case n < maxFindings:
		*list = append(*list, fmt.Sprintf(f, a...))
	case n == maxFindings:
		*list = append(*list, fmt.Sprintf("and more than these %d", maxFindings))
	}
}

// part reads one part:
//
//  1. a part that does not continue the one before begins a new fold;
//  2. events, then the definitions they need: in this order a growing part's
//     definitions are all there;
//  3. samples, which the fold needs to know what a checkpoint says of devices;
//  4. ids are looked up in the part's own definitions: a part answers alone.
func (v *verifier) part(ctx context.Context, p *format.Part) error {
	row := Part{Index: p.Index(), Closed: true}
	follows := v.next == p.Index() && !v.broken
	if v.next < 0 && p.Index() > 0 {
		v.note("the trace begins with part %d: the ones before are not there", p.Index())
	}
	if !follows && v.next >= 0 {
		v.restart()
	}
	v.next, v.broken = p.Index()+1, false

	used := newUsed()
	err := v.events(ctx, p, &row, used, follows)
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	v.broken = v.damage(err, &row)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the part is gone, and this was said
	}
	defs := format.NewDefs()
	whole := !v.damage(p.LoadDefs(defs), &row)
	v.damage(v.samples(p, &row), &row)

	before := v.r.Unknown.sum()
	used.count(defs, &v.r.Unknown)
	if n := v.r.Unknown.sum() - before; n > 0 && whole && row.Closed {
		v.fault("%s: %d rows refer to ids that the part does not define", p.Path(), n)
	} else if n > 0 {
		v.note("%s: %d rows refer to ids without a definition", p.Path(), n)
	}
	v.r.Parts = append(v.r.Parts, row)
	v.r.Regressions += row.Regressions
	return nil
}

// damage sorts an error of reading into the report; false where there is none.
func (v *verifier) damage(err error, row *Part) bool {
	if err == nil {
		return false
	}
	row.Closed = false
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			v.damage(e, row)
		}
		return true
	}
	switch {
	case errors.Is(err, format.ErrTruncated):
		v.partial("%v", err)
	case errors.Is(err, fs.ErrNotExist):
		v.note("a part was deleted while it was read: %v", err)
	default:
		v.fault("%v", err)
	}
	return true
}

func (v *verifier) events(ctx context.Context, p *format.Part, row *Part, used *usedIDs, follows bool) error {
	er, err := p.Events()
	if err != nil {
		return err
	}
	defer er.Close()
	c := checkpoint{path: p.Path(), compare: follows}
	var first, last, before format.Time
	any := false
	defer func() {
		if c.after > 0 {
			v.fault("%s: %d rows of a checkpoint after its end", p.Path(), c.after)
		}
		if any {
			from, to := int64(first-v.start), int64(last-v.start)
			row.First, row.Last = &from, &to
		}
	}()
	for {
		batch, err := er.Next()
		if err == io.EOF {
			switch {
			case p.Index() == 0 || c.ended:
			case !any && (v.r.Ending == format.EndRepaired || v.r.Ending == format.EndFailed): // it had just begun
				v.partial("%s: the part has no event: the recording ended before its checkpoint was whole", p.Path())
			default:
				v.fault("%s: the part has no whole checkpoint at its begin", p.Path())
			}
			return nil
		}
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		row.Batches++
		row.Rows += int64(len(batch))
		for i := range batch {
			e := &batch[i]
			used.add(e)
			if e.Kind.Checkpoint() {
				row.CheckpointRows++
				v.checkpointRow(&c, e)
				v.fold.Apply(e)
				continue
			}
			if !any {
				first, last, any = e.Time, e.Time, true
			} else if e.Time < before {
				row.Regressions++
			}
			first, last, before = min(first, e.Time), max(last, e.Time), e.Time
			v.r.Events++
			v.lane(e)
			v.fold.Apply(e)
			v.torch.check(e)
		}
	}
}

func (v *verifier) samples(p *format.Part, row *Part) error {
	sr, err := p.Samples()
	if err != nil {
		return err
	}
	defer sr.Close()
	for {
		batch, err := sr.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		row.Samples += int64(len(batch))
		for i := range batch {
			v.fold.Sample(&batch[i])
		}
	}
}
