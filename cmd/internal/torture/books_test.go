package main

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
)

// A comparison that lets everything pass would make every round a good one: each
// row is a trace that differs from the ledger in one thing.
func TestAgainst(t *testing.T) {
	thread := account{tid: 7,
		done: []entry{
			{alloc: true, address: 0x1000, size: 10, end: 1}, {alloc: true, address: 0x2000, size: 20, end: 2}, {address: 0x1000, end: 3},
			{address: 0x9, status: 1, end: 4}, {alloc: true, address: 0x1000, size: 30, end: 5}, {alloc: true, status: 2, size: 1 << 40, end: 6},
		},
		flight: &entry{address: 0x2000, begin: 7}}
	row := func(kind format.Kind, address uint64, requested int64) format.Event {
		return format.Event{Kind: kind, Address: address, Requested: requested, Process: 1, Thread: 7, Time: 1, API: format.APIMemFree}
	}
	good := []format.Event{
		row(format.Alloc, 0x1000, 10), row(format.Alloc, 0x2000, 20), row(format.Free, 0x1000, 0), row(format.Free, 0x9, 0), row(format.FreeFailed, 0x9, 0),
		row(format.Alloc, 0x1000, 30), row(format.AllocFailed, 0, 1<<40), row(format.Free, 0x2000, 0), row(format.Unfinished, 0x2000, -1),
	}
	lost := row(format.Lost, 0, 0)
	lost.Size = 1
	other := row(format.Alloc, 0x5000, 1)
	other.Thread = 8
	without := func(i int) []format.Event { return slices.Delete(slices.Clone(good), i, i+1) }
	for _, c := range []struct {
		name  string
		rows  []format.Event
		bound format.Time
		want  string // in the error, "" for none
	}{
		{"as it is", good, math.MaxInt64, ""},
		{"without what the call in flight may have left", good[:7], math.MaxInt64, ""},
		{"the call in flight has its event only", good[:8], math.MaxInt64, ""},
		{"an alloc is missing", without(1), math.MaxInt64, "not in the trace"},
		{"an alloc is missing and counted", append([]format.Event{lost}, without(1)...), math.MaxInt64, ""},
		{"two are missing and one is counted", append([]format.Event{lost}, good[2:]...), math.MaxInt64, "not in the trace"},
		{"a free is missing", without(2), math.MaxInt64, "not in the trace"},
		{"a refusal is missing", without(4), math.MaxInt64, "not in the trace"},
		{"a failure is missing", without(6), math.MaxInt64, "not in the trace"},
		{"the end is missing", good[:5], math.MaxInt64, "2 calls that are done are not in the trace"},
		{"the end is missing, which is not owed", good[:5], 4, ""},
		{"all of it is missing, which is not owed", nil, 0, ""},
		{"the middle is missing, which is owed if its end is there", without(2), 0, "not in the trace"},
		{"another order", append([]format.Event{good[1], good[0]}, good[2:]...), math.MaxInt64, "beyond the call in flight"},
		{"another size", append([]format.Event{row(format.Alloc, 0x1000, 11)}, good[1:]...), math.MaxInt64, "beyond the call in flight"},
		{"another event in flight", append(slices.Clone(good[:7]), good[1]), math.MaxInt64, "neither in the ledger"},
		{"an event twice", append(slices.Clone(good[:7]), good[6:]...), math.MaxInt64, "neither in the ledger"},
		{"a thread that is not in the ledger", append(slices.Clone(good), other), math.MaxInt64, "which the ledger does not have"},
		{"another call is unfinished", append(slices.Clone(good[:8]), row(format.Unfinished, 0x1000, -1)), math.MaxInt64, "the unfinished call is"},
		{"two calls are unfinished", append(slices.Clone(good), good[8]), math.MaxInt64, "2 unfinished calls"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr := &trace{rows: c.rows, defs: format.NewDefs(), state: live.New()}
			for i := range tr.rows {
				tr.state.Apply(&tr.rows[i])
			}
			tr.defs.PutProcess(format.Process{ID: 1, PID: 5})
			l := &ledger{pid: 5, threads: []account{thread}}
			f, err := l.against(tr, c.bound)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q; %+v", err, c.want, f)
			}
			if f.recorded < 0 || f.recorded+f.missing > f.done {
				t.Errorf("of %d calls %d are in the trace and %d are not", f.done, f.recorded, f.missing)
			}
		})
	}
}
