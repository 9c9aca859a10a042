//go:build !cgo

package nvml

import "errors"

func openLibrary(path string) (driver, error) {
	return nil, &LibraryError{Path: path, Op: "load", Err: errors.New("this build has no cgo"), Hint: "build with CGO_ENABLED=1 and a C compiler"}
}
