//go:build unix

package format

import "syscall"

// nonblock makes opening a pipe that nobody writes to return at once.
const nonblock = syscall.O_NONBLOCK
