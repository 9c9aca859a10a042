package recorder

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/recorder/ring"
)

// A Recorder records the Go program it is opened in: its own allocator's pool
// through a Hook, and measured blocks through Scopes. It is a Session with one
// lane, written by the program itself; no preloaded library and no child
// process takes part. Its methods may be called from any goroutine.
type Recorder struct {
	session *Session
	lane    *ring.Producer
	stacks  stackCache

	mu      sync.Mutex
	numbers uint64 // of scopes, the last one given
	waiting map[uint64]chan measured
	devices map[int]ring.Definition
}

// attended is how long Open waits for its lane to be taken in: many times what
// an idle machine needs.
const attended = 10 * time.Second

// Open starts a recording of this program into opt.Output. Close ends it.
func Open(opt Options) (*Recorder, error) {
	r := &Recorder{waiting: map[uint64]chan measured{}, devices: map[int]ring.Definition{}}
	opt.onScope = r.sees
	start, image, err := self()
	if err != nil {
		return nil, err
	}
	if r.lane, err = ring.NewProducer(format.DefaultLane); err != nil {
		return nil, err
	}
	if r.session, err = Start(opt); err != nil {
		r.lane.Close()
		return nil, err
	}
	err = r.lane.Connect(r.session.Socket(), r.lane.Hello(start, image))
	if err == nil {
		// Once the recorder has looked at the lane, it has said whether a full one waits.
		ctx, cancel := context.WithTimeout(context.Background(), attended)
		err = r.session.View(ctx, func(*View) {})
		cancel()
	}
	if err != nil {
		r.lane.Close()
		r.session.Close(nil)
		return nil, fmt.Errorf("record this program: %w", err)
	}
	return r, nil
}

// Session is the recording underneath.
func (r *Recorder) Session() *Session { return r.session }

// Device says which device an ordinal of this program is, so that its events
// join with NVML's readings and with other processes. Say it before the first
// event of that ordinal. A row without a UUID is a device that only this
// recording knows.
func (r *Recorder) Device(ordinal int, row format.DeviceRow) {
	d := ring.DefineDevice(int32(ordinal), uuidBytes(row.UUID), row.Name, uint64(max(row.Total, 0)))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.devices[ordinal] = d
}

// Close ends the recording: everything published before is in the trace.
// Scopes that still run stay open in it.
func (r *Recorder) Close() (Summary, error) {
	s, err := r.session.Close(nil)
	r.lane.Close()
	return s, err
}

// event publishes one event with its stack and device.
func (r *Recorder) event(e *format.WireEvent, call *format.WireCall) {
	stack := r.stacks.caller()
	e.Stack = stack.key
	defs := r.device(e.Device, stack.definitions)
	// A full lane has counted the record, and the trace says how many are missing.
	_ = r.lane.Event(e, call, defs...)
}

// device adds the definition of a device to those of an event.
func (r *Recorder) device(ordinal int16, defs []ring.Definition) []ring.Definition {
	if ordinal < 0 {
		return defs
	}
	r.mu.Lock()
	d, ok := r.devices[int(ordinal)]
	r.mu.Unlock()
	if !ok {
		return defs
	}
	return append(defs[:len(defs):len(defs)], d)
}

// number is a new scope's, unique in this process's recording.
func (r *Recorder) number() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.numbers++
	return r.numbers
}

// expect is where the fold will say what it saw at the next report or end of a
// scope. The scope's own lock keeps it to one at a time.
func (r *Recorder) expect(number uint64) <-chan measured {
	c := make(chan measured, 1)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting[number] = c
	return c
}

func (r *Recorder) forget(number uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.waiting, number)
}

// sees is called by the fold at each report and end of a scope, before the
// event changes anything; also for one whose begin it has not seen, so that
// nobody waits in vain.
func (r *Recorder) sees(pid int32, number uint64, m measured) {
	if int(pid) != os.Getpid() {
		return // a child that was told the socket
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.waiting[number]; c != nil {
		c <- m
		delete(r.waiting, number)
	}
}

// uuidBytes is the 16 bytes of GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx, nil of
// anything else.
func uuidBytes(uuid string) []byte {
	_, hexes, ok := strings.Cut(uuid, "-")
	if !ok {
		return nil
	}
	b, err := hex.DecodeString(strings.ReplaceAll(hexes, "-", ""))
	if err != nil || len(b) != 16 {
		return nil
	}
	return b
}

// self is what tells this process from others of its pid: start time and image.
func self() (start, image uint64, err error) {
	_, start, ok := readStat("/proc/self")
	if !ok {
		return 0, 0, errors.New("read this process's start time: /proc/self/stat cannot be read; is /proc mounted?")
	}
	// The address of 16 random bytes that the kernel gave this image.
	const atRandom = 25
	aux := readSome("/proc/self/auxv", 4096)
	for ; len(aux) >= 16; aux = aux[16:] {
		if binary.NativeEndian.Uint64(aux) != atRandom {
			continue
		}
		mem, err := os.Open("/proc/self/mem")
		if err != nil {
			break // this program may not look at itself; then the start time has to do
		}
		defer mem.Close()
		var b [8]byte
		if _, err := mem.ReadAt(b[:], int64(binary.NativeEndian.Uint64(aux[8:]))); err == nil {
			image = binary.LittleEndian.Uint64(b[:])
		}
		break
	}
	return start, image, nil
}
