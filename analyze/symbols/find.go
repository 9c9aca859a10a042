package symbols

import (
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// DebugDir is where distributions put debug files.
const DebugDir = "/usr/lib/debug"

// DebugDirs are the folders of this machine that have debug files by build id:
// DebugDir, and what debuginfod's clients (gdb, perf, debuginfod-find) have fetched.
// Nothing is fetched.
func DebugDirs() []string {
	dirs := []string{DebugDir}
	if dir := os.Getenv("DEBUGINFOD_CACHE_PATH"); dir != "" {
		return append(dirs, dir)
	}
	if dir := os.Getenv("XDG_CACHE_HOME"); dir != "" {
		dirs = append(dirs, filepath.Join(dir, "debuginfod_client"))
	}
	if home, err := os.UserHomeDir(); err == nil {
		dirs = append(dirs, filepath.Join(home, ".cache", "debuginfod_client"), filepath.Join(home, ".debuginfod_client_cache"))
	}
	return dirs
}

// A finder looks for a module's files: the module itself, and what was split off it.
type finder struct {
	search []string // folders to look in for both, below them too, and files
	debug  []string // folders laid out as DebugDir is
	names  map[string][]string
	full   []string            // folders of which not all files were looked at
	ids    map[string][]string // of search, the files, by build id
}

// files looks at the files of search, whose names need say nothing; of those that no
// module can be named from it says why.
func (f *finder) files() (notes []string) {
	f.ids = map[string][]string{}
	for _, file := range f.search {
		if fi, err := os.Stat(file); err == nil && fi.IsDir() {
			continue
		}
		img, err := openImage(file)
		if err != nil {
			notes = append(notes, err.Error())
			continue
		}
		if img.buildID != "" {
			f.ids[img.buildID] = append(f.ids[img.buildID], file)
		}
		img.close()
	}
	return notes
}

// mostFiles is how many files of a --search folder are looked at.
const mostFiles = 500_000

// named are the files of the search folders with that name.
func (f *finder) named(b *budget, name string) []string {
	if f.names == nil {
		f.names = map[string][]string{}
		for _, dir := range f.search {
			n, root := 0, dir
			if real, err := filepath.EvalSymlinks(dir); err == nil { // WalkDir does not enter a link
				root = real
			}
			filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() {
					return b.check()
				}
				if n++; n > mostFiles {
					f.full = append(f.full, dir)
					return fs.SkipAll
				}
				f.names[d.Name()] = append(f.names[d.Name()], p)
				return nil
			})
		}
	}
	return f.names[name]
}

// gone is what Linux appends to the path of a file that has been removed.
const gone = " (deleted)"

// images opens what is the module's, the module first where it is there, and says
// why what was found is not.
func (f *finder) images(b *budget, module, id string) (images []*image, why string) {
	tried := map[string]bool{}
	try := func(file string, fits func(*image) string) {
		file = filepath.Clean(file)
		if tried[file] || b.check() != nil {
			return
		}
		tried[file] = true
		img, err := openImage(file)
		if err != nil {
			if _, serr := filepath.EvalSymlinks(file); serr == nil && why == "" {
				why = err.Error()
			}
			return
		}
		if not := fits(img); not != "" {
			img.close()
			why = fmt.Sprintf("%s is not the one recorded: %s", file, not)
			return
		}
		images = append(images, img)
	}
	fits := func(img *image) string {
		switch {
		case img.buildID == id:
			return ""
		case img.buildID == "":
			return "it has no build id, that has " + id
		case id == "":
			return "its build id is " + img.buildID + ", that had none"
		}
		return "its build id is " + img.buildID + ", not " + id
	}

	module = strings.TrimSuffix(module, gone)
	name := path.Base(module)
	try(module, fits)
	for _, dir := range f.search {
		try(filepath.Join(dir, filepath.FromSlash(module)), fits)
	}
	if len(f.search) > 0 {
		for _, file := range append(f.named(b, name), f.named(b, name+".debug")...) { // as objcopy --only-keep-debug is used
			try(file, fits)
		}
	}
	for _, file := range f.byID(id) {
		try(file, fits)
	}
	if len(images) > 0 {
		f.linked(b, images[0], module, id, try, fits)
	}
	if len(images) > 0 {
		why = ""
	}
	return images, why
}

// byID are the files that folders have of a build id, where they are laid out so.
func (f *finder) byID(id string) (files []string) {
	files = append(files, f.ids[id]...)
	if len(id) <= 2 || strings.ContainsAny(id, `./\`) {
		return files
	}
	split := filepath.Join(".build-id", id[:2], id[2:])
	for _, dir := range append(append([]string(nil), f.debug...), f.search...) {
		files = append(files, filepath.Join(dir, split+".debug"), filepath.Join(dir, split),
			filepath.Join(dir, id, "debuginfo"), filepath.Join(dir, id, "executable")) // the last two as debuginfod's clients keep them
	}
	return files
}

// linked tries the debug file that an image names. Where neither has a build id
// its checksum decides.
func (f *finder) linked(b *budget, img *image, module, id string, try func(string, func(*image) string), fits func(*image) string) {
	name, crc := img.link()
	if name == "" || name != filepath.Base(name) {
		return
	}
	if id == "" {
		fits = func(img *image) string {
			if img.buildID == "" && checksum(b, img) == crc {
				return ""
			}
			return "its checksum is another"
		}
	}
	for _, dir := range []string{filepath.Dir(img.path), filepath.Dir(filepath.FromSlash(module))} {
		try(filepath.Join(dir, ".debug", name), fits)
		if filepath.Join(dir, name) != img.path {
			try(filepath.Join(dir, name), fits)
		}
		for _, debug := range f.debug {
			try(filepath.Join(debug, dir, name), fits)
		}
	}
	if len(f.search) > 0 {
		for _, file := range f.named(b, name) {
			try(file, fits)
		}
	}
}

// checksum is that of .gnu_debuglink.
func checksum(b *budget, img *image) uint32 {
	h := crc32.NewIEEE()
	for at := int64(0); b.check() == nil; {
		n, err := io.Copy(h, io.NewSectionReader(img.file, at, 16<<20))
		if at += n; n == 0 || err != nil {
			break
		}
	}
	return h.Sum32()
}
