package recorder

import (
	"hash/maphash"
	"runtime"
	"strings"
	"sync"
	"unsafe"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/recorder/ring"
)

// A stackCache knows the definitions of the stacks that were seen, by their
// return addresses: code does not move in a Go program, so the addresses are
// the stack. It is emptied when it holds too many; the lane remembers for
// itself what has been sent.
type stackCache struct {
	mu    sync.RWMutex
	known map[uint64]cachedStack
	codes map[runtime.Frame]ring.Definition // shared by the stacks, for their size
}

const maxCachedStacks = 1 << 14

// cachedStack is a stack as definitions: its code objects, then itself.
type cachedStack struct {
	key         uint64
	definitions []ring.Definition
}

var pcSeed = maphash.MakeSeed()

// ours are the methods that a program calls to tell us something: frames of
// ours, and not of what happened, wherever they stand in a stack.
var ours = [...]string{
	"github.com/gpurec/gpurec/recorder.(*Hook).",
	"github.com/gpurec/gpurec/recorder.(*Scope).",
	"github.com/gpurec/gpurec/recorder.(*Recorder).",
	"github.com/gpurec/gpurec/recorder.(*stackCache).",
}

// show reports whether a function stands in stacks. What the runtime starts
// every goroutine with says nothing about the program.
func show(function string) bool {
	for _, p := range ours {
		if strings.HasPrefix(function, p) {
			return false
		}
	}
	return function != "" && function != "runtime.goexit" && function != "runtime.main"
}

// mostCallers is how far a stack is counted whose outer frames are left out.
const mostCallers = 1 << 16

// beyond is what is asked for more than is kept: the frames that are not shown, and
// one that says that there are others.
const beyond = 16

// caller is the stack of the program's own code at this moment. Of one that is
// deeper than what is kept all is walked at each event: how many frames are left
// out is a part of it.
func (c *stackCache) caller() cachedStack {
	var pcs [format.MaxFrames + beyond]uintptr
	n := runtime.Callers(2, pcs[:])
	if n == 0 {
		return cachedStack{}
	}
	var deep []uintptr
	for size := 8 * n; n >= max(len(pcs), len(deep)) && n < mostCallers; size *= 8 {
		deep = make([]uintptr, size)
		n = runtime.Callers(2, deep)
	}
	h := maphash.Bytes(pcSeed, unsafe.Slice((*byte)(unsafe.Pointer(&pcs)), min(n, len(pcs))*int(unsafe.Sizeof(pcs[0])))) ^ uint64(n)
	c.mu.RLock()
	s, ok := c.known[h]
	c.mu.RUnlock()
	if ok {
		return s
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil || len(c.known) >= maxCachedStacks {
		c.known = map[uint64]cachedStack{}
		c.codes = map[runtime.Frame]ring.Definition{}
	}
	if deep == nil {
		deep = append(deep, pcs[:n]...) // a copy, so that pcs stays off the heap
	}
	s = c.define(deep[:n])
	c.known[h] = s
	return s
}

// define resolves return addresses, functions inlined into others included.
func (c *stackCache) define(pcs []uintptr) cachedStack {
	var s cachedStack
	var wire []format.WireFrame
	frames := runtime.CallersFrames(pcs)
	for {
		f, more := frames.Next()
		if show(f.Function) {
			f = runtime.Frame{Function: f.Function, File: f.File, Line: f.Line}
			code, ok := c.codes[f]
			if !ok && len(wire) < format.MaxFrames {
				code = ring.DefineCode(f.File, f.Function, int32(f.Line), 0, nil)
				c.codes[f] = code
			}
			if len(wire) < format.MaxFrames {
				s.definitions = append(s.definitions, code)
			}
			wire = append(wire, format.WireFrame{Code: code.Key, Kind: uint32(format.FrameGo)})
		}
		if !more {
			break
		}
	}
	if len(wire) == 0 {
		return s
	}
	stack := ring.DefineStack(wire)
	s.key = stack.Key
	s.definitions = append(s.definitions, stack)
	return s
}
