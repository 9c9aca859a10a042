package recorder

import (
	"fmt"
	"strconv"
	"strings"
)

// Data is what a scope measured on its curve, in bytes.
type Data struct {
	Begin int64 // at Start or the last Reset
	End   int64 // now, or when the scope was stopped
	Max   int64 // the largest in between, both ends included
	Lost  int64 // events of this program so far that are missing in these numbers
}

// Used is what the scope left behind; negative where it gave memory back.
func (d Data) Used() int64 { return d.End - d.Begin }

// Peaked is what it needed on the way beyond both of its ends. Used + Peaked
// is the extra memory needed to run it. It is never negative, because Max is
// exact: it comes from events, where fastai's comes from a sampling thread that
// may miss it.
func (d Data) Peaked() int64 { return d.Max - max(d.Begin, d.End) }

const mb = 1 << 20

// MB is fastai's arithmetic: each value is cut to whole MB (2^20 bytes, toward
// zero) before they are subtracted, so that one byte can make a difference of 1.
func (d Data) MB() Data { return Data{d.Begin / mb, d.End / mb, d.Max / mb, d.Lost} }

// String is fastai's report without a context:
//
//	△Used Peaked MB:      0      0
func (d Data) String() string {
	m := d.MB()
	return "△Used Peaked MB: " + field(m.Used()) + " " + field(m.Peaked())
}

// field is n with thousands commas, right-aligned in six columns, wider where
// it must be.
func field(n int64) string {
	s := strconv.FormatInt(n, 10)
	sign := ""
	if s[0] == '-' {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	s = sign + s
	return strings.Repeat(" ", max(0, 6-len(s))) + s
}

// missing is what a report says behind its context, nothing where no event is lost.
func (d Data) missing() string {
	if d.Lost == 0 {
		return ""
	}
	return fmt.Sprintf(" [partial: %d events are missing]", d.Lost)
}

// under is the end of a report: " (name: note)", " (name)", " (note)" or
// nothing. An empty text is there all the same; only an absent one is left out.
func under(name string, named bool, note []string) string {
	switch {
	case named && len(note) > 0:
		return " (" + name + ": " + note[0] + ")"
	case named:
		return " (" + name + ")"
	case len(note) > 0:
		return " (" + note[0] + ")"
	}
	return ""
}
