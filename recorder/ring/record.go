package ring

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/gpurec/gpurec/format"
)

// headSize and the others are the lengths of the fixed parts of records.
const (
	headSize   = int(unsafe.Sizeof(format.WireHead{}))
	codeSize   = int(unsafe.Sizeof(format.WireCodeDef{}))
	stackSize  = int(unsafe.Sizeof(format.WireStackDef{}))
	frameSize  = int(unsafe.Sizeof(format.WireFrame{}))
	nameSize   = int(unsafe.Sizeof(format.WireNameDef{}))
	deviceSize = int(unsafe.Sizeof(format.WireDeviceDef{}))
	moduleSize = int(unsafe.Sizeof(format.WireModuleDef{}))
)

// maxRecord is the longest record a lane may hold: a code object with the
// longest texts and table. A pad may be longer.
const maxRecord = codeSize + 2*format.MaxNameBytes + format.MaxTableBytes + format.SlotSize

// A Record is one whole record in memory that the reader owns, as Consumer.Read
// left it: its lengths and counts are checked, its values are not.
type Record []byte

func view[T any](r Record, at int) *T { return (*T)(unsafe.Pointer(&r[at])) }

// Next splits the first record off b, which Read filled; nil at its end.
func Next(b []byte) (r Record, rest []byte) {
	if len(b) < format.SlotSize {
		return nil, nil
	}
	n := int(view[format.WireHead](b, 0).Slots) * format.SlotSize
	return b[:n:n], b[n:]
}

func (r Record) Head() *format.WireHead   { return view[format.WireHead](r, 0) }
func (r Record) Kind() format.Kind        { return r.Head().Kind }
func (r Record) Time() format.Time        { return format.Time(r.Head().Time) }
func (r Record) Definition() bool         { return r.Kind() >= format.WireCode }
func (r Record) Event() *format.WireEvent { return view[format.WireEvent](r, 0) }

// Scope reads a record of one of the kinds that Shape calls ShapeScope.
func (r Record) Scope() *format.WireScope   { return view[format.WireScope](r, 0) }
func (r Record) Thread() *format.WireThread { return view[format.WireThread](r, 0) }

// Call is an event's second slot, nil where it has none.
func (r Record) Call() *format.WireCall {
	if len(r) < 2*format.SlotSize {
		return nil
	}
	return view[format.WireCall](r, format.SlotSize)
}

// Code is a WireCode record: the definition and the bytes that follow it.
func (r Record) Code() (def *format.WireCodeDef, file, name, table []byte) {
	def = view[format.WireCodeDef](r, 0)
	f := codeSize + int(def.FileBytes)
	n := f + int(def.NameBytes)
	return def, r[codeSize:f], r[f:n], r[n : n+int(def.TableBytes)]
}

// Stack is a WireStack record.
func (r Record) Stack() (def *format.WireStackDef, frames []format.WireFrame) {
	def = view[format.WireStackDef](r, 0)
	if def.Count == 0 {
		return def, nil
	}
	return def, unsafe.Slice(view[format.WireFrame](r, stackSize), def.Count)
}

// Name is a WireName record.
func (r Record) Name() (def *format.WireNameDef, text []byte) {
	def = view[format.WireNameDef](r, 0)
	return def, r[nameSize : nameSize+int(def.Bytes)]
}

func (r Record) Device() *format.WireDeviceDef { return view[format.WireDeviceDef](r, 0) }

// Module is a WireModule record.
func (r Record) Module() (def *format.WireModuleDef, id, path []byte) {
	def = view[format.WireModuleDef](r, 0)
	p := moduleSize + int(def.BuildBytes)
	return def, r[moduleSize:p], r[p : p+int(def.PathBytes)]
}

// A Shape says which struct the first slot of a record is.
type Shape uint8

const (
	ShapeNone       Shape = iota // may not stand in a lane
	ShapeEvent                   // WireEvent, and perhaps WireCall
	ShapeScope                   // WireScope
	ShapeThread                  // WireThread
	ShapeDefinition              // one of the definitions
)

// shapes has a row for each kind; what only the recorder writes has none.
var shapes = [256]Shape{
	format.Alloc: ShapeEvent, format.AllocFailed: ShapeEvent,
	format.Free: ShapeEvent, format.FreeDone: ShapeEvent, format.FreeFailed: ShapeEvent,
	format.Map: ShapeEvent, format.Unmap: ShapeEvent, format.Retain: ShapeEvent, format.Release: ShapeEvent,
	format.Import: ShapeEvent, format.Reset: ShapeEvent,
	format.ScopeBegin: ShapeScope, format.ScopeEnd: ShapeScope, format.ScopeReset: ShapeScope, format.ScopeReport: ShapeScope,
	format.Mark: ShapeScope, format.Unhooked: ShapeScope, format.WireAsk: ShapeScope,
	format.ThreadBegin: ShapeThread,
	format.WireCode:    ShapeDefinition, format.WireStack: ShapeDefinition, format.WireName: ShapeDefinition, format.WireDevice: ShapeDefinition,
	format.WireModule: ShapeDefinition,
}

// ShapeOf is the shape of records of kind k.
func ShapeOf(k format.Kind) Shape { return shapes[k] }

var (
	errKind   = errors.New("a kind that does not travel")
	errLength = errors.New("a length that its content contradicts")
	errValue  = errors.New("a layer, class or size that cannot be")
)

// check looks at one copied record of len(r) = Slots*SlotSize bytes, and makes
// the accessors above safe.
func (r Record) check() error {
	h := r.Head()
	switch shapes[h.Kind] {
	case ShapeNone:
		return errKind
	case ShapeDefinition:
		if n, ok := r.definitionLength(); !ok || n > len(r) || len(r)-n >= format.SlotSize {
			return errLength
		}
		return nil
	case ShapeEvent:
		if len(r) > 2*format.SlotSize {
			return errLength
		}
		e := r.Event()
		if e.Class > format.ClassImported || h.Kind == format.Alloc && e.Size < 0 {
			return errValue
		}
	default:
		if len(r) != format.SlotSize {
			return errLength
		}
	}
	if !h.Layer.Valid() {
		return errValue
	}
	return nil
}

// definitionLength is how many bytes of r a definition uses, by its own counts.
func (r Record) definitionLength() (int, bool) {
	need := func(n int) bool { return len(r) >= n }
	switch r.Kind() {
	case format.WireCode:
		d := view[format.WireCodeDef](r, 0)
		return codeSize + int(d.FileBytes) + int(d.NameBytes) + int(d.TableBytes),
			d.FileBytes <= format.MaxNameBytes && d.NameBytes <= format.MaxNameBytes && d.TableBytes <= format.MaxTableBytes
	case format.WireStack:
		if !need(stackSize) {
			return 0, false
		}
		d := view[format.WireStackDef](r, 0)
		return stackSize + int(d.Count)*frameSize, d.Count <= format.MaxFrames
	case format.WireName:
		d := view[format.WireNameDef](r, 0)
		return nameSize + int(d.Bytes), d.Bytes <= format.MaxNameBytes
	case format.WireModule:
		if !need(moduleSize) {
			return 0, false
		}
		d := view[format.WireModuleDef](r, 0)
		return moduleSize + int(d.BuildBytes) + int(d.PathBytes), d.BuildBytes <= format.MaxBuildID && d.PathBytes <= format.MaxNameBytes
	}
	return deviceSize, need(deviceSize)
}

// A CorruptError says that a lane holds what no writer of ours writes. The lane
// is closed; others go on.
type CorruptError struct {
	PID, TID uint32
	At       uint64 // bytes published before the place
	Err      error
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("lane of process %d, thread %d: byte %d: %v", e.PID, e.TID, e.At, e.Err)
}

func (e *CorruptError) Unwrap() error { return e.Err }
