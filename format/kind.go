package format

import "fmt"

// A Kind says what an event means. Numbers are on disk and on the wire:
// they are never reused.
type Kind uint8

const (
	KindNone      Kind = 0
	Alloc         Kind = 1  // memory taken; a successful pool alloc of 0 bytes is counted and never live
	AllocFailed   Kind = 2  // address 0, status says why, requested says how much
	Free          Kind = 3  // memory given back; published before the call that gives it back
	FreeDone      Kind = 4  // the duration of a freeing driver call, only when over 10 µs; address as in its Free
	FreeFailed    Kind = 5  // a refused free, with the allocation's own columns: the block is live again
	Map           Kind = 6  // a VMM handle (object) mapped at address
	Unmap         Kind = 7  // the mappings inside [address, address+size) end
	Retain        Kind = 8  // one more reference to a VMM handle (object)
	Release       Kind = 9  // one reference less to a VMM handle (object)
	Import        Kind = 10 // memory another process or library owns became reachable; never counted
	Reset         Kind = 11 // a device (cuctx 0) or one CUcontext was destroyed: every live allocation there ends
	Live          Kind = 12 // checkpoint row: an allocation made earlier, with its own time, stack and size
	CheckpointEnd Kind = 13 // the checkpoint's end; size is its number of rows
	ScopeBegin    Kind = 14 // scope, parent, name, note (the domain)
	ScopeEnd      Kind = 15 // scope
	ScopeReset    Kind = 16 // scope: its begin value and its peak start again here
	ScopeReport   Kind = 17 // scope, note: the program printed a report here, under this sub-context
	Mark          Kind = 18 // a text (name) at a moment
	ProcessBegin  Kind = 19 // process; its row in the process table says the rest
	ProcessEnd    Kind = 20 // process; status as waitpid's: exit status, or 128+signal; -1 unknown. Ends all its allocations
	ThreadBegin   Kind = 21 // thread (tid) and its name
	DeviceInfo    Kind = 22 // device, and the process's own ordinal for it (object)
	Unfinished    Kind = 23 // a call (api, requested, address) that was running when its process died
	Lost          Kind = 24 // size events are missing before this one, on this thread
	Unhooked      Kind = 25 // a cu* name was looked up that may allocate and that is not wrapped
	LiveScope     Kind = 26 // checkpoint row: an open scope and one curve (layer): begin value in requested, largest so far in size
	LiveTotal     Kind = 27 // checkpoint row: per process, device, layer and class: bytes ever taken in size, count in requested, peak in reserved
	LiveMapping   Kind = 28 // checkpoint row: a mapping of a VMM handle (object) at address, size
	kindCount          = 29
)

// The wire adds definitions, and below them what a program asks; they never reach
// a file as events.
const (
	WireAsk    Kind = 127 // a program waits for what a scope measured up to here: a WireScope
	WireCode   Kind = 128 // a Python code object
	WireStack  Kind = 129 // a list of (code, instruction)
	WireName   Kind = 130 // a text
	WireDevice Kind = 131 // an ordinal's UUID, name and total bytes
	WireModule Kind = 132 // a mapped file with code
)

var kinds = [...]struct {
	name  string
	gives bool // gives memory back: stamped and published before the real call
}{
	KindNone:      {"None", false},
	Alloc:         {"Alloc", false},
	AllocFailed:   {"AllocFailed", false},
	Free:          {"Free", true},
	FreeDone:      {"FreeDone", false},
	FreeFailed:    {"FreeFailed", false},
	Map:           {"Map", false},
	Unmap:         {"Unmap", true},
	Retain:        {"Retain", false},
	Release:       {"Release", true},
	Import:        {"Import", false},
	Reset:         {"Reset", true},
	Live:          {"Live", false},
	CheckpointEnd: {"CheckpointEnd", false},
	ScopeBegin:    {"ScopeBegin", false},
	ScopeEnd:      {"ScopeEnd", false},
	ScopeReset:    {"ScopeReset", false},
	ScopeReport:   {"ScopeReport", false},
	Mark:          {"Mark", false},
	ProcessBegin:  {"ProcessBegin", false},
	ProcessEnd:    {"ProcessEnd", false},
	ThreadBegin:   {"ThreadBegin", false},
	DeviceInfo:    {"DeviceInfo", false},
	Unfinished:    {"Unfinished", false},
	Lost:          {"Lost", false},
	Unhooked:      {"Unhooked", false},
	LiveScope:     {"LiveScope", false},
	LiveTotal:     {"LiveTotal", false},
	LiveMapping:   {"LiveMapping", false},
}

// wireKinds are what the wire adds, by name, for the generated headers.
var wireKinds = []struct {
	kind Kind
	name string
}{{WireAsk, "Ask"}, {WireCode, "Code"}, {WireStack, "Stack"}, {WireName, "Name"}, {WireDevice, "Device"}, {WireModule, "Module"}}

func (k Kind) String() string {
	if int(k) < len(kinds) {
		return kinds[k].name
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Valid reports whether k is an event's kind, as it may stand in a file.
func (k Kind) Valid() bool { return k > KindNone && k < kindCount }

// GivesBack reports whether k gives memory back. Such an event is published
// before its call, and goes first among events of equal time.
func (k Kind) GivesBack() bool { return int(k) < len(kinds) && kinds[k].gives }

// Checkpoint reports whether k is a row of a checkpoint rather than something
// that happened.
func (k Kind) Checkpoint() bool {
	switch k {
	case Live, LiveScope, LiveTotal, LiveMapping, CheckpointEnd:
		return true
	}
	return false
}

// ParseKind is the inverse of Kind.String for events' kinds.
func ParseKind(s string) (Kind, error) {
	for k := Alloc; k < kindCount; k++ {
		if kinds[k].name == s {
			return k, nil
		}
	}
	return 0, fmt.Errorf("unknown kind %q", s)
}

// A Layer is a level at which memory is taken.
type Layer uint8

const (
	LayerNone   Layer = 0
	LayerDriver Layer = 1 // the process took it from the device
	LayerPool   Layer = 2 // an allocator above the driver handed it out: PyTorch, CuPy, the driver's own stream-ordered pools
	LayerHost   Layer = 3 // pinned host memory
)

var layers = [...]string{"none", "driver", "pool", "host"}

func (l Layer) String() string { return nameOf(layers[:], int(l), "layer") }
func (l Layer) Valid() bool    { return int(l) < len(layers) }
func ParseLayer(s string) (Layer, error) {
	i, err := parseName(layers[:], s, "layer")
	return Layer(i), err
}

// A Class is a kind of memory. Classes are never mixed in one sum.
type Class uint8

const (
	ClassNone       Class = 0
	ClassDevice     Class = 1
	ClassManaged    Class = 2
	ClassPinned     Class = 3
	ClassRegistered Class = 4
	ClassArray      Class = 5 // a CUDA array: device memory with an opaque layout
	ClassGraph      Class = 6
	ClassImported   Class = 7
)

var classes = [...]string{"none", "device", "managed", "pinned", "registered", "array", "graph", "imported"}

func (c Class) String() string { return nameOf(classes[:], int(c), "class") }
func (c Class) Valid() bool    { return int(c) < len(classes) }
func ParseClass(s string) (Class, error) {
	i, err := parseName(classes[:], s, "class")
	return Class(i), err
}

// Flags of an event.
type Flags uint16

const (
	FlagCaptured Flags = 1 << 0 // recorded in a stream capture: never live
	FlagNested   Flags = 1 << 1 // a pool alloc made inside another pool's alloc: that pool's segment, not counted again in used
	FlagEcho     Flags = 1 << 2 // a framework's own word for memory that another event accounts (CuPy's alloc callbacks): in no sum but its own report's
	FlagEstimate Flags = 1 << 3 // size is computed, not asked of the driver
	FlagOpen     Flags = 1 << 4 // checkpoint row of a scope that is still open
	FlagRange    Flags = 1 << 5 // a scope begun by a start/end pair: not on its thread's stack
	FlagInPool   Flags = 1 << 6 // a driver call made inside a pool's alloc
	flagMask     Flags = 1<<7 - 1
)

var flagNames = [...]string{"captured", "nested", "echo", "estimate", "open", "range", "inpool"}

func nameOf(names []string, i int, what string) string {
	if i < len(names) {
		return names[i]
	}
	return fmt.Sprintf("%s(%d)", what, i)
}

func parseName(names []string, s, what string) (int, error) {
	for i, n := range names {
		if n == s {
			return i, nil
		}
	}
	return 0, fmt.Errorf("unknown %s %q", what, s)
}
