// gostacks takes memory through cgo from stacks of every shape and prints, for each
// allocation, its address and the frames above it, innermost first, as Go's runtime
// sees them at that moment.
//
// Usage: gostacks KIND...
//
//	random N     N allocations from random trees of calls, on 8 goroutines
//	panics       in deferred functions of a panic, and of a fault
//	locked       on a goroutine that keeps its thread
//	threads      in Go that C's own threads call
//	deep N       under N frames of recursion
//	stress TIME  allocations and frees on 64 goroutines, nothing printed but their number
package main

// #cgo LDFLAGS: -ldl -lpthread
// #cgo CFLAGS: -Wall
// #include "driver.h"
import "C"

import (
	"fmt"
	"math/rand"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A walk is one goroutine's way through the calls.
type walk struct {
	kind string
	dice *rand.Rand
	wait sync.WaitGroup
}

// Of what C calls back with there is a number alone.
var (
	walks sync.Map
	next  atomic.Uint64
)

var printing sync.Mutex

// point takes memory. Both calls are on one line, so that both stacks are the same.
//
//go:noinline
func (w *walk) point() {
	var pcs [2000]uintptr
	n, address := runtime.Callers(1, pcs[:]), C.take(256)
	if address == 0 {
		panic("there is no memory")
	}
	var line strings.Builder
	fmt.Fprintf(&line, "%s\t%d", w.kind, uint64(address))
	for frames := runtime.CallersFrames(pcs[:n]); ; {
		f, more := frames.Next()
		fmt.Fprintf(&line, "\t%s:%d:%s", f.File, f.Line, f.Function)
		if !more {
			break
		}
	}
	printing.Lock()
	defer printing.Unlock()
	fmt.Println(line.String())
}

// ---- shapes

type shape interface{ step(w *walk, left int) }

type (
	small struct{ a byte }
	large struct{ a [3000]byte }
)

func (s small) step(w *walk, left int) { w.any(left) } // by a pointer there is a function of the compiler's between

//go:noinline
func (l large) step(w *walk, left int) { // its frames make stacks grow
	l.a[left%len(l.a)]++
	w.any(left)
	l.a[left%len(l.a)]--
}

func generic[T any](w *walk, left int, t T) T { w.any(left); return t }

type list[T any] struct{ of []T }

func (l *list[T]) each(f func(T)) {
	for _, t := range l.of {
		f(t)
	}
}

func (l list[T]) all(yield func(int, T) bool) {
	for i, t := range l.of {
		if !yield(i, t) {
			return
		}
	}
}

func inlined(w *walk, left int)     { alsoInlined(w, left) }
func alsoInlined(w *walk, left int) { w.any(left) }

//go:noinline
func (w *walk) recurse(times, left int) {
	if times > 0 {
		w.recurse(times-1, left)
		return
	}
	w.any(left)
}

// any takes memory, or calls something that comes back here.
//
//go:noinline
func (w *walk) any(left int) {
	if left--; left < 0 {
		w.point()
		return
	}
	switch w.dice.Intn(14) {
	case 0:
		func() { w.any(left) }()
	case 1:
		inlined(w, left)
	case 2:
		shape(&small{}).step(w, left)
	case 3:
		shape(large{}).step(w, left)
	case 4:
		generic(w, left, 1)
	case 5:
		generic(w, left, "a")
	case 6:
		(&list[string]{[]string{"a"}}).each(func(string) { w.any(left) })
	case 7:
		for range (list[small]{make([]small, 1)}).all {
			w.any(left)
		}
	case 8:
		defer w.any(left)
	case 9:
		w.recurse(w.dice.Intn(20), left)
	case 10:
		w.wait.Add(1)
		go func() {
			defer w.wait.Done()
			(&walk{kind: w.kind, dice: rand.New(rand.NewSource(int64(left)))}).any(left)
		}()
		w.wait.Wait() // its dice are ours
		w.any(left)
	case 11:
		w.across(left, func(n C.uint64_t) { C.back(n) })
	case 12:
		w.across(left, func(n C.uint64_t) { C.crowded(n) })
	case 13:
		w.waste()
		w.any(left)
	}
}

// waste gives the collector something to do, at which stacks are copied and shrunk.
func (w *walk) waste() {
	b := make([][]byte, 64)
	for i := range b {
		b[i] = make([]byte, 1<<w.dice.Intn(12))
	}
	runtime.Gosched()
}

// across calls C, which calls Go.
func (w *walk) across(left int, c func(C.uint64_t)) {
	n := next.Add(1)
	walks.Store(n, func() { w.grow(w.dice.Intn(30)); w.any(left) })
	defer walks.Delete(n)
	c(C.uint64_t(n))
}

// grow uses the stack, which may have to move for it.
//
//go:noinline
func (w *walk) grow(times int) (sum byte) {
	var room [1000]byte
	room[times] = 1
	if times > 0 {
		sum = w.grow(times - 1)
	}
	return sum + room[times]
}

//export called
func called(what C.uint64_t) {
	f, _ := walks.Load(uint64(what))
	f.(func())()
}

// ---- kinds

func random(n int) {
	var all sync.WaitGroup
	var left atomic.Int64
	left.Store(int64(n))
	for i := range 8 {
		all.Add(1)
		go func() {
			defer all.Done()
			w := &walk{kind: "random", dice: rand.New(rand.NewSource(int64(i)))}
			for left.Add(-1) >= 0 {
				w.any(w.dice.Intn(12))
			}
		}()
	}
	all.Wait()
}

func panics() {
	var nowhere *large
	w := &walk{kind: "panics"} // grow keeps what fails from being a leaf, which has no frame
	for _, fail := range []func(){func() { panic(1) }, func() { nowhere.a[w.grow(1)] = 1 }, func() { w.kind = w.kind[:100/(w.grow(1)-2)] }} {
		func() {
			defer func() {
				w.point()
				recover()
			}()
			fail()
		}()
	}
}

func locked() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		(&walk{kind: "locked"}).point()
	}()
	<-done
}

func threads() {
	for range 20 {
		w := &walk{kind: "threads", dice: rand.New(rand.NewSource(1))}
		w.across(5, func(n C.uint64_t) { C.elsewhere(n) })
	}
}

func stress(last time.Duration) {
	var all sync.WaitGroup
	var count atomic.Int64
	end := time.Now().Add(last)
	for i := range 64 {
		all.Add(1)
		go func() {
			defer all.Done()
			w := &walk{kind: "stress", dice: rand.New(rand.NewSource(int64(i)))}
			var once func(left int)
			once = func(left int) {
				switch {
				case left <= 0:
					C.give(C.take(4096))
					count.Add(1)
				case left%5 == 0:
					n := next.Add(1)
					walks.Store(n, func() { w.grow(w.dice.Intn(60)); once(left - 1) })
					C.back(C.uint64_t(n))
					walks.Delete(n)
				case left%7 == 0:
					w.waste()
					once(left - 1)
				default:
					once(left - 1)
				}
			}
			for time.Now().Before(end) {
				done := make(chan struct{})
				go func() { defer close(done); once(w.dice.Intn(50)) }()
				<-done
			}
		}()
	}
	all.Wait()
	fmt.Println(count.Load(), "allocations")
}

//export run
func run(kinds *C.char) {
	words := strings.Fields(C.GoString(kinds))
	if C.open_driver() != 0 {
		fmt.Fprintln(os.Stderr, "there is no driver")
		os.Exit(1)
	}
	number := func() int {
		n, err := strconv.Atoi(words[1])
		if err != nil {
			panic(err)
		}
		words = words[1:]
		return n
	}
	for ; len(words) > 0; words = words[1:] {
		switch words[0] {
		case "random":
			random(number())
		case "panics":
			panics()
		case "locked":
			locked()
		case "threads":
			threads()
		case "deep":
			w := &walk{kind: "deep"}
			w.recurse(number(), 0)
		case "stress":
			last, err := time.ParseDuration(words[1])
			if err != nil {
				panic(err)
			}
			words = words[1:]
			stress(last)
		default:
			panic(words[0])
		}
	}
}

func main() { run(C.CString(strings.Join(os.Args[1:], " "))) }
