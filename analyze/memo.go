package analyze

// A Memo is what was found out of frames or stacks, by their ids; the zero V where
// nothing was. It lies in a slice as long as the ids follow one another, as a
// recorder gives them, and in a map beyond, as a file may claim them: an answer
// asks of each frame of each stack, which a map makes ten times as slow.
type Memo[ID ~uint32, V any] struct {
	dense  []V
	sparse map[ID]V
}

// At is what was put.
func (m *Memo[ID, V]) At(id ID) V {
	if uint64(id) < uint64(len(m.dense)) {
		return m.dense[id]
	}
	return m.sparse[id]
}

// Put puts v; ids below next follow one another: format.Defs.Next's.
func (m *Memo[ID, V]) Put(id ID, v V, next ID) {
	if uint64(id) >= uint64(len(m.dense)) && id < next {
		m.dense = append(m.dense, make([]V, int(next)-len(m.dense))...)
		for k, v := range m.sparse { // put before the definitions came to there
			if k < next {
				m.dense[k] = v
				delete(m.sparse, k)
			}
		}
	}
	if uint64(id) < uint64(len(m.dense)) {
		m.dense[id] = v
		return
	}
	if m.sparse == nil {
		m.sparse = map[ID]V{}
	}
	m.sparse[id] = v
}
