package tree

import "slices"

// longestCycle is how many lines call each other in turn and are still seen to.
const longestCycle = 4

// folded makes one of lines that a stack has again and again, one after another or
// several in turn, as a recursion's: f f f take is f take, and f g f g take is f g take.
// The lines are outermost first and in their own memory; turns, in that of buf, are
// how often each of those that stay was there. A stack of n lines takes n steps.
func folded[T any](lines []T, buf []int, same func(a, b T) bool) (kept []T, turns []int) {
	kept, turns = lines[:0], buf[:0]
	for _, l := range lines {
		kept, turns = append(kept, l), append(turns, 1)
		for n := 1; n <= longestCycle && 2*n <= len(kept); n++ {
			first, again := len(kept)-2*n, len(kept)-n
			if !slices.EqualFunc(kept[first:again], kept[again:], same) {
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
