package main

import (
	"errors"
	"fmt"
	"io"
	"math/bits"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/gpurec/gpurec/cuda"
	"github.com/gpurec/gpurec/format"
)

// environment gives every flag that was not typed the value of its variable. So a job script can switch recording's ways
// without touching the command line.
func environment(flags *pflag.FlagSet) error {
	var first error
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed || f.Name == "help" || first != nil {
			return
		}
		name := variable(f.Name)
		if v, ok := cuda.UserSetting(os.LookupEnv, name); ok && v != "" {
			if err := flags.Set(f.Name, v); err != nil {
				first = fmt.Errorf("%s=%q: %w", name, v, err)
			}
		}
	})
	return first
}

// usageStatus is the status of wrong usage: 2, but run's must not be mistaken for
// its command's.
func usageStatus(command string) int {
	if command == "run" {
		return failed
	}
	return 2
}

// helpWidth is the columns that the lines of flags in a help take at most.
const helpWidth = 100

// parse reads arguments; done with a status when there is nothing more to do.
func parse(flags *pflag.FlagSet, help string, stdout, stderr io.Writer, args []string) (status int, done bool) {
	flags.SetOutput(io.Discard)
	flags.SetInterspersed(false)
	flags.Usage = func() {}
	err := flags.Parse(args)
	if err == nil {
		err = takeDevices(flags, args)
	}
	if errors.Is(err, pflag.ErrHelp) {
		fmt.Fprint(stdout, help)
		fmt.Fprintf(stdout, "\nFlags (each also by environment, --on-full as GPUREC_ON_FULL):\n%s", flags.FlagUsagesWrapped(helpWidth))
		return 0, true
	}
	if err == nil {
		err = environment(flags)
	}
	if err == nil && flags.NArg() > 0 && flags.Name() == "demo" { // the others take some, or have more to say
		err = fmt.Errorf("%s takes no arguments, and there is %q", flags.Name(), flags.Arg(0))
	}
	if err != nil {
		fmt.Fprintf(stderr, "gpurec: %s; see gpurec %s --help\n", printable(err.Error()), flags.Name())
		return usageStatus(flags.Name()), true
	}
	return 0, false
}

// takeDevices gives --simulate-gpu the number that comes after it. Its value may be
// left out, so pflag takes one only after =, and 2 of "--simulate-gpu 2 -- true"
// would be the command.
func takeDevices(flags *pflag.FlagSet, args []string) error {
	rest := flags.Args()
	if before := len(args) - len(rest) - 1; len(rest) == 0 || before < 0 || args[before] != "--simulate-gpu" || !flags.Changed("simulate-gpu") {
		return nil
	}
	if _, err := strconv.Atoi(rest[0]); err != nil {
		return nil
	}
	if err := flags.Set("simulate-gpu", rest[0]); err != nil {
		return err
	}
	return flags.Parse(rest[1:])
}

// A size is a number of bytes as people write it: 4096, 64KiB, 1.5GiB, 2M.
type size int64

func (s *size) Set(text string) error {
	digits := strings.TrimRight(text, "BbKkMmGgTtIi ")
	unit := strings.ToLower(strings.TrimSpace(text[len(digits):]))
	shift, ok := map[string]int{"": 0, "b": 0, "k": 10, "kb": 10, "kib": 10, "m": 20, "mb": 20, "mib": 20,
		"g": 30, "gb": 30, "gib": 30, "t": 40, "tb": 40, "tib": 40}[unit]
	n, err := strconv.ParseFloat(digits, 64)
	if err != nil || !ok || !(n >= 0) || n*float64(int64(1)<<shift) > 1<<62 {
		return fmt.Errorf("%q is not a size; write bytes, or a number with KiB, MiB or GiB", text)
	}
	*s = size(n * float64(int64(1)<<shift))
	return nil
}

func (s *size) String() string {
	n := int64(*s)
	for _, u := range []struct {
		unit  string
		shift int
	}{{"GiB", 30}, {"MiB", 20}, {"KiB", 10}} {
		if n != 0 && n%(1<<u.shift) == 0 {
			return strconv.FormatInt(n>>u.shift, 10) + u.unit
		}
	}
	return strconv.FormatInt(n, 10)
}

func (s *size) Type() string { return "size" }

// minRetain holds a few parts, with all that is on its way to them.
const minRetain = 16 << 20

// A retention is a size or a time. 10m is a time: MiB are written 10M or 10MiB.
type retention struct{ format.Retention }

func (r *retention) Set(text string) error {
	r.Retention = format.Retention{}
	var err error
	if r.Time, err = time.ParseDuration(text); err == nil {
		return nil
	}
	var n size
	if n.Set(text) != nil {
		return fmt.Errorf("%q is neither a size like 2GiB nor a time like 30m", text)
	}
	r.Bytes = int64(n)
	return nil
}

func (r *retention) check() error {
	switch {
	case r.Bytes != 0 && r.Bytes < minRetain:
		return fmt.Errorf("--retain %s: want %d MiB or more", r.String(), minRetain>>20)
	case r.Time != 0 && r.Time < time.Second:
		return fmt.Errorf("--retain %s: want 1s or more", r.String())
	}
	return nil
}

func (r *retention) String() string {
	if r.Time != 0 {
		return r.Time.String()
	}
	n := size(r.Bytes)
	return n.String()
}

func (r *retention) Type() string { return "size|time" }

// powerOfTwo is the least one that is not smaller.
func powerOfTwo(n int64) int64 {
	if n <= 1 {
		return 1
	}
	return 1 << bits.Len64(uint64(n-1))
}

// A choice is one of a few words.
type choice struct {
	value string
	of    []string
}

func (c *choice) Set(text string) error {
	for _, o := range c.of {
		if o == text {
			c.value = text
			return nil
		}
	}
	return fmt.Errorf("%q is not one of %s", text, strings.Join(c.of, ", "))
}

func (c *choice) String() string { return c.value }
func (c *choice) Type() string   { return strings.Join(c.of, "|") }
