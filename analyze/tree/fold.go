package tree

import "github.com/gpurec/gpurec/format"

// longestCycle is how many lines call each other in turn and are still seen to.
const longestCycle = 4

// folded makes one of lines that a stack has again and again, one after another or
// several in turn, as a recursion's: f f f take is f take, and f g f g take is f g take.
// The frames are outermost first and in their own memory; turns, in that of buf, are
// how often each of those that stay was there. A stack of n frames takes n steps.
func folded(frames []format.Frame, buf []int) (kept []format.Frame, turns []int) {
	kept, turns = frames[:0], buf[:0]
	for _, f := range frames {
		kept, turns = append(kept, f), append(turns, 1)
		for n := 1; n <= longestCycle && 2*n <= len(kept); n++ {
			first, again := len(kept)-2*n, len(kept)-n
			if !same(kept[first:again], kept[again:]) {
				continue
			}
			for i := range n {
				turns[first+i] += turns[again+i]
			}
			kept, turns = kept[:again], turns[:again]
			break
		}
	}
	return kept, turns
}

func same(a, b []format.Frame) bool {
	for i := range a {
		if keyOf(&a[i]) != keyOf(&b[i]) {
			return false
		}
	}
	return true
}
