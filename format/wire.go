package format

// How events travel: records in a lane, a ring in shared memory with one
// writer and one reader.
//
//	byte 0      LaneHeader of the first lane
//	     512    of the second, and so on: one page for all
//	     4096   ring of the first: Capacity bytes in slots of 64
//	     …      of the second, and so on
//
// A file has one lane or a few: handing one over takes a process longer than
// all else, so a process with a second thread makes some for the next ones too.
//
// A record is 1 or 2 slots (a driver call has 2), a definition as many as it
// needs, never split over the ring's end: a PadKind record fills what is left.
// Every record begins with the 16 bytes of WireHead. All integers are little
// endian; every struct here is laid out without padding that a compiler could
// choose, and the C header is generated from these Go types.
//
// Head and tail count bytes ever published and consumed; the place in the ring
// is the count modulo Capacity, a power of two.
const (
	SlotSize       = 64
	LaneHeaderSize = 4096 // of all lanes in a file
	LaneStride     = 512  // from one LaneHeader to the next
	MaxLanesAFile  = LaneHeaderSize / LaneStride
	LaneMagic      = 0x30454e414c555047 // "GPULANE0"
	HelloMagic     = 0x304f4c4c45485047 // "GPHELLO0"
	AskMagic       = 0x30304b5341555047 // "GPUASK00": alone in a message, it wakes a recorder that is asked
	MinLaneSize    = 256 << 10
	DefaultLane    = 1 << 20
	MaxLanes       = 1024      // a process
	MaxLaneBytes   = 256 << 20 // a process
	MaxNameBytes   = 4 << 10   // names and file names are cut here
	MaxTableBytes  = 64 << 10  // line tables are cut here, and the line is then unknown
	MaxFrames      = 512       // frames of one stack that travel
	MaxModules     = 4096      // a process: files with code that its native stacks met
	MaxBuildID     = 64        // bytes

	AnswerWait = 100_000_000 // ns that a thread waits for an answer
)

// WirePad fills a ring's end. It has no time and no seq.
const WirePad Kind = 255

// WireHead begins every record.
type WireHead struct {
	Time  uint64 // ns, CLOCK_MONOTONIC; the moment of effect
	Seq   uint32 // low bits of the lane's count of records, dropped ones included
	Slots uint16 // length of the record
	Kind  Kind
	Layer Layer
}

// WireEvent is the first slot of an event.
type WireEvent struct {
	WireHead
	Class   Class
	Spare   uint8
	Flags   Flags
	API     API
	Device  int16  // the process's own ordinal, NoDevice unknown
	Stack   uint64 // hash of its WireStackDef, 0 none
	Address uint64
	Size    int64
	A       int64  // requested; PyTorch: allocated
	B       uint64 // object; PyTorch: reserved
}

// WireCall is the second slot: what a call has and a report has not.
type WireCall struct {
	Duration int64 // ns, Unknown where a source reports once
	CUctx    uint64
	Stream   uint64
	Pool     uint64
	Free     int64 // device bytes free where known, else Unknown
	Status   int32
	Spare    uint32
	Spare2   [2]uint64
}

// WireScope is a ScopeBegin, ScopeEnd, ScopeReset, ScopeReport, Mark or
// Unhooked: a WireEvent with other words for the same bytes. A WireAsk is one too,
// of which only Range is read; it does not count in Seq.
type WireScope struct {
	WireHead
	Class  Class
	Asks   uint8 // 1: of a report or an end with a Range, the thread waits for a WireAnswer
	Flags  Flags // FlagRange: begun by a start/end pair
	API    API
	Device int16
	Stack  uint64
	Name   uint64 // hash of a WireNameDef: scope, mark, sub-context, symbol
	Domain uint64 // hash of a WireNameDef, 0 the default domain
	Depth  int64  // of a push: its depth; of a pop: the depth it ends. A lost record cannot unbalance the stack
	Range  uint64 // id of a range or scope, unique in its process; 0 for push/pop
}

// WireThread is a ThreadBegin.
type WireThread struct {
	WireHead
	Class  Class
	Spare  uint8
	Flags  Flags
	API    API
	Device int16
	Spare2 uint64
	TID    uint64
	Name   [16]byte // as pthread_getname_np, zero padded
	Spare3 uint64
}

// WireCodeDef defines a Python code object; file, name and line table follow it.
type WireCodeDef struct {
	WireHead
	Key        uint64
	FirstLine  int32
	FileBytes  uint32
	NameBytes  uint32
	TableBytes uint32 // that follow
	TableTotal uint32 // that it has
	FileUnit   uint8  // bytes a character: 1 Latin-1 or ASCII, 2 UCS-2, 4 UCS-4, 0 UTF-8
	NameUnit   uint8
	Python     uint16 // 0x030b for 3.11: which line table it is
	Spare      [2]uint64
}

// WireStackDef defines a stack; Count frames follow, innermost first.
//
// Python and native frames are merged in the order of their calls: a native
// frame of the interpreter's loop stands outside of the Python frames that it
// runs, and inside of what called it. The interpreter's own frames travel like
// all others. They are those whose module is the python executable or libpython;
// whether to show them is the reader's choice, as a program may embed the
// interpreter and have frames in the same file. Where the native frames of a
// merged stack are cut, a native frame of module 0 says so, and Python's go on.
type WireStackDef struct {
	WireHead
	Hash    uint64
	Count   uint32
	Dropped uint32 // outer frames left out: exactly so many of Python's and Go's; of native ones any number, as the hash does not tell depths apart
	Spare   [4]uint64
}

// WireFrame is one frame of a WireStackDef.
type WireFrame struct {
	Code        uint64 // key of a WireCodeDef; native: the address, as the module's ELF file counts, of a caller less 1
	Instruction int32  // byte offset in the code; native: number of a WireModuleDef
	Kind        uint32 // a FrameKind: FramePython, FrameNative or FrameGo
}

// WireModuleDef defines what native code was mapped from; its build id and its
// path follow it, the path as /proc/PID/maps has it, or [vdso], or [anon] for
// code that no file holds. It stands before the first stack that needs it, so
// that nothing of it is asked of a process that may be gone.
type WireModuleDef struct {
	WireHead
	Number     uint32 // in its process; 1 to MaxModules-1, and never another's
	BuildBytes uint32 // of the GNU build id, 0 none
	PathBytes  uint32
	Spare      uint32
	Bias       uint64 // runtime address less the file's own
	Start      uint64 // where its code was mapped
	End        uint64
	Spare2     uint64
}

// WireNameDef defines a text; its bytes follow.
type WireNameDef struct {
	WireHead
	Hash  uint64
	Bytes uint32
	Unit  uint32 // 0 UTF-8 or ASCII, 4 wchar_t
}

// WireDeviceDef says which device a process's ordinal is.
type WireDeviceDef struct {
	WireHead
	Ordinal int32
	Known   uint32 // 1 when UUID was asked and answered
	UUID    [16]byte
	Total   uint64
	Spare   [2]uint64
	Name    [64]byte
}

// LaneHeader is what both sides know of a lane. Head and tail are two cache lines
// apart, so that neither side's stores take the other's line.
type LaneHeader struct {
	Magic    uint64
	Version  uint32
	Header   uint32 // LaneHeaderSize
	Capacity uint64
	PID      uint32
	TID      uint32 // of the thread that made it; ThreadBegin says who writes now
	Spare0   [12]uint64

	// Written by the producer. Head is stored with release after the record;
	// Busy is set before the clock is read and cleared after Head.
	Head    uint64
	Busy    uint32
	Spare1  uint32
	Dropped uint64 // records refused since birth
	Asked   uint64 // time of the record by which the thread asked last
	Waited  uint64 // ns for which a full lane has held threads since birth
	Spare2  [11]uint64

	// Written by the consumer.
	Tail       uint64
	Heartbeat  uint64 // CLOCK_MONOTONIC of its last look; stale when it died
	Epoch      uint32 // raised when it forgot all definitions
	OnFull     uint32 // 0 drop, 1 wait
	WaitBudget uint64 // ns a second that a full lane may hold its thread; 0: nobody reads any more
	Answer     WireAnswer

	// Filled on entry to a driver call, read only after death.
	Call WireCallSlot
}

// WireAnswer is what a scope measured up to the record that asked, for the thread
// that waits for it in this lane. Begin, End and Max are by curve: used, acquired,
// nvml. All of it was folded from the trace, so that a replay finds the same.
type WireAnswer struct {
	Asked uint64 // the time of that record; stored last, and a futex in its lower half
	Known uint32 // bit i: curve i is
	State uint32 // AnswerUnknown …
	Lost  uint64 // events of this process so far
	Begin [3]int64
	End   [3]int64
	Max   [3]int64
}

// What an answer knows of the scope.
const (
	AnswerUnknown = iota // nothing: its begin was lost, was another process's, or is long ago
	AnswerPool           // used is the pool's
	AnswerDriver         // used is the driver's: the process has had no pool event so far
)

// WireCallSlot is the driver call a thread is in. Since is stored last on entry
// and zeroed on return.
type WireCallSlot struct {
	Since   uint64
	API     API
	Device  int16
	TID     uint32 // whose call it is: the lane may not have said that it has another thread; 0 the lane's
	Address uint64
	Size    int64
	Stack   uint64
	Spare   [3]uint64
}

// WireHello goes with a lane's descriptor to the recorder's socket.
type WireHello struct {
	Magic     uint64
	Version   uint32
	PID       uint32
	TID       uint32
	Python    uint32 // 0x030b0700 for 3.11.7, 0 where there is none yet
	StartTime uint64 // /proc/self/stat field 22
	Image     uint64 // first bytes of AT_RANDOM
	Monotonic uint64
	Realtime  uint64
	Capacity  uint64 // of each lane
	Lanes     uint32 // in the file
	Spare     uint32
}

// Deepbound ends the name of an Unhooked that is a library opened with RTLD_DEEPBIND,
// cuda/hook/deepbind.c.
const Deepbound = " (RTLD_DEEPBIND)"

// Environment variables: how gpurec speaks to the hook in a traced process.
// Only GPUREC_ names, LD_PRELOAD, NVTX_INJECTION64_PATH and PYTHONPATH are set,
// and with a simulated GPU LD_LIBRARY_PATH.
const (
	EnvTrace     = "GPUREC_TRACE"  // absolute path of the trace, for the Python package
	EnvSocket    = "GPUREC_SOCKET" // absolute path of the recorder's socket; without it the hook is inert
	EnvStacks    = "GPUREC_STACKS" // auto, none, python, native, both
	EnvMaxFrames = "GPUREC_MAX_FRAMES"
	EnvLaneSize  = "GPUREC_LANE_SIZE"  // bytes, a power of two
	EnvOnFull    = "GPUREC_ON_FULL"    // drop or wait
	EnvDeepbind  = "GPUREC_DEEPBIND"   // 1: libraries opened with RTLD_DEEPBIND are led to the hook too
	EnvNVTXChain = "GPUREC_NVTX_CHAIN" // what NVTX_INJECTION64_PATH was before
	EnvHook      = "GPUREC_HOOK"       // path of the hook, for the Python package
	EnvVerbose   = "GPUREC_VERBOSE"    // 1: the hook says on stderr why it is off; else it never prints
)

// WireStructs are the shared structs, for the generator and for tests.
var WireStructs = []struct {
	Name string
	Zero any
}{
	{"head", WireHead{}},
	{"event", WireEvent{}},
	{"call", WireCall{}},
	{"scope", WireScope{}},
	{"thread", WireThread{}},
	{"code_def", WireCodeDef{}},
	{"stack_def", WireStackDef{}},
	{"frame", WireFrame{}},
	{"module_def", WireModuleDef{}},
	{"name_def", WireNameDef{}},
	{"device_def", WireDeviceDef{}},
	{"call_slot", WireCallSlot{}},
	{"answer", WireAnswer{}},
	{"lane", LaneHeader{}},
	{"hello", WireHello{}},
}

// WireConstants are the numbers the other languages share with us, by their
// names there.
func WireConstants() []NamedNumber {
	c := []NamedNumber{
		{"VERSION", Version}, {"SLOT_SIZE", SlotSize}, {"LANE_HEADER_SIZE", LaneHeaderSize}, {"LANE_STRIDE", LaneStride}, {"MAX_LANES_A_FILE", MaxLanesAFile},
		{"LANE_MAGIC", LaneMagic}, {"HELLO_MAGIC", HelloMagic}, {"ASK_MAGIC", AskMagic},
		{"MIN_LANE_SIZE", MinLaneSize}, {"DEFAULT_LANE_SIZE", DefaultLane}, {"MAX_LANES", MaxLanes}, {"MAX_LANE_BYTES", MaxLaneBytes},
		{"MAX_NAME_BYTES", MaxNameBytes}, {"MAX_TABLE_BYTES", MaxTableBytes}, {"MAX_FRAMES", MaxFrames},
		{"MAX_MODULES", MaxModules}, {"MAX_BUILD_ID", MaxBuildID},
		{"ANSWER_WAIT", AnswerWait}, {"ANSWER_UNKNOWN", AnswerUnknown}, {"ANSWER_POOL", AnswerPool}, {"ANSWER_DRIVER", AnswerDriver},
		{"WIRE_PAD", uint64(WirePad)},
	}
	for _, w := range wireKinds {
		c = append(c, NamedNumber{"WIRE_" + upper(w.name), uint64(w.kind)})
	}
	for k := Alloc; k < kindCount; k++ {
		c = append(c, NamedNumber{"KIND_" + upper(kinds[k].name), uint64(k)})
	}
	c = appendNames(c, "LAYER_", layers[:], 0)
	c = appendNames(c, "CLASS_", classes[:], 0)
	c = appendNames(c, "FRAME_", frameKinds[:], 0)
	for i, n := range flagNames {
		c = append(c, NamedNumber{"FLAG_" + upper(n), 1 << i})
	}
	for _, a := range APIs {
		if !a.Hook {
			c = append(c, NamedNumber{"API_" + upper(a.Name), uint64(a.API)})
		}
	}
	return c
}

// A NamedNumber is a constant of another language's generated file.
type NamedNumber struct {
	Name  string
	Value uint64
}

// WireEnv are the environment variables by their names in generated files.
var WireEnv = []struct{ Name, Value string }{
	{"TRACE", EnvTrace}, {"SOCKET", EnvSocket}, {"STACKS", EnvStacks}, {"MAX_FRAMES", EnvMaxFrames}, {"LANE_SIZE", EnvLaneSize},
	{"ON_FULL", EnvOnFull}, {"NVTX_CHAIN", EnvNVTXChain}, {"HOOK", EnvHook}, {"VERBOSE", EnvVerbose}, {"DEEPBIND", EnvDeepbind},
}

func appendNames(c []NamedNumber, prefix string, names []string, from int) []NamedNumber {
	for i, n := range names {
		c = append(c, NamedNumber{prefix + upper(n), uint64(from + i)})
	}
	return c
}

// upper turns ScopeBegin, cupy.alloc and device into SCOPE_BEGIN, CUPY_ALLOC and DEVICE.
func upper(s string) string {
	var b []byte
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '.':
			b = append(b, '_')
		case c >= 'A' && c <= 'Z':
			if i > 0 && s[i-1] >= 'a' && s[i-1] <= 'z' {
				b = append(b, '_')
			}
			b = append(b, c)
		case c >= 'a' && c <= 'z':
			b = append(b, c-'a'+'A')
		default:
			b = append(b, c)
		}
	}
	return string(b)
}
