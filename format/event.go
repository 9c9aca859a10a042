package format

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Identifiers. 0 is "none" or "unknown" in each but Device. They are the
// trace's: equal in every part, in the recorder and in every report.
type (
	ProcessID uint32 // a row of the process table; a process is (pid, start time, image)
	ScopeID   uint64
	StackID   uint32 // a node of the stack trie: itself and its ancestors are the stack, innermost first
	FrameID   uint32
	NameID    uint32
	Device    int16 // index in the trace's device table; joined by UUID, never by a program's ordinal
)

// NoDevice is the device of an event that has none, or whose device is unknown.
const NoDevice Device = -1

// StackBeforeRecording is the stack of an allocation older than the recording.
// Its node, with the frame "before recording", stands in every part that uses it.
const StackBeforeRecording StackID = 1

// A Time is nanoseconds of CLOCK_MONOTONIC on the recording machine. Meta.Start
// joins it to the wall clock.
type Time int64

// Unknown is the value of a signed quantity that nobody measured.
const Unknown = -1

// An Event is one record, final when published. The order of events in a
// trace is the order of effect; Time is an attribute.
//
// For what takes memory, Time is the moment after the call and Time-Duration
// the moment before; for what gives it back, Time is the moment before.
type Event struct {
	Time      Time
	Duration  int64  // ns, Unknown where a source reports once
	Seq       uint64 // the lane's count of its events, below 2^63; 0 for a row that the recorder made
	Address   uint64
	Object    uint64 // pmem_id, VMM handle, CUarray; a scope's own range id; a device's ordinal
	Size      int64  // bytes accounted, rounded as the layer rounds; Unknown for a Free (replay knows)
	Requested int64  // bytes asked for; Unknown for PyTorch
	Allocated int64  // PyTorch's own sum after the event, else Unknown
	Reserved  int64  // PyTorch's own sum after the event, else Unknown; device bytes free in an AllocFailed where known
	CUctx     uint64
	Stream    uint64
	Pool      uint64  // stream-ordered pool handle; of a Map or Unmap the object mapped into, 0 for addresses
	Scope     ScopeID // innermost open scope of the thread; for scope events the scope itself
	Parent    ScopeID // of a ScopeBegin
	Process   ProcessID
	Thread    uint32 // the operating system's tid
	Stack     StackID
	Name      NameID // scope name, mark text, thread name, looked-up symbol
	Note      NameID // a scope's domain, a report's sub-context
	Status    int32  // CUresult; 0 is success
	API       API
	Flags     Flags
	Device    Device
	Kind      Kind
	Layer     Layer
	Class     Class
}

// Pre and Post are the moments before and after the call that e records. For a
// source that reports once they are the same.
func (e *Event) Pre() Time {
	if e.Duration > 0 && !e.Kind.GivesBack() {
		return e.Time - Time(e.Duration)
	}
	return e.Time
}

func (e *Event) Post() Time {
	if e.Duration > 0 && e.Kind.GivesBack() {
		return e.Time + Time(e.Duration)
	}
	return e.Time
}

// A FrameKind says where a frame came from.
type FrameKind uint8

const (
	FrameNone   FrameKind = 0
	FramePython FrameKind = 1
	FrameNative FrameKind = 2
	FrameGo     FrameKind = 3
	FrameThread FrameKind = 4 // stands for a thread that had no frames: function is "[thread NAME]"
	FrameLabel  FrameKind = 5 // a word of ours: "before recording"
)

var frameKinds = [...]string{"none", "python", "native", "go", "thread", "label"}

func (k FrameKind) String() string { return nameOf(frameKinds[:], int(k), "frame") }
func (k FrameKind) Valid() bool    { return k > FrameNone && int(k) < len(frameKinds) }

func ParseFrameKind(s string) (FrameKind, error) {
	i, err := parseName(frameKinds[:], s, "frame kind")
	return FrameKind(i), err
}

// A Frame is one line of a stack. Of a native frame the recorder knows the module
// and the address; file, line and function are a symbolizer's, as far as it found
// them.
type Frame struct {
	ID       FrameID
	Kind     FrameKind
	File     string
	Line     int32 // 0 unknown
	Function string
	Module   string // native: the mapped file, [vdso] or [anon]
	BuildID  string // of the module, in hex
	Address  uint64 // native: in the module, as its ELF file counts; of a caller, the call's
}

// String is the frame as line reports print it: file:line:function. A native
// frame of which no line is known is module:function, else module+address.
func (f *Frame) String() string {
	switch {
	case f.Kind == FrameThread || f.Kind == FrameLabel:
		return f.Function
	case f.Kind == FrameNative && f.Line == 0 && strings.HasPrefix(f.Name(), noName):
		return f.Source() + f.Name()
	case f.Kind == FrameNative && f.Line == 0:
		return f.Source() + ":" + f.Function
	}
	line := strconv.Itoa(int(f.Line))
	if f.Line == 0 {
		line = "None" // what CPython calls a missing line number
	}
	return f.File + ":" + line + ":" + f.Function
}

// CutLabel is the function of a label that stands for n outer frames of a stack;
// 0 where it is not known how many.
func CutLabel(n uint32) string {
	switch n {
	case 0:
		return "[outer frames left out]"
	case 1:
		return "[1 outer frame left out]"
	}
	return fmt.Sprintf("[%d outer frames left out]", n)
}

// IsCut reports whether a frame is a CutLabel, of whatever number.
func (f *Frame) IsCut() bool {
	return f.Kind == FrameLabel && (strings.HasSuffix(f.Function, "outer frames left out]") || strings.HasSuffix(f.Function, "outer frame left out]"))
}

// noName begins what stands for a native function without a name.
const noName = "+0x"

// Source is the file; of a native frame without one, the last part of its
// module's path.
func (f *Frame) Source() string {
	if f.File != "" || f.Kind != FrameNative {
		return f.File
	}
	return f.Module[strings.LastIndexByte(f.Module, '/')+1:]
}

// Name is the function; of a native frame without one, +address.
func (f *Frame) Name() string {
	if f.Function != "" || f.Kind != FrameNative {
		return f.Function
	}
	return noName + strconv.FormatUint(f.Address, 16)
}

// A Stack is a node of the stack trie: its frame and the stack of its caller.
type Stack struct {
	ID     StackID
	Parent StackID // the caller's; 0 for the outermost frame
	Frame  FrameID
}

// A Process is one image of one process. Times are Unknown until known.
type Process struct {
	ID         ProcessID
	PID        int32
	Parent     int32  // the parent's pid
	StartTime  uint64 // clock ticks since boot, /proc/PID/stat field 22
	Image      uint64 // from AT_RANDOM: exec keeps pid and start time
	Begin      Time   // first seen
	End        Time
	Status     int32 // exit status, 128+signal, or Unknown
	Rank       int32 // of a distributed job, Unknown where the environment says none
	Executable string
	Command    string // arguments joined by spaces, quoted where needed
	Python     string // version, where Python frames were read
}

// A DeviceRow describes one device of the trace.
type DeviceRow struct {
	ID    Device
	UUID  string // GPU-xxxxxxxx-…; "" where nobody could say
	Name  string
	Total int64 // bytes
	NVML  int32 // NVML's index, Unknown without NVML
}

// A Sample is one NVML reading: of a device (Process 0) or of one process on it.
type Sample struct {
	Time        Time
	Device      Device
	Process     ProcessID
	Total       int64
	Used        int64 // with API 1 it contains Reserved
	Free        int64
	Reserved    int64 // Unknown with API 1
	ProcessUsed int64 // Unknown in a device's row
	PeakUsed    int64 // the largest Used read since the sample before
	API         int8  // version of NVML's memory call: 1 or 2
}

// An Ending says how a recording ended.
type Ending string

const (
	EndGrowing  Ending = ""         // still recording, or the recorder died
	EndClosed   Ending = "closed"   // in good order
	EndRepaired Ending = "repaired" // closed afterwards from what was on disk
	EndFailed   Ending = "failed"   // writing failed; Reason says why
)

// A Meta is trace.json. Its zero values are omitted there.
type Meta struct {
	Version   int       `json:"version"`
	TraceID   string    `json:"trace_id"`
	Tool      string    `json:"tool"` // program and version that wrote it
	Host      string    `json:"host,omitempty"`
	Command   []string  `json:"command,omitempty"`
	Options   []string  `json:"options,omitempty"`
	Start     time.Time `json:"start"`           // wall clock at Monotonic
	Monotonic Time      `json:"start_monotonic"` // CLOCK_MONOTONIC at Start
	TSC       uint64    `json:"start_tsc,omitempty"`
	Driver    string    `json:"driver,omitempty"`
	NVML      string    `json:"nvml,omitempty"`       // version
	NoSamples string    `json:"no_samples,omitempty"` // why there are none, or none of some devices any more
	Notes     []string  `json:"notes,omitempty"`      // what else a reader of it should know, a sentence each
	Simulated bool      `json:"simulated,omitempty"`  // the GPU was the project's own
	Ending    Ending    `json:"ending,omitempty"`
	Reason    string    `json:"reason,omitempty"` // why it is failed or partial, in words
	Status    *int      `json:"status,omitempty"` // the command's exit status
	End       Time      `json:"end_monotonic,omitempty"`
	Parts     int       `json:"parts,omitempty"`           // ever begun, written when the trace closes: a later part that is not there is missing
	Jobs      []Job     `json:"jobs,omitempty"`            // written when the trace closes: places of processes in distributed jobs
	Since     Time      `json:"since_monotonic,omitempty"` // where the oldest part begins that was kept; 0: the first of all
	Stats     Stats     `json:"stats"`
	APIs      APINames  `json:"apis,omitempty"` // that our list lacks; trace.json itself has all names
}

// A Job is a process's place in a distributed job besides its rank, as the
// launcher put it into the environment; -1 and "" where it said nothing.
type Job struct {
	PID       int32  `json:"pid"`
	StartTime uint64 `json:"start_time"` // both as in the table of processes
	LocalRank int32  `json:"local_rank"`
	WorldSize int32  `json:"world_size"`
	ID        string `json:"id,omitempty"`
}

// JobOf is what trace.json says of a process.
func (m Meta) JobOf(p *Process) (Job, bool) {
	for _, j := range m.Jobs {
		if j.PID == p.PID && j.StartTime == p.StartTime {
			return j, true
		}
	}
	return Job{}, false
}

// Stats is the recorder's own account, written when a trace closes.
type Stats struct {
	Events      uint64 `json:"events"`                 // rows of the events tables, those that the recorder made too, checkpoints not
	Lost        uint64 `json:"lost"`                   // dropped by lanes, or by full queues
	ClosedLanes uint64 `json:"closed_lanes,omitempty"` // lanes closed because what they held made no sense, and hellos that were refused
	Absent      uint64 `json:"absent,omitempty"`       // processes that could make no lane: nothing of theirs is recorded
	Late        uint64 `json:"late,omitempty"`         // events passed on after their place in the order had gone
	Unresolved  uint64 `json:"unresolved,omitempty"`   // stacks whose definition never came
	Lanes       uint64 `json:"lanes,omitempty"`
	Waited      int64  `json:"waited_ns,omitempty"`        // for which full lanes have held the programs' threads, all together
	CPUNanos    int64  `json:"cpu_ns,omitempty"`           // of the recorder, as the next two
	Written     int64  `json:"written_bytes,omitempty"`    // to the trace's files, those included that were rewritten or went again
	PeakMemory  int64  `json:"peak_rss_bytes,omitempty"`   // resident, lanes included, which are the programs' too
	Unwritten   uint64 `json:"unwritten_events,omitempty"` // taken from the lanes, and dropped because writing had failed
}

// Bytes prints a size the way people read it, exact below 1 KiB.
func Bytes(n int64) string {
	if n > -1024 && n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	f, unit := float64(n), 0
	for math.Abs(f) >= 1023.995 && unit < 6 { // so that rounding never prints 1024.00
		f /= 1024
		unit++
	}
	return strconv.FormatFloat(f, 'f', 2, 64) + " " + [...]string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}[unit]
}

// A Reading is what a source of device memory says, before the recorder joins
// it with the trace's devices and processes.
type Reading struct {
	Time      Time
	UUID      string
	Total     int64
	Used      int64
	Free      int64
	Reserved  int64
	PeakUsed  int64
	API       int8
	Processes []ProcessReading // nil when not asked this time
}

// A ProcessReading is one process's use of the device of its Reading.
type ProcessReading struct {
	PID  int32
	Used int64 // Unknown where the driver does not say
}
