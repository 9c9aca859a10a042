package main

import (
	"errors"
	"flag"
	"fmt"
)

func init() { roles["write"] = writeLong }

// writeLong writes a trace of the training run, repeated, as long as wanted, for
// gpuanalyze to be measured on by hand: 100 million events take 276 MB and a
// quarter of a minute.
//
//	go run . write -root .. -events 100000000 /tmp/long.gpurec
func writeLong(args []string) error {
	f := flag.NewFlagSet("write", flag.ContinueOnError)
	root := f.String("root", ".", "the repository")
	events := f.Int("events", 100_000_000, "how many, at least")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() != 1 {
		return errors.New("want the trace to make")
	}
	s, err := openStream(*root)
	if err != nil {
		return err
	}
	n, err := s.write(f.Arg(0), *events)
	if err == nil {
		fmt.Println(n)
	}
	return err
}
