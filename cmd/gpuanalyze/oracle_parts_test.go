package main

import (
	"fmt"
	"reflect"
	"sort"
	"strings"
	"testing"
)

// judgeParts compares the answers that filters and windows leave.
func judgeParts(t *testing.T, dir string, want *oracle) (bad []string) {
	if len(want.Filtered) == 0 {
		t.Fatal("the oracle says nothing of filters")
	}
	for flags, w := range want.Filtered {
		same := func(what string, got, want any) {
			if !reflect.DeepEqual(got, want) {
				bad = append(bad, fmt.Sprintf("%s: %s: got %v, the oracle says %v", flags, what, got, want))
			}
		}
		args := strings.Fields(flags)
		if code, _, _ := command1(t, append([]string{"peak", "-q", dir}, args...)...); code == exitFailed {
			same("nothing fits", len(w.AtPeak), 0)
			continue
		}
		judgePeak(t, dir, w, same, args...)
		judgeLeaks(t, dir, w, same, args...)
		judgeRanks(t, dir, w, same, args...)
	}
	return append(bad, judgeWindow(t, dir, want)...)
}

func judgeRanks(t *testing.T, dir string, want *oracle, same compare, flags ...string) {
	var r struct {
		Ranks []struct {
			PID  int
			Used peakJSON `json:"peak_used"`
			Live int64    `json:"live_at_end"`
		}
	}
	answer(t, &r, "ranks", dir, flags...)
	peaks := 0
	for _, k := range r.Ranks {
		if k.Used.Bytes > 0 {
			peaks++
		}
		same(fmt.Sprintf("ranks: pid %d", k.PID), k.Used.pair(), want.Peaks[fmt.Sprintf("pid %d used", k.PID)])
		same(fmt.Sprintf("ranks: pid %d at its end", k.PID), k.Live, want.LiveAtEnd[fmt.Sprint(k.PID)])
	}
	for name, p := range want.Peaks {
		if strings.HasPrefix(name, "pid ") && strings.HasSuffix(name, " used") && p[0] > 0 {
			peaks--
		}
	}
	same("ranks with a peak, but for the oracle's", peaks, 0)
}

// judgeWindow compares the peaks of the middle of a trace with the oracle's
// history of it: of what stood at its begin, and what came after.
func judgeWindow(t *testing.T, dir string, want *oracle) (bad []string) {
	var times []int64
	for _, history := range want.History {
		for _, h := range history {
			times = append(times, h[0])
		}
	}
	if len(times) == 0 {
		return nil
	}
	sort.Slice(times, func(i, j int) bool { return times[i] < times[j] })
	from, to := times[len(times)/3], times[len(times)*2/3]
	truth := map[string][2]int64{}
	for device, history := range want.History {
		peak := [2]int64{0, from}
		for _, h := range history {
			if h[0] < from {
				peak[0] = h[1]
			}
		}
		for _, h := range history {
			if h[0] >= from && h[0] <= to && h[1] > peak[0] {
				peak = [2]int64{h[1], h[0]}
			}
		}
		if peak[0] > 0 {
			truth["device "+device] = peak
		}
	}
	window := []string{"--from", fmt.Sprint(from, "ns"), "--to", fmt.Sprint(to, "ns")}
	var p struct {
		Devices []struct {
			Device int
			At_ns  int64
			Used   int64
		}
	}
	answer(t, &p, "peak", dir, window...)
	got := map[string][2]int64{}
	for _, d := range p.Devices {
		if d.Used > 0 {
			got[fmt.Sprint("device ", d.Device)] = [2]int64{d.Used, d.At_ns}
		}
	}
	if !reflect.DeepEqual(got, truth) {
		bad = append(bad, fmt.Sprintf("peak %v: got %v, the oracle says %v", window, got, truth))
	}
	var l struct {
		Traces []struct {
			Series []struct {
				Name  string
				Max   int64
				MaxAt int64 `json:"max_at_ns"`
			}
		}
	}
	answer(t, &l, "timeline", dir, window...)
	got = map[string][2]int64{}
	for _, s := range l.Traces[0].Series {
		got[s.Name] = [2]int64{s.Max, s.MaxAt}
	}
	if !reflect.DeepEqual(got, truth) {
		bad = append(bad, fmt.Sprintf("timeline %v: got %v, the oracle says %v", window, got, truth))
	}
	return bad
}
