package export

import (
	"io"

	"github.com/apache/arrow/go/v15/arrow"
	"github.com/apache/arrow/go/v15/arrow/array"
	"github.com/apache/arrow/go/v15/arrow/ipc"
	"github.com/apache/arrow/go/v15/arrow/memory"
)

// arrowSink writes an Arrow IPC file (Feather version 2), zstd bodies, texts
// not dictionary-encoded: DuckDB reads it as it lies.
type arrowSink struct {
	w *ipc.FileWriter
	b *array.RecordBuilder
}

func arrowType(t colType) arrow.DataType {
	switch t {
	case text:
		return arrow.BinaryTypes.String
	case u64:
		return arrow.PrimitiveTypes.Uint64
	case i32:
		return arrow.PrimitiveTypes.Int32
	case u32:
		return arrow.PrimitiveTypes.Uint32
	case i16:
		return arrow.PrimitiveTypes.Int16
	case instant:
		return &arrow.TimestampType{Unit: arrow.Nanosecond, TimeZone: "UTC"}
	}
	return arrow.PrimitiveTypes.Int64
}

func openArrow(w io.WriteSeeker, shape *batch) (sink, error) {
	var fields []arrow.Field
	for _, c := range shape.cols {
		fields = append(fields, arrow.Field{Name: c.name, Type: arrowType(c.typ),
			Metadata: arrow.NewMetadata([]string{"meaning"}, []string{c.doc})})
	}
	meta := arrow.NewMetadata([]string{"gpurec.table", "gpurec.units"}, []string{shape.table, units})
	schema := arrow.NewSchema(fields, &meta)
	out, err := ipc.NewFileWriter(w, ipc.WithSchema(schema), ipc.WithZstd())
	if err != nil {
		return nil, err
	}
	return &arrowSink{out, array.NewRecordBuilder(memory.DefaultAllocator, schema)}, nil
}

func (s *arrowSink) write(b *batch) error {
	for i := range b.cols {
		c := &b.cols[i]
		f := s.b.Field(i)
		f.Reserve(b.rows)
		switch f := f.(type) {
		case *array.StringBuilder:
			f.AppendValues(c.str, nil)
		case *array.Int64Builder:
			f.AppendValues(c.num, nil)
		case *array.Uint64Builder:
			for _, v := range c.num {
				f.UnsafeAppend(uint64(v))
			}
		case *array.Int32Builder:
			for _, v := range c.num {
				f.UnsafeAppend(int32(v))
			}
		case *array.Uint32Builder:
			for _, v := range c.num {
				f.UnsafeAppend(uint32(v))
			}
		case *array.Int16Builder:
			for _, v := range c.num {
				f.UnsafeAppend(int16(v))
			}
		case *array.TimestampBuilder:
			for _, v := range c.num {
				f.UnsafeAppend(arrow.Timestamp(v))
			}
		}
	}
	r := s.b.NewRecord()
	defer r.Release()
	return s.w.Write(r)
}

func (s *arrowSink) close() error {
	s.b.Release()
	return s.w.Close()
}
