//go:build !unix

package format

const nonblock = 0
