package analyze

// Plural is the ending of a word that n things have.
func Plural(n int64) string {
	if n == 1 {
		return ""
	}
	return "s"
}
