// Build compiles the hook and the simulated GPU into cuda/hook/build, from where
// the next build of gpurec embeds them: `go run ./cuda/internal/build` in the
// repository's root, or with another directory as its argument; with -arch for
// another machine, whose compiler CC names.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"

	"github.com/gpurec/gpurec/cuda"
)

func main() {
	arch := flag.String("arch", runtime.GOARCH, "the machine, as GOARCH says it")
	flag.Parse()
	dir := "cuda/hook/build"
	if flag.NArg() > 0 {
		dir = flag.Arg(0)
	}
	if err := cuda.BuildFor(*arch, dir); err != nil {
		fmt.Fprintln(os.Stderr, "build:", err)
		os.Exit(1)
	}
}
