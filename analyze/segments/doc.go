// Package segments follows what pools got from the driver and what of it they
// have handed out: segments, the blocks in them, and the holes between. It is
// no answer; oom and fragmentation share it.
//
//	segments.go  Tracker, Pool: the sums of each pool, in step with the fold
//	mapped.go    segments made of mappings (VMM)
//	layout.go    Layout: blocks and holes of each segment at a moment
//	pins.go      Pins: which blocks keep how much from being given back
//
//	driver   |------- segment -------|      |-- segment --|
//	pool     |block|  hole  |block|hole|    |    hole     |
//	               pinned            pinned      whole
//
// A hole is pinned when its segment holds a block: its pool can neither give it
// back nor use it for what is larger. A whole segment can be given back.
//
// A driver allocation is a segment from its first block on, or when the hook
// saw that a pool asked for it. Blocks outside every segment (stream-ordered
// pools, whose reserve is not recorded) are in no number here. Which stream or
// private pool a hole belongs to is not recorded: what fits into it is an upper
// bound.
package segments
