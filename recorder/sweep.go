package recorder

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// sweepSockets removes what recorders that were killed left in base: directories
// of this user's alone with nothing but a socket, which nobody holds the lock of
// and nobody listens at.
func sweepSockets(base string) {
	for _, name := range namesOf(base, "gpurec-") {
		dir := filepath.Join(base, name)
		info, err := os.Lstat(dir)
		if err != nil || info.Mode() != os.ModeDir|0o700 || !mine(info) {
			continue
		}
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) == 0 || entries[0].Name() != "s" || entries[0].Type() != os.ModeSocket ||
			slices.ContainsFunc(entries[1:], func(e os.DirEntry) bool { return !isMark(e.Name()) || e.Type() != os.ModeSymlink }) {
			continue
		}
		lock, err := syscall.Open(dir, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		if path := dir + "/s"; syscall.Flock(lock, syscall.LOCK_EX|syscall.LOCK_NB) == nil && refuses(path) {
			for _, e := range entries {
				os.Remove(dir + "/" + e.Name())
			}
			os.Remove(dir)
		}
		syscall.Close(lock)
	}
}

// namesOf are the names in a directory of this beginning and then digits, as
// package os makes them.
func namesOf(dir, beginning string) (out []string) {
	f, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer f.Close()
	names, _ := f.Readdirnames(-1)
	for _, n := range names {
		if digits, ok := strings.CutPrefix(n, beginning); ok && digits != "" && strings.Trim(digits, "0123456789") == "" {
			out = append(out, n)
		}
	}
	return out
}

func mine(info os.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}

// refuses reports whether nobody listens at a socket.
func refuses(path string) bool {
	s, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer syscall.Close(s)
	return syscall.Connect(s, &syscall.SockaddrUnix{Name: path}) == syscall.ECONNREFUSED
}

// SweepFiles removes what programs that were killed left in dir: regular files of
// this user's, named as os.CreateTemp names them, that nobody holds a lock of and
// no running process has in the variable env. One without content may be
// somebody's who has not locked it yet, and stays.
func SweepFiles(dir, beginning, env string) {
	for _, name := range namesOf(dir, beginning) {
		path := filepath.Join(dir, name)
		info, err := os.Lstat(path)
		if err != nil || !info.Mode().IsRegular() || !mine(info) || info.Size() == 0 {
			continue
		}
		f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
		if err != nil {
			continue
		}
		if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil && len(carriers(env, path)) == 0 {
			os.Remove(path)
		}
		f.Close()
	}
}
