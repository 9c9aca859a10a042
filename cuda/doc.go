// Package cuda is the vendor boundary as the recorder sees it: the hook that
// runs in traced programs, the simulated GPU, the Python package, and the
// environment that puts them there.
//
//	hook/          C, the preload library        embedded, compiled
//	hook/fake/     C, the simulated GPU          embedded, compiled
//	hook/build/    both, as `go run ./cuda/internal/build` left them; may be empty
//	python/        what goes first on PYTHONPATH embedded
//	nvml/          readers of device memory      a package of its own
//
// It promises a path to each of them on a machine that has only the binary, and
// to compile at most once: libraries that were built with the binary are in it,
// else its sources are compiled with cc into the user's cache, keyed by what
// they and the flags are, and the caller is told.
// It refuses to know what is recorded or to call the driver.
package cuda
