package format

import (
	"fmt"
	"io"
	"path/filepath"
	"testing"
)

// trainingEvents are shaped like a PyTorch training loop as it was measured:
// absolute times, few stacks and sizes, a Free that carries no size.
func trainingEvents(n int) []Event {
	out := make([]Event, n)
	x := uint64(1)
	for i := range out {
		x = x*6364136223846793005 + 1442695040888963407
		k := i % 728
		e := &out[i]
		*e = Event{Time: Time(i)*3000 + Time(x>>54), Duration: Unknown, Seq: uint64(i), Address: 0x7f0000000000 + uint64(k/2)*2097152, Size: int64(512 << (k % 9)),
			Requested: Unknown, Allocated: int64(k) << 20, Reserved: 1 << 30, Process: 1, Thread: 4711, Stack: StackID(1 + k%60), Scope: ScopeID(i / 728),
			API: APITorch, Kind: Alloc, Layer: LayerPool, Class: ClassDevice}
		if k%2 == 1 {
			e.Kind, e.Size = Free, Unknown
		}
	}
	return out
}

func BenchmarkWrite(b *testing.B) {
	for _, rows := range []int{1000, MaxBatchRows} {
		b.Run(fmt.Sprintf("rows=%d", rows), func(b *testing.B) {
			events := trainingEvents(MaxBatchRows * 2)
			b.ReportAllocs()
			dir := b.TempDir()
			var size int64
			n := 0
			for b.Loop() {
				n++
				w, err := Create(filepath.Join(dir, fmt.Sprint(n)), Meta{}, WriterOptions{BatchRows: rows})
				if err != nil {
					b.Fatal(err)
				}
				for i := range events {
					w.Event(&events[i])
				}
				w.Flush()
				size = w.PartBytes()
				if err := w.Close(nil); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(n)*float64(len(events))/b.Elapsed().Seconds()/1e6, "Mevents/s")
			b.ReportMetric(float64(size)/float64(len(events)), "B/event")
		})
	}
}

func BenchmarkRead(b *testing.B) {
	for _, c := range []struct{ rows, threads int }{{1000, 1}, {MaxBatchRows, 1}, {MaxBatchRows, 8}} {
		b.Run(fmt.Sprintf("rows=%d/threads=%d", c.rows, c.threads), func(b *testing.B) {
			rows, threads := c.rows, c.threads
			events := trainingEvents(MaxBatchRows * 8)
			for i := range events {
				events[i].Thread += uint32(i % threads)
				events[i].Seq /= uint64(threads)
			}
			dir := filepath.Join(b.TempDir(), "t")
			w, err := Create(dir, Meta{}, WriterOptions{BatchRows: rows})
			if err != nil {
				b.Fatal(err)
			}
			for i := range events {
				w.Event(&events[i])
			}
			w.Flush() // and not closed: that would rewrite small batches
			defer w.Close(nil)
			tr, err := Open(dir)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				r, err := tr.Parts()[0].Events()
				if err != nil {
					b.Fatal(err)
				}
				for {
					rows, err := r.Next()
					if err != nil {
						if err == io.EOF {
							b.Fatal("closed")
						}
						break
					}
					n += len(rows)
				}
				r.Close()
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds()/1e6, "Mevents/s")
		})
	}
}

// BenchmarkSeq is what writing the numbers of a batch out takes, which every
// reading of events pays for.
func BenchmarkSeq(b *testing.B) {
	for _, threads := range []int{1, 8, 1000} {
		b.Run(fmt.Sprintf("threads=%d", threads), func(b *testing.B) {
			events := trainingEvents(MaxBatchRows)
			for i := range events {
				events[i].Thread += uint32(i % threads)
				events[i].Seq = 1 + uint64(i/threads)
			}
			rows, at := newBatch(eventsTable), *eventsTable.laneColumns()
			addRows(rows, events)
			var n numbering
			packed := append([]byte{}, n.pack(rows, at)...)
			for b.Loop() {
				copy(rows.cols[at.seq].data, packed)
				if err := n.unpack(rows, at); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/MaxBatchRows, "ns/event")
		})
	}
}
