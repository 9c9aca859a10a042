package recorder

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
	"github.com/gpurec/gpurec/recorder/ring"
)

// A Source reads the memory of devices: NVML's sampler, or a test's.
type Source interface {
	// Devices are the devices it will speak of, known before the first event.
	Devices() []format.DeviceRow
	// Run calls emit for each reading until ctx ends. An error goes into the
	// trace, also one after which other devices went on being read; a Source
	// that wants it said at once says it itself.
	Run(ctx context.Context, emit func(*format.Reading)) error
}

// Options of a recording. The zero value of each but Output is usable.
type Options struct {
	Output      string        // the directory to make; it must not exist
	Meta        format.Meta   // what the caller knows: Tool, Command, Options, Driver, NVML, Simulated
	Wait        bool          // a full lane holds its thread instead of refusing the record
	WaitBudget  time.Duration // for how long in a second; default the whole second, so that nothing is lost
	RotateSize  int64         // bytes of a part after which the next begins; 0 never, or by Writer.Retain
	RotateEvery time.Duration // age of a part after which the next begins; 0 never, or by Writer.Retain
	Sources     []Source
	Late        Late              // one more source, which is not waited for
	SocketDir   string            // where to make the socket's directory; default the user's runtime directory, else a temporary one
	QueueBytes  int64             // records copied and not yet folded, at most; default 128 MiB
	Say         func(text string) // one sentence each, for the user; default none
	Writer      format.WriterOptions

	flushEvery  time.Duration // a test's, as the next; default the constant
	forgetAfter int64

	partMost int64  // bytes after which a part ends though its checkpoint was large; retain's
	tight    string // what the disk left of Writer.Retain

	onScope func(pid int32, number uint64, m measured) // a scope with a number reports or ends, before that changes anything

	// ScopeEnded is called in fold's goroutine at each scope's end, while the
	// scope can still be measured.
	ScopeEnded func(v *View, sc *live.Scope, e *format.Event)
}

// A Session records: it listens for lanes at Socket until Close.
type Session struct {
	opt    Options
	onFull uint32
	socket string

	stop   chan struct{} // closed by Close: drain finishes
	wakes  [2]int        // a pipe that ends drain's pause; -1 when it has ended
	rounds chan *round   // drain → fold
	pages  chan *page    // fold → write
	asks   chan ask      // View → fold
	folded chan struct{} // closed when fold has ended
	done   chan struct{} // closed when write has ended

	inflight atomic.Int64 // bytes of buffers not returned
	buffers  sync.Pool
	through  atomic.Int64 // rounds that fold has passed on as far as it may
	turns    atomic.Int64
	holds    atomic.Bool  // fold has something for a later watermark
	unread   atomic.Bool  // there are readings that fold has not taken
	asked    atomic.Int64 // callers that wait for what was published before
	alive    atomic.Int64
	failed   atomic.Bool   // writing failed: nothing is recorded any more
	broken   chan struct{} // closed then

	wakeLock sync.Mutex

	mu       sync.Mutex
	statuses map[int32]int32
	reasons  []string // why there are no readings, or fewer
	jobs     []format.Job

	readings []*format.Reading // not yet fold's, under mu
	sources  sync.WaitGroup
	late     *latecomer
	cancel   context.CancelFunc

	fold  *fold
	write *write
	once  sync.Once
	err   error
}

// Start makes the trace and the socket and begins to record.
func Start(opt Options) (*Session, error) {
	if opt.WaitBudget <= 0 {
		opt.WaitBudget = time.Second
	}
	if opt.QueueBytes <= 0 {
		opt.QueueBytes = 128 << 20
	}
	opt.QueueBytes = max(opt.QueueBytes, 2*bufferSize)
	if opt.flushEvery <= 0 {
		opt.flushEvery = flushEvery
	}
	if opt.forgetAfter <= 0 {
		opt.forgetAfter = forgetAfter
	}
	queue := opt.retain()
	if opt.Say == nil {
		opt.Say = func(string) {}
	}
	s := &Session{
		opt:      opt,
		stop:     make(chan struct{}),
		rounds:   make(chan *round, 8),
		pages:    make(chan *page, queue),
		asks:     make(chan ask, 16),
		folded:   make(chan struct{}),
		done:     make(chan struct{}),
		broken:   make(chan struct{}),
		statuses: map[int32]int32{},
		late:     newLatecomer(opt.Late),
	}
	if opt.Wait {
		s.onFull = 1
	}
	l, err := listen(opt.SocketDir)
	if err != nil {
		return nil, err
	}
	s.socket = l.path
	d, err := newDrain(s, l)
	if err != nil {
		l.close()
		return nil, err
	}
	meta := opt.Meta
	meta.Monotonic = ring.Now()
	meta.Start = time.Now().UTC()
	if meta.Host == "" {
		meta.Host, _ = os.Hostname()
	}
	w, err := format.Create(opt.Output, meta, opt.Writer)
	if err != nil {
		l.close()
		d.poller.close()
		syscall.Close(s.wakes[0])
		syscall.Close(s.wakes[1])
		return nil, err
	}
	s.write = &write{s: s, w: w, learned: make(chan func(*format.Meta), 1), told: map[string]bool{}}
	s.fold = newFold(s)
	go d.run()
	go s.fold.run()
	go s.write.run()
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	for _, src := range opt.Sources {
		s.sources.Add(1)
		go func() {
			defer s.sources.Done()
			s.run(ctx, src, s.reading)
		}()
	}
	if opt.Late != nil {
		s.sources.Add(1)
		go s.readLate(ctx, s.late)
	}
	return s, nil
}

// maxReadings is how many readings wait for fold. Beyond that one is dropped:
// the next one comes in an instant, and its peak covers this one.
const maxReadings = 1024

// run runs one Source.
func (s *Session) run(ctx context.Context, src Source, emit func(*format.Reading)) {
	if err := src.Run(ctx, emit); err != nil && !errors.Is(err, context.Canceled) {
		s.unreadBecause(err)
	}
}

// reading takes a reading in. Fold gets it with its next round, so that it wakes
// nobody.
func (s *Session) reading(r *format.Reading) {
	c := *r
	c.Processes = append([]format.ProcessReading(nil), r.Processes...)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.readings) < maxReadings {
		s.readings = append(s.readings, &c)
		s.unread.Store(true)
	}
}

// unreadBecause goes into the trace: why there are no readings, or fewer.
func (s *Session) unreadBecause(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reasons = append(s.reasons, err.Error())
}

// takeReadings empties the list of readings.
func (s *Session) takeReadings() []*format.Reading {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.readings
	s.readings = nil
	s.unread.Store(false)
	return r
}

// Socket is where lanes are announced: format.EnvSocket of a traced process.
func (s *Session) Socket() string { return s.socket }

// Output is the trace's directory.
func (s *Session) Output() string { return s.opt.Output }

// Exited tells the status of a process that the caller waited for, as waitpid's:
// an exit status, or 128+signal. The kernel tells only the parent. Call it
// before the process is reaped, and its end in the trace has it.
func (s *Session) Exited(pid int, status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.statuses[int32(pid)] = int32(status)
}

// statusOf is the status of a process that ended: of our own child as the kernel
// has it, else as Exited said.
func (s *Session) statusOf(pid int32) int32 {
	if status, err := peekStatus(int(pid)); err == nil {
		return int32(status)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if status, ok := s.statuses[pid]; ok {
		delete(s.statuses, pid)
		return status
	}
	return format.Unknown
}

// A View is the state of the fold at one moment. It is valid during View's call.
type View struct {
	*live.State
	f *fold
}

// Scope finds the trace's id of a scope that a process began with a range of
// this number, whether it is open or not.
func (v *View) Scope(pid int, number uint64) (format.ScopeID, bool) { return v.f.scopeOf(pid, number) }

// Device finds the trace's index of a process's device ordinal.
func (v *View) Device(pid int, ordinal int) format.Device { return v.f.deviceOf(pid, ordinal) }

// ErrEnded says that the session is closed, or that writing failed.
var ErrEnded = errors.New("the recording has ended")

// View calls f, in fold's goroutine, once everything that was published before
// the call has been folded. It is how a program reads its own numbers: the same
// fold that an analysis will make of the trace.
func (s *Session) View(ctx context.Context, f func(*View)) error {
	defer s.hurry()()
	a := ask{at: ring.Now(), f: f, done: make(chan struct{})}
	select {
	case s.asks <- a:
	case <-s.folded:
		return ErrEnded
	case <-s.broken:
		return ErrEnded
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-a.done:
		return nil
	case <-s.broken: // the lanes are not read any more
		return ErrEnded
	case <-s.folded:
		select {
		case <-a.done:
			return nil
		default:
			return ErrEnded
		}
	case <-ctx.Done():
		return ctx.Err()
	}
}

// hurry makes the loop pass on what is published without delay, until the
// function that it returns is called.
func (s *Session) hurry() (enough func()) {
	s.asked.Add(1)
	s.wake()
	return func() { s.asked.Add(-1) }
}

// Close ends the recording: it takes what the lanes still hold, closes the trace
// and returns what it amounted to. f, which may be nil, changes the trace's Meta
// at last. Programs that still run are not disturbed, and not recorded further.
func (s *Session) Close(f func(*format.Meta)) (Summary, error) {
	s.once.Do(func() {
		s.late.await(true)
		s.cancel()
		s.sources.Wait()
		close(s.stop)
		s.wake()
		<-s.folded
		<-s.done
		s.wakeLock.Lock()
		syscall.Close(s.wakes[0])
		syscall.Close(s.wakes[1])
		s.wakes = [2]int{-1, -1}
		s.wakeLock.Unlock()
		s.err = s.write.close(f)
	})
	return s.fold.summary(), s.err
}

// wake ends drain's pause.
func (s *Session) wake() {
	s.wakeLock.Lock()
	defer s.wakeLock.Unlock()
	if s.wakes[1] >= 0 {
		syscall.Write(s.wakes[1], []byte{0}) // a full pipe wakes as well
	}
}

func (s *Session) say(text string) { s.opt.Say(text) }

// fail is called once, when writing has failed.
func (s *Session) fail(err error) {
	s.failed.Store(true)
	close(s.broken)
	s.say(err.Error())
}

// buffer takes an empty buffer, nil when as many as may be are in use and it
// must not be one more.
func (s *Session) buffer(must bool) *buffer {
	if !must && s.inflight.Load()+bufferSize > s.opt.QueueBytes {
		return nil
	}
	s.inflight.Add(bufferSize)
	b, _ := s.buffers.Get().(*buffer)
	if b == nil {
		b = &buffer{bytes: make([]byte, bufferSize)}
	}
	b.used = 0
	b.refs.Store(1)
	return b
}

// release lets go of a buffer.
func (s *Session) release(b *buffer) {
	if b.refs.Add(-1) == 0 {
		s.inflight.Add(-bufferSize)
		s.buffers.Put(b)
	}
}

// peekStatus reads the status of a child that has ended, without reaping it.
func peekStatus(pid int) (int, error) {
	info, err := waitid(pid, syscall.WEXITED|syscall.WNOHANG|syscall.WNOWAIT)
	if err != nil {
		return 0, err
	}
	if info.pid == 0 {
		return 0, fmt.Errorf("process %d still runs", pid)
	}
	return info.wait(), nil
}
