package oom

import (
	"fmt"
	"strings"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
)

// remedies are what the numbers support doing, for each cause in its order.
func (c *judge) remedies() (out []string) {
	add := func(f string, a ...any) {
		if s := fmt.Sprintf(f, a...); s != "" {
			out = append(out, s)
		}
	}
	for _, cause := range c.found {
		switch cause.ID {
		case OwnLimit:
			c.raise(add)
		case LargerThanGPU, HugeRequest:
			c.shrink(add)
		case KeptTensors, GrowingMemory:
			c.release(add)
		case LiveMemory:
			c.drop(add)
		case Fragmentation:
			c.defragment(add)
		case Unreachable:
			add("look for the memory's stream or private pool (a CUDA graph, torch.cuda.MemPool): a block is reused in its own only")
		case OtherProcess:
			c.move(add)
		case UntrackedUse:
			add("find who takes it: gpuanalyze summary lists the functions that were looked up and are not recorded (unhooked)")
		case DeviceLimit:
			add("look for a limit below the device: MPS (CUDA_MPS_PINNED_DEVICE_MEM_LIMIT), a memory pool's maximum size, a vGPU's or container's share")
		}
	}
	return out
}

type adder func(f string, a ...any)

// raise is for a limit of the pool's own: only where the device has more.
func (c *judge) raise(add adder) {
	if c.m.Free < c.Asked {
		if c.m.Free >= 0 {
			add("raising the limit alone does not help: the device had %s free, less than asked for", c.m.free())
		}
		return
	}
	where := "where the program sets it"
	switch c.Reporter {
	case format.APITorchOOM.String(), format.APITorch.String():
		where = "torch.cuda.set_per_process_memory_fraction, or per_process_memory_fraction in PYTORCH_CUDA_ALLOC_CONF"
	case format.APICuPy.String():
		where = "MemoryPool.set_limit, or CUPY_GPU_MEMORY_LIMIT"
	}
	add("raise the limit (%s): this request needs %s more than the pool has, and the device had %s free", where, format.Bytes(c.Asked), c.m.free())
}

// shrink is for a request that is too large: by how much it would have fitted.
func (c *judge) shrink(add adder) {
	if c.m.Free < 0 {
		add("ask for less at %s: in parts, or of a smaller batch or sequence", c.Line)
		return
	}
	fits := max(c.m.Free, c.m.Largest)
	by, would := "", "would"
	if c.m.Largest > c.m.Free { // an upper bound
		would = "might"
	}
	if fits > 0 {
		by = fmt.Sprintf(": up to %s %s have fitted, so 1/%d of it", format.Bytes(fits), would, (c.need()+fits-1)/fits)
	}
	add("ask for less at %s, in parts or of a smaller batch or sequence%s", analyze.Line(c.Line), by)
}

// release is for what grew and was not given back.
func (c *judge) release(add adder) {
	g := c.pic.growth
	for i, l := range g.Lines {
		if i == 3 {
			break
		}
		each := ""
		if g.By == "step" && g.Steps() > 0 {
			each = fmt.Sprintf(", %s a step", format.Bytes(l.Bytes/g.Steps()))
		}
		add("find what keeps the memory of %s: +%s between %s%s", where(l.Line, l.In), format.Bytes(l.Bytes), g.span(), each)
	}
	if g.By != "step" {
		c.drop(add)
		add("record with an NVTX range around each step: then growth from step to step is told apart from what one step needs")
		return
	}
	if c.Reporter == format.APITorchOOM.String() {
		add("in PyTorch a list of losses or outputs keeps their graphs, and so all activations: loss.item() or tensor.detach() keeps none")
	}
}

// drop is for what is live without having grown: how little less would do.
func (c *judge) drop(add adder) {
	missing := c.missing()
	if c.has(OwnLimit) || missing == 0 {
		missing = c.Asked
	}
	var enough []string
	for _, h := range c.pic.holders {
		if h.Bytes >= missing && len(enough) < 3 {
			enough = append(enough, where(h.Line, h.In))
		}
	}
	if len(enough) == 0 {
		add("hold %s less: no single line has as much", format.Bytes(missing))
		return
	}
	add("hold %s less, which each of these lines has: %s", format.Bytes(missing), strings.Join(enough, "; "))
}

// defragment is for a pool whose free memory is in pieces.
func (c *judge) defragment(add adder) {
	if c.Reporter == format.APITorchOOM.String() && !c.pic.mapped && (c.m.Cached >= c.Asked || c.enough(c.m.Cached)) {
		add("set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: free memory then is not bound to segments, and about %s could serve %s",
			format.Bytes(c.m.Cached+max(c.m.Free, 0)), format.Bytes(c.Asked))
	}
	for i, p := range c.pic.pins {
		if i == 2 {
			break
		}
		add("give back, or take before the short-lived ones, the blocks of %s: %d of %s in all keep %d segment%s with %s free", where(p.Line, p.In), p.Blocks,
			format.Bytes(p.Bytes), p.Segments, analyze.Plural(p.Segments), format.Bytes(p.Free))
	}
}

func (c *judge) move(add adder) {
	var who []string
	for _, o := range c.m.Recorded {
		who = append(who, fmt.Sprintf("pid %d (%s, acquired %s)", o.PID, analyze.Short(o.Command), format.Bytes(o.Acquired)))
	}
	if len(who) == 0 {
		who = append(who, "none of them is in this trace; nvidia-smi lists them while they run")
	}
	add("run where the device is free, or end the other processes: %s", strings.Join(who, ", "))
}

func where(line, in string) string {
	if in == "" {
		return analyze.Line(line)
	}
	return analyze.Line(line) + " (in " + analyze.Line(in) + ")"
}
