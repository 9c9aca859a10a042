package live

import (
	"fmt"
	"testing"

	"github.com/gpurec/gpurec/format"
)

// What became of each request, in the order in which it is known.
func TestRefusals(t *testing.T) {
	ev := func(k format.Kind, api format.API, thread uint32, size int64) format.Event {
		i := api.Info()
		e := format.Event{Kind: k, API: api, Layer: i.Layer, Class: i.Class, Process: 1, Thread: thread, Size: size, Requested: -1, Reserved: -1}
		if k == format.AllocFailed {
			e.Size, e.Requested, e.Status = 0, size, outOfMemory
		}
		return e
	}
	refused := func(thread uint32, n int64) format.Event {
		return ev(format.AllocFailed, format.APIMemAlloc, thread, n)
	}
	got := func(thread uint32, n int64) format.Event { return ev(format.Alloc, format.APIMemAlloc, thread, n) }
	with := func(e format.Event, f func(*format.Event)) format.Event { f(&e); return e }
	handle, pool := format.APIMemCreate, format.APITorch
	for _, row := range []struct {
		name   string
		events []format.Event
		want   string
	}{
		{"a retry", []format.Event{refused(1, 10), refused(1, 10), got(1, 10)}, "refused 10; served 10 after 2; "},
		{"a report", []format.Event{refused(1, 10), refused(1, 10), ev(format.AllocFailed, format.APITorchOOM, 1, 9)}, "refused 10; torch.oom 9 after 2; "},
		{"a report without a refusal", []format.Event{ev(format.AllocFailed, format.APICuPy, 1, 9)}, "cupy 9; "},
		{"of another thread", []format.Event{refused(1, 10), ev(format.AllocFailed, format.APICuPy, 2, 9), got(1, 10)}, "refused 10; cupy 9; served 10 after 1; "},
		{"something else is had", []format.Event{refused(1, 10), got(1, 8)}, "refused 10; cuMemAlloc_v2 10 after 1; "},
		{"something else is asked for", []format.Event{refused(1, 10), refused(1, 8), got(1, 8)}, "refused 10; cuMemAlloc_v2 10 after 1; refused 8; served 8 after 1; "},
		{"a scope ends", []format.Event{refused(1, 10), ev(format.ScopeEnd, format.APINVTX, 1, -1), got(1, 10)}, "refused 10; cuMemAlloc_v2 10 after 1; "},
		{"frees come between", []format.Event{refused(1, 10), ev(format.Free, format.APIMemFree, 1, -1), ev(format.Free, pool, 1, -1), got(1, 10)}, "refused 10; served 10 after 1; "},
		{"handles", []format.Event{ev(format.AllocFailed, handle, 1, 2), ev(format.Alloc, handle, 1, 2), ev(format.AllocFailed, handle, 1, 2), ev(format.Alloc, pool, 1, 6)}, "refused 2; served 2 after 2; "},
		{"the process ends", []format.Event{refused(1, 10), refused(2, 20), ev(format.ProcessEnd, format.APINone, 0, -1)}, "refused 10; refused 20; cuMemAlloc_v2 10 after 1; cuMemAlloc_v2 20 after 1; "},
		{"the trace ends", []format.Event{refused(1, 10)}, "refused 10; cuMemAlloc_v2 10 after 1; "},
		{"no matter of memory", []format.Event{with(refused(1, 10), func(e *format.Event) { e.Status = 1 }), ev(format.AllocFailed, format.APIMemHostAlloc, 1, 5),
			with(refused(1, 10), func(e *format.Event) { e.Flags = format.FlagEcho })}, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			var s Refusals
			said := ""
			s.OnRefused = func(r *Refusal) { said += fmt.Sprintf("refused %d; ", Asked(&r.First)) }
			s.OnServed = func(r *Refusal, _ *format.Event) {
				said += fmt.Sprintf("served %d after %d; ", Asked(&r.First), r.Count)
			}
			s.OnTold = func(r *Refusal, e *format.Event) {
				said += fmt.Sprintf("%v %d", e.API, Asked(e))
				if r != nil {
					said += fmt.Sprintf(" after %d", r.Count)
				}
				said += "; "
			}
			for _, e := range row.events {
				s.Event(&e)
			}
			s.End()
			if said != row.want {
				t.Errorf("got  %s\nwant %s", said, row.want)
			}
			if len(s.open) > 0 {
				t.Errorf("%d left open", len(s.open))
			}
		})
	}
}
