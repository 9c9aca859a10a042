package recorder

import (
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
)

// A Summary is what a recording amounted to, for the words after a command.
type Summary struct {
	Stats    format.Stats
	Devices  []DevicePeak   // those that were used
	Failed   int64          // allocations that failed, for whatever reason
	Told     int64          // requests for device memory that failed, each once: the program was told
	Retried  int64          // requests that were refused and that a retry then got
	Top      format.Frame   // where most of the memory live at about the largest peak came from
	TopStack format.StackID // its stack, in the trace
	TopSize  int64          // bytes it held then; 0: nothing was ever live
	Since    time.Duration  // of the start, when the oldest part begins that was retained; 0 where all were
}

// A DevicePeak is the largest use of one device.
type DevicePeak struct {
	Device format.DeviceRow
	Used   int64
	NVML   int64 // format.Unknown without readings
}

// holders follow which stack holds how much at one layer, and keep the picture
// of the moment of the largest sum. The picture is taken anew only when the sum
// has grown by a sixteenth: a few hundred times at most in any recording, at the
// price of being that much early.
type holders struct {
	sizes []int64                  // by stack: a trace's are numbered from 1
	late  map[format.StackID]int64 // of the stacks beyond nearStacks; those that hold nothing are not in it
	sum   int64
	peak  int64 // of sum when the picture was taken
	stack format.StackID
	size  int64
}

// nearStacks is how many stacks lie in a table: most programs have fewer.
const nearStacks = 1 << 16

func (h *holders) move(stack format.StackID, n int64) {
	h.sum += n
	if stack < nearStacks {
		for int(stack) >= len(h.sizes) {
			h.sizes = append(h.sizes, 0)
		}
		h.sizes[stack] += n
	} else if size := h.late[stack] + n; size != 0 {
		if h.late == nil {
			h.late = map[format.StackID]int64{}
		}
		h.late[stack] = size
	} else {
		delete(h.late, stack)
	}
	if h.sum > h.peak+h.peak/16 {
		h.peak = h.sum
		h.stack, h.size = 0, 0
		for id, size := range h.sizes {
			if size > h.size {
				h.stack, h.size = format.StackID(id), size
			}
		}
		for id, size := range h.late {
			if size > h.size || size == h.size && id < h.stack {
				h.stack, h.size = id, size
			}
		}
	}
}

// watch makes the fold tell who holds memory of class device, and whether
// requests for it failed.
func (f *fold) watch() {
	move := func(a *live.Allocation, sign int64) {
		if a.Counted && a.Class == format.ClassDevice && a.Layer.Valid() {
			f.top[a.Layer].move(a.Stack, sign*a.Bytes())
		}
	}
	f.state.OnBegin = func(a *live.Allocation, _ *format.Event) { move(a, 1) }
	f.state.OnEnd = func(a *live.Allocation, _ *format.Event) { move(a, -1) }
	f.refusals.OnTold = func(*live.Refusal, *format.Event) { f.told++ }
	f.refusals.OnServed = func(*live.Refusal, *format.Event) { f.retried++ }
}

// summary is called after fold has ended.
func (f *fold) summary() Summary {
	f.refusals.End()
	s := Summary{Stats: f.stats, Told: f.told, Retried: f.retried}
	for _, d := range f.state.Devices() {
		if d.ID < 0 || int(d.ID) >= len(f.in.devices) {
			continue
		}
		p := DevicePeak{Device: f.in.devices[d.ID], Used: f.state.DeviceUsed(d).Peak, NVML: format.Unknown}
		if d.Sampled {
			p.NVML = d.NVMLPeak
		}
		if p.Used > 0 || d.Acquired.Peak > 0 {
			s.Devices = append(s.Devices, p)
		}
	}
	for _, p := range f.state.Processes() {
		s.Failed += p.Failed
	}
	if m := f.s.write.w.Meta(); m.Since > 0 {
		s.Since = time.Duration(m.Since - m.Monotonic)
	}
	top := &f.top[format.LayerPool]
	if top.size == 0 {
		top = &f.top[format.LayerDriver]
	}
	s.TopSize, s.TopStack, s.Top = top.size, top.stack, f.innermost(top.stack)
	return s
}

// innermost is the frame that a stack is called by: its innermost one, native
// ones left out, which have no name yet; of a thread with no others, its name.
func (f *fold) innermost(id format.StackID) format.Frame {
	for id != 0 {
		key, ok := keyOf(f.in.nodes, id)
		if !ok {
			break
		}
		fr, ok := keyOf(f.in.frames, format.FrameID(uint32(key)))
		if ok && fr.Kind != format.FrameNative && !fr.IsCut() {
			return fr
		}
		id = format.StackID(key >> 32)
	}
	return format.Frame{Kind: format.FrameLabel, Function: "unknown"}
}

func keyOf[K, V comparable](m map[K]V, want V) (K, bool) {
	for k, v := range m {
		if v == want {
			return k, true
		}
	}
	var none K
	return none, false
}
