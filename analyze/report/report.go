package report

import (
	"context"
	"io"
	"slices"
	"sync"

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

// A Runner is analyze.Run; of those that go on at a time one shows how far it is.
type Runner func(ctx context.Context, a analyze.Answer, show bool) (*analyze.Completeness, error)

// Make asks for all answers about so many traces. The two that cost most are in
// a pass of their own, so that two cores share the work: 20 M events took 21 s
// of CPU in one pass; in two, 22 to 24 s of CPU and 12 to 14 s by the clock.
// Where the query has a filter, answers that count otherwise than the others
// get passes of their own.
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
	rest := together{sum, used, acquired, nvml, total, end, held, at}
	passes := []together{append(rest, contexts, history), {high, failures}}
	if filtered {
		passes = []together{rest, {high}, {contexts}, {history}, {failures}}
	}
	c, err := atOnce(ctx, passes, run)
	if err != nil {
		return nil, err
	}
	return &Report{Completeness: c, summary: sum.Report(c), used: used.Report(c), acquired: acquired.Report(c), nvml: nvml.Report(c),
		peak: high.Report(c), total: total.Report(c), end: end.Report(c), scopes: contexts.Report(c), devices: history.Report(c),
		oom: failures.Report(c), leaks: held.Report(c), moments: at.traces}, nil
}

// atOnce makes the passes beside each other. When one fails the others end.
func atOnce(ctx context.Context, passes []together, run Runner) (*analyze.Completeness, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	said, errs := make([]*analyze.Completeness, len(passes)), make([]error, len(passes))
	var failed error
	var once sync.Once
	var wg sync.WaitGroup
	for i, t := range passes {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if said[i], errs[i] = run(ctx, t, i == 0); errs[i] != nil {
				once.Do(func() { failed = errs[i] })
				cancel()
			}
		}()
	}
	wg.Wait()
	if failed != nil {
		return nil, failed
	}
	for _, one := range said[1:] {
		join(said[0], one)
	}
	return said[0], nil
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
