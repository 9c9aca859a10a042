package format

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// How seq lies on disk. A lane numbers its events 1, 2, 3, …, and zstd does not
// see that: written out, the numbers take 1.05 of the 3.8 bytes of an event of
// a training run. So the column holds a number only where it cannot be told:
//
//	 n   the number, of the first event of a process and thread in a batch, and after a gap
//	-1   one more than the last number of the same process and thread before it
//	 0   a row that the recorder made
//
// A batch stands alone, so that a reader keeps nothing from one to the next and
// can begin at any; in a table read whole the rule is the same. The difference
// from the number before instead, for which a running sum would do, cannot say
// that a number came twice, which is what verify looks for.
const follows int64 = -1

// maxSeq is the largest number of an event: the column is signed.
const maxSeq = math.MaxInt64

// A numbering is the last number of each process and thread in one batch.
type numbering struct {
	lanes map[uint64]int // process and thread, to the index of the number
	last  []uint64
	near  [64]struct { // some of lanes: a look-up in a map would be 8 % of reading an event
		key uint64
		at  int // the index and 1
	}
	buf []byte
}

func (n *numbering) reset() {
	if n.lanes == nil {
		n.lanes = map[uint64]int{}
	}
	clear(n.lanes)
	clear(n.near[:])
	n.last = n.last[:0]
}

// lane is the last number of a process and thread, 0 before the first.
func (n *numbering) lane(key uint64) *uint64 {
	const spread = 0x9E3779B97F4A7C15 // 2^64 over the golden ratio
	near := &n.near[key*spread>>58]
	if near.key == key && near.at > 0 {
		return &n.last[near.at-1]
	}
	i, ok := n.lanes[key]
	if !ok {
		i = len(n.last)
		n.lanes[key] = i
		n.last = append(n.last, 0)
	}
	near.key, near.at = key, i+1
	return &n.last[i]
}

// laneColumns are the columns by which rows are told to follow one another.
type laneColumns struct{ process, thread, seq int }

// laneColumns finds them, nil in a table whose rows have no numbers.
func (t *table) laneColumns() *laneColumns {
	at := func(name string) int {
		return slices.IndexFunc(t.columns, func(c column) bool { return c.name == name })
	}
	c := &laneColumns{at("process"), at("thread"), slices.IndexFunc(t.columns, func(c column) bool { return c.cell == cellSeq })}
	if c.seq < 0 {
		return nil
	}
	return c
}

func laneKey(processes, threads []byte, row int) uint64 {
	return uint64(binary.LittleEndian.Uint32(processes[4*row:]))<<32 | uint64(binary.LittleEndian.Uint32(threads[4*row:]))
}

// pack is b's seq column as it lies on disk, until the next call.
func (n *numbering) pack(b *batch, c laneColumns) []byte {
	n.reset()
	n.buf = grow(n.buf[:0], 8*b.rows)
	processes, threads, seqs := b.cols[c.process].data, b.cols[c.thread].data, b.cols[c.seq].data
	var lane uint64 // most rows are of the same one as the row before
	var last *uint64
	for row := range b.rows {
		seq := binary.LittleEndian.Uint64(seqs[8*row:])
		if seq > maxSeq {
			seq = 0 // no lane comes that far
		}
		out := int64(seq)
		if seq != 0 {
			if key := laneKey(processes, threads, row); last == nil || key != lane {
				lane, last = key, n.lane(key)
			}
			if *last != 0 && seq == *last+1 {
				out = follows
			}
			*last = seq
		}
		binary.LittleEndian.PutUint64(n.buf[8*row:], uint64(out))
	}
	return n.buf
}

// unpack makes b's seq column, as it lies on disk, whole.
func (n *numbering) unpack(b *batch, c laneColumns) error {
	n.reset()
	processes, threads, seqs := b.cols[c.process].data, b.cols[c.thread].data, b.cols[c.seq].data
	for row := range b.rows {
		seq := int64(binary.LittleEndian.Uint64(seqs[8*row:]))
		switch {
		case seq > 0:
			*n.lane(laneKey(processes, threads, row)) = uint64(seq)
		case seq == follows:
			last := n.lane(laneKey(processes, threads, row))
			if *last == 0 || *last == maxSeq {
				return fmt.Errorf("row %d goes on from %d", row, *last)
			}
			*last++
			binary.LittleEndian.PutUint64(seqs[8*row:], *last)
		case seq < follows:
			return fmt.Errorf("row %d has %d", row, seq)
		}
	}
	return nil
}
