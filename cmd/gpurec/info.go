package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/gpurec/gpurec/cuda"
	"github.com/gpurec/gpurec/cuda/nvml"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/recorder"
	"github.com/gpurec/gpurec/recorder/ring"
)

const infoHelp = `gpurec info [flags] [COMMAND [ARG…]]

Says what can be recorded on this machine, and what can't, with the reason and
what to do; with a COMMAND also whether the hook gets into it: not into programs
that are statically linked, setuid, of musl or of 32 bits, nor into what docker or
ssh have started elsewhere. Nothing is run but each Python on PATH, and a COMMAND that
is one, for its version.

Exit: 0; 1 where COMMAND is not there or cannot be recorded; 2 usage.

Examples:
  gpurec info
  gpurec info python train.py
  gpurec info --json | jq '.rows[] | select(.state == "no")'
`

// A finding is one row of what info says.
type finding struct {
	What   string `json:"what"`
	State  string `json:"state"` // yes, no, partly
	Detail string `json:"detail"`
	Remedy string `json:"remedy,omitempty"`
}

// An inspection is all of it.
type inspection struct {
	Version string    `json:"version"`
	Format  int       `json:"format"`
	Rows    []finding `json:"rows"`
}

func (i *inspection) add(what, state, detail, remedy string) {
	i.Rows = append(i.Rows, finding{what, state, printable(detail), printable(remedy)})
}

func info(ctx context.Context, stdout, stderr io.Writer, args []string) int {
	flags := pflag.NewFlagSet("info", pflag.ContinueOnError)
	asJSON := flags.Bool("json", false, "print one JSON object")
	if status, done := parse(flags, infoHelp, stdout, stderr, args); done {
		return status
	}
	i := &inspection{Version: version(), Format: format.Version}
	i.machine(newSpeaker(stderr).say)
	i.gpus()
	i.pythons(ctx, flags.Arg(0))
	i.surroundings(os.LookupEnv)
	i.add("layers", "yes", "driver calls, PyTorch's allocator, NVTX ranges; CuPy's pool through the Python package", "")
	i.add("attaching", "no", "a process that runs already is not recorded", "start it with gpurec run")
	status := 0
	if flags.NArg() > 0 && !i.command(flags.Arg(0)) {
		status = 1
	}
	if *asJSON {
		out := json.NewEncoder(stdout)
		out.SetEscapeHTML(false)
		out.SetIndent("", "  ")
		out.Encode(i)
		return status
	}
	fmt.Fprintf(stdout, "%-10s %s, wire and trace version %d\n", "gpurec", i.Version, i.Format)
	for _, r := range i.Rows {
		fmt.Fprintf(stdout, "%-10s %-6s %s\n", r.What, r.State, r.Detail)
		if r.Remedy != "" {
			fmt.Fprintf(stdout, "%-10s %-6s → %s\n", "", "", r.Remedy)
		}
	}
	return status
}

// machine is what a recording needs of the system.
func (i *inspection) machine(say func(string)) {
	var kernel syscall.Utsname
	syscall.Uname(&kernel)
	release := utsname(kernel.Release[:])
	var major, minor int
	fmt.Sscanf(release, "%d.%d", &major, &minor)
	switch {
	case major < 4 || major == 4 && minor < 18:
		i.add("kernel", "no", release+": 4.18 or later is needed", "use a newer kernel")
	case major == 4 || major == 5 && minor < 3:
		i.add("kernel", "yes", release+": before 5.3 ends of processes are found by polling, 10 ms late at most", "")
	default:
		i.add("kernel", "yes", release, "")
	}
	if hook, err := cuda.Hook("", say); err != nil {
		i.add("hook", "no", err.Error(), "install a C compiler, or use a gpurec made by make build, and a cache directory that can be written")
	} else {
		i.add("hook", "yes", hook, "")
	}
	if err := tryLane(); err != nil {
		i.add("lanes", "no", err.Error(), "memfd_create, sealing, and Unix sockets in XDG_RUNTIME_DIR, TMPDIR or /tmp must be allowed (seccomp, RLIMIT_FSIZE, RLIMIT_NOFILE)")
	} else {
		i.add("lanes", "yes", "an event went from a lane into a trace", "")
	}
	var limit syscall.Rlimit
	if syscall.Getrlimit(rlimitFileSize, &limit) == nil && limit.Cur < format.DefaultLane {
		i.add("limits", "no", fmt.Sprintf("files may have %s, a lane has %s: programs make none", format.Bytes(int64(limit.Cur)), format.Bytes(format.DefaultLane)), "ulimit -f unlimited, or --lane-size 256KiB")
	} else {
		i.add("limits", "yes", "files may be as large as a lane; locked memory and ptrace_scope do not matter", "")
	}
	if _, err := os.ReadFile("/proc/self/maps"); err != nil {
		i.add("/proc", "no", "no command lines, ranks and native frames: "+err.Error(), "mount /proc")
	} else {
		i.add("/proc", "yes", "command lines, ranks and modules of this user's processes", "")
	}
	if runtime.GOARCH == "amd64" {
		i.add("native", "yes", "frames by the compilers' tables, also without frame pointers; goroutines that call C", "")
	} else {
		i.add("native", "yes", "frames by the compilers' tables, also without frame pointers; not goroutines that call C: x86-64 alone has them", "")
	}
}

const rlimitFileSize = 1 // RLIMIT_FSIZE

// gpus is the driver and each device.
func (i *inspection) gpus() {
	if path := library("libcuda.so.1"); path == "" {
		i.add("driver", "no", "libcuda.so.1 is not known to the linker", "install NVIDIA's driver, or in a container start it with --gpus all; gpurec run --simulate-gpu has one for tests")
	} else {
		i.add("driver", "yes", path, "")
	}
	lib, err := nvml.Open("")
	if err != nil {
		i.add("samples", "no", err.Error(), "everything but NVML's samples is recorded all the same")
		return
	}
	defer lib.Close()
	i.add("samples", "yes", fmt.Sprintf("NVML %s, driver %s", lib.Version(), lib.Driver()), "")
	visible := os.Getenv("CUDA_VISIBLE_DEVICES")
	_, set := os.LookupEnv("CUDA_VISIBLE_DEVICES")
	for n, d := range lib.Devices() {
		what := fmt.Sprintf("device %d", n)
		kind := ""
		if d.MIG {
			kind = fmt.Sprintf(", instance %d/%d of %s", d.GI, d.CI, d.GPU)
		}
		if m, err := lib.Memory(n); err != nil {
			i.add(what, "partly", fmt.Sprintf("%s %s%s: no memory readings: %v", d.Name, d.UUID, kind, err), "its events are recorded")
		} else {
			i.add(what, "yes", fmt.Sprintf("%s %s%s: %s, %s free", d.Name, d.UUID, kind, format.Bytes(m.Total), format.Bytes(m.Free)), "")
		}
	}
	if set {
		list, err := lib.Visible(visible, set, os.Getenv("CUDA_DEVICE_ORDER"))
		switch {
		case err != nil:
			i.add("visible", "partly", err.Error(), "")
		case len(list) == 0:
			i.add("visible", "no", fmt.Sprintf("CUDA_VISIBLE_DEVICES=%q leaves programs no device", visible), "unset it, or name devices that are there")
		default:
			var ids []string
			for _, d := range list {
				ids = append(ids, d.UUID)
			}
			i.add("visible", "yes", fmt.Sprintf("CUDA_VISIBLE_DEVICES=%q leaves programs %s, in this order", visible, strings.Join(ids, ", ")), "")
		}
	}
}

// pythons is each CPython on PATH, and a command that is one.
func (i *inspection) pythons(ctx context.Context, command string) {
	names := append([]string{"python", "python3"}, pythonNames()...)
	if command != "" {
		found, _ := cuda.Command(command)
		for _, r := range found {
			if pythonName.MatchString(filepath.Base(r.Path)) {
				names = append(names, r.Path)
			}
		}
	}
	seen := map[string]bool{}
	for _, name := range names {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		if real, err := filepath.EvalSymlinks(path); err == nil {
			if seen[real] {
				continue
			}
			seen[real] = true
		}
		i.python(ctx, path)
	}
	if len(seen) == 0 {
		i.add("python", "yes", "none on PATH; programs that bring their own are recorded too", "")
	}
}

var pythonName = regexp.MustCompile(`^python[0-9.]*t?$`)

func (i *inspection) python(ctx context.Context, path string) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second) // somebody's wrapper may wait for ever
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "-S", "-E", "-c", "import sys; print(sys.implementation.name, '%d.%d' % sys.version_info[:2], sys.version.split()[0], 'free-threading' in sys.version)").Output()
	var kind, minor, full, free string
	if n, _ := fmt.Sscan(string(out), &kind, &minor, &full, &free); err != nil || n != 4 {
		if err == nil {
			err = errors.New("it prints something else")
		}
		i.add("python", "partly", fmt.Sprintf("%s does not say its version: %v", path, err), "")
		return
	}
	switch _, known := knownPython[minor]; {
	case kind != "cpython":
		i.add("python", "partly", fmt.Sprintf("%s %s %s: native frames only", path, kind, full), "use CPython")
	case free == "True" && minor != freePython:
		i.add("python", "partly", fmt.Sprintf("%s %s is free-threaded, and of those only %s's frames can be read: native frames only", path, full, freePython), "use the build with a global lock")
	case !known || strings.ContainsAny(full, "ab"): // a preview's layout may yet change
		i.add("python", "partly", fmt.Sprintf("%s %s: native frames only", path, full), "use CPython "+firstPython+" to "+lastPython)
	default:
		i.add("python", "yes", path+" "+full, "")
	}
}

const (
	firstPython, lastPython = "3.9", "3.15"
	freePython              = "3.13" // the only free-threaded one
)

// knownPython are the versions whose frames the hook reads, cuda/hook/python.c.
var knownPython = map[string]bool{"3.9": true, "3.10": true, "3.11": true, "3.12": true, "3.13": true, "3.14": true, "3.15": true}

func pythonNames() (names []string) {
	for minor := 9; minor <= 16; minor++ {
		names = append(names, fmt.Sprintf("python3.%d", minor))
		if minor >= 13 {
			names = append(names, fmt.Sprintf("python3.%dt", minor)) // free-threaded
		}
	}
	return names
}

// surroundings is the environment that commands get.
func (i *inspection) surroundings(lookup func(string) (string, bool)) {
	value := func(name string) string { v, _ := lookup(name); return v }
	if v := value("LD_BIND_NOW"); v != "" {
		i.add("environ", "no", "LD_BIND_NOW is set, and gpurec's NVML functions are found when first called", "unset LD_BIND_NOW for gpurec; env LD_BIND_NOW=1 may come after it")
	}
	if v := value("LD_PRELOAD"); v != "" {
		i.add("environ", "yes", "LD_PRELOAD="+v+": loaded behind the hook, and gets all its calls", "")
	}
	if v := value("NVTX_INJECTION64_PATH"); v != "" {
		i.add("environ", "yes", "NVTX_INJECTION64_PATH="+v+": gets the ranges from the hook", "")
	}
	for _, text := range misspelled(os.Environ()) {
		i.add("environ", "partly", text, "")
	}
}

// command says whether the hook gets into a command; false: it does not.
func (i *inspection) command(name string) bool {
	found, err := cuda.Command(name)
	ok := err == nil
	for _, r := range found {
		switch {
		case r.Never:
			i.add("command", "no", fmt.Sprintf("%s is a %s: %s", r.Path, r.What, r.Why), r.Remedy)
			ok = false
		case r.Why != "":
			i.add("command", "partly", fmt.Sprintf("%s is a %s: %s", r.Path, r.What, r.Why), r.Remedy)
		default:
			i.add("command", "yes", fmt.Sprintf("%s is a %s", r.Path, r.What), "")
		}
	}
	if err != nil {
		i.add("command", "no", err.Error(), "")
	}
	return ok
}

// tryLane takes one event all the way, as a traced program would send it.
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
	p, err := ring.NewProducer(format.MinLaneSize)
	if err == nil {
		err = p.Connect(s.Socket(), p.Hello(0, 0))
	}
	if err == nil {
		err = p.Event(&format.WireEvent{WireHead: format.WireHead{Kind: format.Alloc, Layer: format.LayerPool}, Device: -1, Address: 512, Size: 512}, nil)
	}
	sum, closing := s.Close(nil)
	if err == nil {
		err = closing
	}
	if err == nil && (sum.Stats.Lanes == 0 || sum.Stats.Lost > 0) {
		err = errors.New("an event that was sent did not arrive")
	}
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
