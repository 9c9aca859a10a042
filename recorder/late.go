package recorder

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/gpurec/gpurec/format"
)

// A Late opens a source that takes a while to open: NVML, tens of milliseconds
// where there is a driver, and seconds where the driver has let the device go. It
// returns what there is to add to the trace's Meta, also with an error; that may
// be nil.
//
// The command does not wait for it, nor does the end of one that has nothing to
// do with devices. So a source is opened when the first lane is announced, or
// when the recording has gone on for lateAfter. A process that has a lane is
// worth its first readings: fold holds it back until the devices are known, for
// they have the first numbers in a trace, and Close waits for the first readings.
type Late func() (Source, func(*format.Meta), error)

const (
	// lateAfter is longer than most of the commands that a shell script is made of.
	lateAfter = 250 * time.Millisecond

	// lateFor is how long a source is waited for. Meanwhile records stay in
	// memory, up to Options.QueueBytes, and then in their lanes.
	lateFor = 5 * time.Second
)

// A latecomer is a Late on its way; nil where there is none.
type latecomer struct {
	open    Late
	wanted  chan struct{} // closed at the first lane
	want    sync.Once
	known   chan struct{} // closed when rows are there, or never will be
	rows    []format.DeviceRow
	greeted chan struct{} // closed when each device has been read, or none will be
	greet   sync.Once
}

func newLatecomer(open Late) *latecomer {
	if open == nil {
		return nil
	}
	return &latecomer{open: open, wanted: make(chan struct{}), known: make(chan struct{}), greeted: make(chan struct{})}
}

// laneCame is called when a lane is announced.
func (l *latecomer) laneCame() {
	if l != nil {
		l.want.Do(func() { close(l.wanted) })
	}
}

// greetedBy is a source's readings, counted until there is one of each device.
func (l *latecomer) greetedBy(emit func(*format.Reading)) func(*format.Reading) {
	left := len(l.rows)
	return func(r *format.Reading) {
		emit(r)
		if left--; left == 0 {
			l.greet.Do(func() { close(l.greeted) })
		}
	}
}

// await waits for known, where somebody has a lane; closing waits for the first
// readings too.
func (l *latecomer) await(closing bool) {
	if l == nil {
		return
	}
	select {
	case <-l.wanted:
	default:
		return
	}
	over := time.NewTimer(lateFor)
	defer over.Stop()
	select {
	case <-l.known:
	case <-over.C:
		return
	}
	if closing {
		select {
		case <-l.greeted:
		case <-over.C:
		}
	}
}

// readLate opens a source when its time has come and runs it. When ctx ends it is
// left behind wherever it is.
func (s *Session) readLate(ctx context.Context, l *latecomer) {
	defer s.sources.Done()
	defer l.greet.Do(func() { close(l.greeted) })
	after := time.NewTimer(lateAfter)
	defer after.Stop()
	select {
	case <-l.wanted:
	case <-after.C:
	case <-ctx.Done():
		close(l.known)
		s.unreadBecause(fmt.Errorf("the recording was over in %v and nothing in it used a device", lateAfter))
		return
	}
	type opened struct {
		src  Source
		meta func(*format.Meta)
		err  error
	}
	came := make(chan opened, 1)
	go func() {
		src, meta, err := l.open()
		came <- opened{src, meta, err}
	}()
	var o opened
	select {
	case o = <-came:
	case <-ctx.Done():
		close(l.known)
		s.unreadBecause(fmt.Errorf("the recording ended before the devices could be asked"))
		return
	}
	if o.err == nil {
		l.rows = o.src.Devices()
	}
	close(l.known)
	s.write.learn(func(m *format.Meta) {
		if o.meta != nil {
			o.meta(m)
		}
		if o.err != nil {
			m.NoSamples = o.err.Error()
		}
	})
	if o.err == nil {
		s.run(ctx, o.src, l.greetedBy(s.reading))
	}
}
