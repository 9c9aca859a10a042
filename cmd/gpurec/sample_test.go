package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpurec/gpurec/format"
)

func TestSampleUsage(t *testing.T) {
	for _, tc := range []struct {
		name   string
		args   []string
		status int
		words  string // on stderr, or on stdout with status 0
	}{
		{"help", []string{"--help"}, 0, "is the normal end"},
		{"a flag that is not there", []string{"--nonsense"}, 2, "--nonsense"},
		{"a command", []string{"python", "train.py"}, 2, "gpurec run -- python"},
		{"no interval", []string{"--sample-interval", "0"}, 2, "want 1ms or more"},
		{"interval too short", []string{"--sample-interval", "10us"}, 2, "want 1ms or more"},
		{"interval without unit", []string{"--sample-interval", "10"}, 2, "sample-interval"},
		{"negative duration", []string{"--duration", "-1s"}, 2, "--duration"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			status := sample(context.Background(), &stdout, &stderr, tc.args)
			out, other := &stderr, &stdout
			if tc.status == 0 {
				out, other = other, out
			}
			if status != tc.status || !strings.Contains(out.String(), tc.words) || other.Len() > 0 {
				t.Errorf("status %d\nstdout %q\nstderr %q", status, stdout.String(), stderr.String())
			}
		})
	}
}

// grown reports whether a growing trace has so many readings.
func grown(path string, n int) bool {
	trace, err := format.Open(path)
	if err != nil || len(trace.Parts()) == 0 {
		return false
	}
	r, err := trace.Parts()[0].Samples()
	if err != nil {
		return false
	}
	defer r.Close()
	got := 0
	for {
		rows, err := r.Next()
		got += len(rows)
		if err != nil {
			return got >= n
		}
	}
}

// samples reads a trace's readings.
func samples(t *testing.T, trace *format.Trace) (all []format.Sample) {
	t.Helper()
	for _, p := range trace.Parts() {
		r, err := p.Samples()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		for {
			rows, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, rows...)
		}
	}
	return all
}

// An interrupt and a duration are normal ends: a closed trace with a row of
// every device at least.
func TestSample(t *testing.T) {
	for _, tc := range []struct {
		name      string
		args      []string
		interrupt bool
		fail      string // GPUREC_SIM_NVML_FAIL
		status    int
		words     string
		inReason  string
	}{
		{name: "interrupted", interrupt: true},
		{name: "duration", args: []string{"--duration", "1s"}},
		{name: "every device is lost", fail: "12", status: 1, words: "no device answers any more; the history until then is in ", inReason: "NVML error 15"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Setenv("GPUREC_SIM_NVML_FAIL", tc.fail)
			t.Setenv("GPUREC_SIM_STATE", "")
			t.Setenv("GPUREC_SIM_DEVICES", "")
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			path := filepath.Join(t.TempDir(), "s.gpurec")
			if tc.interrupt {
				go func() { // once all three have a row on disk
					for ctx.Err() == nil && !grown(path, 3) {
						time.Sleep(20 * time.Millisecond)
					}
					cancel()
				}()
			}
			var stdout, stderr bytes.Buffer
			status := sample(ctx, &stdout, &stderr, append([]string{"-o", path, "--simulate-gpu=3", "--sample-interval", "1ms"}, tc.args...))
			if status != tc.status || stdout.Len() > 0 || !strings.Contains(stderr.String(), tc.words) {
				t.Fatalf("status %d\nstdout %q\nstderr %q", status, stdout.String(), stderr.String())
			}
			trace, err := format.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			m := trace.Meta()
			if m.Ending != format.EndClosed || !m.Simulated || m.NVML == "" || m.Driver == "" || m.End <= m.Monotonic || !strings.Contains(m.NoSamples, tc.inReason) {
				t.Errorf("trace.json says %+v", m)
			}
			defs := format.NewDefs()
			if err := trace.Parts()[0].LoadDefs(defs); err != nil {
				t.Fatal(err)
			}
			seen := map[format.Device]bool{}
			for _, s := range samples(t, trace) {
				seen[s.Device] = true
				if s.API != 2 || s.Total <= 0 || s.Used+s.Free+s.Reserved != s.Total || s.PeakUsed < s.Used || s.Process != 0 {
					t.Errorf("a reading says %+v", s)
				}
			}
			if len(defs.Devices()) != 3 || len(seen) != 3 {
				t.Errorf("%d devices, readings of %d; want 3", len(defs.Devices()), len(seen))
			}
		})
	}
}

// Without NVML there is nothing to sample: a sentence, status 1, no trace.
func TestSampleWithoutNVML(t *testing.T) {
	if library("libnvidia-ml.so.1") != "" {
		t.Skip("this machine has NVML")
	}
	path := filepath.Join(t.TempDir(), "s.gpurec")
	var stdout, stderr bytes.Buffer
	status := sample(context.Background(), &stdout, &stderr, []string{"-o", path, "--duration", "1ms"})
	if status != 1 || !strings.Contains(stderr.String(), "gpurec: nvml: load libnvidia-ml.so.1: ") {
		t.Errorf("status %d\nstderr %q", status, stderr.String())
	}
	if _, err := format.Open(path); err == nil {
		t.Error("there is a trace")
	}
}

// TestSampleRetain keeps the newest of a history: parts begin without any event,
// the oldest go, and what is left says since when.
func TestSampleRetain(t *testing.T) {
	dir := t.TempDir()
	c := gpurec(t, dir, "sample", "--simulate-gpu=1", "--sample-interval=2ms", "--duration=5s", "--retain=1s", "-o", "t.gpurec")
	c.Stderr = os.Stderr
	if status := does(t, c); status != 0 {
		t.Fatalf("status %d", status)
	}
	tr := read(t, dir+"/t.gpurec")
	m := tr.meta
	if m.Since <= m.Monotonic || len(tr.samples) == 0 {
		t.Fatalf("%d parts, since %d of %d, %d samples", m.Parts, m.Since, m.Monotonic, len(tr.samples))
	}
	if first := tr.samples[0].Time; first < m.Since-1e9 || m.End-m.Since < 1e9 {
		t.Errorf("the first sample is of %d, since %d, end %d", first, m.Since, m.End)
	}
}
