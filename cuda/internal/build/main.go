// Build compiles the hook and the simulated GPU into cuda/hook/build, from where
// the next build of gpurec embeds them: `go run ./cuda/internal/build` in the
// repository's root, or with another directory as its argument.
package main

import (
	"fmt"
	"os"

	"github.com/gpurec/gpurec/cuda"
)

func main() {
	dir := "cuda/hook/build"
	if len(os.Args) > 1 {
		dir = os.Args[1]
	}
	if err := cuda.Build(dir); err != nil {
		fmt.Fprintln(os.Stderr, "build:", err)
		os.Exit(1)
	}
}
