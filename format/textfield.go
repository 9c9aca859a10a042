package format

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// A field is a word of a line, or its key=value.
type field struct {
	key    string // "" of a word
	value  string
	quoted bool
}

// splitFields splits a line that is not blank. Quotes are Go's, and may stand
// around a word or a value.
func splitFields(out []field, s string) ([]field, error) {
	for s = strings.TrimLeft(s, " \t"); s != ""; s = strings.TrimLeft(s, " \t") {
		if s[0] == '#' {
			break
		}
		var f field
		n := strings.IndexAny(s, " \t=\"")
		if n > 0 && s[n] == '=' {
			f.key, s = s[:n], s[n+1:]
			n = strings.IndexAny(s, " \t\"")
		}
		switch {
		case n == 0 && s[0] == '"':
			q, err := strconv.QuotedPrefix(s)
			if err != nil {
				return out, fmt.Errorf("a quote is not closed, or not as Go quotes: %.40q", s)
			}
			if f.value, err = strconv.Unquote(q); err != nil {
				return out, err
			}
			f.quoted, s = true, s[len(q):]
			if s != "" && s[0] != ' ' && s[0] != '\t' {
				return out, fmt.Errorf("no space after a quote: %.40q", s)
			}
		case n < 0:
			f.value, s = s, ""
		case s[n] == '"' || s[n] == '=':
			return out, fmt.Errorf("a quote or = inside a word: %.40q", s)
		default:
			f.value, s = s[:n], s[n:]
		}
		if f.value != cleanText(f.value) {
			return out, fmt.Errorf("a text is not UTF-8, or longer than %d bytes", MaxText)
		}
		out = append(out, f)
	}
	return out, nil
}

// args takes a line's fields one by one. The first error stays.
type args struct {
	fields []field
	field  // the current one
	err    error
}

func (a *args) fail(err error) {
	if a.err == nil {
		a.err = err
	}
}

func (a *args) unknown(what string) {
	a.fail(fmt.Errorf("%s has no key %q", what, a.key))
}

// next moves to the next key=value.
func (a *args) next() bool {
	if a.err != nil || len(a.fields) == 0 {
		return false
	}
	a.field, a.fields = a.fields[0], a.fields[1:]
	if a.key == "" {
		a.fail(fmt.Errorf("%q has no key", a.value))
	}
	return a.err == nil
}

// word takes the next word, which has no key.
func (a *args) word(what string) string {
	if len(a.fields) == 0 || a.fields[0].key != "" {
		a.fail(fmt.Errorf("%s is missing", what))
		a.field = field{}
		return ""
	}
	a.field, a.fields = a.fields[0], a.fields[1:]
	return a.value
}

func (a *args) textWord(what string) string { return a.word(what) }

func (a *args) intWord(what string, bits int) int64 {
	a.word(what)
	a.field.key = what
	return a.int(bits)
}

func (a *args) uintWord(what string, bits int) uint64 {
	a.word(what)
	a.field.key = what
	return a.uint(bits)
}

func (a *args) text() string { return a.value }

func (a *args) int(bits int) int64 {
	n, err := strconv.ParseInt(a.value, 0, bits)
	if err != nil {
		a.noNumber(err, bits)
	}
	return n
}

func (a *args) noNumber(err error, bits int) {
	if errors.Is(err, strconv.ErrRange) {
		a.fail(fmt.Errorf("%s: %.40q does not fit in %d bits", a.key, a.value, bits))
		return
	}
	a.fail(fmt.Errorf("%s: %.40q is no number", a.key, a.value))
}

func (a *args) uint(bits int) uint64 {
	n, err := strconv.ParseUint(a.value, 0, bits)
	if err != nil {
		a.noNumber(err, bits)
	}
	return n
}

// end holds that nothing is left.
func (a *args) end() error {
	if a.err == nil && len(a.fields) > 0 {
		a.err = fmt.Errorf("%q is more than the line can hold", a.fields[0].value)
	}
	return a.err
}
