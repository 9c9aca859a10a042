package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// damage: a good trace is changed in a few places and read by every command.
func (r *round) damage() error {
	if err := r.ends(plan{run: r.between(20*time.Millisecond, 100*time.Millisecond), forks: r.rng.IntN(4), flags: r.lanes()}, nil); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(r.output, "*/*.arrow"))
	if err != nil || len(files) < 5 {
		return fmt.Errorf("%d files: %w", len(files), err)
	}
	files = append(files, filepath.Join(r.output, "trace.json"))
	for range 1 + r.rng.IntN(6) {
		if err := r.damageFile(files); err != nil {
			return err
		}
	}
	answers := [][]string{
		{"verify"}, {"summary"}, {"lines"}, {"lines", "--at", "peak"}, {"contexts"}, {"devices"}, {"peak"}, {"peak", "--by", "parts"}, {"leaks"}, {"oom"},
		{"fragmentation"}, {"timeline"}, {"stats"}, {"ranks"}, {"events"},
		{"report", "-o", r.path("r.html")}, {"export", "--to", "parquet", "-o", r.path("parquet")}, {"export", "--to", "perfetto", "-o", r.path("r.pftrace")},
		{"export", "--to", "pprof", "-o", r.path("r.pb.gz")}, {"slice", "-o", r.path("slice.gpurec")}, {"repair", "-o", r.path("repaired.gpurec")},
	}
	r.rng.Shuffle(len(answers), func(i, j int) { answers[i], answers[j] = answers[j], answers[i] })
	for _, args := range answers[:6] {
		code, _, err := r.analyze(append(args, r.output)...)
		if err != nil {
			return err
		}
		r.tally.note(fmt.Sprintf("answers with status %d", code))
	}
	return nil
}

// damageFile changes one file in one of the ways in which files are damaged.
func (r *round) damageFile(files []string) error {
	path := files[r.rng.IntN(len(files))]
	b, err := os.ReadFile(path)
	if err != nil || len(b) == 0 {
		return nil // deleted or emptied already
	}
	at := r.rng.IntN(len(b))
	span := b[at:min(at+1+r.rng.IntN(200), len(b))]
	switch r.rng.IntN(9) {
	case 0, 1:
		b[at] ^= 1 << r.rng.IntN(8)
	case 2:
		for i := range span {
			span[i] = byte(r.rng.Uint32())
		}
	case 3:
		clear(span)
	case 4:
		for i := range span {
			span[i] = 0xff
		}
	case 5:
		b = b[:at]
	case 6: // a block comes twice
		b = append(b[:at:at], append(append([]byte{}, span...), b[at:]...)...)
	case 7:
		other, err := os.ReadFile(files[r.rng.IntN(len(files))])
		if err != nil {
			return nil
		}
		b = other
	case 8:
		return os.Remove(path)
	}
	return os.WriteFile(path, b, 0o600)
}
