package live

import (
	"maps"
	"testing"

	"github.com/gpurec/gpurec/format"
)

// Who hears of mappings has those that there are, after every event, also of a
// state that misses events until a checkpoint; those of a process end with it.
func TestMappingsAreTold(t *testing.T) {
	type place struct {
		process format.ProcessID
		at      uint64
	}
	told := 0
	for seed := range int64(40) {
		g, all, s, heard := newGenerator(seed), New(), New(), map[place]int64{}
		s.OnMap = func(a *Allocation, at uint64, size int64) { heard[place{a.Process, at}] = size; told++ }
		s.OnUnmap = func(p format.ProcessID, at uint64) {
			if _, there := heard[place{p, at}]; !there {
				t.Fatalf("seed %d: %#x of process %d ends, and has not begun", seed, at, p)
			}
			delete(heard, place{p, at})
		}
		for i := range 400 {
			rows := g.next()
			for _, e := range rows {
				all.Apply(&e)
			}
			switch {
			case i%100 == 99:
				rows = all.Checkpoint(all.Now())
			case i%100 > 80:
				rows = nil
			}
			for _, e := range rows {
				s.Apply(&e)
				if e.Kind == format.ProcessEnd {
					maps.DeleteFunc(heard, func(k place, _ int64) bool { return k.process == e.Process })
				}
			}
			want := map[place]int64{}
			for id, p := range s.processes {
				for at, m := range p.mappings {
					want[place{id, at.address}] = m.size
				}
			}
			if !maps.Equal(heard, want) {
				t.Fatalf("seed %d, event %d: heard of %v, there are %v", seed, i, heard, want)
			}
		}
	}
	if told < 100 {
		t.Errorf("%d mappings only", told)
	}
}
