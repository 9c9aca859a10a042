package live

import "math/bits"

// An index finds the slot of a live allocation by its key: a hash table with
// open addressing, linear probing and backward-shift deletion. A Go map does
// the same, but an alloc and its free look up twice: 16 ns each here, 42 ns
// in a map (BenchmarkIndex, live set of 4,096, EPYC).
type index struct {
	entries []entry // a power of two
	n       int
}

type entry struct {
	key  key
	slot int32 // plus 1; 0 is an empty entry
}

func (x *index) home(k key) int {
	h := k.value*0x9e3779b97f4a7c15 ^ (uint64(k.process)<<8|uint64(k.space))*0xc2b2ae3d27d4eb4f
	h ^= h >> 32
	h *= 0xd6e8feb86659fd93
	return int(h >> (64 - uint(bits.Len(uint(len(x.entries)-1)))))
}

// place is where k is, or the empty entry where it belongs.
func (x *index) place(k key) int {
	mask := len(x.entries) - 1
	i := x.home(k)
	for x.entries[i].slot != 0 && x.entries[i].key != k {
		i = (i + 1) & mask
	}
	return i
}

func (x *index) get(k key) (int32, bool) {
	_, s := x.look(k)
	return s, s != none
}

// look is get, and where empty finds k until the next change.
func (x *index) look(k key) (at int, slot int32) {
	if x.n == 0 {
		return 0, none
	}
	at = x.place(k)
	return at, x.entries[at].slot - 1
}

func (x *index) set(k key, slot int32) {
	at, _ := x.find(k)
	x.fill(at, k, slot)
}

// find is get, and where fill may put the slot of k until the next change.
func (x *index) find(k key) (at int, slot int32) {
	if 2*(x.n+1) > len(x.entries) {
		x.grow()
	}
	at = x.place(k)
	return at, x.entries[at].slot - 1
}

func (x *index) fill(at int, k key, slot int32) {
	e := &x.entries[at]
	if e.slot == 0 {
		x.n++
	}
	e.key, e.slot = k, slot+1
}

func (x *index) grow() {
	old := x.entries
	x.entries = make([]entry, max(64, 2*len(old)))
	for _, e := range old {
		if e.slot != 0 {
			x.entries[x.place(e.key)] = e
		}
	}
}

func (x *index) remove(k key) {
	if at, slot := x.look(k); slot != none {
		x.empty(at)
	}
}

// empty takes out the entry at i.
func (x *index) empty(i int) {
	mask := len(x.entries) - 1
	x.n--
	for j := i; ; { // whoever was pushed past the hole moves into it
		j = (j + 1) & mask
		e := x.entries[j]
		if e.slot == 0 {
			break
		}
		if h := x.home(e.key); (j-h)&mask >= (j-i)&mask {
			x.entries[i] = e
			i = j
		}
	}
	x.entries[i] = entry{}
}
