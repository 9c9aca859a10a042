package nvml

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/gpurec/gpurec/format"
)

// How often the sampler asks and speaks. Measured on an H200: a memory call
// takes 8 µs, the list of processes 10 µs more.
const (
	DefaultInterval = 10 * time.Millisecond
	MinInterval     = time.Millisecond
	processEvery    = 10          // readings to one list of processes
	repeatAfter     = time.Second // a reading that says nothing new is passed on this often
	retryAfter      = time.Second // between attempts at a device that refused
	maxRefusals     = 5           // in a row; then the device is given up
	hungAfter       = time.Second // how long Run waits for a call into the library when it is told to end
)

// A Sampler reads every device once an interval, on its own goroutine, and
// passes on what says something new. It has the shape of the recorder's source
// of samples.
//
// A reading that repeats the last one passed on is kept back for up to a
// second, so that an idle machine of eight devices writes eight rows a second
// and not eight hundred. PeakUsed is the largest use read since the reading
// passed on before.
//
// A device that stops answering is left out from then on and its reason is
// said once, to OnError at once and in what Run returns; the others go on.
type Sampler struct {
	NVML      *NVML
	Interval  time.Duration // 0 is DefaultInterval; at least MinInterval
	Processes bool          // also read what each process uses, every tenth time
	OnError   func(error)   // may be nil; called from the sampling goroutine
}

// Devices are the rows of the devices that readings will be of.
func (s *Sampler) Devices() []format.DeviceRow { return s.NVML.Rows() }

// Run samples until ctx is done or no device answers any more. emit is called
// on one goroutine and never after Run has returned; the reading is the
// callee's only until it returns. The error joins one for each device that was
// given up; nil when all answered to the end.
func (s *Sampler) Run(ctx context.Context, emit func(*format.Reading)) error {
	// A call into the driver cannot be cancelled, and one on a GPU that fell off
	// its bus may not return. So the loop is left behind when it hangs.
	var mu sync.Mutex
	var errs []error
	ended := false
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.loop(ctx, func(r *format.Reading) {
			mu.Lock()
			defer mu.Unlock()
			if !ended {
				emit(r)
			}
		}, func(err error) {
			mu.Lock()
			defer mu.Unlock()
			if ended {
				return
			}
			errs = append(errs, err)
			if s.OnError != nil {
				s.OnError(err)
			}
		})
	}()
	select {
	case <-done:
	case <-ctx.Done():
		select {
		case <-done:
		case <-time.After(hungAfter):
		}
	}
	mu.Lock()
	defer mu.Unlock()
	ended = true
	select {
	case <-done:
	default:
		errs = append(errs, fmt.Errorf("nvml: a call has not returned for %v, sampling was left behind", hungAfter))
	}
	return reasons(errs).orNil()
}

func (s *Sampler) loop(ctx context.Context, emit func(*format.Reading), fail func(error)) {
	interval := s.Interval
	if interval == 0 {
		interval = DefaultInterval
	}
	tick := time.NewTicker(max(interval, MinInterval))
	defer tick.Stop()
	clock := newClock()

	tracks := make([]track, len(s.NVML.devices))
	for i := range tracks {
		tracks[i].uuid = s.NVML.devices[i].UUID
	}
	if len(tracks) == 0 {
		fail(errors.New("nvml: there is no device here"))
		return
	}
	for {
		alive := false
		for i := range tracks {
			t := &tracks[i]
			if t.gone {
				continue
			}
			if ctx.Err() != nil {
				return
			}
			s.read(t, i, clock, emit, fail)
			alive = alive || !t.gone
		}
		if !alive {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// read takes one reading of one device and passes it on if there is something
// in it.
func (s *Sampler) read(t *track, i int, clock clock, emit func(*format.Reading), fail func(error)) {
	if !t.due(clock.now()) {
		return
	}
	m, err := s.NVML.Memory(i)
	at := clock.now()
	if err != nil {
		if t.refused(at, err) {
			fail(err)
		}
		return
	}
	var procs []format.ProcessReading
	if s.Processes && !t.silent && t.reads%processEvery == 0 {
		// That a driver lists no processes costs their rows, not the device's.
		if procs, err = s.NVML.Processes(i); err == nil && procs == nil {
			procs = []format.ProcessReading{}
		} else if Final(err) {
			t.silent = true
			fail(err)
		}
	}
	if r := t.take(at, m, procs); r != nil {
		emit(r)
	}
}

// reasons are errors on one line, as they stand in a trace.
type reasons []error

func (r reasons) Error() string {
	var s []string
	for _, err := range r {
		s = append(s, err.Error())
	}
	return strings.Join(s, "; ")
}

func (r reasons) Unwrap() []error { return r }

func (r reasons) orNil() error {
	if len(r) == 0 {
		return nil
	}
	return r
}

// track is what the sampler remembers of one device.
type track struct {
	uuid  string
	reads int64 // readings that succeeded

	said  bool // something was passed on
	at    format.Time
	last  Memory                  // as passed on
	procs []format.ProcessReading // as passed on
	peak  int64                   // largest Used since

	refusals int // in a row
	again    format.Time
	gone     bool
	silent   bool // lists no processes

	out format.Reading
}

// due reports whether the device may be asked at this time.
func (t *track) due(at format.Time) bool { return !t.gone && (t.refusals == 0 || at >= t.again) }

// refused counts a failed reading and reports whether the device is given up.
func (t *track) refused(at format.Time, err error) bool {
	t.refusals++
	t.again = at + format.Time(retryAfter)
	t.gone = Final(err) || t.refusals >= maxRefusals
	return t.gone
}

// take adds a reading; procs is nil when they were not asked. The result is nil
// where it says nothing new, and valid until the next call.
func (t *track) take(at format.Time, m Memory, procs []format.ProcessReading) *format.Reading {
	t.reads++
	t.refusals = 0
	t.peak = max(t.peak, m.Used)
	news := !t.said || m != t.last || procs != nil && !slices.Equal(procs, t.procs)
	if !news && at-t.at < format.Time(repeatAfter) {
		return nil
	}
	t.out = format.Reading{
		Time: at, UUID: t.uuid,
		Total: m.Total, Used: m.Used, Free: m.Free, Reserved: m.Reserved, PeakUsed: t.peak, API: m.API,
		Processes: procs,
	}
	t.said, t.at, t.last, t.peak = true, at, m, 0
	if procs != nil {
		t.procs = procs
	}
	return &t.out
}

// A clock tells CLOCK_MONOTONIC, the clock of all events. Go's own is the same
// one, and says not its value but what has passed, without a system call.
type clock struct {
	began time.Time
	at    format.Time
}

func newClock() clock {
	var ts syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&ts)), 0)
	return clock{time.Now(), format.Time(ts.Nano())}
}

func (c clock) now() format.Time { return c.at + format.Time(time.Since(c.began)) }
