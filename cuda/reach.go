package cuda

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// reachable returns a path at which every user can load the library: its own, or
// that of a copy. A traced program may start another user's (su, setpriv, a
// server that drops its rights), and LD_PRELOAD goes with it; where the library
// lies below a home that only its owner may enter, the loader would complain on
// that program's stderr. Where no place for a copy is found it stays so.
func reachable(path, key string, places []string) string {
	if open(path) {
		return path
	}
	want, err := os.ReadFile(path)
	if err != nil {
		return path
	}
	for _, place := range places {
		dir := filepath.Join(place, "gpurec-hook-"+strconv.Itoa(os.Getuid()))
		if splits(dir) || !filepath.IsAbs(dir) || !open(place) || !executable(place) {
			continue
		}
		to := filepath.Join(dir, key, filepath.Base(path))
		fresh, err := copyTo(dir, to, want)
		if err == nil && open(to) {
			used(filepath.Dir(to))
			if fresh { // a new one comes, old ones may go
				sweep(dir, key)
			}
			return to
		}
	}
	return path
}

// commonPlaces are where other users' programs may look.
func commonPlaces() []string { return []string{os.TempDir(), "/tmp", "/var/tmp", "/dev/shm"} }

// copyTo puts the library at to, below dir, fresh if it was not there. Others can
// write beside dir: what they made is not used.
func copyTo(dir, to string, want []byte) (fresh bool, err error) {
	for _, d := range []string{dir, filepath.Dir(to)} {
		if err := os.Mkdir(d, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return false, err
		}
		if !ours(d) {
			return false, fs.ErrPermission
		}
		if err := os.Chmod(d, 0o755); err != nil { // whatever the umask
			return false, err
		}
	}
	if same(to, want) == nil {
		return false, os.Chmod(to, 0o755)
	}
	return true, replace(to, want)
}

// ours reports whether dir is a directory of this user's, in which nobody else
// may write; not a link to one.
func ours(dir string) bool {
	info, err := os.Lstat(dir)
	if err != nil {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Getuid() && info.IsDir() && info.Mode().Perm()&0o022 == 0
}

// open reports whether everybody may read and enter a file or directory, and go
// through all directories above it.
func open(path string) bool {
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm()&0o005 != 0o005 {
		return false
	}
	path, err = filepath.EvalSymlinks(path)
	for err == nil && path != "/" && path != "." {
		path = filepath.Dir(path)
		if info, err = os.Stat(path); err == nil && info.Mode().Perm()&0o001 == 0 {
			return false
		}
	}
	return err == nil
}

// executable reports whether a library may be mapped from a file system.
func executable(place string) bool {
	const noexec = 8 // ST_NOEXEC
	var st syscall.Statfs_t
	return syscall.Statfs(place, &st) == nil && st.Flags&noexec == 0
}

// unused is how long what another gpurec made is kept after its last use.
const unused = 30 * 24 * time.Hour

// used notes that a directory is in use.
func used(dir string) {
	now := time.Now()
	os.Chtimes(dir, now, now)
}

// sweep removes what other versions of gpurec left beside the directory of this
// key and has not been used for a long time. A program that runs for that long
// uses its library whenever it starts another, which the file's atime tells.
func sweep(dir, key string) {
	entries, err := os.ReadDir(dir)
	if err != nil || !ours(dir) {
		return
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if e.Name() == key || !isKey(e.Name()) || !e.IsDir() || !ours(path) {
			continue
		}
		last := time.Time{}
		for _, p := range []string{path, filepath.Join(path, HookName), filepath.Join(path, keyFile)} {
			info, err := os.Stat(p)
			if err != nil {
				continue
			}
			if info.ModTime().After(last) {
				last = info.ModTime()
			}
			if st, ok := info.Sys().(*syscall.Stat_t); ok && time.Unix(st.Atim.Unix()).After(last) {
				last = time.Unix(st.Atim.Unix())
			}
		}
		if time.Since(last) > unused {
			os.RemoveAll(path)
		}
	}
}

// isKey tells our directories from what else somebody keeps there.
func isKey(name string) bool {
	return len(name) == 16 && strings.Trim(name, "0123456789abcdef") == ""
}
