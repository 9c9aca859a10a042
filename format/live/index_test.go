package live

import (
	"math/rand"
	"testing"

	"github.com/gpurec/gpurec/format"
)

func TestIndex(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	var x index
	want := map[key]int32{}
	for i := range int32(200000) {
		k := key{uint64(r.Intn(3000)) << 9, format.ProcessID(r.Intn(2)), format.Space(r.Intn(2))}
		if r.Intn(2) == 0 {
			x.set(k, i)
			want[k] = i
		} else {
			x.remove(k)
			delete(want, k)
		}
		k = key{uint64(r.Intn(3000)) << 9, format.ProcessID(r.Intn(2)), format.Space(r.Intn(2))}
		got, ok := x.get(k)
		if w, in := want[k]; ok != in || ok && got != w {
			t.Fatalf("step %d: %v is %d %v, want %d %v", i, k, got, ok, w, in)
		}
		if x.n != len(want) {
			t.Fatalf("step %d: %d entries, want %d", i, x.n, len(want))
		}
	}
}
