package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format/formattest"
)

// The traces recorded on an H200, with what the frameworks themselves said in
// the same runs. testdata/h200/README.md says how they were made.
const h200 = "../../testdata/h200"

func TestReportsOfH200(t *testing.T) {
	for _, name := range []string{"train", "cupy", "flavours"} {
		dir := filepath.Join(h200, name+".gpurec")
		for _, row := range []struct {
			report string
			args   []string
		}{
			{"lines", []string{"lines"}},
			{"lines-peak", []string{"lines", "--at", "peak"}},
			{"lines-end", []string{"lines", "--at", "end"}},
			{"contexts", []string{"contexts"}},
			{"contexts-fastai", []string{"contexts", "--units", "fastai"}},
			{"devices", []string{"devices"}},
			{"summary", []string{"summary"}},
		} {
			t.Run(name+"/"+row.report, func(t *testing.T) {
				code, stdout, stderr := command1(t, append(row.args, dir)...)
				if code != 0 {
					t.Errorf("exit %d\n%s", code, stderr)
				}
				if stdout == "" { // a program without contexts
					stdout = "(nothing)\n"
				}
				formattest.Golden(t, filepath.Join("h200", name+"."+row.report+".txt"), []byte(strings.ReplaceAll(stdout, dir, name+".gpurec")))
			})
		}
	}
}

// TestLinesOfH200AreCuPys: what CuPy's own LineProfileHook printed on the H200
// in the same run is what lines --scope prints, to the character.
func TestLinesOfH200AreCuPys(t *testing.T) {
	dir := filepath.Join(h200, "cupy.gpurec")
	formattest.Each(t, h200+"/cupy/*.txt", func(t *testing.T, path string) {
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		code, got, stderr := command1(t, "lines", "--scope", strings.TrimSuffix(filepath.Base(path), ".txt"), dir)
		if code != 0 || got != string(want) {
			t.Errorf("exit %d\n%s\ngot\n%s\nwant\n%s", code, stderr, got, want)
		}
	})
}
