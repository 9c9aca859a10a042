package main

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strconv"
)

// hookThreads is an event without a stack on 1 and on N threads: gpurec's, a
// bare store with a clock read in a ring of each thread's own, the same in one
// ring of all by fetch_add, and no hook at all.
func hookThreads(s *suite) error {
	counts := []int{1, runtime.NumCPU()}
	if runtime.NumCPU() >= 12 {
		counts = []int{1, 8} // four cores stay for the recorder
	}
	for turn := range 2 { // 1 N 1 N
		_ = turn
		for _, n := range counts {
			if err := s.recorded([]string{"--stacks", "none"}, filepath.Join(s.tools, "hookbench"), strconv.Itoa(n), strconv.Itoa(s.rounds(10))); err != nil {
				return err
			}
		}
	}
	return nil
}

// hookStacks is an event with a stack: of Python, against a walk that reads each
// frame's code and instruction and does nothing with them; and of native frames,
// of C against glibc's backtrace, and of Go that calls C, which that does not know.
// What none, python, native and both cost on the same frames is asked of the first
// Python, how each version is read of them all.
func hookStacks(s *suite) error {
	for i, p := range s.pythons() {
		python := func(stacks string, frames, rounds int) error {
			err := s.recorded([]string{"--stacks", stacks}, p[1], filepath.Join(s.scripts, "stack.py"), filepath.Join(s.tools, "libburst.so"), stacks, strconv.Itoa(frames), strconv.Itoa(rounds))
			if err != nil {
				return fmt.Errorf("python %s: %w", p[0], err)
			}
			return nil
		}
		for _, frames := range []int{5, 40} {
			if err := python("python", frames, s.rounds(10)); err != nil {
				return err
			}
		}
		for _, stacks := range []string{"none", "python", "native", "both"} {
			for _, frames := range []int{10, 30, 40} {
				if i > 0 || stacks == "python" && frames == 40 {
					continue
				}
				if err := python(stacks, frames, s.rounds(5)); err != nil {
					return err
				}
			}
		}
	}
	for _, frames := range []int{10, 30, 40} {
		for _, program := range []string{"nativebench", "cgobench"} {
			if err := s.recorded([]string{"--stacks", "native"}, filepath.Join(s.tools, program), strconv.Itoa(frames), strconv.Itoa(s.rounds(5))); err != nil {
				return err
			}
		}
	}
	return nil
}

// birth is a thread's first event.
func birth(s *suite) error {
	return s.recorded(nil, filepath.Join(s.tools, "birthbench"), strconv.Itoa(s.rounds(100)))
}
