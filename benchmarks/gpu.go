package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A process is recorded or not from its start to its end, and starting one with
// PyTorch takes seconds in which a machine changes. So the workers of a table,
// bare and recorded, are started together and stay, each asleep in a read until
// it gets its turn of a fraction of a second; contenders alternate A B A B, every
// second round in the reverse order. gpurec itself is stopped by a signal while
// it is not its worker's turn, or its sampler would be part of the bare turns.
// What differs between two processes by chance (addresses, what shares a page)
// is met by replicas: new pairs of processes, printed as comments one by one.

// A worker is a program that answers one line at a time, see gpu/worker.py.
type worker struct {
	cmd      *exec.Cmd
	in       io.WriteCloser
	out      *bufio.Reader
	recorded bool
	trace    string
}

// start starts a worker, under gpurec with these flags unless they are nil. It
// is ready when ready returns.
func (s *suite) start(name string, flags []string, script string, args ...string) (*worker, error) {
	w := &worker{recorded: flags != nil}
	program := append([]string{"python3", filepath.Join(s.root, "benchmarks", "gpu", script)}, args...)
	if w.recorded {
		w.trace = s.fresh(name + ".gpurec")
		program = append(append([]string{filepath.Join(s.bin, "gpurec"), "run", "-q", "-o", w.trace}, append(flags, "--")...), program...)
	}
	w.cmd = exec.Command(program[0], program[1:]...)
	w.cmd.Stderr = os.Stderr
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if w.in, err = w.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	w.out = bufio.NewReader(out)
	return w, w.cmd.Start()
}

func (w *worker) ready() error {
	for {
		line, err := w.out.ReadString('\n')
		if err != nil {
			return fmt.Errorf("%s ended before it was ready: %w", w.cmd.Args[0], err)
		}
		if strings.TrimSpace(line) == "ready" {
			return w.stop()
		}
	}
}

// stop and wake are gpurec's sleep while others have their turn.
func (w *worker) stop() error {
	if !w.recorded {
		return nil
	}
	time.Sleep(30 * time.Millisecond) // it takes what is left in the lanes
	return w.cmd.Process.Signal(syscall.SIGSTOP)
}

func (w *worker) wake() error {
	if !w.recorded {
		return nil
	}
	err := w.cmd.Process.Signal(syscall.SIGCONT)
	time.Sleep(30 * time.Millisecond)
	return err
}

// A refusal is a worker's answer that it cannot do that; it goes on with others.
type refusal struct{ text string }

func (r *refusal) Error() string { return r.text }

// ask gives the worker its turn.
func (w *worker) ask(words ...string) (float64, error) {
	if err := w.wake(); err != nil {
		return 0, err
	}
	if _, err := fmt.Fprintln(w.in, strings.Join(words, " ")); err != nil {
		return 0, err
	}
	line, err := w.out.ReadString('\n')
	if err != nil {
		return 0, fmt.Errorf("worker at %q: %w", strings.Join(words, " "), err)
	}
	if line = strings.TrimSpace(line); line == "ok" {
		return 0, w.stop()
	}
	v, err := strconv.ParseFloat(line, 64)
	if err != nil {
		w.stop()
		return 0, &refusal{fmt.Sprintf("worker at %q: %s", strings.Join(words, " "), line)}
	}
	return v, w.stop()
}

// end lets a worker end, and says what its trace lacks.
func (s *suite) end(w *worker) {
	if w == nil || w.cmd.Process == nil {
		return
	}
	w.wake()
	w.in.Close()
	done := make(chan struct{})
	go func() { w.cmd.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		w.cmd.Process.Kill()
		<-done
	}
	if w.recorded {
		s.account(w.trace)
		os.RemoveAll(w.trace)
	}
}

// A contender is a worker and what puts it into its state and out of it.
type contender struct {
	who         string
	worker      *worker
	before, off []string
	out         bool // it refused, and is asked no more
}

func (c *contender) turn(words ...string) (v float64, err error) {
	if c.before != nil {
		if _, err := c.worker.ask(c.before...); err != nil {
			return 0, err
		}
		defer func() {
			if _, e := c.worker.ask(c.off...); err == nil {
				err = e
			}
		}()
	}
	return c.worker.ask(words...)
}

// torchWorkers starts one replica's workers at once: bare, recorded, and if
// asked recorded without stacks. PyTorch's own history is switched in the bare one.
func (s *suite) torchWorkers(noStacks bool, script string, args ...string) (all []contender, end func(), err error) {
	starts := []struct {
		who   string
		flags []string
	}{{"bare", nil}, {ours, []string{}}}
	if noStacks {
		starts = append(starts, struct {
			who   string
			flags []string
		}{"gpurec-stacks-none", []string{"--stacks", "none"}})
	}
	end = func() {
		for i := range starts {
			if i < len(all) {
				s.end(all[i].worker)
			}
		}
	}
	for _, st := range starts {
		w, err := s.start(st.who, st.flags, script, args...)
		if err != nil {
			return all, end, err
		}
		all = append(all, contender{who: st.who, worker: w})
	}
	for i := range all {
		if err := all[i].worker.ready(); err != nil {
			return all, end, err
		}
	}
	for _, which := range []string{"python", "all"} {
		all = append(all, contender{who: "history-" + which, worker: all[0].worker, before: []string{"history", which}, off: []string{"history", "off"}})
	}
	return all, end, nil
}

// inTurns calls f for each contender, in the reverse order in odd rounds.
func (s *suite) inTurns(round int, all []contender, f func(c *contender) error) error {
	for i := range all {
		k := i
		if round%2 == 1 {
			k = len(all) - 1 - i
		}
		if all[k].out {
			continue
		}
		err := f(&all[k])
		if r := (*refusal)(nil); errors.As(err, &r) && all[k].who != "bare" {
			all[k].out = true
			s.sheet.add(all[k].who + " is left out: " + r.text)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// torchEvents is what an alloc or a free of PyTorch's caching allocator takes,
// and what recording adds to it: the difference from the bare turn of the same round.
func torchEvents(s *suite) error {
	library := s.compileTorch()
	bursts := "5"
	for range 3 {
		all, end, err := s.torchWorkers(true, "torch_events.py", library, filepath.Join(s.tools, "libburst.so"))
		if err == nil {
			err = s.torchReplica(all, library, bursts)
		}
		end()
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *suite) torchReplica(all []contender, library, bursts string) error {
	for i := range all { // lanes, caches; the recorder gets to know the process
		if c := &all[i]; c.before == nil {
			if _, err := c.turn("events", "40", "1"); err != nil {
				return err
			}
			c.worker.wake()
			time.Sleep(300 * time.Millisecond)
			c.worker.stop()
		}
	}
	frames := []string{"0", "5", "40"}
	if library == "-" {
		frames = frames[1:]
	}
	for round := range s.rounds(8) {
		for _, n := range frames {
			name := "TorchEvent/frames=" + n
			took := map[string]float64{}
			err := s.inTurns(round, all, func(c *contender) (err error) {
				if n == "0" && c.before != nil {
					return nil // a thread that Python does not know has no stack to keep
				}
				v, err := c.turn("events", n, bursts)
				if err == nil {
					took[c.who] = v
				}
				return err
			})
			if err != nil {
				return err
			}
			for _, c := range all {
				if v, ok := took[c.who]; ok {
					s.sheet.put(name, c.who, 1, v, "ns/op")
					if c.who != "bare" {
						s.sheet.put("TorchEventAdded/frames="+n, c.who, 1, v-took["bare"], "ns/op")
					}
				}
			}
			limits := []string{"store"}
			if n != "0" {
				limits = append(limits, "walk")
			}
			for _, limit := range limits {
				v, err := all[0].worker.ask("limit", limit, n, bursts)
				if r := (*refusal)(nil); errors.As(err, &r) {
					s.sheet.add(r.text)
					continue
				} else if err != nil {
					return err
				}
				s.sheet.put("TorchEventAdded/frames="+n, limit, 1, v, "ns/op")
			}
		}
	}
	return nil
}

// compileTorch compiles gpu/torch.cpp against the PyTorch at hand; "-" where
// that cannot be done.
func (s *suite) compileTorch() string {
	const ask = `import os, torch
from torch.utils import cpp_extension as c
print(" ".join(["-I" + p for p in c.include_paths(device_type="cuda")] + ["-L" + p for p in c.library_paths(device_type="cuda")] +
 ["-Wl,-rpath," + os.path.join(os.path.dirname(torch.__file__), "lib"), "-D_GLIBCXX_USE_CXX11_ABI=%d" % torch._C._GLIBCXX_USE_CXX11_ABI]))`
	flags, err := exec.Command("python3", "-c", ask).CombinedOutput()
	if err == nil {
		to := filepath.Join(s.work, "libtorchburst.so")
		for _, std := range []string{"c++ -std=c++20", "g++ -std=c++20", "g++ -std=c++17"} {
			compiler, std, _ := strings.Cut(std, " ")
			args := []string{std, "-O2", "-shared", "-fPIC", "-w", "-o", to, filepath.Join(s.root, "benchmarks", "gpu", "torch.cpp")}
			args = append(append(args, strings.Fields(string(flags))...), "-lc10", "-lc10_cuda", "-pthread")
			if flags, err = exec.Command(compiler, args...).CombinedOutput(); err == nil {
				return to
			}
		}
	}
	text := strings.Split(strings.TrimSpace(string(flags)), "\n")
	s.sheet.add(fmt.Sprintf("the allocator is called from Python, since torch.cpp does not compile here: %v: %s", err, text[len(text)-1]))
	return "-"
}

// torchStep is a whole training step, and its ratio to the bare one of the same
// round.
func torchStep(s *suite) error {
	for replica := range 3 {
		all, end, err := s.torchWorkers(false, "torch_step.py")
		if err == nil {
			err = s.stepReplica(replica, all)
		}
		end()
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *suite) stepReplica(replica int, all []contender) error {
	steps := map[string]string{"device-bound": "10", "host-bound": "20"}
	for _, size := range []string{"device-bound", "host-bound"} {
		n, err := all[0].worker.ask("allocations", size)
		if err != nil {
			return err
		}
		s.sheet.add(fmt.Sprintf("replica %d, %s: %.0f pool allocations a step", replica, size, n))
		var ratios []float64
		for round := range s.rounds(12) {
			took := map[string]float64{}
			err := s.inTurns(round, all, func(c *contender) (err error) {
				v, err := c.turn("steps", size, steps[size])
				if err == nil {
					took[c.who] = v
				}
				return err
			})
			if err != nil {
				return err
			}
			for _, c := range all {
				if v, ok := took[c.who]; ok {
					s.sheet.put("TorchStep/size="+size, c.who, 1, v, "ns/op")
					if c.who != "bare" {
						s.sheet.put("TorchStepRatio/size="+size, c.who, 1, v/took["bare"], "x-bare")
					}
				}
			}
			ratios = append(ratios, took[ours]/took["bare"])
		}
		m, lo, hi := interval(ratios)
		s.sheet.add(fmt.Sprintf("replica %d, %s: gpurec is %.4f x bare [%.4f, %.4f] in %d pairs", replica, size, m, lo, hi, len(ratios)))
	}
	return nil
}

// cupyEvents is a malloc with its free in CuPy's pool.
func cupyEvents(s *suite) error {
	for range 2 {
		if err := s.cupyReplica(); err != nil {
			return err
		}
	}
	return nil
}

func (s *suite) cupyReplica() error {
	bare, err := s.start("cupy-bare", nil, "cupy_events.py")
	if err != nil {
		return err
	}
	defer s.end(bare)
	mine, err := s.start("cupy", []string{}, "cupy_events.py")
	if err != nil {
		return err
	}
	defer s.end(mine)
	if err := bare.ready(); err != nil {
		return err
	}
	if err := mine.ready(); err != nil {
		return err
	}
	kinds := []struct {
		who  string
		hook string
		contender
	}{
		{"bare", "none", contender{worker: bare}},
		{ours, "none", contender{worker: mine}},
		{"empty-hook", "empty", contender{worker: bare}},
		{"LineProfileHook", "line", contender{worker: bare}},
		{ours + "-LineProfileHook", "ours", contender{worker: mine}},
	}
	for round := range s.rounds(10) {
		for _, frames := range []string{"5", "40"} {
			took := map[string]float64{}
			for i := range kinds {
				k := kinds[i]
				if round%2 == 1 {
					k = kinds[len(kinds)-1-i]
				}
				if took[k.who], err = k.turn("pairs", k.hook, frames, "3"); err != nil {
					return err
				}
			}
			for _, k := range kinds {
				s.sheet.put("CupyPair/frames="+frames, k.who, 1, took[k.who], "ns/op")
				if k.who != "bare" {
					s.sheet.put("CupyPairAdded/frames="+frames, k.who, 1, took[k.who]-took["bare"], "ns/op")
				}
			}
		}
	}
	return nil
}
