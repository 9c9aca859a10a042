package analyze

import (
	"path"
	"regexp"
	"strings"

	"github.com/gpurec/gpurec/format"
)

// places are where what is not the program's own is installed. What follows is
// named as people import it: torch/nn/modules/module.py.
var places = regexp.MustCompile(`^/.*(?:/(?:site|dist)-packages/|/pkg/mod/|/registry/src/[^/]+/|/lib/(python3[^/]*/))|^/rustc/[^/]+/`)

// shortFiles says how people see the names of a trace's files, always the end of
// the name:
//
//  1. what is installed, without the place: torch/nn/modules/module.py,
//     python3.12/threading.py;
//  2. what is in the folder that the program's own files have in common, within that.
//     A file far off, as code that was made under /tmp, has no say in it: of own files
//     that share no folder the most do that share their first one;
//  3. a name that two files would have stays whole, and so do all others.
//
// The folder is that of the trace's definitions, not of what an answer shows, so that
// a file has one name in all answers. A trace does not have the folder in which a
// program was started.
func shortFiles(defs *format.Defs) func(string) string {
	all, own := map[string]bool{}, map[string]bool{} // own: false is not known to be
	apart := map[string]bool{}
	other := func(name string) bool { // said once of each file and module: a million frames have few of them
		is, known := apart[name]
		if !known {
			is = foreign(name)
			apart[name] = is
		}
		return is
	}
	defs.EachFrame(func(f *format.Frame) {
		if f.File == "" || own[f.File] {
			return
		}
		all[f.File] = true
		if f.Kind == format.FrameNative && (other(f.Module) || other(f.File)) {
			return
		}
		if path.IsAbs(f.File) && Own(f) && !Foreign(f) {
			own[f.File] = true
		}
	})
	folder := common(own)
	short := func(file string) string {
		if at := places.FindStringSubmatchIndex(file); at != nil && at[2] >= 0 {
			return file[at[2]:]
		} else if at != nil {
			return file[at[1]:]
		}
		return strings.TrimPrefix(file, folder)
	}
	names, of := map[string]string{}, map[string]string{} // by file; by short name, "" of several
	for file := range all {
		s := short(file)
		names[file] = s
		if _, taken := of[s]; taken {
			of[s] = ""
		} else {
			of[s] = file
		}
	}
	return func(file string) string {
		s, known := names[file]
		if !known { // of a trace that grows
			s = short(file)
		}
		if other, taken := of[s]; s == "" || taken && other != file {
			return file
		}
		return s
	}
}

// common is the folder of most files, with a slash at its end; "" where it is none
// below the root.
func common(files map[string]bool) string {
	type group struct {
		folder string
		files  int
	}
	groups := map[string]*group{}
	best := &group{}
	for file := range files {
		first, _, _ := strings.Cut(file[1:], "/")
		dir := file[:strings.LastIndexByte(file, '/')+1]
		g := groups[first]
		if g == nil {
			g = &group{folder: dir}
			groups[first] = g
		}
		g.files++
		for !strings.HasPrefix(dir, g.folder) {
			g.folder = g.folder[:strings.LastIndexByte(g.folder[:len(g.folder)-1], '/')+1]
		}
	}
	for _, g := range groups {
		if g.files > best.files || g.files == best.files && g.folder < best.folder {
			best = g
		}
	}
	if best.folder == "/" {
		return ""
	}
	return best.folder
}
