package analyze

import (
	"strings"
	"unicode"
)

// Printable keeps what a trace claims from steering a terminal: names, paths
// and command lines are the recorded program's. Controls and characters that
// turn the direction of text are replaced; everything else is as it is.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp) {
			return '\uFFFD'
		}
		return r
	}, s)
}
