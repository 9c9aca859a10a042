package live

import "testing"

// BenchmarkIndex is what index.go claims of a Go map: one look-up, in a live
// set of 4,096.
func BenchmarkIndex(b *testing.B) {
	const live = 4096
	at := func(i int) key { return key{process: 1, space: 1, value: 0x7f0000000000 + uint64(i%live)*512} }
	b.Run("is=index", func(b *testing.B) {
		var x index
		for i := range live {
			x.set(at(i), int32(i))
		}
		for i := 0; b.Loop(); i++ {
			x.get(at(i * 2654435761))
		}
	})
	b.Run("is=map", func(b *testing.B) {
		m := map[key]int32{}
		for i := range live {
			m[at(i)] = int32(i)
		}
		for i := 0; b.Loop(); i++ {
			_ = m[at(i*2654435761)]
		}
	})
}
