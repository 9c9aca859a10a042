package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// instructions is how many instructions an event takes, of a million and of ten
// million: a table that fills up, a search that gets longer, or anything
// else that grows with the trace would show, on the noisiest machine. valgrind
// counts; what the program takes besides its events is counted first and taken
// off. It hides the vDSO from the program, so that the clock's own read is not
// among them, in no contender.
//
// The recorder reads along, and lanes are large enough for a thread that is 50
// times slower than its usual self never to wait: waiting is instructions too.
func instructions(s *suite) error {
	if _, err := exec.LookPath("valgrind"); err != nil {
		s.sheet.add("skipped: there is no valgrind here to count them")
		return nil
	}
	few, many := 1_000_000, 10_000_000
	if s.quick {
		few, many = few/10, many/10
	}
	each := map[int]float64{}
	for _, who := range []string{"store", ours} {
		base, err := s.count(who, 1)
		if err != nil {
			return err
		}
		for _, n := range []int{few, many} {
			total, err := s.count(who, n)
			if err != nil {
				return err
			}
			each[n] = float64(total-base) / float64(n-1)
			s.sheet.put(fmt.Sprintf("Instructions/stack=none/events=%d", n), who, n, each[n], "instr/op")
		}
	}
	s.sheet.add(fmt.Sprintf("one of %d events takes %.3f times what one of %d takes", many, each[many]/each[few], few))
	return nil
}

// count is the instructions of count.c with n events, the program's start included.
func (s *suite) count(who string, n int) (int64, error) {
	log := s.fresh("valgrind.log")
	err := s.recorded([]string{"--stacks", "none", "--on-full", "wait", "--lane-size", "16MiB", "--sample-interval", "0"},
		"valgrind", "--tool=cachegrind", "--cache-sim=no", "--branch-sim=no", "--cachegrind-out-file=/dev/null", "--log-file="+log,
		filepath.Join(s.tools, "count"), who, strconv.Itoa(n))
	if err != nil {
		return 0, err
	}
	b, err := os.ReadFile(log)
	if err != nil {
		return 0, err
	}
	m := counted.FindSubmatch(b)
	if m == nil {
		return 0, fmt.Errorf("valgrind says nothing of instructions:\n%s", b)
	}
	return strconv.ParseInt(strings.ReplaceAll(string(m[1]), ",", ""), 10, 64)
}

var counted = regexp.MustCompile(`I\s+refs:\s+([0-9,]+)`)
