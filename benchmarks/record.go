package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow/go/v15/arrow"
	"github.com/apache/arrow/go/v15/arrow/ipc"

	"github.com/gpurec/gpurec/format"
)

// A replayed run: what gpurec took for it, without what the program itself took.
type replayed struct {
	cpu, wall time.Duration
	events    int
	bytes     int64 // of events.arrow
	trace     string
}

// runReplay records a replay with gpurec as users have it.
func (s *suite) runReplay(name string, flags ...string) (r replayed, err error) {
	self, err := os.Executable()
	if err != nil {
		return r, err
	}
	r.trace = s.fresh(name + ".gpurec")
	args := []string{"run", "-q", "--sample-interval", "0", "--on-full", "wait", "-o", r.trace, "--", self, "replay", "-root", s.root}
	c, err := measure(filepath.Join(s.bin, "gpurec"), append(args, flags...)...)
	if err != nil {
		return r, err
	}
	program, err := strconv.ParseInt(strings.TrimSpace(string(c.out)), 10, 64)
	if err != nil {
		return r, fmt.Errorf("replay said %q", c.out)
	}
	r.cpu, r.wall = c.cpu-time.Duration(program), c.wall
	t, err := format.Open(r.trace)
	if err != nil {
		return r, err
	}
	m := t.Meta()
	r.events = int(m.Stats.Events)
	if m.Stats.Lost > 0 || m.Stats.Unresolved > 0 {
		s.sheet.add(fmt.Sprintf("ATTENTION: %d events lost, %d stacks unresolved", m.Stats.Lost, m.Stats.Unresolved))
	}
	r.bytes, err = size(r.trace, "events.arrow")
	return r, err
}

// size is the bytes of a trace's files of one name, "" of all.
func size(trace, name string) (n int64, err error) {
	found, err := filepath.Glob(filepath.Join(trace, "[0-9]*", "*.arrow"))
	for _, path := range found {
		if name == "" || filepath.Base(path) == name {
			info, err := os.Stat(path)
			if err != nil {
				return 0, err
			}
			n += info.Size()
		}
	}
	return n, err
}

// record is the recorder: drained, ordered, interned, folded, compressed and on
// disk, in CPU time an event, against arrow's own writer with the same batches:
// the same columns and rows, zstd, into a file. What a recording of one event
// takes is taken off: start and end are in the table of commands.
func record(s *suite) error {
	events := 1_000_000
	if s.quick {
		events = 300_000
	}
	for range s.rounds(5) {
		base, err := s.replayCPU("record", 1)
		if err != nil {
			return err
		}
		r, err := s.runReplay("record", "-events", strconv.Itoa(events))
		if err != nil {
			return err
		}
		each := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / float64(r.events) }
		s.sheet.put("Record", ours, r.events, each(r.cpu-base), "cpu-ns/op", float64(r.bytes)/float64(r.events), "B/event")
		s.sheet.put("Record", "gpurec-with-start", r.events, each(r.cpu), "cpu-ns/op")
		cpu, bytes, err := s.rewrite(filepath.Join(r.trace, "00000", "events.arrow"))
		if err != nil {
			return err
		}
		s.sheet.put("Record", "arrow-zstd", r.events, each(cpu), "cpu-ns/op", float64(bytes)/float64(r.events), "B/event")
		os.RemoveAll(r.trace)
	}
	return nil
}

// replayCPU is the CPU time of a recording of so many events.
func (s *suite) replayCPU(name string, events int) (time.Duration, error) {
	r, err := s.runReplay(name, "-events", strconv.Itoa(events))
	os.RemoveAll(r.trace)
	return r.cpu, err
}

// flat is whether an event of a long recording takes the recorder longer than
// one of a short: a table that fills up or a list that gets longer would show.
// The live set and the stacks are the same ones again and again, so what is
// left to grow is what the recorder keeps. The first tenth of the short one, in
// which memory is taken for the first time, is taken off.
func flat(s *suite) error {
	few, many := 1_000_000, 10_000_000
	if s.quick {
		few, many = few/5, many/5
	}
	first := few / 10
	for range s.fewer(5) {
		base, err := s.replayCPU("flat", first)
		if err != nil {
			return err
		}
		for _, v := range []struct {
			who    string
			events int
		}{{ours, many}, {"gpurec-of-a-tenth", few}} {
			cpu, err := s.replayCPU("flat", v.events)
			if err != nil {
				return err
			}
			s.sheet.put(fmt.Sprintf("RecordFlat/events=%d", many), v.who, v.events-first, float64((cpu-base).Nanoseconds())/float64(v.events-first), "cpu-ns/op")
		}
	}
	return nil
}

// rewrite writes an events file's batches again with arrow's writer alone.
func (s *suite) rewrite(path string) (cpu time.Duration, bytes int64, err error) {
	schema, batches, err := readBatches(path)
	if err != nil {
		return 0, 0, err
	}
	to := s.fresh("arrow")
	begin := own()
	bytes, err = writeBatches(to, schema, batches)
	return own() - begin, bytes, err
}

func readBatches(path string) (*arrow.Schema, []arrow.Record, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	r, err := ipc.NewFileReader(f)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	defer r.Close()
	var batches []arrow.Record
	for {
		b, err := r.Read()
		if errors.Is(err, io.EOF) {
			return r.Schema(), batches, nil
		}
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", path, err)
		}
		b.Retain()
		batches = append(batches, b)
	}
}

func writeBatches(path string, schema *arrow.Schema, batches []arrow.Record) (int64, error) {
	f, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	w, err := ipc.NewFileWriter(f, ipc.WithSchema(schema), ipc.WithZstd())
	if err != nil {
		return 0, err
	}
	for _, b := range batches {
		if err := w.Write(b); err != nil {
			return 0, err
		}
	}
	if err := w.Close(); err != nil {
		return 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// share is what part of a core gpurec takes at 50,000 events a second, and
// beside a program that lives as long and makes one event. What the seconds
// after the first take is what counts; start and end are in the table of commands.
func share(s *suite) error {
	const rate, short, long = 50_000, 1, 4
	for range s.fewer(5) {
		var busy, idle [2]time.Duration
		for i, seconds := range []int{short, long} {
			r, err := s.runReplay("share", "-events", strconv.Itoa(seconds*rate), "-rate", strconv.Itoa(rate))
			if err != nil {
				return err
			}
			busy[i] = r.cpu
			if seconds == long {
				cpu, _, err := s.rewrite(filepath.Join(r.trace, "00000", "events.arrow"))
				if err != nil {
					return err
				}
				s.sheet.put("RecordShare/events=50k", "arrow-zstd", r.events, 100*cpu.Seconds()/long, "%core")
			}
			os.RemoveAll(r.trace)
			r, err = s.runReplay("share", "-events", "1", "-idle", strconv.Itoa(seconds)+"s")
			if err != nil {
				return err
			}
			idle[i] = r.cpu
			os.RemoveAll(r.trace)
		}
		for _, v := range []struct {
			who string
			cpu [2]time.Duration
		}{{ours, busy}, {"gpurec-idle", idle}} {
			s.sheet.put("RecordShare/events=50k", v.who, rate*(long-short), 100*(v.cpu[1]-v.cpu[0]).Seconds()/(long-short), "%core")
		}
	}
	return nil
}
