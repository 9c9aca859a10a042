package format

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// timesOf is a column: a first value and what each next one adds.
func timesOf(first uint64, steps ...uint64) []byte {
	b := binary.LittleEndian.AppendUint64(nil, first)
	for _, d := range steps {
		first += d
		b = binary.LittleEndian.AppendUint64(b, first)
	}
	return b
}

func decodeTimes(t testing.TB, frame []byte) ([]byte, error) {
	t.Helper()
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	defer dec.Close()
	return dec.DecodeAll(frame, nil)
}

// TestTimes compresses columns of times and others that look like some, and has
// them decoded by zstd.
func TestTimes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	steps := func(n int, f func(i int) uint64) []byte {
		s := make([]uint64, n)
		for i := range s {
			s[i] = f(i)
		}
		return timesOf(1e15, s...)
	}
	for _, row := range []struct {
		name string
		col  []byte
		own  bool
	}{
		{"events of a program", steps(65535, func(int) uint64 { return 2000 + r.Uint64N(1<<16) }), true},
		{"seldom", steps(5000, func(int) uint64 { return r.Uint64N(1 << 33) }), true},
		{"often", steps(70000, func(int) uint64 { return r.Uint64N(40) }), true},
		{"in bursts", steps(65535, func(i int) uint64 { return 1 + uint64(i%1000/999)*1e9 }), true},
		{"many at one time", steps(40000, func(i int) uint64 { return uint64(i % 10 / 9) }), true},
		{"all but one at one time", steps(40000, func(i int) uint64 { return uint64(i / 39999) }), true},
		{"all at one time", steps(40000, func(int) uint64 { return 0 }), true},
		{"steps back", steps(3000, func(i int) uint64 { return uint64(100 - i%3*90) }), true},
		{"by the second byte", steps(3000, func(i int) uint64 { return 256 }), true},
		{"the least that is worth it", steps(minTimes-1, func(i int) uint64 { return r.Uint64N(1000) }), true},
		{"one block less a row", steps(timeBlock, func(i int) uint64 { return r.Uint64N(1000) }), true},
		{"one block", steps(timeBlock+1, func(i int) uint64 { return r.Uint64N(1000) }), true},
		{"one block and a row", steps(timeBlock+2, func(i int) uint64 { return r.Uint64N(1000) }), true},
		{"one less", steps(minTimes-2, func(i int) uint64 { return r.Uint64N(1000) }), false},
		{"no times", steps(1000, func(i int) uint64 { return r.Uint64() }), false},
		{"rows that are none, alone", steps(1000, func(i int) uint64 { return 1 + uint64(i%10/9)<<60 }), true},
		{"the last one is none", append(steps(1000, func(i int) uint64 { return r.Uint64N(1000) }), 1, 2, 3, 4, 5, 6, 7, 8), true},
		{"a block of one row that is none", append(steps(timeBlock+1, func(i int) uint64 { return r.Uint64N(1000) }), 1, 2, 3, 4, 5, 6, 7, 8), false},
		{"two that are none", append(steps(1000, func(i int) uint64 { return r.Uint64N(1000) }), 1, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1), false},
		{"the second row is none", append(timesOf(1, 1<<60), steps(1000, func(i int) uint64 { return 1 })...), false},
	} {
		t.Run(row.name, func(t *testing.T) {
			var e timeEncoder
			for range 2 { // the second time with used tables
				frame, ok := e.append([]byte("before"), row.col)
				if ok != row.own {
					t.Fatalf("compressed: %v, want %v", ok, row.own)
				}
				if !ok {
					if string(frame) != "before" {
						t.Errorf("declined, and left %d bytes", len(frame))
					}
					return
				}
				got, err := decodeTimes(t, frame[len("before"):])
				if err != nil || !bytes.Equal(got, row.col) {
					t.Fatalf("%d bytes come back of %d: %v", len(got), len(row.col), err)
				}
			}
		})
	}
}

// TestTimesAreSmall: in no more bytes than zstd's own.
func TestTimesAreSmall(t *testing.T) {
	b := newBatch(eventsTable)
	addRows(b, trainingEvents(MaxBatchRows))
	col := b.cols[0].data
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		t.Fatal(err)
	}
	var e timeEncoder
	frame, ok := e.append(nil, col)
	if theirs := enc.EncodeAll(col, nil); !ok || len(frame) > len(theirs)+len(theirs)/100 {
		t.Errorf("%d bytes, zstd makes %d", len(frame), len(theirs))
	}
}

// FuzzTimes: whatever is compressed comes back.
func FuzzTimes(f *testing.F) {
	f.Add([]byte{1, 2, 3}, uint16(300))
	f.Add(bytes.Repeat([]byte{0, 0, 255, 1}, 50), uint16(20000))
	f.Fuzz(func(t *testing.T, steps []byte, rows uint16) {
		col, v := make([]byte, 0, 8*int(rows)), uint64(1e12)
		for i := range int(rows) {
			if len(steps) > 0 { // a step's number of bits and some of its value
				s := steps[i%len(steps)]
				v += uint64(s) << (s % 38) * uint64(i%7)
			}
			col = binary.LittleEndian.AppendUint64(col, v)
		}
		var e timeEncoder
		frame, ok := e.append(nil, col)
		if !ok {
			return
		}
		if got, err := decodeTimes(t, frame); err != nil || !bytes.Equal(got, col) {
			t.Fatalf("%d bytes come back of %d: %v", len(got), len(col), err)
		}
	})
}

// TestChecksum: of the lengths that end differently, against XXH64's own numbers
// for no bytes, "a", "abc" and a text of 43.
func TestChecksum(t *testing.T) {
	for text, want := range map[string]uint64{
		"": 0xef46db3751d8e999, "a": 0xd24ec4f1a98c6e5b, "abc": 0x44bc2cf5ad770999,
		"The quick brown fox jumps over the lazy dog": 0x0b242d361fda71bc,
	} {
		if got := xxh64([]byte(text)); got != want {
			t.Errorf("%q: %#x, want %#x", text, got, want)
		}
	}
}

func BenchmarkTimes(b *testing.B) {
	batch := newBatch(eventsTable)
	addRows(batch, trainingEvents(MaxBatchRows))
	col := batch.cols[0].data
	report := func(b *testing.B, n int) {
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/MaxBatchRows, "ns/row")
		b.ReportMetric(float64(n)/MaxBatchRows, "B/row")
	}
	for _, level := range []zstd.EncoderLevel{zstd.SpeedFastest, zstd.SpeedDefault} {
		b.Run(fmt.Sprintf("by=%v", level), func(b *testing.B) {
			enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(level))
			if err != nil {
				b.Fatal(err)
			}
			var out []byte
			for b.Loop() {
				out = enc.EncodeAll(col, out[:0])
			}
			report(b, len(out))
		})
	}
	b.Run("by=times", func(b *testing.B) {
		var e timeEncoder
		var out []byte
		for b.Loop() {
			out, _ = e.append(out[:0], col)
		}
		report(b, len(out))
	})
}
