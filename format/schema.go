package format

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"github.com/apache/arrow/go/v15/arrow"
)

// The tables of a part. A column is a field of the row's Go struct, found by
// its offset, so that this list alone drives the Arrow schema, the encoder and
// the decoder; a test holds that every field of a row is a column, once.
//
// No column has nulls, none is dictionary encoded: DuckDB's Arrow reader could
// not read dictionaries until lately, and zstd takes what they would save.
// Kinds, layers, classes and flags are small integers with their names in the
// field's metadata. Functions are not: there will be more of them, and a schema
// is the same in all traces of a version. Exports make all of them text.

// A cell is how a column's values lie in the struct, on disk and in Arrow.
type cell uint8

const (
	cellU8 cell = iota
	cellI8
	cellU16
	cellI16
	cellU32
	cellI32
	cellU64
	cellI64
	cellTime // a moment, 64 bits; compressed apart
	cellSeq  // a lane's number, 64 bits: see seq.go
	cellText // a string; UTF-8 with 32-bit offsets on disk
)

var cells = [...]struct {
	width int // of a value in a column; of an offset for text
	arrow arrow.DataType
}{
	cellU8:   {1, arrow.PrimitiveTypes.Uint8},
	cellI8:   {1, arrow.PrimitiveTypes.Int8},
	cellU16:  {2, arrow.PrimitiveTypes.Uint16},
	cellI16:  {2, arrow.PrimitiveTypes.Int16},
	cellU32:  {4, arrow.PrimitiveTypes.Uint32},
	cellI32:  {4, arrow.PrimitiveTypes.Int32},
	cellU64:  {8, arrow.PrimitiveTypes.Uint64},
	cellI64:  {8, arrow.PrimitiveTypes.Int64},
	cellTime: {8, arrow.PrimitiveTypes.Int64},
	cellSeq:  {8, arrow.PrimitiveTypes.Int64},
	cellText: {4, arrow.BinaryTypes.String},
}

type column struct {
	name   string
	cell   cell
	offset uintptr // in the row's struct
	unit   string
	doc    string
	values func() []string // the names of its numbers, as "1=Alloc"
	lo, hi uint8           // the numbers that may stand there; hi 0: any
}

type table struct {
	name    string // its file is name.arrow
	doc     string
	size    uintptr // of the row's struct
	columns []column

	once sync.Once
	made *shape
}

// nameRow is a row of names.arrow.
type nameRow struct {
	ID   NameID
	Text string
}

// The tables of a part, in the order in which they are flushed: definitions
// reach the disk before the rows that need them, events last. The shape of
// each is computed at first use.
var (
	framesTable = &table{name: "frames", doc: "lines of stacks", size: unsafe.Sizeof(Frame{}), columns: []column{
		{"id", cellU32, unsafe.Offsetof(Frame{}.ID), "", "the trace's number of the frame, equal in every part", nil, 0, 0},
		{"kind", cellU8, unsafe.Offsetof(Frame{}.Kind), "", "where the frame came from", listOf(frameKinds[:]), uint8(FramePython), uint8(FrameLabel)},
		{"file", cellText, unsafe.Offsetof(Frame{}.File), "", "source file", nil, 0, 0},
		{"line", cellI32, unsafe.Offsetof(Frame{}.Line), "", "0 unknown", nil, 0, 0},
		{"function", cellText, unsafe.Offsetof(Frame{}.Function), "", "function, or [thread NAME]", nil, 0, 0},
		{"module", cellText, unsafe.Offsetof(Frame{}.Module), "", "the mapped file of a native frame", nil, 0, 0},
		{"build_id", cellText, unsafe.Offsetof(Frame{}.BuildID), "", "of the module", nil, 0, 0},
		{"address", cellU64, unsafe.Offsetof(Frame{}.Address), "byte", "offset in the module of a native frame", nil, 0, 0},
	}}
	stacksTable = &table{name: "stacks", doc: "the stack trie: a stack is a node and its ancestors", size: unsafe.Sizeof(Stack{}), columns: []column{
		{"id", cellU32, unsafe.Offsetof(Stack{}.ID), "", "the trace's number of the stack, equal in every part", nil, 0, 0},
		{"parent", cellU32, unsafe.Offsetof(Stack{}.Parent), "", "the caller's stack, 0 for the outermost frame", nil, 0, 0},
		{"frame", cellU32, unsafe.Offsetof(Stack{}.Frame), "", "id in frames", nil, 0, 0},
	}}
	namesTable = &table{name: "names", doc: "texts: scopes, marks, threads, symbols", size: unsafe.Sizeof(nameRow{}), columns: []column{
		{"id", cellU32, unsafe.Offsetof(nameRow{}.ID), "", "the trace's number of the text, equal in every part", nil, 0, 0},
		{"text", cellText, unsafe.Offsetof(nameRow{}.Text), "", "", nil, 0, 0},
	}}
	processesTable = &table{name: "processes", doc: "one row a process and change; the last row of an id holds", size: unsafe.Sizeof(Process{}), columns: []column{
		{"id", cellU32, unsafe.Offsetof(Process{}.ID), "", "the trace's number of the process, equal in every part", nil, 0, 0},
		{"pid", cellI32, unsafe.Offsetof(Process{}.PID), "", "", nil, 0, 0},
		{"parent", cellI32, unsafe.Offsetof(Process{}.Parent), "", "the parent's pid", nil, 0, 0},
		{"start_time", cellU64, unsafe.Offsetof(Process{}.StartTime), "tick", "clock ticks since boot", nil, 0, 0},
		{"image", cellU64, unsafe.Offsetof(Process{}.Image), "", "from AT_RANDOM: differs after an exec", nil, 0, 0},
		{"begin", cellI64, unsafe.Offsetof(Process{}.Begin), "ns", "first seen, CLOCK_MONOTONIC; -1 unknown", nil, 0, 0},
		{"end", cellI64, unsafe.Offsetof(Process{}.End), "ns", "CLOCK_MONOTONIC; -1 unknown", nil, 0, 0},
		{"status", cellI32, unsafe.Offsetof(Process{}.Status), "", "exit status, 128+signal, -1 unknown", nil, 0, 0},
		{"rank", cellI32, unsafe.Offsetof(Process{}.Rank), "", "of a distributed job, -1 none", nil, 0, 0},
		{"executable", cellText, unsafe.Offsetof(Process{}.Executable), "", "", nil, 0, 0},
		{"command", cellText, unsafe.Offsetof(Process{}.Command), "", "arguments joined by spaces", nil, 0, 0},
		{"python", cellText, unsafe.Offsetof(Process{}.Python), "", "version, where Python frames were read", nil, 0, 0},
	}}
	devicesTable = &table{name: "devices", doc: "the trace's devices; the last row of an id holds", size: unsafe.Sizeof(DeviceRow{}), columns: []column{
		{"id", cellI16, unsafe.Offsetof(DeviceRow{}.ID), "", "the trace's number of the device; join other sources by uuid", nil, 0, 0},
		{"uuid", cellText, unsafe.Offsetof(DeviceRow{}.UUID), "", "", nil, 0, 0},
		{"name", cellText, unsafe.Offsetof(DeviceRow{}.Name), "", "", nil, 0, 0},
		{"total", cellI64, unsafe.Offsetof(DeviceRow{}.Total), "byte", "", nil, 0, 0},
		{"nvml", cellI32, unsafe.Offsetof(DeviceRow{}.NVML), "", "NVML's index, -1 without NVML", nil, 0, 0},
	}}
	samplesTable = &table{name: "samples", doc: "NVML's view; process 0 is the whole device", size: unsafe.Sizeof(Sample{}), columns: []column{
		{"time", cellTime, unsafe.Offsetof(Sample{}.Time), "ns", "CLOCK_MONOTONIC", nil, 0, 0},
		{"device", cellI16, unsafe.Offsetof(Sample{}.Device), "", "id in devices", nil, 0, 0},
		{"process", cellU32, unsafe.Offsetof(Sample{}.Process), "", "id in processes, 0 for the device's own row", nil, 0, 0},
		{"total", cellI64, unsafe.Offsetof(Sample{}.Total), "byte", "", nil, 0, 0},
		{"used", cellI64, unsafe.Offsetof(Sample{}.Used), "byte", "contains reserved where api is 1", nil, 0, 0},
		{"free", cellI64, unsafe.Offsetof(Sample{}.Free), "byte", "", nil, 0, 0},
		{"reserved", cellI64, unsafe.Offsetof(Sample{}.Reserved), "byte", "-1 where api is 1", nil, 0, 0},
		{"process_used", cellI64, unsafe.Offsetof(Sample{}.ProcessUsed), "byte", "-1 in a device's row", nil, 0, 0},
		{"peak_used", cellI64, unsafe.Offsetof(Sample{}.PeakUsed), "byte", "the largest used since the sample before", nil, 0, 0},
		{"api", cellI8, unsafe.Offsetof(Sample{}.API), "", "version of NVML's memory call", nil, 0, 0},
	}}
	eventsTable = &table{name: "events", doc: "events in the order of effect", size: unsafe.Sizeof(Event{}), columns: []column{
		{"time", cellTime, unsafe.Offsetof(Event{}.Time), "ns", "CLOCK_MONOTONIC: after the call for what takes memory, before it for what gives it back", nil, 0, 0},
		{"duration", cellI64, unsafe.Offsetof(Event{}.Duration), "ns", "of the call, -1 unknown", nil, 0, 0},
		{"process", cellU32, unsafe.Offsetof(Event{}.Process), "", "id in processes", nil, 0, 0},
		{"thread", cellU32, unsafe.Offsetof(Event{}.Thread), "", "the operating system's tid", nil, 0, 0},
		{"seq", cellSeq, unsafe.Offsetof(Event{}.Seq), "", "the thread's count of its events, lost ones included; -1: one more than the last of the same process and thread above; 0: a row that the recorder made", nil, 0, 0},
		{"kind", cellU8, unsafe.Offsetof(Event{}.Kind), "", "what happened", kindValues, uint8(Alloc), kindCount - 1},
		{"layer", cellU8, unsafe.Offsetof(Event{}.Layer), "", "where memory was taken", listOf(layers[:]), 0, uint8(LayerHost)},
		{"class", cellU8, unsafe.Offsetof(Event{}.Class), "", "kind of memory", listOf(classes[:]), 0, uint8(ClassImported)},
		{"api", cellU16, unsafe.Offsetof(Event{}.API), "", "the function or source that caused it: its name is in the apis of trace.json", nil, 0, 0},
		{"device", cellI16, unsafe.Offsetof(Event{}.Device), "", "id in devices, -1 none", nil, 0, 0},
		{"cuctx", cellU64, unsafe.Offsetof(Event{}.CUctx), "", "CUcontext", nil, 0, 0},
		{"address", cellU64, unsafe.Offsetof(Event{}.Address), "", "", nil, 0, 0},
		{"object", cellU64, unsafe.Offsetof(Event{}.Object), "", "pmem_id, VMM handle, CUarray, range, ordinal", nil, 0, 0},
		{"size", cellI64, unsafe.Offsetof(Event{}.Size), "byte", "as the layer accounts it; -1 unknown", nil, 0, 0},
		{"requested", cellI64, unsafe.Offsetof(Event{}.Requested), "byte", "as asked; -1 unknown", nil, 0, 0},
		{"allocated", cellI64, unsafe.Offsetof(Event{}.Allocated), "byte", "PyTorch's own sum after the event; -1 unknown", nil, 0, 0},
		{"reserved", cellI64, unsafe.Offsetof(Event{}.Reserved), "byte", "PyTorch's own sum after the event, or bytes free when an alloc failed; -1 unknown", nil, 0, 0},
		{"stream", cellU64, unsafe.Offsetof(Event{}.Stream), "", "CUstream", nil, 0, 0},
		{"pool", cellU64, unsafe.Offsetof(Event{}.Pool), "", "CUmemoryPool", nil, 0, 0},
		{"stack", cellU32, unsafe.Offsetof(Event{}.Stack), "", "id in stacks, 0 unknown", nil, 0, 0},
		{"scope", cellU64, unsafe.Offsetof(Event{}.Scope), "", "innermost open scope of the thread", nil, 0, 0},
		{"parent", cellU64, unsafe.Offsetof(Event{}.Parent), "", "of a ScopeBegin", nil, 0, 0},
		{"name", cellU32, unsafe.Offsetof(Event{}.Name), "", "id in names", nil, 0, 0},
		{"note", cellU32, unsafe.Offsetof(Event{}.Note), "", "id in names: a scope's domain, a report's sub-context", nil, 0, 0},
		{"status", cellI32, unsafe.Offsetof(Event{}.Status), "", "CUresult, 0 success", nil, 0, 0},
		{"flags", cellU16, unsafe.Offsetof(Event{}.Flags), "", "bits", flagValues, 0, 0},
	}}
)

var tableOrder = [...]*table{framesTable, stacksTable, namesTable, processesTable, devicesTable, samplesTable, eventsTable}

// order is t's place in tableOrder.
func (t *table) order() int {
	for i, o := range tableOrder {
		if o == t {
			return i
		}
	}
	panic("format: table " + t.name + " has no place")
}

func (t *table) file() string { return t.name + ".arrow" }

// width is the bytes of a row in memory as columns, text apart.
func (t *table) width() (n int) {
	for _, c := range t.columns {
		n += cells[c.cell].width
	}
	return n
}

// schema is t's Arrow schema. Its message is compared byte for byte by
// readers, so whatever is said here is part of the format's version.
func (t *table) schema() *arrow.Schema {
	fields := make([]arrow.Field, len(t.columns))
	for i, c := range t.columns {
		var keys, values []string
		add := func(k, v string) {
			if v != "" {
				keys, values = append(keys, k), append(values, v)
			}
		}
		add("unit", c.unit)
		add("doc", c.doc)
		if c.values != nil {
			add("values", strings.Join(c.values(), " "))
		}
		fields[i] = arrow.Field{Name: c.name, Type: cells[c.cell].arrow, Metadata: arrow.NewMetadata(keys, values)}
	}
	md := arrow.NewMetadata([]string{"gpurec.version", "gpurec.table", "doc"}, []string{strconv.Itoa(Version), t.name, t.doc})
	return arrow.NewSchema(fields, &md)
}

func listOf(names []string) func() []string {
	return func() []string {
		out := make([]string, len(names))
		for i, n := range names {
			out[i] = fmt.Sprintf("%d=%s", i, n)
		}
		return out
	}
}

func kindValues() (out []string) {
	for k := Alloc; k < kindCount; k++ {
		out = append(out, fmt.Sprintf("%d=%s", k, k))
	}
	return out
}

func flagValues() (out []string) {
	for i, n := range flagNames {
		out = append(out, fmt.Sprintf("%d=%s", 1<<i, n))
	}
	return out
}
