package analyze

import (
	"fmt"
	"math"
	"strings"
)

// Plural is the ending of a word that n things have.
func Plural(n int64) string {
	if n == 1 {
		return ""
	}
	return "s"
}

// Add adds two numbers that are not negative, and stays at the largest there
// is: a file may claim any number.
func Add(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// Exactly is a TIME to the nanosecond: what is printed for people may be rounded
// to before the event.
func Exactly(ns int64) string {
	sign := ""
	if ns < 0 {
		sign, ns = "-", -ns
	}
	return sign + strings.TrimRight(strings.TrimRight(fmt.Sprintf("%d.%09d", ns/1e9, ns%1e9), "0"), ".") + "s"
}

// Word is s as a shell reads it as one word.
func Word(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./+,:@%=", r)
	}
	if strings.HasPrefix(s, "-") { // no option
		s = "./" + s
	}
	if s != "" && strings.TrimLeftFunc(s, plain) == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
