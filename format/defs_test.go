package format

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func TestWalk(t *testing.T) {
	d := NewDefs()
	for _, s := range []Stack{{1, 0, 100}, {2, 1, 200}, {3, 2, 300}, {10, 11, 1}, {11, 12, 2}, {12, 10, 3}, {20, 20, 7}, {30, 29, 9}, {1<<32 - 1, 3, 400}} {
		d.PutStack(s)
	}
	for _, c := range []struct {
		name string
		id   StackID
		want string
		ok   bool
	}{
		{"none", 0, "[]", true},
		{"outermost", 1, "[100]", true},
		{"outermost first", 3, "[100 200 300]", true},
		{"largest id", 1<<32 - 1, "[100 200 300 400]", true},
		{"not defined", 99, "[]", false},
		{"caller not defined", 30, "[9]", false},
		{"its own caller", 20, "", false},
		{"cycle", 10, "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, ok := d.Walk(c.id, make([]FrameID, 5, 9))
			if ok != c.ok || c.want != "" && fmt.Sprint(got) != c.want {
				t.Errorf("got %v, %v; want %s, %v", got, ok, c.want, c.ok)
			}
			if len(got) > 9 {
				t.Errorf("%d frames of %d stacks", len(got), 9)
			}
		})
	}
}

// Ids as a file may claim them cost no more than their rows.
func TestDefsMemoryIsBoundedByRows(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	d := NewDefs()
	r := rand.New(rand.NewPCG(1, 1))
	for range 10_000 {
		d.PutStack(Stack{ID: StackID(r.Uint32())})
		d.PutFrame(Frame{ID: FrameID(r.Uint32())})
		d.PutName(NameID(r.Uint32()), "")
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 64<<20 {
		t.Errorf("30,000 rows allocated %d bytes", n)
	}
}

// An idMap is a map, whatever the ids and their order.
func TestIDMap(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	for round := range 50 {
		var m idMap[int]
		var set idSet
		want := map[uint32]int{}
		limit := uint32(1) << (4 + r.IntN(28))
		for i := range 2000 {
			id := r.Uint32() % limit
			if r.IntN(3) == 0 {
				id = uint32(i)
			}
			m.put(id, i)
			set.add(id)
			want[id] = i
		}
		var ids []uint32
		m.each(func(id uint32, v int) {
			if want[id] != v {
				t.Fatalf("round %d: %d is %d, want %d", round, id, v, want[id])
			}
			ids = append(ids, id)
		})
		if len(ids) != len(want) || m.rows != len(want) || !slices.IsSorted(ids) {
			t.Fatalf("round %d: %d ids of %d, %d rows", round, len(ids), len(want), m.rows)
		}
		for range 2000 {
			id := r.Uint32() % limit
			if _, ok := want[id]; ok != set.has(id) {
				t.Fatalf("round %d: set has %d: %v", round, id, !ok)
			}
			if _, ok := m.get(id); ok != set.has(id) {
				t.Fatalf("round %d: map has %d: %v", round, id, ok)
			}
		}
		for id := range want {
			set.remove(id)
			if set.has(id) {
				t.Fatalf("round %d: %d was removed", round, id)
			}
		}
	}
}

func TestCleanText(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"plain", "abc", "abc"},
		{"control characters and NUL stay", "a\x00\x1b[0m</script>", "a\x00\x1b[0m</script>"},
		{"bad bytes", "a\xffb\xc3", "a\uFFFDb\uFFFD"},
		{"too long", strings.Repeat("x", MaxText+1), strings.Repeat("x", MaxText-3) + "…"},
		{"as long as may be", strings.Repeat("x", MaxText), strings.Repeat("x", MaxText)},
		{"cut between characters", strings.Repeat("é", MaxText), strings.Repeat("é", MaxText/2-2) + "…"},
	} {
		got := cleanText(c.in)
		if got != c.want || len(got) > MaxText || cleanText(got) != got {
			t.Errorf("%s: %d bytes became %d, ending %q", c.name, len(c.in), len(got), got[max(0, len(got)-9):])
		}
	}
	if got := cleanText(strings.Repeat("\xff", MaxText)); len(got) > MaxText || cleanText(got) != got {
		t.Errorf("bad bytes became %d", len(got))
	}
}
