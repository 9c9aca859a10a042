package analyze

import "math"

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
