package analyze

import (
	"regexp"
	"strings"

	"github.com/gpurec/gpurec/format"
)

// installed are parts of the names of files that nobody wrote for the program.
var installed = []string{"/site-packages/", "/dist-packages/", "/lib/python3", "/pkg/mod/"}

// systems are how names of native files begin, or parts of them, that came with
// the system, the compiler, CUDA, Rust's or Go's library.
var systems = regexp.MustCompile(`^(/usr/(lib|lib64|libexec|include|share|local/(cuda|go)[^/]*)/|/lib(32|64)?/|/opt/|/rustc/|\[)|/\.?cargo/registry/|/(libstdc\+\+-v3|libgcc|glibc-[0-9.]+)/|/targets/[a-z0-9_-]+-linux/|/go/src/(runtime|internal|syscall)/`)

// plumbing are functions that are linked into programs: of the driver's, and what
// takes memory for whoever asks.
var plumbing = regexp.MustCompile(`^(cu[A-Z]|operator (new|delete))`)

// Own reports whether a frame is of the program's own code rather than of what
// was installed: inferred from its file's name; of a native frame from its module's
// too, and it must be named.
func Own(f *format.Frame) bool {
	switch f.Kind {
	case format.FramePython, format.FrameGo:
	case format.FrameNative:
		if f.Function == "" || Foreign(f) || plumbing.MatchString(f.Function) || foreign(f.Module) || foreign(f.File) {
			return false
		}
	default:
		return false
	}
	return !came(f.File) && !strings.HasPrefix(f.File, "<frozen ")
}

func foreign(file string) bool { return systems.MatchString(file) || came(file) }

func came(file string) bool {
	for _, part := range installed {
		if strings.Contains(file, part) {
			return true
		}
	}
	return false
}
