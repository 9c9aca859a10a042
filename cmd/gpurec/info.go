package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/gpurec/gpurec/cuda"
	"github.com/gpurec/gpurec/cuda/nvml"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/recorder"
)

const infoHelp = `gpurec info

Says what can be recorded on this machine, and what can't, with the reason.
`

func info(ctx context.Context, stdout, stderr io.Writer, args []string) int {
	flags := pflag.NewFlagSet("info", pflag.ContinueOnError)
	if status, done := parse(flags, infoHelp, stdout, stderr, args); done {
		return status
	}
	line := func(what, text string, a ...any) { fmt.Fprintf(stdout, "%-10s %s\n", what, fmt.Sprintf(text, a...)) }

	line("gpurec", "%s, wire and trace version %d", version(), format.Version)
	var kernel syscall.Utsname
	syscall.Uname(&kernel)
	line("kernel", "%s (4.18 or later is needed)", utsname(kernel.Release[:]))

	if hook, err := cuda.Hook("", newSpeaker(stderr).say); err != nil {
		line("hook", "no: %v", err)
	} else {
		line("hook", "%s", hook)
	}
	if err := tryLane(); err != nil {
		line("lanes", "no: %v", err)
	} else {
		line("lanes", "yes")
	}
	if path := library("libcuda.so.1"); path == "" {
		line("driver", "no: libcuda.so.1 is not known to the linker; gpurec run --simulate-gpu has one for tests")
	} else {
		line("driver", "%s", path)
	}
	lib, err := nvml.Open("")
	if err != nil {
		line("samples", "no: %v", err)
	} else {
		defer lib.Close()
		line("samples", "NVML %s, driver %s", lib.Version(), lib.Driver())
		for i, d := range lib.Devices() {
			m, err := lib.Memory(i)
			if err != nil {
				line(fmt.Sprintf("device %d", i), "%s %s: no memory readings: %v", d.Name, d.UUID, err)
				continue
			}
			line(fmt.Sprintf("device %d", i), "%s %s: %s, %s free", d.Name, d.UUID, format.Bytes(m.Total), format.Bytes(m.Free))
		}
	}
	if python, err := exec.LookPath("python3"); err != nil {
		line("python", "no python3 in PATH (programs with another one are recorded too)")
	} else {
		out, _ := exec.CommandContext(ctx, python, "-c", "import sys; print(sys.version.split()[0])").Output()
		line("python", "%s %s", python, strings.TrimSpace(string(out)))
	}
	for _, text := range misspelled(os.Environ()) {
		line("variables", "%s", text)
	}
	line("layers", "driver calls, PyTorch's allocator, NVTX ranges; CuPy's pool through the Python package")
	line("not yet", "memory of CUDA graphs, attaching to a running process, static programs")
	return 0
}

// tryLane makes a session and lets it go: socket, directory, memory.
func tryLane() error {
	dir, err := os.MkdirTemp("", "gpurec-info-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s, err := recorder.Start(recorder.Options{Output: filepath.Join(dir, "t.gpurec")})
	if err != nil {
		return err
	}
	_, err = s.Close(nil)
	return err
}

// library asks the linker's cache where a library is.
func library(name string) string {
	ldconfig, err := exec.LookPath("ldconfig")
	if err != nil {
		ldconfig = "/sbin/ldconfig"
	}
	out, _ := exec.Command(ldconfig, "-p").Output()
	for _, l := range strings.Split(string(out), "\n") {
		if f := strings.Fields(l); len(f) > 1 && f[0] == name {
			return f[len(f)-1]
		}
	}
	return ""
}

func utsname(b []int8) string {
	var s strings.Builder
	for _, c := range b {
		if c == 0 {
			break
		}
		s.WriteByte(byte(c))
	}
	return s.String()
}
