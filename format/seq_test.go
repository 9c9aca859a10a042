package format

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
)

// numbered makes events of "thread:seq" words; a | ends a batch.
func numbered(t *testing.T, text string) (batches [][]Event) {
	for _, part := range strings.Split(text, "|") {
		var rows []Event
		for _, word := range strings.Fields(part) {
			e := Event{Kind: Mark, Process: 1}
			if _, err := fmt.Sscanf(word, "%d:%d", &e.Thread, &e.Seq); err != nil {
				t.Fatalf("%q: %v", word, err)
			}
			rows = append(rows, e)
		}
		batches = append(batches, rows)
	}
	return batches
}

func TestSeqOnDisk(t *testing.T) {
	for _, c := range []struct{ name, events, disk string }{
		{"goes on", "7:1 7:2 7:3", "1 -1 -1"},
		{"begins anywhere", "7:900 7:901", "900 -1"},
		{"gap", "7:1 7:2 7:9 7:10", "1 -1 9 -1"},
		{"number twice", "7:1 7:1 7:2", "1 1 -1"},
		{"back", "7:5 7:4 7:5 7:6", "5 4 -1 -1"},
		{"made by the recorder", "7:0 7:1 7:0 7:0 7:2 7:0", "0 1 0 0 -1 0"},
		{"two threads", "7:1 8:1 7:2 8:2 8:3 7:4", "1 1 -1 -1 -1 4"},
		{"three threads in turn", "7:1 8:5 9:9 7:2 8:6 9:10 7:3", "1 5 9 -1 -1 -1 -1"},
		{"a batch stands alone", "7:1 7:2 | 7:3 7:4 8:1 | 8:2 7:5", "1 -1 | 3 -1 1 | 2 5"},
		{"the largest", "7:9223372036854775806 7:9223372036854775807 7:9223372036854775807", "9223372036854775806 -1 9223372036854775807"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var disk []string
			var n, back numbering
			at := *eventsTable.laneColumns()
			b := newBatch(eventsTable)
			for i, rows := range numbered(t, c.events) {
				b.reset()
				addRows(b, rows)
				packed := n.pack(b, at)
				if i > 0 {
					disk = append(disk, "|")
				}
				for k := range rows {
					disk = append(disk, fmt.Sprint(int64(binary.LittleEndian.Uint64(packed[8*k:]))))
				}
				b.cols[at.seq].data = append([]byte{}, packed...)
				if err := back.unpack(b, at); err != nil {
					t.Fatal(err)
				}
				got := make([]Event, len(rows))
				getRows(b, 0, got)
				for k := range rows {
					if got[k] != rows[k] {
						t.Errorf("row %d: %d:%d, and came back as %d:%d", k, rows[k].Thread, rows[k].Seq, got[k].Thread, got[k].Seq)
					}
				}
			}
			if got := strings.Join(disk, " "); got != c.disk {
				t.Errorf("on disk: %s, want %s", got, c.disk)
			}
		})
	}
}

// TestSeqRefused holds that a column that no writer writes is refused.
func TestSeqRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		disk []int64
		want string
	}{
		{"follows nothing", []int64{0, -1}, "row 1 goes on from 0"},
		{"follows the last there can be", []int64{maxSeq, -1}, "row 1 goes on from 9223372036854775807"},
		{"no number", []int64{1, -2}, "row 1 has -2"},
		{"the least", []int64{math.MinInt64}, "row 0 has -9223372036854775808"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBatch(eventsTable)
			addRows(b, make([]Event, len(c.disk)))
			at := *eventsTable.laneColumns()
			for i, v := range c.disk {
				binary.LittleEndian.PutUint64(b.cols[at.seq].data[8*i:], uint64(v))
			}
			var n numbering
			if err := n.unpack(b, at); err == nil || err.Error() != c.want {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

// TestSeqAnyOrder writes numbers of many threads in any order, in small batches
// that close rewrites, and finds each again.
func TestSeqAnyOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	last := map[uint32]uint64{}
	var want []Event
	for range 5000 {
		e := Event{Kind: Mark, Process: ProcessID(r.IntN(2)), Thread: uint32(r.IntN(40)), Duration: Unknown}
		switch r.IntN(8) {
		case 0:
		case 1:
			e.Seq = 1 + r.Uint64N(maxSeq)
		default:
			last[e.Thread] += 1 + uint64(r.IntN(9)/8)
			e.Seq = last[e.Thread]
		}
		want = append(want, e)
	}
	dir := filepath.Join(t.TempDir(), "t")
	w, err := Create(dir, Meta{}, WriterOptions{BatchRows: 37})
	if err != nil {
		t.Fatal(err)
	}
	for i := range want {
		if err := w.Event(&want[i]); err != nil {
			t.Fatal(err)
		}
	}
	read := func(what string) {
		tr, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		in, err := tr.Parts()[0].Events()
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		n := 0
		for {
			rows, err := in.Next()
			if err != nil {
				if what == "closed" && err != io.EOF {
					t.Fatal(err)
				}
				break
			}
			for i := range rows {
				if rows[i] != want[n] {
					t.Fatalf("%s: event %d is %+v, want %+v", what, n, rows[i], want[n])
				}
				n++
			}
		}
		if n != len(want) {
			t.Fatalf("%s: %d events of %d", what, n, len(want))
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	read("growing")
	if err := w.Close(nil); err != nil {
		t.Fatal(err)
	}
	read("closed")
}

// TestSeqOfEqualBytes reads two batches whose columns are the same on disk and
// mean other numbers: what a reader keeps of one is not the next one's.
func TestSeqOfEqualBytes(t *testing.T) {
	var want []Event
	for _, batch := range numbered(t, "7:1 8:5 7:2 8:6 | 7:1 8:5 8:6 7:2") {
		want = append(want, batch...)
	}
	in, err := open(t, record(t, want, 0, WriterOptions{BatchRows: 4})).Parts()[0].Events()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	for n := 0; n < len(want); {
		rows, err := in.Next()
		if err != nil {
			t.Fatal(err)
		}
		for i := range rows {
			if rows[i] != want[n] {
				t.Errorf("event %d: seq %d, want %d", n, rows[i].Seq, want[n].Seq)
			}
			n++
		}
	}
}
