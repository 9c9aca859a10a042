package diff

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/tree"
	"github.com/gpurec/gpurec/format"
)

// A Limit is how much the peak of used bytes may rise from A to B: bytes, or
// percent of A's.
type Limit struct {
	text    string // as it was given
	words   string // with its unit: a number alone is bytes
	bytes   int64
	percent float64 // where bytes is less than 0
}

// ParseLimit reads 5%, 1048576, 512MiB or 1.5GiB.
func ParseLimit(s string) (Limit, error) {
	if p, ok := strings.CutSuffix(s, "%"); ok {
		f, err := strconv.ParseFloat(strings.TrimSpace(p), 64)
		if err != nil || f < 0 || math.IsInf(f, 0) || math.IsNaN(f) {
			return Limit{}, fmt.Errorf("%q is no percentage", s)
		}
		return Limit{text: s, words: s, bytes: -1, percent: f}, nil
	}
	n, err := analyze.ParseBytes(s)
	if err != nil {
		return Limit{}, fmt.Errorf("%q is neither bytes (1048576, 512MiB, 1.5GiB) nor a percentage (5%%)", s)
	}
	return Limit{text: s, words: tree.Size(n), bytes: n}, nil
}

// exceeded reports whether a rise from a to b is more than l.
func (l Limit) exceeded(a, b int64) bool {
	switch {
	case b <= a:
		return false
	case l.bytes >= 0:
		return b-a > l.bytes
	}
	return float64(b-a) > float64(a)*l.percent/100
}

// A Gate is whether a rise is more than its limit.
type Gate struct {
	Limit    string `json:"fail_above"`
	Exceeded bool   `json:"exceeded"`
	Sentence string `json:"sentence"`
}

// Judge looks at the peak of everything, and at that of each device, which a
// fall on another must not hide.
func (r *Report) Judge(l Limit) {
	r.Gate = &Gate{Limit: l.text}
	a, b := r.A.Bytes.Peak, r.B.Bytes.Peak
	what := "the peak"
	r.Gate.Exceeded = l.exceeded(a, b)
	for _, d := range r.Devices {
		if r.Gate.Exceeded {
			break
		}
		if l.exceeded(d.Bytes[0].Peak, d.Bytes[1].Peak) {
			a, b = d.Bytes[0].Peak, d.Bytes[1].Peak
			what = d.words() + ": its peak"
			r.Gate.Exceeded = true
		}
	}
	than := "not more than"
	if r.Gate.Exceeded {
		than = "more than"
	}
	r.Gate.Sentence = fmt.Sprintf("%s of %s bytes went from %s to %s, %s, %s %s", what, r.Curve, tree.Size(a), tree.Size(b), change(a, b), than, l.words)
}

func (d *Device) words() string {
	switch {
	case d.A == d.B:
		return "device " + deviceName(d.A)
	case d.A == format.NoDevice:
		return "device " + deviceName(d.B) + ", in B only"
	case d.B == format.NoDevice:
		return "device " + deviceName(d.A) + ", in A only"
	}
	return fmt.Sprintf("device %s of A, %s of B", deviceName(d.A), deviceName(d.B))
}

// change is a difference in bytes and percent.
func change(a, b int64) string {
	switch {
	case a == b:
		return "no change"
	case a == 0:
		return signed(b - a)
	}
	return fmt.Sprintf("%s, %+.1f %%", signed(b-a), 100*float64(b-a)/float64(a))
}

// signed is for people: the exact numbers stand beside it.
func signed(n int64) string {
	if n > 0 {
		return "+" + format.Bytes(n)
	}
	return format.Bytes(n)
}
