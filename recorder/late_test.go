package recorder

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/recorder/ring"
)

// lateSource reads each of its devices once.
type lateSource struct{ testSource }

func (s lateSource) Run(ctx context.Context, emit func(*format.Reading)) error {
	for _, d := range s.Devices() {
		emit(&format.Reading{Time: ring.Now(), UUID: d.UUID, Total: d.Total, Used: 1})
	}
	<-ctx.Done()
	return ctx.Err()
}

// TestLate opens a source at different speeds, around programs of different sorts.
func TestLate(t *testing.T) {
	forever := make(chan struct{})
	defer close(forever)
	opens := func() (Source, func(*format.Meta), error) {
		time.Sleep(50 * time.Millisecond)
		return lateSource{}, func(m *format.Meta) { m.Driver = "550" }, nil
	}
	fails := func() (Source, func(*format.Meta), error) {
		return nil, func(m *format.Meta) { m.Driver = "550" }, errors.New("no driver")
	}
	hangs := func() (Source, func(*format.Meta), error) {
		<-forever
		return nil, nil, errors.New("over")
	}
	for _, row := range []struct {
		name    string
		open    Late
		lane    bool
		lasts   time.Duration
		samples int
		why     string
	}{
		{"a short program", hangs, false, 0, 0, "nothing in it used a device"},
		{"a longer one", opens, false, 2 * lateAfter, 2, ""},
		{"a longer one, and it hangs", hangs, false, 2 * lateAfter, 0, "before the devices could be asked"},
		{"a short one with a device", opens, true, 0, 2, ""},
		{"a short one with a device that cannot be read", fails, true, 0, 0, "no driver"},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := record(t, Options{Late: row.open})
			if row.lane {
				// Its own ordinal 0 is the second device.
				p := join(t, s, 1, format.MinLaneSize)
				d := ring.DefineDevice(0, uuidBytes(uuid1), "b", 1<<34)
				e := wireEvent(format.Alloc, format.APIMemAlloc, 0x1000, 512)
				e.Device = 0
				if err := p.Event(e, &format.WireCall{}, d); err != nil {
					t.Fatal(err)
				}
				time.Sleep(20 * time.Millisecond)
			}
			time.Sleep(row.lasts)
			began := time.Now()
			r := finish(t, s)
			if took := time.Since(began); took > lateFor/2 {
				t.Errorf("the end took %v", took)
			}
			if len(r.samples) != row.samples {
				t.Errorf("%d samples, want %d", len(r.samples), row.samples)
			}
			if got := r.meta.NoSamples; !strings.Contains(got, row.why) || (got == "") != (row.why == "") {
				t.Errorf("it says %q, want %q", got, row.why)
			}
			if told := r.meta.Driver == "550"; told != (row.samples > 0 || row.lane) {
				t.Errorf("driver %q", r.meta.Driver)
			}
			if row.samples == 0 {
				return
			}
			for i, uuid := range []string{uuid0, uuid1} {
				if d, ok := r.defs.Device(format.Device(i)); !ok || d.UUID != uuid {
					t.Errorf("device %d is %+v", i, d)
				}
			}
			if row.lane && (len(r.events) == 0 || r.count(format.Alloc) != 1) {
				t.Errorf("%d events", len(r.events))
			}
			for i := range r.events {
				if e := &r.events[i]; e.Kind == format.Alloc && e.Device != 1 {
					t.Errorf("the allocation is on device %d", e.Device)
				}
			}
		})
	}
}

// TestLateIsWritten: what a late source tells is on the disk while the recording
// goes on.
func TestLateIsWritten(t *testing.T) {
	s := record(t, Options{Late: func() (Source, func(*format.Meta), error) {
		return lateSource{}, func(m *format.Meta) { m.Driver = "550" }, nil
	}})
	if !within(10*time.Second, func() bool {
		tr, err := format.Open(s.Output())
		return err == nil && tr.Meta().Driver == "550"
	}) {
		t.Error("it is not")
	}
}
