package tree

import (
	"math/bits"
	"sort"

	"github.com/gpurec/gpurec/format"
)

// An Amount is live memory of class device.
type Amount struct {
	Used     int64 // pool layer, or driver layer of a process without a pool
	Acquired int64 // driver layer
	Blocks   int64 // allocations in Used
}

func (a *Amount) add(b Amount) {
	a.Used += b.Used
	a.Acquired += b.Acquired
	a.Blocks += b.Blocks
}

// A SizeClass holds allocations of 2^(n-1) bytes to less than 2^n; 0 those of
// none.
type SizeClass uint8

// ClassOf is the class of an allocation of n bytes.
func ClassOf(n int64) SizeClass { return SizeClass(bits.Len64(uint64(max(n, 0)))) }

func (c SizeClass) String() string {
	switch {
	case c == 0:
		return "0 B"
	case c >= 63:
		return format.Bytes(1<<62) + " and more"
	}
	return format.Bytes(1<<(c-1)) + " to " + format.Bytes(1<<c)
}

// A Key is what bytes can be grouped by. What an answer does not ask for stays 0.
type Key struct {
	Process format.ProcessID
	Stack   format.StackID
	Path    Path // of scopes; see Paths
	Size    SizeClass
}

// A cell is one Key's bytes, now and at the highest moment.
type cell struct {
	Key
	now, high Amount
	seq       uint64 // order of appearance
	at        int    // in cells
	dirty     int    // in dirty, -1 where now is high or a Mark has taken it over
}

// A Set is live bytes by Key. Mark keeps what they are; only what has changed
// since the Mark before is copied, so a Mark after every event costs O(1) each.
// The zero Set is not ready: see NewSet.
type Set struct {
	index map[Key]*cell
	cells []*cell
	dirty []*cell
	last  *cell
	seq   uint64
}

// NewSet returns an empty Set.
func NewSet() *Set { return &Set{index: map[Key]*cell{}} }

// Add changes what k holds. To take something away, add what is less than 0.
func (s *Set) Add(k Key, a Amount) {
	c := s.last
	if c == nil || c.Key != k {
		if c = s.index[k]; c == nil {
			s.seq++
			c = &cell{Key: k, seq: s.seq, at: len(s.cells), dirty: -1}
			s.index[k] = c
			s.cells = append(s.cells, c)
		}
		s.last = c
	}
	c.now.add(a)
	switch {
	case c.now == Amount{} && c.high == Amount{}:
		s.forget(c)
	case c.dirty < 0:
		c.dirty = len(s.dirty)
		s.dirty = append(s.dirty, c)
	}
}

// Mark makes this the highest moment.
func (s *Set) Mark() {
	dirty := s.dirty
	s.dirty = s.dirty[:0]
	for _, c := range dirty {
		c.high, c.dirty = c.now, -1
		if c.now == (Amount{}) {
			s.forget(c)
		}
	}
}

func (s *Set) forget(c *cell) {
	if c == s.last {
		s.last = nil
	}
	delete(s.index, c.Key)
	s.cells = remove(s.cells, c.at, func(moved *cell, i int) { moved.at = i })
	if c.dirty >= 0 {
		s.dirty = remove(s.dirty, c.dirty, func(moved *cell, i int) { moved.dirty = i })
		c.dirty = -1
	}
}

// remove puts the last of cs in the place of the i-th.
func remove(cs []*cell, i int, tell func(*cell, int)) []*cell {
	n := len(cs) - 1
	cs[i] = cs[n]
	tell(cs[i], i)
	cs[n] = nil
	return cs[:n]
}

// Now calls f for every Key that holds something, in the order in which they
// began to.
func (s *Set) Now(f func(Key, Amount)) { s.each(f, func(c *cell) Amount { return c.now }) }

// High is Now at the moment of the last Mark.
func (s *Set) High(f func(Key, Amount)) { s.each(f, func(c *cell) Amount { return c.high }) }

func (s *Set) each(f func(Key, Amount), of func(*cell) Amount) {
	cs := append([]*cell(nil), s.cells...)
	sort.Slice(cs, func(i, j int) bool { return cs[i].seq < cs[j].seq })
	for _, c := range cs {
		if a := of(c); a != (Amount{}) {
			f(c.Key, a)
		}
	}
}

// Len is how many Keys are remembered.
func (s *Set) Len() int { return len(s.cells) }

// Each is Set.Now or Set.High, or anything like them.
type Each func(func(Key, Amount))

// Tree is the lines of what each gives, largest first.
func (each Each) Tree(maxDepth int, defs *format.Defs) *Tree { return each.Into(New(maxDepth), defs) }

// Into adds them to a tree.
func (each Each) Into(t *Tree, defs *format.Defs) *Tree {
	each(func(k Key, a Amount) { t.Add(k.Stack, a, defs) })
	t.Root.Sort()
	return t
}

// Sum is all of it.
func (each Each) Sum() (sum Amount) {
	each(func(_ Key, a Amount) { sum.add(a) })
	return sum
}
