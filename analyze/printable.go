package analyze

import (
	"strings"
	"unicode"
)

// Printable keeps what a trace claims from steering a terminal: names, paths
// and command lines are the recorded program's. Controls and characters that
// turn the direction of text are replaced; everything else is as it is.
func Printable(s string) string {
	if isPlain(s) {
		return s
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp) {
			return '\uFFFD'
		}
		return r
	}, s)
}

// isPlain reports whether s is of printable ASCII alone, as nearly every text is.
func isPlain(s string) bool {
	for i := range len(s) {
		if s[i]-' ' >= 0x7f-' ' {
			return false
		}
	}
	return true
}

// Short is Printable for a line of text: what is longer than anybody reads is
// cut, with a mark. JSON and exports keep all.
func Short(s string) string { return Cut(s, 200) }

// Line is Short for what holds paths, which are longer and must stay whole: a
// line of a tree, a sentence.
func Line(s string) string { return Cut(s, 4096) }

// Cut is Printable with at most so many characters, the mark not counted.
func Cut(s string, most int) string {
	if len(s) <= most {
		return Printable(s)
	}
	n := 0
	for i := range s {
		if n == most {
			return Printable(s[:i]) + "…"
		}
		n++
	}
	return Printable(s)
}
