package recorder

import (
	"fmt"
	"math/rand"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/gpurec/gpurec/format"
)

// A climber takes memory from goroutines that call in many ways, and keeps what
// Go's runtime sees at the same moments.
type climber struct {
	hook *Hook
	mu   sync.Mutex
	saw  map[uint64]string
}

//go:noinline
func (c *climber) take() {
	var pcs [2000]uintptr
	c.mu.Lock()
	ptr := uint64(0x1000 * (len(c.saw) + 1))
	c.saw[ptr] = ""
	c.mu.Unlock()
	n := 0 // both calls are on one line, so that both stacks are the same
	func() { n = runtime.Callers(1, pcs[:]); c.hook.MallocPost(0, 512, 512, ptr, ptr) }()
	var saw []string
	for frames := runtime.CallersFrames(pcs[:n]); ; {
		f, more := frames.Next()
		if f.Function != "runtime.goexit" {
			saw = append(saw, fmt.Sprintf("%s:%d:%s", f.File, f.Line, f.Function))
		}
		if !more {
			break
		}
	}
	c.mu.Lock()
	c.saw[ptr] = strings.Join(saw, "\n")
	c.mu.Unlock()
}

func each[T any](of []T, f func(T)) {
	for _, t := range of {
		f(t)
	}
}

//go:noinline
func (c *climber) climb(dice *rand.Rand, left int) {
	if left == 0 {
		c.take()
		return
	}
	switch dice.Intn(4) {
	case 0:
		c.climb(dice, left-1)
	case 1:
		func() { c.climb(dice, left-1) }()
	case 2:
		each([]string{""}, func(string) { c.climb(dice, left-1) })
	case 3:
		defer c.climb(dice, left-1)
	}
}

// TestGoroutineStacks compares each stack of the Go API with what Go's runtime says
// itself, of a thousand events, and of goroutines deeper than what is kept: the
// innermost frames are, and how many others there were.
func TestGoroutineStacks(t *testing.T) {
	c := &climber{saw: map[uint64]string{}}
	trace := recordSelf(t, Options{}, func(r *Recorder) {
		c.hook = r.Hook()
		var all sync.WaitGroup
		for i := range 8 {
			all.Add(1)
			go func() {
				defer all.Done()
				dice := rand.New(rand.NewSource(int64(i)))
				for range 125 {
					c.climb(dice, dice.Intn(40))
				}
				for _, deep := range []int{490, 500, 505, 506, 507, 508, 509, 510, 511, 512, 520, 528, 700, 1500} {
					c.climb(rand.New(same{}), deep)
				}
			}()
		}
		all.Wait()
	})
	events, defs := read(t, trace)
	compared, cut := 0, 0
	for i := range events {
		e := &events[i]
		if e.Kind != format.Alloc {
			continue
		}
		ids, _ := defs.Walk(e.Stack, nil)
		want := strings.Split(c.saw[e.Address], "\n")
		var got []string
		for i := len(ids) - 1; i >= 0; i-- {
			f, _ := defs.Frame(ids[i])
			if f.Kind == format.FrameLabel {
				if f.Function != format.CutLabel(uint32(len(want)-format.MaxFrames)) || i != 0 || len(want) <= format.MaxFrames {
					t.Fatalf("%s at %d of %d frames, Go has %d", f.Function, i, len(ids), len(want))
				}
				cut++
				continue
			}
			got = append(got, f.String())
		}
		if len(ids) == len(got) && len(want) > format.MaxFrames {
			t.Fatalf("%d frames, Go has %d, and nothing says that some were left out", len(got), len(want))
		}
		if g, w := strings.Join(got, "\n"), strings.Join(want[:min(len(want), format.MaxFrames)], "\n"); g != w {
			t.Fatalf("%#x recorded as\n%s\nGo says\n%s", e.Address, g, w)
		}
		compared++
	}
	if compared != 8*(125+14) || cut < 8*3 {
		t.Errorf("%d stacks compared, of %d were outer frames left out", compared, cut)
	}
}

// same is a source of zeros.
type same struct{}

func (same) Int63() int64 { return 0 }
func (same) Seed(int64)   {}
