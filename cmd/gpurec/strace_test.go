package main

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A strace is what a command and its children asked the kernel for.
type strace struct {
	calls map[string]int // by name
	paths map[string]int // texts that begin with a slash, in calls that succeeded
	out   string
}

var (
	straceLine  = regexp.MustCompile(`(?m)^([a-z]\w*)\((.*)$`)
	stracePath  = regexp.MustCompile(`"(/[^"]*)"`)
	straceChaff = regexp.MustCompile(`/tmp/cc\w+|/proc/\d+|\d{4,}`) // names that differ from run to run
)

// straced runs a command under strace, and all that under gpurec where flags are
// given: strace's own calls are not in its account.
func straced(t *testing.T, dir string, flags []string, command ...string) strace {
	t.Helper()
	logs := t.TempDir() // a file a process
	args := append([]string{"strace", "-ff", "-qq", "-s", "4096", "-e", "signal=none", "-o", filepath.Join(logs, "log")}, command...)
	c := exec.Command(args[0], args[1:]...)
	c.Dir = dir
	if flags != nil {
		c = gpurec(t, dir, append(append([]string{"run", "-o", filepath.Join(t.TempDir(), "t.gpurec")}, flags...), append([]string{"--"}, args...)...)...)
	}
	c.Env = append(c.Environ(), "PWD="+dir, "TMPDIR=/tmp")
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", args, err, out)
	}
	var all []byte
	files, _ := filepath.Glob(filepath.Join(logs, "log.*"))
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b...)
	}
	s := strace{map[string]int{}, map[string]int{}, string(out)}
	for _, m := range straceLine.FindAllStringSubmatch(string(all), -1) {
		if strings.Contains(m[2], ") = -1 ") {
			s.calls[m[1]+" that fails"]++
			continue
		}
		s.calls[m[1]]++
		if m[1] == "execve" { // its environment is long, and differs
			continue
		}
		for _, p := range stracePath.FindAllStringSubmatch(m[2], -1) {
			s.paths[straceChaff.ReplaceAllString(p[1], "N")]++
		}
	}
	if s.calls["execve"] == 0 || len(s.paths) == 0 {
		t.Fatalf("strace saw %v", s.calls)
	}
	return s
}

// Programs that have nothing to do with CUDA, as the kernel sees them: in every
// process the library is loaded and nothing else happens, and Python reads one
// file of ours. Nothing is written, opened, connected or started.
func TestStrace(t *testing.T) {
	if out, err := exec.Command("strace", "-qq", "-o", "/dev/null", "true").CombinedOutput(); err != nil {
		t.Skipf("strace cannot be used here: %v %s", err, bytes.TrimSpace(out))
	}
	out, _ := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output() // what is found first may be a script
	python := strings.TrimSpace(string(out))
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("there is no C compiler")
	}
	// What the loader does for one more library, and the library that that needs.
	loading := map[string]int{"openat": 2, "read": 2, "fstat": 2, "newfstatat": 2, "close": 2, "pread64": 8, "mmap": 14, "mprotect": 6, "munmap": 2, "brk": 3}
	// Without gpurec too a compile draws the name of its temporary file anew now and
	// then (2 of 60 did); what the library called would be called in every process.
	drawn := map[string]int{"getrandom": 1}
	// What Python does for a directory more on its path, to find there, read and
	// compile one file, whose compiled form it looks for; and to look at whether the
	// directory has changed, for each module that it imports later.
	reading := map[string]int{"openat": 2, "openat that fails": 1, "read": 4, "fstat": 4, "newfstatat": 120, "stat": 120, "newfstatat that fails": 8, "stat that fails": 8, "close": 2,
		"lseek": 4, "getdents64": 4, "ioctl": 2, "ioctl that fails": 2, "mmap": 8, "munmap": 8, "brk": 8, "readlink": 4}
	for _, row := range []struct {
		name    string
		flags   []string
		command []string
		files   []string // of ours that are opened, by their last element
		extra   map[string]int
	}{
		{"bash", []string{}, []string{"bash", "-c", "for i in 1 2 3; do echo $i; done; ls / >/dev/null; (exit 3); echo $?"}, nil, nil},
		{"a compile", []string{}, []string{"cc", "-O2", "-c", "x.c", "-o", "x.o"}, nil, nil},
		{"Python", []string{}, []string{python, "-c", "import json; print(json.dumps([1]))"}, []string{"sitecustomize.py"}, reading},
		{"Python without our package", []string{"--no-python"}, []string{python, "-c", "import json; print(json.dumps([1]))"}, nil, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			if row.command[0] == "" {
				t.Skip("there is no python3")
			}
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "x.c"), []byte("#include <stdio.h>\nint main(void) { return printf(\"x\\n\") < 0; }\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			straced(t, dir, nil, row.command...) // what the first run alone does, such as filling caches
			without := straced(t, dir, nil, row.command...)
			object, _ := os.ReadFile(filepath.Join(dir, "x.o"))
			with := straced(t, dir, row.flags, row.command...)
			if again, _ := os.ReadFile(filepath.Join(dir, "x.o")); with.out != without.out || !bytes.Equal(object, again) {
				t.Errorf("output %q, without gpurec %q; what was compiled is the same: %v", with.out, without.out, bytes.Equal(object, again))
			}
			processes := without.calls["execve"]
			for _, name := range slices.Sorted(maps.Keys(with.calls)) {
				if strings.HasPrefix(name, "wait") || strings.HasPrefix(name, "rt_sigreturn") || strings.HasPrefix(name, "restart") {
					continue // how often it has to wait is the machine's
				}
				if more, most := with.calls[name]-without.calls[name], processes*loading[name]+row.extra[name]+drawn[name]; more > most {
					t.Errorf("%s is called %d times more in %d processes, want %d at most", name, more, processes, most)
				}
			}
			var files []string
			libraries := 0
			for _, path := range slices.Sorted(maps.Keys(with.paths)) {
				base := filepath.Base(path)
				switch {
				case without.paths[path] > 0:
				case strings.HasPrefix(base, "libgpurec"):
					libraries += with.paths[path]
				case strings.HasPrefix(base, "libdl.so"): // which the library needs
				case filepath.Ext(path) == "" && row.extra != nil: // a directory that Python looks into
				default:
					files = append(files, base)
				}
			}
			if libraries != processes {
				t.Errorf("the library was loaded %d times by %d processes", libraries, processes)
			}
			if !slices.Equal(files, row.files) {
				t.Errorf("files %q, want %q", files, row.files)
			}
		})
	}
}
