package fragmentation

// A memory has what was there at a moment, without a copy of it: what has begun
// since then and what has ended since then make the moment from what is there
// now. Each event costs one entry, a new moment costs nothing but to forget
// them, and there are never more entries than were there at the moment and are
// there now.
type memory[K comparable, V any] struct {
	begun map[K]struct{}
	ended map[K]V
}

func newMemory[K comparable, V any]() memory[K, V] {
	return memory[K, V]{map[K]struct{}{}, map[K]V{}}
}

// few is how large a map may have become to be cleared rather than left: to
// clear a map takes as long as it was ever large.
const few = 64

// mark makes this the moment.
func (m *memory[K, V]) mark() {
	if len(m.begun) > few {
		m.begun = map[K]struct{}{}
	}
	if len(m.ended) > few {
		m.ended = map[K]V{}
	}
	clear(m.begun)
	clear(m.ended)
}

func (m *memory[K, V]) begin(k K) { m.begun[k] = struct{}{} }

func (m *memory[K, V]) end(k K, v V) {
	if _, since := m.begun[k]; since {
		delete(m.begun, k)
		return
	}
	m.ended[k] = v
}

// was reports whether what is there now was there at the moment.
func (m *memory[K, V]) was(k K) bool {
	_, since := m.begun[k]
	return !since
}
