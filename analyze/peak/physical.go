package peak

import (
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
)

// Granule is what the driver hands out of a device at a time. Seen on an H200,
// driver 580: NVML's steps equal the granules that allocations touch, to the byte.
const Granule = 2 << 20

// A physical is what one process has of one device, as far as events say.
type physical struct {
	sizes    int64 // driver layer, class device
	granules int64 // bytes of the granules that they touch
	arrays   int64 // class array; their sizes are estimated
	stream   int64 // blocks of stream-ordered pools, those that are another pool's segments too
	reserve  int64 // what the driver keeps for those pools, where it was asked
	graphs   int64 // and for graphs
	managed  int64 // class managed: where it lies is not recorded

	took    bool             // it has ever had something
	streams int64            // events of stream-ordered pools
	resets  int64            // of its device
	edges   map[uint64]int32 // granules that some allocation touches without filling: how many do
}

// tracked is what NVML has to count for it beyond contexts and modules.
func (ph *physical) tracked() int64 { return ph.granules + ph.arrays + ph.graphs + ph.streamed() }

// streamed is what stream-ordered pools have: their blocks, and what is beyond
// them as far as it was asked.
func (ph *physical) streamed() int64 { return max(ph.stream, ph.reserve) }

func isStream(a *live.Allocation) bool {
	return a.Layer == format.LayerPool && a.Class == format.ClassDevice && a.API.Space() == format.SpaceDevice
}

// change adds an allocation, or takes it away with sign -1.
func (ph *physical) change(a *live.Allocation, sign int64) {
	n := sign * a.Bytes()
	switch {
	case isStream(a):
		ph.stream += n
		ph.streams++
	case a.Layer != format.LayerDriver:
		return
	case a.API == format.APIPoolReserve:
		ph.reserve += n
	case a.API == format.APIGraphReserve:
		ph.graphs += n
	case a.Class == format.ClassArray:
		ph.arrays += n
	case a.Class == format.ClassManaged:
		ph.managed += n
		return
	case a.Class == format.ClassDevice:
		ph.sizes += n
		if a.API.Space() == format.SpaceDevice {
			ph.touch(a.Address, a.Bytes(), sign)
		} else {
			ph.granules += sign * (a.Bytes() + Granule - 1) / Granule * Granule
		}
	}
	ph.took = true
}

// touch counts granules. Those that an allocation fills are its own; those at
// its edges may hold others too.
func (ph *physical) touch(at uint64, size, sign int64) {
	if size <= 0 {
		return
	}
	end := at + uint64(size)
	first, last := at/Granule, (end-1)/Granule
	from, to := first, last+1 // filled
	if at%Granule != 0 {
		from++
	}
	if end%Granule != 0 {
		to--
	}
	if from < to {
		ph.granules += sign * int64(to-from) * Granule
	}
	if at%Granule != 0 {
		ph.edge(first, sign)
	}
	if end%Granule != 0 && (last != first || at%Granule == 0) {
		ph.edge(last, sign)
	}
}

func (ph *physical) edge(g uint64, sign int64) {
	if ph.edges == nil {
		ph.edges = map[uint64]int32{}
	}
	was := ph.edges[g]
	now := was + int32(sign)
	switch {
	case now <= 0:
		delete(ph.edges, g)
	default:
		ph.edges[g] = now
	}
	switch {
	case was == 0 && now > 0:
		ph.granules += Granule
	case was > 0 && now == 0:
		ph.granules -= Granule
	}
}
