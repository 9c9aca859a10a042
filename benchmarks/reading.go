package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/apache/arrow/go/v15/arrow/ipc"
)

func init() { roles["decode"] = decode }

// reading is how fast, and in how much memory, gpuanalyze answers from five
// million events. The limit is arrow's reader that decompresses all columns of
// the same files and looks at none.
func reading(s *suite) error {
	events := 5_000_000
	if s.quick {
		events = 1_000_000
	}
	stream, err := openStream(s.root)
	if err != nil {
		return err
	}
	trace := s.fresh("reading.gpurec")
	n, err := stream.write(trace, events)
	if err != nil {
		return err
	}
	defer os.RemoveAll(trace)
	self, err := os.Executable()
	if err != nil {
		return err
	}
	analyze := filepath.Join(s.bin, "gpuanalyze")
	put := func(answer, who string, c cost) {
		s.sheet.put("Read/answer="+answer, who, n, float64(c.wall.Nanoseconds())/float64(n), "ns/op", float64(c.cpu.Nanoseconds())/float64(n), "cpu-ns/op", float64(c.rss)/(1<<20), "MiB")
	}
	for range s.rounds(5) {
		for _, answer := range []string{"lines", "lines --at peak", "contexts", "summary"} {
			c, err := s.metered(analyze, append(strings.Fields(answer), trace)...)
			if err != nil {
				return err
			}
			put(strings.NewReplacer(" --at ", "-").Replace(answer), ours, c)
			if c, err = s.metered(self, "decode", trace); err != nil {
				return err
			}
			if got, _ := strconv.Atoi(strings.TrimSpace(string(c.out))); got != n {
				return fmt.Errorf("decode read %d rows of %d", got, n)
			}
			put(strings.NewReplacer(" --at ", "-").Replace(answer), "arrow-decode", c)
		}
	}
	return nil
}

// decode reads every batch of a trace's events with arrow's reader and prints
// the number of rows.
func decode(args []string) error {
	if len(args) != 1 {
		return errors.New("one trace")
	}
	found, err := filepath.Glob(filepath.Join(args[0], "[0-9]*", "events.arrow"))
	if err != nil {
		return err
	}
	rows := int64(0)
	for _, path := range found {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		r, err := ipc.NewFileReader(f)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		for {
			b, err := r.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			rows += b.NumRows()
		}
		r.Close()
		f.Close()
	}
	fmt.Println(rows)
	return nil
}
