package live

import (
	"math/rand"

	"github.com/gpurec/gpurec/format"
)

// A generator makes random events of a few processes, threads, devices and
// addresses, so that everything collides with everything.
type generator struct {
	*rand.Rand
	now   format.Time
	scope format.ScopeID
	open  []format.Event
	vmm   map[format.ProcessID]map[uint64]int64 // mapped addresses
}

func (g *generator) pick(apis ...format.API) format.API { return apis[g.Intn(len(apis))] }

// next returns an event, or a call and its refusal, which nothing comes between.
func (g *generator) next() []format.Event {
	g.now += format.Time(g.Intn(3)) // ties are normal
	e := format.Event{Time: g.now, Seq: uint64(g.now)<<20 | uint64(g.Intn(1<<20)), Process: format.ProcessID(1 + g.Intn(3)), Thread: uint32(1 + g.Intn(2)),
		Device: format.Device(g.Intn(2)), Duration: -1, Requested: -1, Allocated: -1, Reserved: -1, Stack: format.StackID(g.Intn(4))}
	set := func(k format.Kind, a format.API) {
		i := a.Info()
		e.Kind, e.API, e.Layer, e.Class = k, a, i.Layer, i.Class
	}
	value := uint64(1+g.Intn(6)) * 0x1000
	switch r := g.Intn(100); {
	case r < 32:
		set(format.Alloc, g.pick(format.APIMemAlloc, format.APIMemAlloc, format.APIMemAllocManaged, format.APIMemAllocAsync, format.APITorch,
			format.APICuPy, format.APIMemHostAlloc, format.APIArrayCreate, format.APIMemCreate, format.APIMemCreate, format.APICuPyAlloc))
		e.Address, e.Object, e.Size = value, value, int64(g.Intn(5))*512+int64(g.Intn(2))
		e.CUctx = uint64(1 + g.Intn(2))
		switch g.Intn(12) {
		case 0:
			e.Flags = format.FlagCaptured
		case 1:
			e.Flags = format.FlagNested
		}
		if e.API == format.APICuPyAlloc {
			e.Flags = format.FlagEcho
		}
	case r < 52:
		set(format.Free, g.pick(format.APIMemFree, format.APIMemFree, format.APIMemFreeAsync, format.APITorch, format.APICuPy, format.APIMemFreeHost, format.APIArrayDestroy))
		e.Address, e.Object = value, value
		if e.API == format.APITorch || e.API == format.APICuPy {
			break
		}
		if g.Intn(6) == 0 {
			f := e
			f.Kind, f.Status = format.FreeFailed, 4
			return []format.Event{e, f}
		}
	case r < 60:
		set(format.Map, format.APIMemMap)
		e.Object, e.Size = value, 0x1000
		at := uint64(0x100000 + g.Intn(8)*0x1000)
		if g.vmm[e.Process] == nil {
			g.vmm[e.Process] = map[uint64]int64{}
		}
		if g.vmm[e.Process][at] != 0 {
			return nil // the driver refuses a second mapping
		}
		g.vmm[e.Process][at] = e.Size
		e.Address = at
	case r < 65:
		set(format.Unmap, format.APIMemUnmap)
		e.Address, e.Size = uint64(0x100000+g.Intn(8)*0x1000), int64(1+g.Intn(3))*0x1000
		for at := range g.vmm[e.Process] {
			if at >= e.Address && at < e.Address+uint64(e.Size) {
				delete(g.vmm[e.Process], at)
			}
		}
	case r < 72:
		set(format.Release, format.APIMemRelease)
		e.Object = value
	case r < 75:
		set(format.Retain, format.APIMemRetain)
		e.Object = value // by the handle; by address in a test of its own
	case r < 76:
		set(format.Reset, g.pick(format.APIPrimaryCtxReset, format.APICtxDestroy))
		if e.API == format.APICtxDestroy {
			e.CUctx = uint64(1 + g.Intn(2))
		}
	case r < 77 && g.Intn(3) == 0:
		e.Kind = format.ProcessEnd
		var open []format.Event
		for _, b := range g.open {
			if b.Process != e.Process {
				open = append(open, b)
			}
		}
		g.open = open
		delete(g.vmm, e.Process)
	case r < 86:
		g.scope++
		set(format.ScopeBegin, format.APINVTX)
		e.Scope, e.Name = g.scope, format.NameID(1+g.Intn(3))
		e.Device = format.NoDevice
		g.open = append(g.open, e)
	case r < 94 && len(g.open) > 0: // nested and overlapping: any of the open ones ends
		i := g.Intn(len(g.open))
		b := g.open[i]
		set(format.ScopeEnd, format.APINVTX)
		e.Scope, e.Process, e.Thread = b.Scope, b.Process, b.Thread
		if g.Intn(4) == 0 {
			e.Kind = format.ScopeReset
		} else {
			g.open = append(g.open[:i], g.open[i+1:]...)
		}
	case r < 97:
		set(format.AllocFailed, g.pick(format.APIMemAlloc, format.APITorchOOM))
		e.Requested, e.Status = 3<<30, 2
	case r < 98:
		e.Kind, e.Size = format.Lost, int64(1+g.Intn(9))
	case r < 99:
		e.Kind = format.Unhooked
	default:
		e.Kind = format.Mark
	}
	return []format.Event{e}
}

func newGenerator(seed int64) *generator {
	return &generator{Rand: rand.New(rand.NewSource(seed)), now: 1000, vmm: map[format.ProcessID]map[uint64]int64{}}
}
