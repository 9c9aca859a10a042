package formattest

import (
	"maps"
	"math/rand"
	"slices"

	"github.com/gpurec/gpurec/format"
)

// RandomPool adds so many steps of a program with a pool: it takes segments from
// the driver, plain ones and mapped ones of several pages, puts blocks into them
// that do not overlap, and gives both back. It is the current process's, on the
// first device, with the current stack.
func (b *Builder) RandomPool(r *rand.Rand, steps int) {
	type span struct {
		at     uint64
		pages  int
		handle uint64
		blocks map[uint64]int64
	}
	var spans []*span
	next, handle := uint64(0x100000), uint64(0)
	for range steps {
		switch k := r.Intn(10); {
		case k < 2:
			s := &span{at: next, pages: 1 + r.Intn(4), blocks: map[uint64]int64{}}
			b.Alloc(format.APIMemAlloc, s.at, int64(s.pages)*4096)
			spans = append(spans, s)
			next += uint64(s.pages+1) * 4096
		case k < 3: // mappings that follow each other, one page each
			s := &span{at: next, pages: 1 + r.Intn(4), handle: handle + 1, blocks: map[uint64]int64{}}
			for i := range s.pages {
				handle++
				b.Alloc(format.APIMemCreate, handle, 4096)
				e := b.Event(format.Map, format.APIMemMap)
				e.Object, e.Address, e.Size = handle, s.at+uint64(i)*4096, 4096
			}
			spans = append(spans, s)
			next += uint64(s.pages+1) * 4096
		case k < 7 && len(spans) > 0: // a block in a 512-byte place of its own, or over pages
			s := spans[r.Intn(len(spans))]
			at, n := s.at+uint64(r.Intn(s.pages*8))*512, int64(1+r.Intn(512))
			if r.Intn(4) == 0 {
				n += int64(r.Intn(2)) * 4096
			}
			free := at+uint64(n) <= s.at+uint64(s.pages)*4096
			for other, size := range s.blocks {
				free = free && (at+uint64(n) <= other || other+uint64(size) <= at)
			}
			if free {
				b.Alloc(format.APITorch, at, n)
				s.blocks[at] = n
			}
		case k < 9 && len(spans) > 0:
			s := spans[r.Intn(len(spans))]
			if len(s.blocks) > 0 {
				at := slices.Sorted(maps.Keys(s.blocks))[r.Intn(len(s.blocks))]
				b.Free(format.APITorch, at)
				delete(s.blocks, at)
			}
		case len(spans) > 0:
			i := r.Intn(len(spans))
			s := spans[i]
			if len(s.blocks) > 0 {
				continue
			}
			if s.handle == 0 {
				b.Free(format.APIMemFree, s.at)
			} else {
				e := b.Event(format.Unmap, format.APIMemUnmap)
				e.Address, e.Size = s.at, int64(s.pages)*4096
				for i := range s.pages {
					b.Event(format.Release, format.APIMemRelease).Object = s.handle + uint64(i)
				}
			}
			spans = append(spans[:i], spans[i+1:]...)
		}
	}
}
