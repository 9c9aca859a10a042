package nvml

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpurec/gpurec/format"
)

const ms = format.Time(time.Millisecond)

// What a track passes on, reading by reading.
func TestTrack(t *testing.T) {
	p1 := []format.ProcessReading{{PID: 7, Used: 5}}
	p2 := []format.ProcessReading{{PID: 7, Used: 6}}
	none := []format.ProcessReading{}
	type step struct {
		at    format.Time
		m     Memory
		procs []format.ProcessReading
		peak  int64 // -1: nothing is passed on
	}
	const kept = -1
	for _, tc := range []struct {
		name  string
		steps []step
	}{
		{"the first is passed on", []step{{0, used(100), nil, 100}}},
		{"a first use of 0 too", []step{{0, used(0), nil, 0}}},
		{"a repetition is kept back", []step{{0, used(100), nil, 100}, {10 * ms, used(100), nil, kept}}},
		{"a change is passed on", []step{{0, used(100), nil, 100}, {10 * ms, used(101), nil, 101}, {20 * ms, used(100), nil, 100}}},
		{"a repetition is passed on after a second", []step{
			{0, used(100), nil, 100}, {999 * ms, used(100), nil, kept}, {1000 * ms, used(100), nil, 100},
			{1999 * ms, used(100), nil, kept}, {2000 * ms, used(100), nil, 100}}},
		{"free alone is a change", []step{{0, used(100), nil, 100}, {10 * ms, Memory{Total: 16 * gib, Used: 100, Free: 1, Reserved: gib, API: 2}, nil, 100}}},
		{"processes change", []step{{0, used(100), p1, 100}, {10 * ms, used(100), p1, kept}, {20 * ms, used(100), p2, 100}}},
		{"the last process ends", []step{{0, used(100), p1, 100}, {10 * ms, used(100), none, 100}, {20 * ms, used(100), none, kept}}},
		{"processes not asked are no change", []step{{0, used(100), p1, 100}, {10 * ms, used(100), nil, kept}, {20 * ms, used(100), p1, kept}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tr := track{uuid: "GPU-a"}
			for i, s := range tc.steps {
				r := tr.take(s.at, s.m, s.procs)
				if (r != nil) != (s.peak != kept) {
					t.Fatalf("reading %d: passed on %v", i, r != nil)
				}
				if r == nil {
					continue
				}
				if r.PeakUsed != s.peak || r.Used != s.m.Used || r.Free != s.m.Free || r.Reserved != s.m.Reserved || r.Total != s.m.Total ||
					r.API != s.m.API || r.Time != s.at || r.UUID != "GPU-a" || (r.Processes == nil) != (s.procs == nil) {
					t.Errorf("reading %d: %+v", i, r)
				}
			}
		})
	}
}

// When a device that refuses is asked again, and when it is given up.
func TestTrackRefusals(t *testing.T) {
	passing := &Status{Code: 999, Text: "unknown error"}
	var tr track
	at := format.Time(0)
	for i := 1; i <= maxRefusals; i++ {
		if !tr.due(at) {
			t.Fatalf("not due before refusal %d", i)
		}
		gone := tr.refused(at, passing)
		if gone != (i == maxRefusals) {
			t.Fatalf("refusal %d: gone %v", i, gone)
		}
		if tr.due(at + 10*ms) {
			t.Fatalf("asked again 10 ms after refusal %d", i)
		}
		at += format.Time(retryAfter)
	}
	tr = track{}
	for range 3 * maxRefusals { // an answer in between starts the count again
		if tr.refused(at, passing) {
			t.Fatal("given up although it answers every other time")
		}
		tr.take(at, used(1), nil)
		if !tr.due(at + 1) {
			t.Fatal("still waiting after an answer")
		}
	}
	tr = track{}
	if !tr.refused(at, lost()) {
		t.Error("a lost GPU is asked again")
	}
}

// collect runs s until enough says so.
func collect(t *testing.T, s *Sampler, enough func([]format.Reading) bool) ([]format.Reading, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var got []format.Reading
	err := s.Run(ctx, func(r *format.Reading) {
		got = append(got, *r)
		if enough(got) {
			cancel()
		}
	})
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		t.Fatalf("not enough in a minute: %+v", got)
	}
	return got, err
}

func of(got []format.Reading, uuid string) (n int) {
	for _, r := range got {
		if r.UUID == uuid {
			n++
		}
	}
	return n
}

// Case C3: a GPU is lost half way. The other goes on, the reason is said once.
func TestSamplerLosesDevice(t *testing.T) {
	var changing []memAnswer
	for i := range 1000 {
		changing = append(changing, memAnswer{m: used(int64(i))})
	}
	n := fakeNVML(
		&fakeHandle{d: Device{UUID: "GPU-a"}, mem: append([]memAnswer{{}, {m: used(1)}, {m: used(2)}}, memAnswer{err: lost()})},
		&fakeHandle{d: Device{UUID: "GPU-b"}, mem: changing},
	)
	var said []error
	s := &Sampler{NVML: n, Interval: time.Millisecond, OnError: func(err error) { said = append(said, err) }}
	got, err := collect(t, s, func(got []format.Reading) bool { return of(got, "GPU-b") >= 20 })
	if of(got, "GPU-a") != 2 {
		t.Errorf("the lost device gave %d readings, want 2", of(got, "GPU-a"))
	}
	const words = "nvml: memory of device 0 (GPU-a): GPU is lost (NVML error 15)"
	if len(said) != 1 || said[0].Error() != words {
		t.Errorf("said %v", said)
	}
	if err == nil || err.Error() != words {
		t.Errorf("Run returned %v", err)
	}
	for i := 1; i < len(got); i++ {
		if got[i].Time < got[i-1].Time {
			t.Errorf("reading %d is older than the one before", i)
		}
	}
}

func TestSamplerEndsWhenAllAreLost(t *testing.T) {
	n := fakeNVML(
		&fakeHandle{d: Device{UUID: "GPU-a"}, mem: []memAnswer{{m: used(1)}, {err: lost()}}},
		&fakeHandle{d: Device{UUID: "GPU-b"}, mem: []memAnswer{{m: used(1)}, {err: lost()}}},
	)
	err := (&Sampler{NVML: n}).Run(context.Background(), func(*format.Reading) { t.Error("a lost device was read") })
	if err == nil || strings.Count(err.Error(), "GPU is lost") != 2 || strings.Contains(err.Error(), "\n") {
		t.Errorf("Run returned %v", err)
	}
	if err := (&Sampler{NVML: fakeNVML()}).Run(context.Background(), nil); err == nil {
		t.Error("a machine without devices is sampled in silence")
	}
}

func TestSamplerProcesses(t *testing.T) {
	var changing []memAnswer
	for i := range 1000 {
		changing = append(changing, memAnswer{m: used(int64(i))})
	}
	two := []format.ProcessReading{{PID: 7, Used: 5}, {PID: 8, Used: format.Unknown}}
	n := fakeNVML(
		&fakeHandle{d: Device{UUID: "GPU-a"}, mem: changing, procs: []procAnswer{{p: two}}},
		&fakeHandle{d: Device{UUID: "GPU-b"}, mem: changing, procs: []procAnswer{{err: &Status{Code: 3, Text: "not supported"}}}},
	)
	got, err := collect(t, &Sampler{NVML: n, Interval: time.Millisecond, Processes: true}, func(got []format.Reading) bool { return len(got) >= 60 })
	asked := 0
	for _, r := range got {
		if r.Processes == nil {
			continue
		}
		asked++
		if r.UUID != "GPU-a" || len(r.Processes) != 2 || r.Processes[1] != two[1] {
			t.Errorf("processes of %s: %v", r.UUID, r.Processes)
		}
	}
	if a := of(got, "GPU-a"); asked != (a+processEvery-1)/processEvery {
		t.Errorf("processes in %d of %d readings", asked, a)
	}
	if err == nil || strings.Count(err.Error(), "not supported") != 1 {
		t.Errorf("Run returned %v", err)
	}
}

// A call that never returns must not keep a recording from ending, and nothing
// comes out of it afterwards.
func TestSamplerHangs(t *testing.T) {
	hang := make(chan struct{})
	h := &fakeHandle{d: Device{UUID: "GPU-a"}, mem: []memAnswer{{m: used(1)}, {m: used(2)}}}
	n := fakeNVML(h)
	h.hang = hang
	ctx, cancel := context.WithCancel(context.Background())
	cancel2 := time.AfterFunc(20*time.Millisecond, cancel)
	defer cancel2.Stop()
	var mu sync.Mutex
	returned := false
	err := (&Sampler{NVML: n, Interval: time.Millisecond}).Run(ctx, func(r *format.Reading) {
		mu.Lock()
		defer mu.Unlock()
		if returned {
			t.Error("a reading after Run returned")
		}
	})
	mu.Lock()
	returned = true
	mu.Unlock()
	if err == nil || !strings.Contains(err.Error(), "has not returned") {
		t.Errorf("Run returned %v", err)
	}
	// Closing does not wait for the call; the call closes the library when it returns.
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	lib := n.lib.(*fakeDriver)
	if lib.closed.Load() {
		t.Error("the library was closed under a running call")
	}
	close(hang)
	for !lib.closed.Load() {
		time.Sleep(time.Millisecond)
	}
}
