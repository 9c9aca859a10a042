package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/gpurec/gpurec/cuda"
	"github.com/gpurec/gpurec/format"
)

const variablePrefix = "GPUREC_"

// variable is the name by which the environment sets a flag: --on-full has
// GPUREC_ON_FULL.
func variable(flag string) string {
	return variablePrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// misspelled says which variables of an environment are none of gpurec's and
// nearly one of them, a sentence each.
func misspelled(environ []string) (said []string) {
	known := map[string]bool{format.EnvSocket: true, format.EnvHook: true, format.EnvNVTXChain: true, cuda.EnvOuter: true}
	for _, name := range []string{"STATE", "DEVICES", "MEMORY", "CONTEXT_BYTES", "FAIL", "NVML_FAIL"} {
		known[variablePrefix+"SIM_"+name] = true
	}
	for _, flags := range []*pflag.FlagSet{new(settings).flags("run"), new(sampleSettings).flags()} {
		flags.VisitAll(func(f *pflag.Flag) { known[variable(f.Name)] = true })
	}
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(strings.ToUpper(name), "GPU") || known[name] {
			continue
		}
		best, least := "", 3 // letters that differ
		for k := range known {
			if d := differing(strings.ToUpper(name), k); d < least || d == least && best != "" && k < best {
				best, least = k, d
			}
		}
		if best != "" {
			said = append(said, fmt.Sprintf("the environment has %s, which means nothing here; %s does", name, best))
		}
	}
	sort.Strings(said)
	return said
}

// differing is how many letters must be put in, left out or changed to make b of a.
func differing(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// cannotMake says what to do about a trace that could not be made at path.
func cannotMake(path string, err error) error {
	switch dir := filepath.Dir(filepath.Clean(path)); {
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("%w; nothing is overwritten: remove it, or name another with -o, where %%p (the process) and %%t (the time) make new names", err)
	case errors.Is(err, fs.ErrNotExist):
		if _, missing := os.Stat(dir); missing != nil {
			return fmt.Errorf("%w; make its directory first: mkdir -p %s", err, shellWord(dir))
		}
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS), errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w; name a place that can be written, with -o or %s", err, variable("output"))
	}
	return err
}
