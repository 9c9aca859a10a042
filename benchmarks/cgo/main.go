// cgobench is native.c's benchmark in a Go program that calls C: the goroutine's
// frames count, the ones between Go and C too.
//
//	cgobench FRAMES ROUNDS
package main

// #cgo CFLAGS: -O2 -I${SRCDIR}/../c
// #include "burst.h"
import "C"

import (
	"fmt"
	"os"
	"strconv"
)

//go:noinline
func deeper(frames int, name *C.char, rounds C.int) int {
	if frames > 1 {
		return deeper(frames-1, name, rounds) + 1
	}
	who := C.CString("gns")
	C.burst_rounds(name, who, rounds, 12, 20000)
	return frames
}

func main() {
	frames, err := strconv.Atoi(os.Args[1])
	rounds, err2 := strconv.Atoi(os.Args[2])
	if err != nil || err2 != nil {
		os.Exit(2)
	}
	// Others are burst_gpurec, burst_time, burst_rounds, four between C and Go, main,
	// and two that start it.
	deeper(frames-10, C.CString(fmt.Sprintf("HookEvent/stack=native/program=Go/frames=%d", frames)), C.int(rounds))
}
