package analyze

import (
	"strconv"
	"strings"
)

// Printable keeps what a trace claims from steering a terminal: names, paths
// and command lines are the recorded program's.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if strconv.IsPrint(r) {
			return r
		}
		return '\uFFFD'
	}, s)
}
