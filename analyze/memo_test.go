package analyze

import (
	"math"
	"math/rand"
	"testing"
)

// A Memo says what a map would, wherever ids lie and however the ids that follow one
// another become more, and takes no more room than these.
func TestMemoAgainstMap(t *testing.T) {
	for seed := range int64(10) {
		r := rand.New(rand.NewSource(seed))
		var m Memo[uint32, int]
		want, next := map[uint32]int{}, uint32(0)
		for n := 1; n < 150; n++ {
			if r.Intn(10) == 0 {
				next += uint32(r.Intn(100))
			}
			id := uint32(r.Intn(500))
			if r.Intn(10) == 0 {
				id = math.MaxUint32 - id%3
			}
			m.Put(id, n, next)
			want[id] = n
			for id := range uint32(500) {
				if got := m.At(id); got != want[id] {
					t.Fatalf("seed %d: %d is %d, want %d", seed, id, got, want[id])
				}
			}
			for id, v := range want {
				if got := m.At(id); got != v {
					t.Fatalf("seed %d: %d is %d, want %d", seed, id, got, v)
				}
			}
			if len(m.dense) > int(next) {
				t.Fatalf("seed %d: room for %d ids, %d follow one another", seed, len(m.dense), next)
			}
		}
	}
}
