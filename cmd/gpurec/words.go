package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"
	"unsafe"

	"github.com/gpurec/gpurec/analyze/tree"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/recorder"
)

// terminal reports whether w is one. A character device alone may be /dev/null.
func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	var t [64]byte // struct termios
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), syscall.TCGETS, uintptr(unsafe.Pointer(&t[0])))
	return errno == 0
}

// words are the lines after a command, five at most: peak per device, out of
// memory or not, the stack that held most, events and lost, where the trace is and what to
// type next. native, where not "", says what became of the native frames' names.
func words(w io.Writer, path string, s recorder.Summary, native string) {
	if len(s.Devices) == 0 {
		fmt.Fprintln(w, "gpurec: no GPU memory was taken")
	} else {
		var peaks []string
		for _, d := range s.Devices {
			p := fmt.Sprintf("device %d %s", d.Device.ID, format.Bytes(d.Used))
			if d.NVML >= 0 {
				p += fmt.Sprintf(" (%s by NVML)", format.Bytes(d.NVML))
			}
			peaks = append(peaks, p)
		}
		if len(peaks) > 8 {
			peaks = append(peaks[:8], fmt.Sprintf("and %d more devices", len(s.Devices)-8))
		}
		fmt.Fprintf(w, "gpurec: peak: %s\n", strings.Join(peaks, ", "))
	}
	next := "summary"
	if s.Told+s.Retried > 0 {
		next = "oom"
	}
	switch {
	case s.Told > 0:
		fmt.Fprintf(w, "gpurec: out of memory: yes, %s; gpuanalyze oom says why\n", times(s.Told))
	case s.Retried > 0:
		fmt.Fprintf(w, "gpurec: out of memory: no, but %s the driver refused and a retry worked; gpuanalyze oom says more\n", times(s.Retried))
	case s.Failed > 0:
		fmt.Fprintf(w, "gpurec: out of memory: no, but %s an allocation failed for another reason; gpuanalyze summary says where\n", times(s.Failed))
	default:
		fmt.Fprintln(w, "gpurec: out of memory: no")
	}
	if s.TopSize > 0 {
		fmt.Fprintf(w, "gpurec: largest stack near the peak: %s, %s\n", printable(within(topHolder(path, s, native != ""))), format.Bytes(s.TopSize))
	}
	kept := ""
	if s.Since > 0 {
		kept = fmt.Sprintf("; those since %s are kept", s.Since.Round(time.Microsecond))
	}
	if native != "" {
		kept += "; " + native
	}
	fmt.Fprintf(w, "gpurec: %s events, %s lost%s\n", grouped(s.Stats.Events), grouped(s.Stats.Lost), kept)
	fmt.Fprintf(w, "gpurec: trace %s; next: gpuanalyze %s %s\n", printable(path), next, printable(shellWord(path)))
}

// within is a frame as it is printed, without the folders of its file, for a line that
// is to fit a terminal.
func within(frame string) string {
	file, rest, found := strings.Cut(frame, ":")
	if !found || !filepath.IsAbs(file) {
		return frame
	}
	return filepath.Base(file) + ":" + rest
}

// mostStacks is how large a part's table of stacks may be, in bytes, that is read
// for one name, while somebody waits for the command to end.
const mostStacks = 4 << 20

// topHolder is what the top holder is called by. The recorder knows no names of
// native frames, so where a stack has no others they are looked up in the trace.
func topHolder(path string, s recorder.Summary, named bool) string {
	name := s.Top.String()
	if !named || s.Top.Kind != format.FrameThread {
		return name
	}
	t, err := format.Open(path)
	if err != nil {
		return name
	}
	for _, p := range t.Parts() {
		if fi, err := os.Stat(filepath.Join(p.Path(), "stacks.arrow")); err != nil || fi.Size() > mostStacks {
			continue
		}
		defs := format.NewDefs()
		if p.LoadDefs(defs) != nil {
			continue
		}
		if f, ok := new(tree.OwnFrames).Of(s.TopStack, defs); ok && f.Kind == format.FrameNative && f.Function != "" {
			return f.String()
		}
	}
	return name
}

// printable keeps what programs and people chose, names and paths, from doing
// something to a terminal: what is no printable character is written as Go does.
func printable(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r == utf8.RuneError || !unicode.IsPrint(r) && r != '\n' {
			q := strconv.QuoteRuneToASCII(r)
			b.WriteString(q[1 : len(q)-1])
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

func times(n int64) string {
	if n == 1 {
		return "1 time"
	}
	return grouped(uint64(n)) + " times"
}

// grouped writes a number with commas.
func grouped(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func shellWord(s string) string {
	if strings.ContainsAny(s, " \t\n'\"\\$&|;<>()*?[]#~`!{}") {
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	return s
}
