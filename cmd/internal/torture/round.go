package main

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/recorder/ring"
)

// A round is one program recorded once, and what is done to it.
type round struct {
	t     *torture
	n     int
	kind  kind
	rng   *rand.Rand
	dir   string
	tally *tally

	output string // the trace
	status int    // with which the program leaves by itself
}

func (r *round) path(name string) string { return filepath.Join(r.dir, name) }

func (r *round) log() string { return r.path("ledger.log") }

// errSkip is a round that cannot be run here.
var errSkip = errors.New("skipped")

func (r *round) do() error {
	r.tally.rounds++
	r.output, r.status = r.path("t.gpurec"), r.rng.IntN(100)
	if err := os.MkdirAll(r.path("tmp"), 0o700); err != nil {
		return err
	}
	err := r.kind.run(r)
	switch {
	case errors.Is(err, errSkip):
		r.tally.skipped++
		err = nil
	case err != nil:
		r.tally.failures++
		return err
	}
	return errors.Join(os.RemoveAll(r.dir), os.RemoveAll(r.output))
}

// between draws a time.
func (r *round) between(a, b time.Duration) time.Duration {
	return a + time.Duration(r.rng.Int64N(int64(b-a)))
}

// A plan is how the program runs.
type plan struct {
	run   time.Duration
	forks int
	fast  bool     // calls take no time and the threads do not rest
	flags []string // of gpurec run
}

func (r *round) record(p plan) (*os.Process, error) {
	env := []string{"TMPDIR=" + r.path("tmp")}
	pause, calls := 400, 20_000
	if p.fast {
		pause, calls = 0, 60_000
	} else {
		env = append(env, fmt.Sprintf("GPUREC_SIM_FAIL=cuMemAlloc_v2+%d,cuMemFree_v2+%d", 1+r.rng.IntN(300), 1+r.rng.IntN(300)))
	}
	args := append([]string{r.t.gpurec, "run", "--simulate-gpu=1", "-o", r.output}, p.flags...)
	args = append(args, "--", r.t.ledger, "--log", r.log(), "--ms", fmt.Sprint(p.run.Milliseconds()), "--pause", fmt.Sprint(pause), "--calls", fmt.Sprint(calls),
		"--forks", fmt.Sprint(p.forks), "--status", fmt.Sprint(r.status), "--seed", fmt.Sprint(1+r.rng.Uint32()))
	return r.start(env, args...)
}

// lanes draws the flags that change how lanes are written and read.
func (r *round) lanes() (flags []string) {
	if r.rng.IntN(2) == 0 {
		flags = append(flags, "--lane-size", "256KiB")
	}
	if r.rng.IntN(2) == 0 {
		flags = append(flags, "--on-full", "wait")
	}
	if r.rng.IntN(3) == 0 {
		flags = append(flags, "--rotate-every", "50ms")
	}
	if r.rng.IntN(2) == 0 {
		flags = append(flags, "--sample-interval", "0")
	}
	return flags
}

// killProgram: SIGKILL at any moment from the ledger's first word on.
func (r *round) killProgram() error { return r.killed(plan{run: time.Hour, flags: r.lanes()}) }

func (r *round) killed(p plan) error {
	gpurec, err := r.record(p)
	if err != nil {
		return err
	}
	pid, err := r.begun(gpurec)
	if err != nil {
		return err
	}
	time.Sleep(r.between(0, 300*time.Millisecond))
	syscall.Kill(pid, syscall.SIGKILL)
	ends, err := collect(gpurec.Pid)
	if err != nil {
		return err
	}
	switch got := status(ends[gpurec.Pid]); got {
	case 137:
		return errors.Join(r.said("", ""), r.whole(137, true), r.nothingLeft())
	case r.status: // the machine gave this process no turn for so long
		r.tally.note("had made all its calls")
		return errors.Join(r.saidAll(), r.whole(r.status, false), r.nothingLeft())
	default:
		return fmt.Errorf("gpurec's status is %d, want 137", got)
	}
}

// begun waits for the ledger's first word, and returns the program's pid.
func (r *round) begun(gpurec *os.Process) (int, error) {
	if pid := awaitLedger(r.log(), patience); pid != 0 {
		return pid, nil
	}
	syscall.Kill(-gpurec.Pid, syscall.SIGKILL)
	_, err := collect(gpurec.Pid)
	return 0, errors.Join(errors.New("the program does not start"), err)
}

// said checks what the program wrote, to the byte. gpurec's own words, which tell
// of a failure, may stand behind it.
func (r *round) said(stdout, stderr string) error {
	out, err1 := os.ReadFile(r.path("stdout"))
	errs, err2 := os.ReadFile(r.path("stderr"))
	rest, ok := strings.CutPrefix(string(errs), stderr)
	for _, line := range strings.SplitAfter(rest, "\n") {
		ok = ok && (line == "" || r.kind.name == "disk" && strings.HasPrefix(line, "gpurec: "))
	}
	if err1 != nil || err2 != nil || string(out) != stdout || !ok {
		return fmt.Errorf("the program wrote %q and %q, want %q and %q", out, errs, stdout, stderr)
	}
	return nil
}

func (r *round) saidAll() error {
	return r.said("ledger of 4 threads is complete\n", fmt.Sprintf("ledger: leaves with status %d\n", r.status))
}

// whole checks a trace that gpurec has closed against the whole ledger.
func (r *round) whole(status int, killed bool) error {
	l, err := readLedger(r.log())
	if err != nil {
		return err
	}
	t, err := readTrace(r.output)
	if err != nil {
		return err
	}
	if t.meta.Ending != format.EndClosed || t.truncated || t.meta.Status == nil || *t.meta.Status != status {
		return fmt.Errorf("the trace says %q %q, status %v", t.meta.Ending, t.meta.Reason, t.meta.Status)
	}
	f, err := l.against(t, math.MaxInt64)
	if err != nil {
		return err
	}
	if !killed && f.flight > 0 {
		return fmt.Errorf("%d calls in flight in a program that ended by itself", f.flight)
	}
	r.add(f)
	if killed && f.done > 0 {
		if n := count(t, t.process(l.pid), format.ProcessEnd); n != 1 {
			return fmt.Errorf("the killed process ended %d times", n)
		}
	}
	for _, pid := range l.children {
		if id := t.process(pid); id == 0 || count(t, id, format.AllocFailed) != 1 || count(t, id, format.ProcessEnd) != 1 {
			return fmt.Errorf("the forked child %d has %d failed allocs and %d ends in the trace", pid, count(t, id, format.AllocFailed), count(t, id, format.ProcessEnd))
		}
	}
	return r.sound(r.output, f.lost > 0)
}

// sound lets gpuanalyze verify a trace and answer for its last moment.
func (r *round) sound(path string, partial bool) error {
	for _, args := range [][]string{{"verify", path}, {"lines", "--at", "end", path}} {
		code, out, err := r.analyze(args...)
		if err != nil {
			return err
		}
		if code == 1 || code == 0 && partial || code == 3 && !partial {
			return fmt.Errorf("gpuanalyze %s: status %d, and what is partial is %v\n%s", strings.Join(args, " "), code, partial, out)
		}
	}
	return nil
}

func count(t *trace, id format.ProcessID, k format.Kind) (n int) {
	for i := range t.rows {
		if t.rows[i].Process == id && t.rows[i].Kind == k {
			n++
		}
	}
	return n
}

func (r *round) add(f finding) {
	r.tally.calls += f.done
	r.tally.recorded += f.recorded
	r.tally.lost += int(f.lost)
	r.tally.inFlight += f.flight
	r.tally.unfinished += f.unfinished
	r.tally.taken += f.answered
}

// nothingLeft checks that gpurec took its socket and the simulated GPU's books away.
func (r *round) nothingLeft() error {
	left, err := filepath.Glob(r.path("tmp/*"))
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("left behind: %q", left)
	}
	return err
}

// killRecorder: SIGKILL of gpurec before, while or long after the program begins.
func (r *round) killRecorder() error {
	after := r.between(0, 400*time.Millisecond)
	early := r.rng.IntN(10) == 0
	switch {
	case early:
		after = r.between(0, 60*time.Millisecond)
	case r.rng.IntN(3) == 0:
		after = r.between(900*time.Millisecond, 1900*time.Millisecond)
	}
	run := after + r.between(50*time.Millisecond, 150*time.Millisecond)
	if r.rng.IntN(8) == 0 { // about when gpurec closes the trace
		run = max(after-r.between(0, 20*time.Millisecond), 0)
	}
	gpurec, err := r.record(plan{run: run, flags: r.lanes()})
	if err != nil {
		return err
	}
	if !early {
		if _, err := r.begun(gpurec); err != nil {
			return err
		}
	}
	w := newWatch(gpurec.Pid)
	time.Sleep(after)
	waited := w.end()
	died := ring.Now()
	if err := syscall.Kill(gpurec.Pid, syscall.SIGKILL); err != nil {
		return err
	}
	ends, err := collect(gpurec.Pid)
	if err != nil {
		return err
	}
	l, err := readLedger(r.log())
	if errors.Is(err, errEarly) {
		r.tally.note("killed before the program began")
		return nil // the command was not there: nothing is owed
	} else if err != nil {
		return err
	}
	if err := r.saidAll(); err != nil {
		return err
	}
	end, orphan := ends[int(l.pid)] // else gpurec saw the program's end
	switch own := status(ends[gpurec.Pid]); {
	case orphan && status(end) != r.status:
		return fmt.Errorf("the program's status is %d, want %d", status(end), r.status)
	case orphan:
		r.tally.note("killed while the program ran")
	case own == r.status:
		r.tally.note("had ended by itself")
		return errors.Join(r.whole(r.status, false), r.nothingLeft())
	case own != 137:
		return fmt.Errorf("gpurec's status is %d, want %d or 137", own, r.status)
	default:
		r.tally.note("killed while it closed the trace")
		if t, err := readTrace(r.output); err == nil && t.meta.Ending == format.EndClosed {
			return errors.Join(r.whole(r.status, false), r.swept())
		}
	}
	return errors.Join(r.survived(l, died, waited), r.swept())
}

// survived checks the trace of a recorder that was killed: all but the last
// second is there, a second in which it got a core whenever it asked for one, and
// repair closes it with the very same rows.
func (r *round) survived(l *ledger, died format.Time, waited time.Duration) error {
	t, err := readTrace(r.output)
	if err != nil {
		return err
	}
	if t.meta.Ending != format.EndGrowing {
		return fmt.Errorf("the trace says %q", t.meta.Ending)
	}
	f, err := l.against(t, died-format.Time(time.Second))
	if err != nil && waited > 0 {
		r.tally.note("more than a second was missing; gpurec waited for a core meanwhile")
		f, err = l.against(t, died-format.Time(time.Second+waited))
	}
	if err != nil {
		return fmt.Errorf("%w; it waited %v for a core", err, waited)
	}
	if f.flight > 0 {
		return fmt.Errorf("%d calls in flight in a program that ended by itself", f.flight)
	}
	r.add(f)
	if f.oldest > 0 && f.oldest < died {
		r.tally.behind = max(r.tally.behind, time.Duration(died-f.oldest))
	}
	long := time.Now().Add(-time.Minute) // repair leaves alone what has just changed
	err = filepath.Walk(r.output, func(path string, _ os.FileInfo, err error) error {
		return errors.Join(err, os.Chtimes(path, long, long))
	})
	if err != nil {
		return err
	}
	closed := r.path("closed.gpurec")
	if code, out, err := r.analyze("repair", r.output, "-o", closed); err != nil || code != 0 {
		return errors.Join(err, fmt.Errorf("repair: status %d\n%s", code, out))
	}
	again, err := readTrace(closed)
	if err != nil {
		return err
	}
	if again.meta.Ending != format.EndRepaired || again.truncated || !slices.Equal(again.rows, t.rows) {
		return fmt.Errorf("repaired: %q, truncated %v, %d rows of %d", again.meta.Ending, again.truncated, len(again.rows), len(t.rows))
	}
	return errors.Join(r.sound(r.output, true), r.sound(closed, true))
}

// swept lets the next gpurec clear up, as it does, behind one that was killed.
func (r *round) swept() error {
	if r.rng.IntN(8) != 0 {
		return nil
	}
	next, err := r.start([]string{"TMPDIR=" + r.path("tmp")}, r.t.gpurec, "run", "--simulate-gpu=1", "-o", r.path("next.gpurec"), "--", "true")
	if err != nil {
		return err
	}
	ends, err := collect(next.Pid)
	if err == nil && status(ends[next.Pid]) != 0 {
		err = fmt.Errorf("the next gpurec: status %d", status(ends[next.Pid]))
	}
	return errors.Join(err, r.nothingLeft())
}

// fillDisk: the trace's disk has room for a part of it only.
func (r *round) fillDisk() error {
	if r.t.disk == "" {
		return errSkip
	}
	var fs syscall.Statfs_t
	if err := syscall.Statfs(r.t.disk, &fs); err != nil {
		return err
	}
	room := int64(4096 + r.rng.IntN(600_000))
	filler := filepath.Join(r.t.disk, "filler")
	if err := os.WriteFile(filler, make([]byte, max(int64(fs.Bavail)*fs.Bsize-room, 0)), 0o600); err != nil {
		return err
	}
	defer os.Remove(filler)
	r.output = filepath.Join(r.t.disk, fmt.Sprintf("t%d.gpurec", r.n))
	gpurec, err := r.record(plan{run: r.between(50*time.Millisecond, 400*time.Millisecond), fast: true, flags: r.lanes()})
	if err != nil {
		return err
	}
	ends, err := collect(gpurec.Pid)
	if err != nil {
		return err
	}
	got := status(ends[gpurec.Pid])
	l, err := readLedger(r.log())
	if errors.Is(err, errEarly) && got == 125 {
		r.tally.note("no room to begin: status 125, nothing was started")
		return r.nothingLeft()
	} else if err != nil {
		return err
	}
	if got != r.status {
		return fmt.Errorf("status %d, want %d", got, r.status)
	}
	if err := errors.Join(r.saidAll(), r.nothingLeft()); err != nil {
		return err
	}
	t, err := readTrace(r.output)
	if err != nil {
		return err
	}
	if t.meta.Ending == format.EndClosed {
		r.tally.note("there was room for all")
		return r.whole(r.status, false)
	}
	failed := t.meta.Ending == format.EndFailed && strings.Contains(t.meta.Reason, "no space")
	if words, _ := os.ReadFile(r.path("stderr")); !failed && !strings.Contains(string(words), "no space") { // there may be none even for the reason
		return fmt.Errorf("the trace says %q %q, gpurec %q", t.meta.Ending, t.meta.Reason, words)
	}
	r.tally.note("the disk filled up")
	f, err := l.against(t, 0)
	if err != nil {
		return err
	}
	r.add(f)
	return r.sound(r.output, true)
}

// forks: a program that forks while its threads run; half of them are killed.
func (r *round) forks() error {
	forks := 1 + r.rng.IntN(40)
	if r.rng.IntN(2) == 0 {
		return r.killed(plan{run: time.Hour, forks: forks, flags: r.lanes()})
	}
	return r.ends(plan{run: r.between(20*time.Millisecond, 300*time.Millisecond), forks: forks, flags: r.lanes()}, nil)
}

// freeze: gpurec is stopped and goes on, a few times.
func (r *round) freeze() error {
	return r.ends(plan{run: r.between(100*time.Millisecond, 500*time.Millisecond), fast: r.rng.IntN(2) == 0, flags: r.lanes()}, func(gpurec int) {
		for range 1 + r.rng.IntN(3) {
			time.Sleep(r.between(0, 80*time.Millisecond))
			syscall.Kill(gpurec, syscall.SIGSTOP)
			time.Sleep(r.between(0, 200*time.Millisecond))
			syscall.Kill(gpurec, syscall.SIGCONT)
		}
	})
}

// ends records a program that ends by itself.
func (r *round) ends(p plan, meanwhile func(gpurec int)) error {
	gpurec, err := r.record(p)
	if err != nil {
		return err
	}
	if meanwhile != nil {
		meanwhile(gpurec.Pid)
	}
	ends, err := collect(gpurec.Pid)
	if err != nil {
		return err
	}
	if got := status(ends[gpurec.Pid]); got != r.status {
		return fmt.Errorf("status %d, want %d", got, r.status)
	}
	return errors.Join(r.saidAll(), r.whole(r.status, false), r.nothingLeft())
}
