package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// commands is how long the commands take to start: gpurec run around true, and
// gpuanalyze's help, each beside true alone. Each trace has a name of its own and
// stays to the end: ext4 looks long for an inode where files were just removed,
// measured 8 of 21 ms, which is not how people record.
func commands(s *suite) error {
	for i := range s.rounds(40) {
		for _, c := range []struct {
			name, who string
			args      []string
		}{
			{"Run", "true", []string{"true"}},
			{"Run", ours, []string{filepath.Join(s.bin, "gpurec"), "run", "-q", "-o", s.fresh(fmt.Sprintf("run%d.gpurec", i)), "--", "true"}},
			{"Help", "true", []string{"true"}},
			{"Help", ours, []string{filepath.Join(s.bin, "gpuanalyze"), "--help"}},
		} {
			path, err := exec.LookPath(c.args[0])
			if err != nil {
				return err
			}
			took, err := measure(path, c.args[1:]...)
			if err != nil {
				return err
			}
			s.sheet.put("Start/command="+c.name, c.who, 1, float64(took.wall.Nanoseconds()), "ns/op", float64(took.cpu.Nanoseconds()), "cpu-ns/op")
		}
	}
	return nil
}

// sampler is what part of a core sampling takes at 100 Hz of 8 devices, of the
// simulated GPU: gpurec sample, and a bare loop that reads and throws away. On
// a GPU machine the real devices too, as many as there are. What a second more
// takes is what counts: the start is in the table of commands.
func sampler(s *suite) error {
	const short, long = 1, 4 // seconds
	library, done, err := s.simulated()
	if err != nil {
		return err
	}
	defer done()
	type of struct {
		name, library string
		devices       int
		flags         []string
	}
	kinds := []of{{"simulated", library, 8, []string{"--simulate-gpu=8"}}}
	if n := devices(); s.gpu && n > 0 {
		kinds = append(kinds, of{"nvml", "libnvidia-ml.so.1", n, nil})
	}
	gpurec, loop := filepath.Join(s.bin, "gpurec"), filepath.Join(s.tools, "nvmlloop")
	for range s.fewer(5) {
		for _, k := range kinds {
			name := fmt.Sprintf("Sampler/hertz=100/devices=%d/library=%s", k.devices, k.name)
			var cpu [2]time.Duration
			for i, seconds := range []int{short, long} {
				args := append([]string{"sample", "-q", "-o", s.fresh("sample.gpurec"), "--sample-interval", "10ms", "--duration", strconv.Itoa(seconds) + "s"}, k.flags...)
				c, err := measure(gpurec, args...)
				if err != nil {
					return err
				}
				cpu[i] = c.cpu
			}
			seconds := long - short
			readings := 100 * k.devices
			ours := func(d time.Duration) {
				s.sheet.put(name, ours, readings*seconds, 100*d.Seconds()/float64(seconds), "%core", float64(d.Nanoseconds())/float64(readings*seconds), "cpu-ns/reading")
			}
			ours(cpu[1] - cpu[0])
			c, err := measure(loop, k.library, strconv.Itoa(k.devices), "100", strconv.Itoa(seconds))
			if err != nil {
				return err
			}
			ns, err := strconv.ParseFloat(strings.TrimSpace(string(c.out)), 64)
			if err != nil {
				return fmt.Errorf("nvmlloop said %q", c.out)
			}
			s.sheet.put(name, "bare-loop", readings*seconds, ns/1e7/float64(seconds), "%core", ns/float64(readings*seconds), "cpu-ns/reading")
		}
	}
	return nil
}

// simulated is the simulated libnvidia-ml.so.1, with 8 devices for programs
// that are started until done is called.
func (s *suite) simulated() (library string, done func(), err error) {
	out, err := exec.Command(filepath.Join(s.bin, "gpurec"), "run", "-q", "-o", s.fresh("where.gpurec"), "--simulate-gpu=8", "--", "sh", "-c", `echo "$LD_LIBRARY_PATH"`).Output()
	if err != nil {
		return "", nil, fmt.Errorf("gpurec run --simulate-gpu: %w", err)
	}
	dir, _, _ := bytes.Cut(bytes.TrimSpace(out), []byte(":"))
	state := s.fresh("simulated-state")
	if err := os.WriteFile(state, nil, 0o600); err != nil {
		return "", nil, err
	}
	os.Setenv("GPUREC_SIM_STATE", state)
	os.Setenv("GPUREC_SIM_DEVICES", "8")
	return filepath.Join(string(dir), "libnvidia-ml.so.1"), func() { os.Unsetenv("GPUREC_SIM_STATE"); os.Unsetenv("GPUREC_SIM_DEVICES") }, nil
}

// devices is how many real ones there are.
func devices() int {
	out, err := exec.Command("nvidia-smi", "--list-gpus").Output()
	if err != nil {
		return 0
	}
	return bytes.Count(out, []byte("\n"))
}
