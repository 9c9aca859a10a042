package analyze

import (
	"fmt"
	"math"
	"strconv"
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

// ParseBytes reads 1048576, 512MiB or 1.5GiB.
func ParseBytes(s string) (int64, error) {
	number, unit := s, 1.0
	for i, u := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if n, ok := strings.CutSuffix(s, u); ok {
			number, unit = strings.TrimSpace(n), math.Pow(1024, float64(i+1))
		}
	}
	if n, err := strconv.ParseInt(number, 10, 64); err == nil && n >= 0 && float64(n)*unit < math.MaxInt64 {
		return n * int64(unit), nil
	}
	f, err := strconv.ParseFloat(number, 64)
	if err != nil || !(f >= 0) || unit == 1 || f*unit >= math.MaxInt64 {
		return 0, fmt.Errorf("%q is not bytes, as 1048576, 512MiB or 1.5GiB", s)
	}
	return int64(f * unit), nil
}

// Given is a number for JSON, nil where nobody said it.
func Given(n int32) *int32 {
	if n < 0 {
		return nil
	}
	return &n
}
