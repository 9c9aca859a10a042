package ring

import (
	"encoding/binary"
	"hash/maphash"
	"unsafe"

	"github.com/gpurec/gpurec/format"
)

// A Definition is a definition as a record, ready for a lane, and the key under
// which events refer to it.
type Definition struct {
	Key    uint64
	record []byte
}

// seed makes the keys of this process's definitions. Keys mean something only
// within one process.
var seed = maphash.MakeSeed()

// key is never 0, which stands for none.
func key(b []byte) uint64 {
	if k := maphash.Bytes(seed, b); k != 0 {
		return k
	}
	return 1
}

// fixed is a struct of the wire as bytes.
func fixed[T any](v *T) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v)) }

// record joins the parts of a definition and fills its last slot.
func record(parts ...[]byte) []byte {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	b := make([]byte, 0, (n+format.SlotSize-1)/format.SlotSize*format.SlotSize)
	for _, p := range parts {
		b = append(b, p...)
	}
	b = b[:cap(b)]
	binary.LittleEndian.PutUint16(b[unsafe.Offsetof(format.WireHead{}.Slots):], uint16(len(b)/format.SlotSize))
	return b
}

func cut(s string) []byte { return []byte(s[:min(len(s), format.MaxNameBytes)]) }

// DefineName is a text: a scope's name, a mark, a symbol. A longer one than
// format.MaxNameBytes is cut.
func DefineName(text string) Definition {
	b := cut(text)
	d := format.WireNameDef{WireHead: format.WireHead{Kind: format.WireName}, Hash: key(b), Bytes: uint32(len(b))}
	return Definition{d.Hash, record(fixed(&d), b)}
}

// DefineCode is a code object of Python: pass its first line, its line table and
// its version as in sys.hexversion's upper half. Without a table (a Go
// function) the first line is the frame's line.
func DefineCode(file, name string, firstLine int32, python uint16, table []byte) Definition {
	f, n := cut(file), cut(name)
	t := table[:min(len(table), format.MaxTableBytes)]
	d := format.WireCodeDef{WireHead: format.WireHead{Kind: format.WireCode}, FirstLine: firstLine, Python: python,
		FileBytes: uint32(len(f)), NameBytes: uint32(len(n)), TableBytes: uint32(len(t)), TableTotal: uint32(len(table))}
	d.Key = key(record(fixed(&d), f, n, t))
	return Definition{d.Key, record(fixed(&d), f, n, t)}
}

// DefineStack is a list of frames, innermost first; outer ones beyond
// format.MaxFrames are left out and counted.
func DefineStack(frames []format.WireFrame) Definition {
	kept := frames[:min(len(frames), format.MaxFrames)]
	d := format.WireStackDef{WireHead: format.WireHead{Kind: format.WireStack}, Count: uint32(len(kept)), Dropped: uint32(len(frames) - len(kept))}
	var b []byte
	for i := range kept {
		b = append(b, fixed(&kept[i])...)
	}
	d.Hash = key(b)
	if d.Dropped > 0 {
		d.Hash = key(binary.LittleEndian.AppendUint32(b[:len(b):len(b)], d.Dropped)) // one that ends there, or goes on for longer, is another stack
	}
	return Definition{d.Hash, record(fixed(&d), b)}
}

// DefineModule is a file that native frames are of, by its number in this process;
// buildID is the bytes of it, or none.
func DefineModule(number uint32, path string, buildID []byte) Definition {
	p, id := cut(path), buildID[:min(len(buildID), format.MaxBuildID)]
	d := format.WireModuleDef{WireHead: format.WireHead{Kind: format.WireModule}, Number: number, BuildBytes: uint32(len(id)), PathBytes: uint32(len(p))}
	return Definition{uint64(number), record(fixed(&d), id, p)}
}

// DefineDevice says which device an ordinal of this process is. An empty uuid
// is one that nobody could tell.
func DefineDevice(ordinal int32, uuid []byte, name string, total uint64) Definition {
	d := format.WireDeviceDef{WireHead: format.WireHead{Kind: format.WireDevice}, Ordinal: ordinal, Total: total}
	if len(uuid) == len(d.UUID) {
		d.Known = 1
		copy(d.UUID[:], uuid)
	}
	copy(d.Name[:], name)
	return Definition{key(fixed(&d)), record(fixed(&d))}
}
