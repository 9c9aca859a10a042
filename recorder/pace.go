package recorder

import "time"

const (
	// paceLeast is the pause between two turns while a thread fills its lane
	// fast: a default lane takes 16,384 events, at 3 million a second 5 ms.
	paceLeast = time.Millisecond

	// paceMost is the longest pause while there are lanes. A default lane that was
	// calm is full before its end when the thread begins to make over 1.6 million
	// events a second: more than a loop that frees tensors, the fastest there is. At
	// 20 ms the recorder would take 0.13 % of a core less at 50,000 events a second.
	paceMost = 10 * time.Millisecond

	// paceAlone is the pause without lanes: the socket ends it, or Session.wake.
	paceAlone = 100 * time.Millisecond

	// A round is handed to fold when it has handBytes, or handEvery after the one
	// before: each hand-over wakes two more threads.
	handBytes = 256 << 10
	handEvery = 100 * time.Millisecond
)

// How full the fullest lane may be when the loop comes to it, in 64ths: from
// tooFull on the pause is cut so that at the same speed it would be at aim,
// below calm the pause grows by a quarter a turn.
const (
	tooFull = 64 / 8
	aim     = 64 / 16
	calm    = 64 / 16
)

// nextPause is the pause after one of length last, at whose end the fullest lane
// had so many 64ths and the turn took so long. A lane may begin to fill at any
// time, so a pause is cut at once and grows slowly.
func nextPause(last time.Duration, fullest int, took time.Duration) time.Duration {
	pause := last
	switch {
	case fullest >= tooFull:
		pause = last * aim / time.Duration(fullest)
	case fullest < calm:
		// Looking at many idle lanes must not cost a core, and a turn that took long
		// because this thread was not running must not make it worse.
		pause = max(last+last/4, 10*took)
	}
	return min(max(pause, paceLeast), paceMost)
}
