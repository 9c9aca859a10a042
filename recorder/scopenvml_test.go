package recorder

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/recorder/ring"
)

// A source of readings for the NVML curve: two devices, fed by the test.
type testSource struct{ feed chan *format.Reading }

func (testSource) Devices() []format.DeviceRow {
	return []format.DeviceRow{{UUID: uuid0, Name: "a", Total: 1 << 34, NVML: 0}, {UUID: uuid1, Name: "b", Total: 1 << 34, NVML: 1}}
}

// The NVML curve is a device's own where the scope was bound to one (Q20), and
// without a reading there is an error, not a 0.
func TestScopeNVML(t *testing.T) {
	var out bytes.Buffer
	recordSelf(t, Options{}, func(r *Recorder) {
		s := r.Scope("x").Output(&out).Measure(CurveNVML)
		if _, err := s.Data(); err == nil || !strings.Contains(err.Error(), "no reading") {
			t.Errorf("without a source: %v", err)
		}
		if err := s.Report(); err == nil {
			t.Error("a report without a source was printed")
		}
	})
	if out.Len() > 0 {
		t.Errorf("printed %q", out.String())
	}
}

func (s testSource) Run(ctx context.Context, emit func(*format.Reading)) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case r := <-s.feed:
			emit(r)
		}
	}
}

func TestScopeNVMLCurve(t *testing.T) {
	var out bytes.Buffer
	src := testSource{make(chan *format.Reading)}
	recordSelf(t, Options{Sources: []Source{src}}, func(r *Recorder) {
		for i, row := range src.Devices() {
			r.Device(i, row)
		}
		both := r.Scope("both").Output(&out).Measure(CurveNVML)
		first := r.ScopeOn(0, "first").Output(&out).Measure(CurveNVML)
		second := r.ScopeOn(1, "second").Output(&out).Measure(CurveNVML)
		last := map[string]int64{}
		reads := func(uuid string, used, peak int64) {
			src.feed <- &format.Reading{Time: ring.Now(), UUID: uuid, Total: 1 << 34, Used: used * testMB, PeakUsed: peak * testMB, API: 2}
			last[uuid] = used
			for { // until the fold has it
				d, err := both.Data()
				if err == nil && d.End == (last[uuid0]+last[uuid1])*testMB {
					return
				}
			}
		}
		reads(uuid0, 100, 100)
		reads(uuid1, 500, 500)
		reads(uuid0, 130, 190)
		reads(uuid1, 450, 500)
		for _, s := range []*Scope{both, first, second} {
			must(t, s.Report())
		}
	})
	const want = "△Used Peaked MB:    -20     90 (both)\n△Used Peaked MB:     30     60 (first)\n△Used Peaked MB:    -50      0 (second)\n"
	if out.String() != want {
		t.Errorf("printed\n%swant\n%s", out.String(), want)
	}
}
