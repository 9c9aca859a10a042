package report

import (
	"context"
	"io"
	"slices"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/devices"
	"github.com/gpurec/gpurec/analyze/leaks"
	"github.com/gpurec/gpurec/analyze/lines"
	"github.com/gpurec/gpurec/analyze/oom"
	"github.com/gpurec/gpurec/analyze/peak"
	"github.com/gpurec/gpurec/analyze/scopes"
	"github.com/gpurec/gpurec/analyze/summary"
	"github.com/gpurec/gpurec/analyze/timeline"
)

// A Report is all answers about some traces.
type Report struct {
	Completeness *analyze.Completeness

	summary  *summary.Report
	used     *timeline.Report
	acquired *timeline.Report
	nvml     *timeline.Report
	peak     *peak.Report
	total    *lines.Report
	end      *lines.Report
	scopes   *scopes.Report
	devices  *devices.Report
	oom      *oom.Report
	leaks    *leaks.Report
	moments  [][]*deviceMoments
}

// A Runner is analyze.Run, with the progress that the caller shows.
type Runner func(ctx context.Context, a analyze.Answer) (*analyze.Completeness, error)

// Make asks for all answers about so many traces. run is called once where the
// query has no filter; it is called again for those that count otherwise than
// the others where it has.
func Make(ctx context.Context, traces int, filtered bool, run Runner) (*Report, error) {
	curve := func(c timeline.Curve) *timeline.Answer {
		return timeline.New(timeline.Options{By: timeline.ByDevice, Curve: c, Points: mostBuckets})
	}
	var (
		sum                  = summary.New()
		used, acquired, nvml = curve(timeline.Used), curve(timeline.Acquired), curve(timeline.NVML)
		high                 = peak.New(0, traces)
		total, end           = lines.New(lines.Total, 0, traces), lines.New(lines.End, 0, traces)
		contexts             = scopes.New(scopes.Used, traces)
		history              = &devices.Answer{}
		failures             = oom.New()
		held                 = leaks.New(leaks.Options{TemporaryEvents: leaks.TemporaryEvents})
		at                   = &moments{}
	)
	passes := []together{{sum, used, acquired, nvml, high, total, end, held, at, contexts, history, failures}}
	if filtered {
		passes = []together{passes[0][:9], {contexts}, {history}, {failures}}
	}
	c := &analyze.Completeness{}
	for i, t := range passes {
		one, err := run(ctx, t)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			c = one
			continue
		}
		join(c, one)
	}
	return &Report{Completeness: c, summary: sum.Report(c), used: used.Report(c), acquired: acquired.Report(c), nvml: nvml.Report(c),
		peak: high.Report(c), total: total.Report(c), end: end.Report(c), scopes: contexts.Report(c), devices: history.Report(c),
		oom: failures.Report(c), leaks: held.Report(c), moments: at.traces}, nil
}

// join adds what another pass over the same traces has to say.
func join(c, one *analyze.Completeness) {
	add := func(to *[]string, from []string) {
		for _, s := range from {
			if !slices.Contains(*to, s) {
				*to = append(*to, s)
			}
		}
	}
	add(&c.Partial, one.Partial)
	add(&c.Notes, one.Notes)
	c.Complete = c.Complete && one.Complete
}

// MostBytes bounds a page.
const MostBytes = 5 << 20

// WriteHTML writes the page; limits says in words what the answers were limited
// to. What is shown of each list is halved until the page is small enough.
func (r *Report) WriteHTML(w io.Writer, tool, limits string) error {
	for most := full; ; most = most.half() {
		p, err := r.page(most)
		if err != nil {
			return err
		}
		p.Tool, p.Limits = tool, limits
		b, err := p.html()
		if err != nil {
			return err
		}
		if len(b) > MostBytes && !most.least() {
			continue
		}
		_, err = w.Write(b)
		return err
	}
}
