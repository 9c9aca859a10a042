package recorder

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
)

// TestRotate records many parts. Each begins with a checkpoint from which a
// replay reaches what a replay of everything reaches, and a part alone has all
// the definitions that it needs.
func TestRotate(t *testing.T) {
	for _, row := range []struct {
		name string
		opt  Options
	}{
		{"by size", Options{Wait: true, RotateSize: 4096}},
		{"by age", Options{Wait: true, RotateEvery: 50 * time.Millisecond}},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := record(t, row.opt)
			p := join(t, s, 1, format.DefaultLane)
			rnd := rand.New(rand.NewPCG(1, 2))
			liveAt := map[uint64]bool{}
			for began, i := time.Now(), 0; i < 30_000 || s.write.part.Load()>>sizeBits < 3 && time.Since(began) < 20*time.Second; i++ {
				a := uint64(rnd.IntN(300)) << 9
				kind, api := format.Alloc, format.APIMemAlloc
				if liveAt[a] {
					kind, api = format.Free, format.APIMemFree
				}
				liveAt[a] = !liveAt[a]
				if err := p.Event(wireEvent(kind, api, a, int64(rnd.IntN(1<<20))), &format.WireCall{CUctx: rnd.Uint64()}); err != nil {
					t.Fatal(err)
				}
				if i%5000 == 0 {
					time.Sleep(20 * time.Millisecond) // so that write gets to the disk in between
				}
			}
			r := finish(t, s)
			if len(r.parts) < 3 {
				t.Fatalf("%d parts", len(r.parts))
			}
			whole := live.New()
			for i := range r.events {
				whole.Apply(&r.events[i])
			}
			want := draw(whole)
			tr, err := format.Open(s.Output())
			if err != nil {
				t.Fatal(err)
			}
			for i, part := range r.parts {
				if i > 0 && !part[0].Kind.Checkpoint() {
					t.Errorf("part %d begins with %s", i, part[0].Kind)
				}
				from := live.New()
				for _, later := range r.parts[i:] {
					for k := range later {
						from.Apply(&later[k])
					}
				}
				if got := draw(from); got != want {
					t.Errorf("from part %d on the replay reaches\n%s\nfrom the start\n%s", i, got, want)
				}
				defs := format.NewDefs()
				if err := tr.Parts()[i].LoadDefs(defs); err != nil {
					t.Fatal(err)
				}
				for k := range part {
					if e := &part[k]; e.Stack != 0 {
						if _, ok := defs.Walk(e.Stack, nil); !ok {
							t.Fatalf("part %d does not define stack %d", i, e.Stack)
						}
					}
					if _, ok := defs.Process(part[k].Process); !ok && part[k].Process != 0 {
						t.Fatalf("part %d does not define process %d", i, part[k].Process)
					}
				}
			}
		})
	}
}

// draw is a state's sums and its live set.
func draw(s *live.State) string {
	out := ""
	for _, p := range s.Processes() {
		out += fmt.Sprintf("process %d acquired %+v live %d unknown %d lost %d\n", p.ID, p.Acquired(), p.LiveCount, p.UnknownFrees, p.LostFrees)
	}
	sum := uint64(0)
	s.Each(func(a *live.Allocation) bool {
		sum += a.Address*31 + uint64(a.Size) + uint64(a.Time)*7
		return true
	})
	return out + fmt.Sprint(sum)
}

// TestRotationHasSense: not before the events are worth a checkpoint.
func TestRotationHasSense(t *testing.T) {
	b := newBench(t, 1)
	b.f.s.opt.RotateSize = 1
	b.f.s.write.grown(0, 100)
	b.f.checkpoint, b.f.sinceRotate = 100, 399
	if b.f.rotationDue() {
		t.Error("rotates after less than four times the checkpoint's rows")
	}
	if b.f.sinceRotate++; !b.f.rotationDue() {
		t.Error("does not rotate")
	}
	if b.f.part++; b.f.rotationDue() {
		t.Error("rotates a part by the size of the one before")
	}
	if b.f.s.write.grown(1, 0); b.f.rotationDue() {
		t.Error("rotates a part that is not full")
	}
}
