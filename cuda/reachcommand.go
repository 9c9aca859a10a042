package cuda

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// A Reach says of one file that a command runs whether the hook gets into it.
type Reach struct {
	Path   string // of the file; the command's name where there is none
	What   string // what it is
	Why    string // the hook does not get into it, or not into all that it starts; "" it does
	Remedy string // what to do then
	Never  bool   // the hook does not get into it at all
}

// launchers are programs that start others where the hook's environment does not
// come, or where the recorder is not.
var launchers = map[string]Reach{
	"docker":      container,
	"podman":      container,
	"nerdctl":     container,
	"kubectl":     container,
	"apptainer":   {What: "container runtime", Why: "a path of the hook, of its socket or of the trace may be missing in the container, and --cleanenv drops the environment", Remedy: "put gpurec run inside, before the program"},
	"singularity": {What: "container runtime", Why: "a path of the hook, of its socket or of the trace may be missing in the container, and --cleanenv drops the environment", Remedy: "put gpurec run inside, before the program"},
	"ssh":         elsewhere,
	"pdsh":        elsewhere,
	"srun":        elsewhere,
	"sbatch":      elsewhere,
	"qsub":        elsewhere,
	"bsub":        elsewhere,
	"mpirun":      elsewhere,
	"mpiexec":     elsewhere,
	"deepspeed":   elsewhere,
	"ray":         {What: "launcher", Why: "its workers are children of a server that was started before", Remedy: "start the server with it: gpurec run -- ray start --head --block"},
	"systemd-run": {What: "launcher", Why: "the service manager starts the program, without this environment", Remedy: "put gpurec run after it: systemd-run … gpurec run -- COMMAND"},
	"sudo":        {What: "launcher", Why: "it takes the hook out of the environment", Remedy: "put gpurec run after it: sudo gpurec run -- COMMAND"},
	"su":          {What: "launcher", Why: "it takes the hook out of the environment", Remedy: "put gpurec run after it: su USER -c 'gpurec run -- COMMAND'"},
	"doas":        {What: "launcher", Why: "it takes the hook out of the environment", Remedy: "put gpurec run after it: doas gpurec run -- COMMAND"},
	"chroot":      {What: "launcher", Why: "the hook's path and its socket are not there", Remedy: "put gpurec run inside"},
}

var (
	container = Reach{What: "container client", Why: "a server starts the container, without this environment", Remedy: "put gpurec run inside, before the program, with the trace on a mounted directory"}
	elsewhere = Reach{What: "launcher", Why: "what it starts on other machines cannot reach a recorder on this one", Remedy: "put gpurec run after it, one recorder for each process: … gpurec run -o 'rank%r.gpurec' -- COMMAND"}
)

// most is how many interpreters of interpreters the kernel follows, too.
const most = 4

// Command says what is known of a command before it runs: of the file itself,
// then of the interpreter that runs it, and so on. The error says that there is
// no such command.
func Command(name string) ([]Reach, error) {
	var found []Reach
	for range most + 1 {
		path, err := exec.LookPath(name)
		if err != nil {
			return found, fmt.Errorf("%s: no such command on PATH: %w", name, err)
		}
		r, interpreter, err := reach(path)
		if err != nil {
			return found, err
		}
		found = append(found, r)
		if interpreter == "" {
			break
		}
		name = interpreter
	}
	return found, nil
}

// reach looks at one file; the interpreter is "" where the kernel runs it itself.
func reach(path string) (r Reach, interpreter string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return r, "", fmt.Errorf("what %s is cannot be told: %w", path, err)
	}
	defer f.Close()
	head := make([]byte, 256)
	n, err := io.ReadFull(f, head)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return r, "", fmt.Errorf("what %s is cannot be told: %w", path, err)
	}
	head = head[:n]
	if l, ok := launchers[filepath.Base(path)]; ok {
		l.Path = path
		return l, "", nil
	}
	r.Path = path
	if !bytes.HasPrefix(head, []byte(elf.ELFMAG)) {
		interpreter = interpreterOf(head)
		r.What = "script of " + interpreter
		return r, interpreter, nil
	}
	p, err := elf.NewFile(f)
	if err != nil {
		return r, "", fmt.Errorf("%s is a damaged program: %w", path, err)
	}
	r.What, r.Why, r.Remedy = described(p)
	if r.Why == "" {
		r.Why, r.Remedy = raised(path)
	}
	r.Never = r.Why != ""
	return r, "", nil
}

// interpreterOf reads a script's first line as the kernel does; a script without
// one is a shell's. What env is to find is looked up as env does.
func interpreterOf(head []byte) string {
	line, ok := bytes.CutPrefix(head, []byte("#!"))
	if !ok {
		return "/bin/sh"
	}
	line, _, _ = bytes.Cut(line, []byte("\n"))
	words := strings.Fields(string(line))
	if len(words) == 0 {
		return "/bin/sh"
	}
	if filepath.Base(words[0]) == "env" {
		for _, w := range words[1:] {
			if !strings.HasPrefix(w, "-") && !strings.Contains(w, "=") {
				return w
			}
		}
	}
	return words[0]
}

var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

func described(p *elf.File) (what, why, remedy string) {
	loader := ""
	for _, h := range p.Progs {
		if h.Type == elf.PT_INTERP {
			b, _ := io.ReadAll(io.LimitReader(h.Open(), 4096))
			loader = string(bytes.TrimRight(b, "\x00"))
		}
	}
	base := filepath.Base(loader)
	switch {
	case p.Class != elf.ELFCLASS64:
		return "32-bit program", "the hook is a 64-bit library, which its loader refuses with a line on stderr", "use a 64-bit build"
	case p.Machine != machines[runtime.GOARCH]:
		return "program of another machine (" + p.Machine.String() + ")", "an emulator runs it", "use a build for this machine"
	case loader == "":
		return "statically linked program", "it has no loader that could load the hook", "link it dynamically (Go: with cgo and libcuda opened by dlopen)"
	case strings.HasPrefix(base, "ld-musl"):
		return "program of musl's C library", "the hook is built for glibc", "use an image with glibc, as Debian's or Ubuntu's"
	}
	return "dynamically linked program", "", ""
}

// raised says whether a program gets rights that its caller lacks: the loader
// takes LD_PRELOAD from those.
func raised(path string) (why, remedy string) {
	info, err := os.Stat(path)
	if err != nil {
		return "", ""
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
	case info.Mode()&os.ModeSetuid != 0 && int(st.Uid) != os.Geteuid():
		return "it is setuid, and the loader loads nothing of a caller's into it", "run it as user " + fmt.Sprint(st.Uid) + ", or a copy without the bit"
	case info.Mode()&os.ModeSetgid != 0 && int(st.Gid) != os.Getegid():
		return "it is setgid, and the loader loads nothing of a caller's into it", "run it as group " + fmt.Sprint(st.Gid) + ", or a copy without the bit"
	}
	if n, err := syscall.Getxattr(path, "security.capability", nil); err == nil && n > 0 && os.Geteuid() != 0 {
		return "it has file capabilities, and the loader loads nothing of a caller's into it", "run a copy without them, or as root"
	}
	return "", ""
}
