package cuda

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

//go:embed python/*.py python/gpurec/*.py
var pythonFiles embed.FS

// Hook returns the path of the preload library, one that every user can reach if
// there is a place for it. cache is the directory to keep
// it in, "" for the user's. say, which may be nil, hears that something is being
// compiled, which takes seconds and happens once.
func Hook(cache string, say func(string)) (string, error) {
	dir, err := libraryDir(cache, say)
	if err != nil {
		return "", fmt.Errorf("the hook: %w", err)
	}
	return reachable(filepath.Join(dir, HookName), filepath.Base(dir), commonPlaces()), nil
}

// Simulator returns the directory of the simulated libcuda.so.1 and
// libnvidia-ml.so.1, for LD_LIBRARY_PATH.
func Simulator(cache string, say func(string)) (string, error) {
	dir, err := libraryDir(cache, say)
	if err != nil {
		return "", fmt.Errorf("the simulated GPU: %w", err)
	}
	// A directory of their own: only they may come in front of the system's.
	sim := filepath.Join(dir, "simulated")
	if err := os.MkdirAll(sim, 0o700); err != nil {
		return "", fmt.Errorf("the simulated GPU: %w", err)
	}
	for _, l := range libraries[1:] {
		if err := os.Symlink(filepath.Join("..", l.name), filepath.Join(sim, l.name)); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", fmt.Errorf("the simulated GPU: %w", err)
		}
	}
	return sim, nil
}

// PythonDir returns the directory that goes first on PYTHONPATH: sitecustomize
// and the package gpurec. It is named by what lies in it: two versions of gpurec
// with one hook would replace each other's files under running programs.
func PythonDir(cache string) (string, error) {
	k, err := key()
	if err != nil {
		return "", err
	}
	name := "python-" + pythonKey()
	dir, err := cacheDir(cache, k, func(dir string) bool { return eachPythonFile(filepath.Join(dir, name), same) == nil })
	if err == nil {
		dir = filepath.Join(dir, name)
		err = eachPythonFile(dir, func(path string, want []byte) error {
			if same(path, want) == nil {
				return nil
			}
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				return err
			}
			return replace(path, want)
		})
	}
	if err != nil {
		return "", fmt.Errorf("the Python package: %w", err)
	}
	return dir, nil
}

// pythonKey names what the Python files are.
func pythonKey() string {
	h := sha256.New()
	eachPythonFile("", func(path string, want []byte) error {
		_, err := fmt.Fprintf(h, "%s %d\n%s", path, len(want), want)
		return err
	})
	return hex.EncodeToString(h.Sum(nil))[:16]
}

// eachPythonFile calls f for what is to lie in dir, until it fails.
func eachPythonFile(dir string, f func(path string, want []byte) error) error {
	return fs.WalkDir(pythonFiles, "python", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		want, err := pythonFiles.ReadFile(path)
		if err != nil {
			return err
		}
		return f(filepath.Join(dir, strings.TrimPrefix(path, "python/")), want)
	})
}

// same fails where a file has not this content.
func same(path string, want []byte) error {
	have, err := os.ReadFile(path)
	if err == nil && !bytes.Equal(have, want) {
		err = fmt.Errorf("%s is another one", path)
	}
	return err
}

// libraryDir is a directory with every library of this binary's sources.
//
//  1. there from an earlier run: done
//  2. in the binary, from the same sources: written out
//  3. compiled
//
// Each file appears by a rename, the key last, so that two first runs at once
// do no harm.
func libraryDir(cache string, say func(string)) (string, error) {
	k, err := key()
	if err != nil {
		return "", err
	}
	complete := func(dir string) bool { return same(filepath.Join(dir, keyFile), []byte(k)) == nil }
	dir, err := cacheDir(cache, k, complete)
	if err != nil {
		return "", err
	}
	if complete(dir) {
		used(dir)
		return dir, nil
	}
	sweep(filepath.Dir(dir), k) // a new one comes, old ones may go
	if b, err := built.ReadFile("hook/build/" + keyFile); err == nil && string(b) == k {
		for _, l := range libraries {
			b, err := built.ReadFile("hook/build/" + l.name)
			if err == nil {
				err = replace(filepath.Join(dir, l.name), b)
			}
			if err != nil {
				return "", err
			}
		}
		return dir, replace(filepath.Join(dir, keyFile), []byte(k))
	}
	if say != nil {
		say(fmt.Sprintf("compiling the hook with %s into %s (once)", compiler(), dir))
	}
	return dir, Build(dir)
}

// cacheDir makes and returns the directory of one key. The loader splits
// LD_PRELOAD at colons and blanks, so a home directory with one of them cannot
// hold the hook; nor can one that does not have all that is wanted and cannot be
// written. Then it is a directory of this user's alone under the temporary one.
func cacheDir(cache, key string, complete func(dir string) bool) (string, error) {
	if cache == "" {
		base, err := os.UserCacheDir()
		if err == nil {
			dir := filepath.Join(base, "gpurec", key)
			if !splits(dir) && os.MkdirAll(dir, 0o700) == nil && (complete(dir) || writable(dir)) {
				return dir, nil
			}
		}
		cache = filepath.Join(os.TempDir(), fmt.Sprintf("gpurec-%d", os.Getuid()))
		if err := os.Mkdir(cache, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", err
		}
		// Others can write there too: what they made is not loaded into programs.
		if !ours(cache) {
			return "", fmt.Errorf("%s belongs to somebody else: set XDG_CACHE_HOME to a directory of your own", cache)
		}
	}
	dir, err := filepath.Abs(filepath.Join(cache, key))
	if err != nil {
		return "", err
	}
	if splits(dir) {
		return "", fmt.Errorf("%q has a blank or a colon, at which the loader splits LD_PRELOAD: set XDG_CACHE_HOME to another directory", dir)
	}
	return dir, os.MkdirAll(dir, 0o700)
}

func splits(path string) bool { return strings.ContainsAny(path, ": \t\n") }

func writable(dir string) bool {
	f, err := os.CreateTemp(dir, ".try")
	if err != nil {
		return false
	}
	f.Close()
	os.Remove(f.Name())
	return true
}
