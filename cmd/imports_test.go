// Package cmd holds the two commands, each in its folder, and the policy of who
// may import whom in this module.
package cmd

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

const module = "github.com/gpurec/gpurec/"

// policy says what each folder may import of ours and of others. A pattern ends
// in /... for a folder and all below it. The first row whose folder matches
// counts. The standard library is free to all but for "C", which only
// cuda/nvml reaches, through go-nvml: gpuanalyze must build without cgo, and
// must run where there is no GPU.
//
// It is a statement of the architecture: an event goes hook → lane → recorder
// → file → replay → answer, and nothing imports against that direction. Change
// a row only together with the package comment that explains the wall.
var policy = []struct {
	folder string
	ours   []string
	others []string
}{
	{"format/internal/gen", []string{"format"}, nil},
	{"format/live", []string{"format"}, nil},
	{"format/formattest", []string{"format"}, nil},
	{"format", nil, []string{"github.com/apache/arrow/go/v15/...", "github.com/klauspost/compress/..."}},
	{"recorder/ring", []string{"format"}, []string{"golang.org/x/sys/unix"}},
	{"recorder/metrics", []string{"recorder", "format", "format/live"}, nil},
	{"recorder", []string{"format", "format/live", "recorder/ring"}, []string{"golang.org/x/sys/unix"}},
	{"cuda/nvml", []string{"format"}, []string{"github.com/NVIDIA/go-nvml/..."}},
	{"cuda", []string{"format"}, []string{"github.com/klauspost/compress/..."}},
	{"cuda/...", []string{"format", "cuda"}, []string{"github.com/klauspost/compress/..."}},
	{"analyze/export", []string{"analyze", "analyze/...", "format", "format/live"}, []string{"github.com/apache/arrow/go/v15/...", "github.com/klauspost/compress/..."}},
	{"analyze/export/stacks", []string{"analyze", "analyze/...", "format", "format/live"}, []string{"github.com/google/pprof/profile"}},
	{"analyze/export/perfetto", []string{"analyze", "analyze/...", "format", "format/live"}, nil},
	{"analyze/export/torch", []string{"analyze", "analyze/...", "format", "format/live"}, nil},
	{"analyze/report", []string{"analyze", "analyze/...", "format", "format/live"}, nil},
	{"analyze/ingest", []string{"analyze", "format", "format/live"}, []string{"github.com/klauspost/compress/..."}},
	{"analyze", []string{"format", "format/live"}, nil},
	{"analyze/tree", []string{"analyze", "format", "format/live"}, nil},
	{"analyze/symbols", []string{"format", "analyze/symbols/dwarf"}, []string{"github.com/ianlancetaylor/demangle", "github.com/ulikunitz/xz", "github.com/ulikunitz/xz/lzma"}},
	{"analyze/symbols/dwarf", nil, nil},
	{"analyze/segments", []string{"analyze", "format", "format/live"}, nil},
	{"analyze/...", []string{"analyze", "analyze/tree", "analyze/segments", "format", "format/live"}, nil}, // one answer never imports another
	{"cmd/gpurec", []string{"recorder", "recorder/...", "cuda", "cuda/...", "format", "format/live", "analyze/symbols", "analyze/tree"}, []string{"github.com/spf13/pflag", "golang.org/x/sys/unix"}},
	{"cmd/gpuanalyze", []string{"analyze", "analyze/...", "format", "format/live"}, []string{"github.com/spf13/pflag"}},
	{"cmd/internal/torture", []string{"format", "format/live", "recorder/ring"}, nil}, // runs the commands as they are
	{"cmd", nil, nil},
}

// forTests may be imported by every test beside what its folder may import; a
// test may also run the whole way.
var forTests = []string{"format", "format/...", "recorder", "recorder/...", "cuda", "cuda/..."}

func matches(patterns []string, p string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		base, tree := strings.CutSuffix(pattern, "/...")
		return p == base && !tree || tree && strings.HasPrefix(p, base+"/")
	})
}

// violations reads every Go source below root and returns what breaks the
// policy, with the number of files it read.
func violations(root fs.FS) (bad []string, files int, err error) {
	err = fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if base := d.Name(); name != "." && (strings.HasPrefix(base, ".") || base == "testdata" || base == "benchmarks" || base == "build") {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(name) != ".go" {
			return nil
		}
		files++
		src, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, src, parser.ImportsOnly)
		if err != nil {
			return err
		}
		folder := path.Dir(name)
		i := slices.IndexFunc(policy, func(p struct {
			folder string
			ours   []string
			others []string
		}) bool {
			return p.folder == folder || matches([]string{p.folder}, folder)
		})
		if i < 0 {
			bad = append(bad, fmt.Sprintf("%s: folder %s has no row in the policy", name, folder))
			return nil
		}
		rule, isTest := policy[i], strings.HasSuffix(name, "_test.go")
		for _, imp := range f.Imports {
			p, _ := strconv.Unquote(imp.Path.Value)
			ours, isOurs := strings.CutPrefix(p, module)
			switch {
			case p == "C":
				bad = append(bad, name+": imports C")
			case isOurs && ours == folder:
			case isOurs && !matches(rule.ours, ours) && !(isTest && matches(forTests, ours) && !againstCgo(folder, ours)):
				bad = append(bad, name+": "+folder+" may not import "+ours)
			case !isOurs && strings.Contains(strings.SplitN(p, "/", 2)[0], ".") && !matches(rule.others, p) && !(isTest && strings.HasPrefix(p, "github.com/apache/arrow/go/v15/")):
				bad = append(bad, name+": "+folder+" may not import "+p)
			}
		}
		return nil
	})
	return bad, files, err
}

// againstCgo keeps even the tests of what must build without cgo away from the
// recorder and the vendor boundary.
func againstCgo(folder, ours string) bool {
	pure := strings.HasPrefix(folder, "analyze") || strings.HasPrefix(folder, "format") || folder == "cmd/gpuanalyze"
	return pure && !strings.HasPrefix(ours, "format")
}

func TestImportsFollowThePolicy(t *testing.T) {
	bad, files, err := violations(os.DirFS(".."))
	if err != nil {
		t.Fatal(err)
	}
	if files < 20 {
		t.Fatalf("read only %d Go files: the walk is broken", files)
	}
	for _, b := range bad {
		t.Error(b)
	}
}

// The policy must bite: each row is one import against it.
func TestPolicyRefuses(t *testing.T) {
	for _, row := range []struct{ name, file, imports string }{
		{"format imports ours", "format/x.go", module + "format/live"},
		{"analyze imports recorder", "analyze/x.go", module + "recorder"},
		{"one answer imports another", "analyze/lines/x.go", module + "analyze/devices"},
		{"recorder imports go-nvml", "recorder/x.go", "github.com/NVIDIA/go-nvml/pkg/nvml"},
		{"recorder imports cuda", "recorder/x.go", module + "cuda"},
		{"gpuanalyze imports recorder, in a test", "cmd/gpuanalyze/x_test.go", module + "recorder"},
		{"cgo", "analyze/x.go", "C"},
		{"pflag outside cmd", "recorder/x.go", "github.com/spf13/pflag"},
		{"a folder nobody listed", "helpers/x.go", "fmt"},
	} {
		t.Run(row.name, func(t *testing.T) {
			src := "package x\nimport _ \"" + row.imports + "\"\n"
			bad, _, err := violations(fstest.MapFS{row.file: {Data: []byte(src)}})
			if err != nil || len(bad) != 1 {
				t.Errorf("got %q, %v; want one violation", bad, err)
			}
		})
	}
}
