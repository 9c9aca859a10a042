package segments

import "sort"

// A Pin is what blocks of one kind keep from being given back.
type Pin[K comparable] struct {
	Of       K
	Blocks   int64 // in segments that have a hole
	Bytes    int64 // of these blocks
	Segments int64 // that have a hole
	Free     int64 // bytes of these holes; other pins may hold them too
	Alone    int64 // of them, in segments that no other kind is in
}

// Pins says which kind of blocks pin how much, the most first. The holes of a
// segment count for every kind that is in it, so Free may add up to more than
// there is.
func Pins[K comparable](segments []*Segment, kind func(*Block) K) []Pin[K] {
	pins := map[K]*Pin[K]{}
	var order []*Pin[K]
	in := map[K]bool{}
	for _, s := range segments {
		if s.Pinned == 0 {
			continue
		}
		clear(in)
		for i := range s.Blocks {
			b := &s.Blocks[i]
			k := kind(b)
			p := pins[k]
			if p == nil {
				p = &Pin[K]{Of: k}
				pins[k] = p
				order = append(order, p)
			}
			p.Blocks++
			p.Bytes += b.Size
			in[k] = true
		}
		for k := range in {
			p := pins[k]
			p.Segments++
			p.Free += s.Pinned
			if len(in) == 1 {
				p.Alone += s.Pinned
			}
		}
	}
	sort.SliceStable(order, func(i, j int) bool { return order[i].Free > order[j].Free })
	out := make([]Pin[K], len(order))
	for i, p := range order {
		out[i] = *p
	}
	return out
}
