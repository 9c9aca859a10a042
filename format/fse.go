package format

import (
	"encoding/binary"
	"math/bits"
)

// Finite state entropy coding as zstd has it for its sequences (RFC 8878, 4.1),
// the encoder's side: see timeEncoder.

const (
	fseLog     = 8 // of a table's states; zstd's limit is 9
	fseStates  = 1 << fseLog
	fseSymbols = 32 // that timeEncoder has, codes without bits of their own
)

// An fseTable codes symbols by how often they occur in one block. The zero state
// of a table of one symbol takes no bits.
type fseTable struct {
	one    bool // there is one symbol alone
	count  [fseSymbols]int
	norm   [fseSymbols]int // their shares of the states
	states [fseStates]uint16
	delta  [fseSymbols]struct {
		bits uint32 // bits and threshold in one, as in zstd's own
		next int32
	}
}

// put makes the table for these symbols, appends its description, and returns
// how that is to be read.
func (t *fseTable) put(dst, symbols []byte) (out []byte, mode byte) {
	clear(t.count[:])
	for _, s := range symbols {
		t.count[s]++
	}
	if t.one = t.count[symbols[0]] == len(symbols); t.one {
		return append(dst, symbols[0]), modeOneSymbol
	}
	t.share(len(symbols))
	t.build()
	return t.describe(dst), modeTable
}

// share gives each symbol that occurs its share of the states, one at least.
// What is left then goes to the most frequent one, what lacks is taken from those
// that have most.
func (t *fseTable) share(total int) {
	most, left := 0, fseStates
	for s, c := range t.count {
		t.norm[s] = 0
		if c == 0 {
			continue
		}
		t.norm[s] = max(1, (c*fseStates+total/2)/total)
		left -= t.norm[s]
		if c > t.count[most] {
			most = s
		}
	}
	t.norm[most] += max(left, 0)
	for ; left < 0; left++ {
		for s, n := range t.norm {
			if n > t.norm[most] {
				most = s
			}
		}
		t.norm[most]--
	}
}

func (t *fseTable) build() {
	var symbol [fseStates]uint8
	const step = fseStates/2 + fseStates/8 + 3
	var from [fseSymbols]int
	at, sum := 0, 0
	for s, n := range t.norm {
		from[s] = sum
		sum += n
		for range n {
			symbol[at] = uint8(s)
			at = (at + step) % fseStates
		}
	}
	next := from
	for state, s := range symbol {
		t.states[next[s]] = uint16(fseStates + state)
		next[s]++
	}
	for s, n := range t.norm {
		if n == 0 {
			continue
		}
		d := &t.delta[s]
		most := uint32(fseLog)
		if n > 1 {
			most -= uint32(bits.Len(uint(n-1)) - 1)
		}
		d.bits = most<<16 - uint32(n)<<most
		d.next = int32(from[s] - n)
	}
}

// describe appends the shares, as a decoder reads them.
func (t *fseTable) describe(dst []byte) []byte {
	var buf [fseSymbols*2 + 16]byte
	w := bitWriter{out: buf[:]}
	w.add(fseLog-5, 4)
	left, threshold, width := fseStates+1, fseStates, uint(fseLog+1)
	for s := 0; left > 1; {
		n := t.norm[s]
		s++
		most := 2*threshold - 1 - left
		left -= n
		n++
		if n >= threshold {
			n += most
		}
		if n < most {
			w.add(uint64(n), width-1)
		} else {
			w.add(uint64(n), width)
		}
		for left < threshold {
			width--
			threshold >>= 1
		}
		if n == 1 { // a share of none: how many more of these follow
			more := 0
			for t.norm[s] == 0 {
				more++
				s++
			}
			for ; more >= 3; more -= 3 {
				w.add(3, 2)
			}
			w.add(uint64(more), 2)
		}
		w.flush()
	}
	return append(dst, w.out[:w.bytes()]...)
}

// begin is the state after the last symbol.
func (t *fseTable) begin(s byte) uint32 {
	if t.one {
		return 0
	}
	d := &t.delta[s]
	n := (d.bits + 1<<15) >> 16
	v := n<<16 - d.bits
	return uint32(t.states[int32(v>>n)+d.next])
}

// code puts a symbol before those that a state stands for.
func (t *fseTable) code(w *bitWriter, state uint32, s byte) uint32 {
	if t.one {
		return 0
	}
	d := &t.delta[s]
	n := (state + d.bits) >> 16
	w.add(uint64(state)&(1<<n-1), uint(n))
	return uint32(t.states[int32(state>>n)+d.next])
}

// end writes the state that a decoder begins with.
func (t *fseTable) end(w *bitWriter, state uint32) {
	if !t.one {
		w.add(uint64(state)&(fseStates-1), fseLog)
		w.flush()
	}
}

// A bitWriter fills out from the low bits on. What is added between two flushes
// has 56 bits at most.
type bitWriter struct {
	out  []byte
	at   int
	bits uint64
	n    uint
}

func (w *bitWriter) add(v uint64, n uint) {
	w.bits |= v << (w.n & 63)
	w.n += n
}

// flush writes the whole bytes; out has room for 8 more.
func (w *bitWriter) flush() {
	binary.LittleEndian.PutUint64(w.out[w.at:], w.bits)
	w.at += int(w.n / 8)
	w.bits >>= w.n &^ 7 & 63
	w.n &= 7
}

// bytes is the length of all that was flushed, the last byte perhaps begun.
func (w *bitWriter) bytes() int { return w.at + int(w.n+7)/8 }
