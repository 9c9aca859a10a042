package segments

import (
	"context"
	"fmt"
	"math/rand"
	"reflect"
	"testing"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/formattest"
	"github.com/gpurec/gpurec/format/live"
)

// An answer that looks at the pools after every event.
type answer struct {
	t     *Tracker
	after func(p *analyze.Pass, t *Tracker, e *format.Event)
}

func (a *answer) Needs() analyze.Needs                       { return analyze.Needs{} }
func (a *answer) Sample(*analyze.Pass, *format.Sample) error { return nil }
func (a *answer) End(*analyze.Pass) error                    { return nil }
func (a *answer) Begin(p *analyze.Pass) error {
	a.t = New(p)
	p.State.OnBegin = func(al *live.Allocation, _ *format.Event) { a.t.Begin(al) }
	p.State.OnEnd = a.t.End
	return nil
}
func (a *answer) Event(p *analyze.Pass, e *format.Event) error {
	a.t.Event(e)
	a.after(p, a.t, e)
	return nil
}

func follow(t *testing.T, tr *format.Trace, after func(p *analyze.Pass, t *Tracker, e *format.Event)) *answer {
	t.Helper()
	a := &answer{after: after}
	if _, err := analyze.Run(context.Background(), []string{tr.Path()}, &analyze.Query{}, a, nil); err != nil {
		t.Fatal(err)
	}
	return a
}

// last is the layout of the only pool after the last event.
func last(t *testing.T, text string) []*Segment {
	t.Helper()
	var out []*Segment
	var sums Sums
	follow(t, formattest.Text(t, text), func(_ *analyze.Pass, tr *Tracker, _ *format.Event) {
		if ps := tr.Pools(); len(ps) == 1 {
			out = tr.Layout(ps[0].Owner)
			sums = ps[0].Sums
		} else {
			out, sums = nil, Sums{}
		}
	})
	want := Total(out)
	if sums.Count, want.Count = 0, 0; sums != want { // a segment may be several mappings
		t.Errorf("sums %+v, layout %+v", sums, want)
	}
	return out
}

const process = "device 0 uuid=G total=1000000\nprocess 1 pid=7\npart\n"

func TestLayout(t *testing.T) {
	for _, row := range []struct {
		name, text string
		want       string // address size occupied pinned largest pieces blocks holes
	}{
		{"a segment with two holes", `
1 Alloc thread=7 api=cuMemAlloc_v2 device=0 address=0x1000 size=4096
2 Alloc thread=7 api=torch device=0 address=0x1000 size=512
3 Alloc thread=7 api=torch device=0 address=0x1400 size=1024
`, "0x1000 4096: 1536 occupied, 2560 pinned, largest 2048, pieces 1, blocks 2, holes [{4608 512} {6144 2048}]\n"},
		{"whole after its last free", `
1 Alloc thread=7 api=cuMemAlloc_v2 device=0 address=0x1000 size=4096
2 Alloc thread=7 api=torch device=0 address=0x1000 size=512
3 Free thread=7 api=torch address=0x1000
`, "0x1000 4096: 0 occupied, 0 pinned, largest 4096, pieces 1, blocks 0, holes [{4096 4096}]\n"},
		{"no segment without a block", `
1 Alloc thread=7 api=cuMemAlloc_v2 device=0 address=0x1000 size=4096
`, ""},
		{"a segment by the hook's word", `
1 Alloc thread=7 api=cuMemAlloc_v2 device=0 address=0x1000 size=4096 flags=inpool
`, "0x1000 4096: 0 occupied, 0 pinned, largest 4096, pieces 1, blocks 0, holes [{4096 4096}]\n"},
		{"a block across mappings, one of which is free", `
1 Alloc thread=7 api=cuMemCreate device=0 object=1 size=4096
2 Map thread=7 api=cuMemMap device=0 object=1 address=0x1000 size=4096
3 Alloc thread=7 api=cuMemCreate device=0 object=2 size=4096
4 Map thread=7 api=cuMemMap device=0 object=2 address=0x2000 size=4096
5 Alloc thread=7 api=torch device=0 address=0x1800 size=4096
6 Alloc thread=7 api=cuMemCreate device=0 object=3 size=4096
7 Map thread=7 api=cuMemMap device=0 object=3 address=0x3000 size=4096
8 Alloc thread=7 api=torch device=0 address=0x3000 size=512
9 Free thread=7 api=torch address=0x3000
`, "0x1000 12288: 4096 occupied, 4096 pinned, largest 6144, pieces 3, blocks 1, holes [{4096 2048} {10240 6144}]\n"},
		{"unmapped", `
1 Alloc thread=7 api=cuMemCreate device=0 object=1 size=4096
2 Map thread=7 api=cuMemMap device=0 object=1 address=0x1000 size=4096
3 Alloc thread=7 api=torch device=0 address=0x1000 size=512
4 Free thread=7 api=torch address=0x1000
5 Unmap thread=7 api=cuMemUnmap address=0x1000 size=4096
`, ""},
		{"a refused unmap", `
1 Alloc thread=7 api=cuMemCreate device=0 object=1 size=4096
2 Map thread=7 api=cuMemMap device=0 object=1 address=0x1000 size=4096
3 Alloc thread=7 api=torch device=0 address=0x1000 size=512
5 Unmap thread=7 api=cuMemUnmap address=0x1000 size=4096
6 FreeFailed thread=7 api=cuMemUnmap address=0x1000 size=4096 status=1
`, "0x1000 4096: 512 occupied, 3584 pinned, largest 3584, pieces 1, blocks 1, holes [{4608 3584}]\n"},
		{"a segment freed under its block, which is freed when another stands there", `
1 Alloc thread=7 api=cuMemAlloc_v2 device=0 address=0x1000 size=4096
2 Alloc thread=7 api=torch device=0 address=0x1200 size=512
3 Free thread=7 api=cuMemFree_v2 address=0x1000
4 Alloc thread=7 api=cuMemAlloc_v2 device=0 address=0x1000 size=4096
5 Alloc thread=7 api=torch device=0 address=0x1000 size=512
6 Free thread=7 api=torch address=0x1200
`, "0x1000 4096: 512 occupied, 3584 pinned, largest 3584, pieces 1, blocks 1, holes [{4608 3584}]\n"},
		{"reset", `
1 Alloc thread=7 api=cuMemCreate device=0 object=1 size=4096
2 Map thread=7 api=cuMemMap device=0 object=1 address=0x1000 size=4096
3 Alloc thread=7 api=torch device=0 address=0x1000 size=512
4 Reset thread=7 api=cuDevicePrimaryCtxReset_v2 device=0
`, ""},
		{"the process ends", `
1 Alloc thread=7 api=cuMemAlloc_v2 device=0 address=0x1000 size=4096
2 Alloc thread=7 api=torch device=0 address=0x1000 size=512
3 ProcessEnd thread=7 status=0
`, ""},
		{"a checkpoint's own word", `
1 Live thread=7 api=cuMemCreate device=0 object=1 size=4096 status=-1
1 LiveMapping thread=7 api=cuMemMap device=0 object=1 address=0x1000 size=4096
2 Live thread=7 api=torch device=0 address=0x1000 size=512
3 CheckpointEnd size=3
4 Alloc thread=7 api=torch device=0 address=0x1800 size=512
`, "0x1000 4096: 1024 occupied, 3072 pinned, largest 1536, pieces 1, blocks 2, holes [{4608 1536} {6656 1536}]\n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := ""
			for _, s := range last(t, process+row.text[1:]) {
				got += fmt.Sprintf("%#x %d: %d occupied, %d pinned, largest %d, pieces %d, blocks %d, holes %v\n",
					s.Address, s.Size, s.Occupied, s.Pinned, s.Largest, s.Pieces(), len(s.Blocks), s.Holes)
			}
			if got != row.want {
				t.Errorf("got  %swant %s", got, row.want)
			}
		})
	}
}

// What is kept in step with the events is what the layout comes to, after each
// of them.
func TestSumsAreTheLayouts(t *testing.T) {
	compared := 0
	for seed := range int64(30) {
		b := formattest.New(t)
		b.Process("random")
		b.Device("G", 1<<20)
		b.RandomPool(rand.New(rand.NewSource(seed)), 300)
		follow(t, b.Trace(), func(p *analyze.Pass, tr *Tracker, e *format.Event) {
			for _, pool := range tr.Pools() {
				want := Total(tr.Layout(pool.Owner))
				got := pool.Sums
				got.Count, want.Count = 0, 0 // a segment may be several mappings
				if !reflect.DeepEqual(got, want) {
					t.Fatalf("seed %d, %v at %d: sums %+v, layout %+v", seed, e.Kind, e.Time, got, want)
				}
				compared++
			}
		})
	}
	if compared < 1000 {
		t.Fatalf("compared %d times only", compared)
	}
}
