package ranks

import (
	"math"
	"slices"
	"time"
)

// Thresholds of an outlier. Ranks of a job do the same work, so most are alike
// to the byte; 5 % keeps those out that differ by a buffer.
const (
	fewest     = 3 // ranks: with less nobody is the odd one
	deviations = 3.5
	percent    = 5
)

// normal makes a median absolute deviation a standard deviation, where values
// are normally distributed.
const normal = 1.4826

// judge compares.
func (r *Report) judge() {
	if len(r.Ranks) == 0 {
		return
	}
	var peaks []int64
	for _, one := range r.Ranks {
		peaks = append(peaks, one.Used.Bytes)
	}
	slices.Sort(peaks)
	r.Peaks = &Peaks{Least: peaks[0], Median: median(peaks), Mean: mean(peaks), Most: peaks[len(peaks)-1]}
	if r.Peaks.Mean > 0 {
		r.Peaks.Imbalance = float64(r.Peaks.Most)/float64(r.Peaks.Mean) - 1
	}
	r.outliers()
	r.Died = r.first(func(one *Rank) *time.Time {
		if one.Status == nil || *one.Status == 0 {
			return nil
		}
		return one.End
	})
	r.OutOfMemory = r.first(func(one *Rank) *time.Time { return one.OOM })
}

// mean adds up shares: the sum itself may be beyond all numbers.
func mean(numbers []int64) (m int64) {
	rest, n := int64(0), int64(len(numbers))
	for _, x := range numbers {
		m += x / n
		rest += x % n
	}
	return m + rest/n
}

// median is the middle of sorted numbers, the mean of both where there are two.
func median(sorted []int64) int64 {
	n := len(sorted)
	if n%2 == 1 {
		return sorted[n/2]
	}
	low, high := sorted[n/2-1], sorted[n/2]
	return low + (high-low)/2
}

func (r *Report) outliers() {
	if len(r.Ranks) < fewest || r.Peaks.Median == 0 {
		return
	}
	var apart []int64
	for _, one := range r.Ranks {
		apart = append(apart, distance(one.Used.Bytes, r.Peaks.Median))
	}
	slices.Sort(apart)
	far := math.Max(deviations*normal*float64(median(apart)), percent/100.0*float64(r.Peaks.Median))
	for _, one := range r.Ranks {
		if float64(distance(one.Used.Bytes, r.Peaks.Median)) > far {
			one.Outlier = float64(one.Used.Bytes)/float64(r.Peaks.Median) - 1
		}
	}
}

func distance(a, b int64) int64 { return max(a-b, b-a) }

// first is the rank with the earliest moment, nil where none has one.
func (r *Report) first(of func(*Rank) *time.Time) *Death {
	var d *Death
	var next *time.Time
	for i, one := range r.Ranks {
		at := of(one)
		switch {
		case at == nil:
		case d == nil || at.Before(d.Time):
			if d != nil {
				was := d.Time
				next = &was
			}
			d = &Death{Index: i, Time: *at}
		case next == nil || at.Before(*next):
			next = at
		}
	}
	if d != nil && next != nil {
		ns := int64(next.Sub(d.Time))
		d.Next = &ns
	}
	return d
}
