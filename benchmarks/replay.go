package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/recorder/ring"
)

func init() { roles["replay"] = replay }

// A replayer is a traced program: it writes the training run into lanes, one
// for each thread of it, with its stacks, names and scopes.
type replayer struct {
	stream *stream
	lanes  map[uint32]*ring.Producer
	codes  map[format.FrameID]ring.Definition
	stacks map[format.StackID][]ring.Definition // the stack's own last
	names  map[format.NameID]ring.Definition
	open   map[uint32][]pushed
}

// pushed is an open scope of a thread.
type pushed struct {
	id    format.ScopeID
	depth int64
	name  format.NameID
}

// replay writes so many events, as fast as the recorder takes them or at a
// rate; with none it lives as long and writes one. It prints its own CPU time in ns.
func replay(args []string) error {
	f := flag.NewFlagSet("replay", flag.ContinueOnError)
	root := f.String("root", ".", "")
	events := f.Int("events", 1, "")
	rate := f.Int("rate", 0, "events a second")
	idle := f.Duration("idle", 0, "sleep so long afterwards")
	if err := f.Parse(args); err != nil {
		return err
	}
	s, err := openStream(*root)
	if err != nil {
		return err
	}
	socket := os.Getenv(format.EnvSocket)
	if socket == "" {
		return errors.New("not under gpurec run")
	}
	start, err := startTime()
	if err != nil {
		return err
	}
	r := &replayer{stream: s, lanes: map[uint32]*ring.Producer{}, codes: map[format.FrameID]ring.Definition{}, stacks: map[format.StackID][]ring.Definition{},
		names: map[format.NameID]ring.Definition{}, open: map[uint32][]pushed{}}
	for i := range s.events {
		tid := s.events[i].Thread
		if r.lanes[tid] != nil {
			continue
		}
		p, err := ring.NewProducer(format.DefaultLane)
		if err != nil {
			return err
		}
		p.Wait = true
		if err := p.Connect(socket, p.Hello(start, 1)); err != nil {
			return err
		}
		r.lanes[tid] = p
	}
	time.Sleep(50 * time.Millisecond) // the lanes are taken in
	begin, n, done := time.Now(), 0, errors.New("enough")
	err = s.each(1+*events/len(s.events), func(e *format.Event) error {
		if n++; n > *events {
			return done
		}
		if *rate > 0 && n%64 == 0 {
			time.Sleep(time.Until(begin.Add(time.Duration(n) * time.Second / time.Duration(*rate))))
		}
		return r.event(e)
	})
	if err != nil && err != done {
		return err
	}
	time.Sleep(*idle)
	fmt.Println(own().Nanoseconds())
	return nil
}

// event writes one event into its thread's lane; a full one waits.
func (r *replayer) event(e *format.Event) error {
	lane := r.lanes[e.Thread]
	head := format.WireHead{Kind: e.Kind, Layer: e.Layer}
	switch e.Kind {
	case format.ScopeBegin, format.ScopeEnd, format.Mark:
		w := format.WireScope{WireHead: head, Class: e.Class, Flags: e.Flags, API: e.API, Device: int16(e.Device), Range: e.Object}
		open := r.open[e.Thread]
		name := e.Name
		switch {
		case e.Kind == format.ScopeBegin:
			w.Depth = int64(len(open))
			r.open[e.Thread] = append(open, pushed{e.Scope, w.Depth, e.Name})
		case e.Kind == format.ScopeEnd && len(open) > 0:
			last := open[len(open)-1]
			w.Depth, name = last.depth, last.name
			r.open[e.Thread] = open[:len(open)-1]
		}
		d, ok := r.names[name]
		if !ok {
			d = ring.DefineName(r.stream.defs.Name(name))
			r.names[name] = d
		}
		w.Name = d.Key
		return lane.Scope(&w, d)
	}
	w := format.WireEvent{WireHead: head, Class: e.Class, Flags: e.Flags, API: e.API, Device: int16(e.Device), Address: e.Address, Size: e.Size, A: e.Allocated, B: uint64(e.Reserved)}
	defs, stack := r.stack(e.Stack)
	w.Stack = stack
	var call *format.WireCall
	if e.API != format.APITorch {
		w.A, w.B = e.Requested, e.Object
		call = &format.WireCall{Duration: e.Duration, CUctx: e.CUctx, Stream: e.Stream, Pool: e.Pool, Free: format.Unknown, Status: e.Status}
	}
	return lane.Event(&w, call, defs...)
}

// stack is a stack's key, with its definitions the first time.
func (r *replayer) stack(id format.StackID) ([]ring.Definition, uint64) {
	if id == 0 {
		return nil, 0
	}
	if d, ok := r.stacks[id]; ok {
		return d[len(d)-1:], d[len(d)-1].Key
	}
	ids, _ := r.stream.defs.Walk(id, nil)
	var defs []ring.Definition
	var frames []format.WireFrame
	for i := len(ids) - 1; i >= 0; i-- { // innermost first
		code, ok := r.codes[ids[i]]
		if !ok {
			f, _ := r.stream.defs.Frame(ids[i])
			code = ring.DefineCode(f.File, f.Function, f.Line, 0, nil)
			r.codes[ids[i]] = code
		}
		defs = append(defs, code)
		frames = append(frames, format.WireFrame{Code: code.Key, Kind: uint32(format.FramePython)})
	}
	defs = append(defs, ring.DefineStack(frames))
	r.stacks[id] = defs
	return defs, defs[len(defs)-1].Key
}

// startTime is field 22 of this process's stat.
func startTime() (uint64, error) {
	b, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return 0, err
	}
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if len(f) < 20 {
		return 0, errors.New("/proc/self/stat is short")
	}
	return strconv.ParseUint(f[19], 10, 64)
}
