// Command torture kills, fills, forks, freezes and damages at random and checks
// what a recording then owes. It runs rounds of some kind, each from a seed of
// its own, until its time is up or so many have run:
//
//	program  the traced program is killed: every call that it had written down
//	         as done is in the trace, in order, and the call that it was in is
//	         Unfinished or an event
//	gpurec   gpurec is killed: the program's output and status are what they are
//	         without it, the trace has all but the last second, repair closes it
//	disk     the disk of the trace fills up: the program is untouched, the trace
//	         holds what went before and says why it ends
//	fork     a program that forks is killed, or ends by itself
//	freeze   gpurec is stopped for a while: the program goes on, and what does not
//	         fit is counted
//	damage   bytes of a trace are changed, cut, zeroed, swapped: gpuanalyze says
//	         so or answers, and never crashes, hangs or takes memory without bound
//
//	main.go   flags, the loop, the table     round.go  a round of each kind
//	ledger.go the program's own books        books.go  the trace against them
//	child.go  processes and their ends       damage.go what is done to a trace
//
// The program is testdata/programs/ledger.c, on the simulated GPU. Each failure is
// printed with the command that repeats its round, and leaves the round's folder.
// Which thread runs when is not repeated: a rare fault may take several tries.
//
// It refuses to know how events are recorded: it starts the two commands as they
// are and reads traces with format.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A kind is one row of the table of rounds.
type kind struct {
	name   string
	weight int // of ten rounds of any kind
	run    func(*round) error
}

func kinds() []kind {
	return []kind{
		{"program", 3, (*round).killProgram},
		{"gpurec", 3, (*round).killRecorder},
		{"disk", 1, (*round).fillDisk},
		{"fork", 1, (*round).forks},
		{"freeze", 1, (*round).freeze},
		{"damage", 1, (*round).damage},
	}
}

// A tally is what the rounds of a kind came to.
type tally struct {
	rounds, failures, skipped int
	begunLate                 int // rounds over before there was a trace
	calls, recorded           int // that the program calls done; of these in the trace
	lost                      int // counted by the trace
	inFlight, unfinished      int // calls in which the program died; of these, Unfinished rows
	taken                     int // of these, events: the driver had answered
	behind                    time.Duration
	outcomes                  map[string]int
}

func (t *tally) note(outcome string) {
	if t.outcomes == nil {
		t.outcomes = map[string]int{}
	}
	t.outcomes[outcome]++
}

// A torture is one run of this command.
type torture struct {
	gpurec, gpuanalyze, ledger string
	dir                        string
	disk                       string // a small file system, "" where there is none
	noDisk                     error
	seed                       uint64
	tallies                    map[string]*tally
}

func main() {
	if err := run(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "torture:", err)
		os.Exit(1)
	}
}

func run(w io.Writer, args []string) (err error) {
	f := flag.NewFlagSet("torture", flag.ContinueOnError)
	duration := f.Duration("duration", time.Minute, "how long to go on")
	rounds := f.Int("rounds", 0, "stop after so many rounds, however long they take; 0: by time")
	only := f.Int("round", -1, "run this round alone")
	seed := f.Uint64("seed", 0, "of all that is random; 0: a new one")
	which := f.String("kinds", "", "of rounds, with commas between; all by default")
	bin := f.String("bin", "bin", "folder of gpurec and gpuanalyze")
	program := f.String("program", "testdata/programs/ledger.c", "the traced program's source")
	keep := f.String("dir", "", "folder to work in, kept; a temporary one by default")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano()) % 1_000_000
	}
	t := &torture{seed: *seed, tallies: map[string]*tally{}}
	if t.dir = *keep; t.dir == "" {
		if t.dir, err = os.MkdirTemp("", "torture-"); err != nil {
			return err
		}
		defer func() {
			if err == nil {
				os.RemoveAll(t.dir)
			}
		}()
	}
	if err := t.prepare(*bin, *program); err != nil {
		return err
	}
	defer t.unmount()
	chosen, err := choose(*which)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "torture: seed %d, in %s\n", t.seed, t.dir)
	if t.disk == "" {
		fmt.Fprintf(w, "torture: rounds of kind disk are skipped: %v\n", t.noDisk)
	}

	stop := make(chan os.Signal, 1) // ends with its round
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	start, said := time.Now(), time.Now()
	failures := 0
	more := func(n int) bool {
		switch {
		case len(stop) > 0:
			return false
		case *only >= 0:
			return n == *only
		case *rounds > 0:
			return n < *rounds
		}
		return time.Since(start) < *duration
	}
	n := max(*only, 0)
	for ; more(n) && failures < 20; n++ {
		r := t.newRound(n, chosen)
		if err := r.do(); err != nil {
			failures++
			fmt.Fprintf(w, "FAILED round %d (%s): %v\n  its folder: %s\n  again: make torture SEED=%d KINDS=%s ROUND=%d\n", n, r.kind.name, err, r.dir, t.seed, *which, n)
		}
		if time.Since(said) > 20*time.Second {
			said = time.Now()
			fmt.Fprintf(w, "torture: %d rounds, %d failures, %v\n", n+1, failures, time.Since(start).Round(time.Second))
		}
	}
	t.table(w)
	ran := 0
	for _, tl := range t.tallies {
		ran += tl.rounds
	}
	fmt.Fprintf(w, "torture: seed %d, %d rounds in %v, %d failed\n", t.seed, ran, time.Since(start).Round(time.Second), failures)
	switch {
	case failures > 0:
		return fmt.Errorf("%d rounds failed; what they left is in %s", failures, t.dir)
	case ran == 0:
		return errors.New("no round was run")
	}
	return t.enough()
}

// choose returns the kinds by name.
func choose(names string) (out []kind, err error) {
	if names == "" {
		return kinds(), nil
	}
	for _, name := range strings.Split(names, ",") {
		i := slices.IndexFunc(kinds(), func(k kind) bool { return k.name == name })
		if i < 0 {
			return nil, fmt.Errorf("no kind %q", name)
		}
		out = append(out, kinds()[i])
	}
	return out, nil
}

// newRound draws the kind and everything else of a round from the seed and the
// round's number alone.
func (t *torture) newRound(n int, chosen []kind) *round {
	rng := rand.New(rand.NewPCG(t.seed, uint64(n)))
	sum := 0
	for _, k := range chosen {
		sum += k.weight
	}
	at := rng.IntN(sum)
	r := &round{t: t, n: n, rng: rng, dir: filepath.Join(t.dir, fmt.Sprintf("round-%d", n))}
	for _, k := range chosen {
		if at -= k.weight; at < 0 {
			r.kind = k
			break
		}
	}
	r.tally = t.tallies[r.kind.name]
	if r.tally == nil {
		r.tally = &tally{}
		t.tallies[r.kind.name] = r.tally
	}
	return r
}

func (t *torture) table(w io.Writer) {
	fmt.Fprintf(w, "%-8s %7s %7s %9s %10s %6s %10s %11s %8s %12s\n", "kind", "rounds", "failed", "calls", "in trace", "lost", "in flight", "Unfinished", "as event", "last missing")
	for _, k := range kinds() {
		c := t.tallies[k.name]
		if c == nil {
			continue
		}
		behind := ""
		if c.behind > 0 {
			behind = c.behind.Round(time.Millisecond).String()
		}
		fmt.Fprintf(w, "%-8s %7d %7d %9d %10d %6d %10d %11d %8d %12s\n", k.name, c.rounds, c.failures, c.calls, c.recorded, c.lost, c.inFlight, c.unfinished, c.taken, behind)
		for _, o := range slices.Sorted(maps.Keys(c.outcomes)) {
			fmt.Fprintf(w, "         %7d %s\n", c.outcomes[o], o)
		}
	}
}

// enough refuses a run that cannot have seen what it looks for: a call takes
// hundreds of microseconds and what is around it a few, so nearly every thread
// dies within one.
func (t *torture) enough() error {
	if c := t.tallies["program"]; c != nil && c.inFlight >= 50 && c.unfinished < c.inFlight/2 {
		return fmt.Errorf("of %d calls in which a program died only %d are Unfinished", c.inFlight, c.unfinished)
	}
	return nil
}
